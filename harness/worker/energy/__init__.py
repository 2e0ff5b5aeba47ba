"""Energy in the measured window, from counters that one rank of each node reads at the window's barriers.

Readings are reported as they are; ``harness.records.energy`` decides which make a figure, and why the others do not.
"""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from harness.worker.energy import nvml, pm_counters, powercap
from harness.worker.energy.counter import Counter, Stamp
from harness.worker.gpus import HANDED_OUT, visible

SYS = "HARNESS_SYS"  # says where sysfs is: a container may have that of its host in another place than /sys
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # the same for all that calls itself a node on one machine

Find = Callable[[], Sequence[Counter]]
# When (seconds), the joules of each counter or why there are none, and each source's stamp.
Reading = Tuple[float, List[Union[float, str]], Dict[Callable[[], Stamp], Stamp]]
TRIES = 3  # an update takes place every 100 ms, and reading takes less than 1


class Meter:
    """All counters of a node that can be read, found before the window."""

    def __init__(self, machine: str, sensors: Sequence[Find], unread: Sequence[str] = ()) -> None:
        """``machine`` tells nodes apart; ``unread`` are hosts of the run where nobody reads."""
        self.machine, self.unread = machine, list(unread)
        self.counters: List[Counter] = []
        self.missing: List[str] = []
        for find in sensors:
            try:
                self.counters += find()
            except (OSError, ValueError) as error:
                self.missing.append(str(error))

    def read(self) -> Reading:
        """All counters; again if a source was updated meanwhile, so that all of its counters are of one update."""
        for _ in range(TRIES):
            stamps, now = self._stamps(), time.perf_counter()
            values = [_value(counter) for counter in self.counters]
            if self._stamps() == stamps:
                break
        return now, values, stamps

    def _stamps(self) -> Dict[Callable[[], Stamp], Stamp]:
        return {stamp: stamp() for stamp in {counter.stamp for counter in self.counters}}

    def between(self, before: Reading, after: Reading) -> Dict[str, Any]:
        """The counters' energy between two readings, as JSON (see ``RankEnergy`` of the record)."""
        readings = []
        for counter, first, last in zip(self.counters, before[1], after[1]):
            texts = [value for value in (first, last) if isinstance(value, str)]
            before_j, after_j = (None, None) if texts else (first, last)
            fields = {name: value for name, value in vars(counter).items() if name not in ("read", "stamp")}
            stamps = [stamp for stamp in (before[2][counter.stamp], after[2][counter.stamp]) if stamp]
            if len(stamps) == 2:
                fields.update(zip(("freshness", "generation"), zip(*stamps)))
            problem = texts[0] if texts else ""
            readings.append({**fields, "before_j": before_j, "after_j": after_j, "problem": problem})
        facts = {"missing": self.missing, "unread": self.unread, "interval_s": after[0] - before[0]}
        return {"machine": self.machine, "counters": readings, **facts}


def meter(plan: Mapping[str, Any], process: Mapping[str, Any]) -> Optional[Meter]:
    """The meter of a worker, None for one that does not read: of a node's workers the first does."""
    workers = [each for each in plan["processes"] if each["role"] == "worker"]
    of_node = [each for each in workers if each["node"] == process["node"]]
    if process["rank"] != min(each["rank"] for each in of_node):
        return None
    with_workers = {each["address"] for each in workers}
    unread = sorted({each["host"] for each in plan["processes"] if each["address"] not in with_workers})
    sys = Path(os.environ.get(SYS, "/sys"))
    sensors = (
        partial(pm_counters.find, sys / "cray/pm_counters"),
        partial(powercap.find, sys / "class/powercap"),
        lambda: nvml.find(_gpus(of_node)),
    )
    return Meter(BOOT_ID.read_text().strip(), sensors, unread)


def _gpus(workers: Sequence[Mapping[str, Any]]) -> List[str]:
    """The GPUs of a node's workers. Raises OSError where a batch system has handed each of these its own."""
    handed_out = os.environ.get(HANDED_OUT, "")
    seen = [visible(each["env"].get("CUDA_VISIBLE_DEVICES", ""), handed_out) for each in workers]
    if None in seen:
        raise OSError("nvml: the batch system hands GPUs to tasks, not to nodes, and no task can read those of another")
    return [gpu for each in seen if each for gpu in each.split(",")]


def _value(counter: Counter) -> Union[float, str]:
    try:
        return counter.read()
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
