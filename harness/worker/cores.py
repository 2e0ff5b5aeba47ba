"""The load of a machine's cores: with a run's own processes, and with all else. Python 3.9; standard library."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional, Set

from harness.worker import proc
from harness.worker.energy import BOOT_ID

# The files of a control group, in versions 1 and 2, with the time that it may use in a period, and that period.
QUOTAS = {1: ("cpu.cfs_quota_us", "cpu.cfs_period_us"), 2: ("cpu.max",)}


class CoreTimes(NamedTuple):
    """Seconds on the clock, those that each core was busy, core-seconds of the run's processes, cores that they may use."""

    now_s: float
    busy_s: Dict[int, float]
    own_s: float
    usable: Set[int]


def read(run_dir: Path) -> Optional[CoreTimes]:
    """None where the kernel does not tell, or the run has no process on this machine."""
    words, usable = f"\0--run\0{run_dir}\0", set()
    with suppress(OSError, ValueError):
        busy_s = busy(Path("/proc/stat").read_text())
        family = proc.family(lambda pid, _: words in Path(f"/proc/{pid}/cmdline").read_text(errors="replace"))
        for thread in (thread for pid in family for thread in Path(f"/proc/{pid}/task").iterdir()):
            with suppress(OSError):  # it has ended meanwhile
                usable |= os.sched_getaffinity(int(thread.name))
        if usable:
            return CoreTimes(time.perf_counter(), busy_s, proc.processor_s(family.values()), usable)
    return None


def between(before: Optional[CoreTimes], after: Optional[CoreTimes]) -> Optional[Dict[str, Any]]:
    """The load between two readings, as JSON (see ``CoreUse`` of the record)."""
    if not before or not after:
        return None
    cores, own_s = before.usable | after.usable, after.own_s - before.own_s
    busy_s = sum(after.busy_s.get(core, 0.0) - before.busy_s.get(core, 0.0) for core in cores)
    return {
        "machine": BOOT_ID.read_text().strip(),
        "namespace": os.readlink("/proc/self/ns/pid"),  # noqa: PTH115
        "cores": len(cores),
        "quota": quota(),
        "interval_s": after.now_s - before.now_s,
        "own_core_s": own_s,
        "others_core_s": busy_s - own_s,
    }


def busy(stat: str) -> Dict[int, float]:
    """Seconds that each core was busy, the hypervisor's share included, by the text of /proc/stat (proc(5))."""
    lines = (line.split() for line in stat.splitlines() if line.startswith("cpu") and line[3] != " ")
    times = {int(name[3:]): list(map(int, ticks[:8])) for name, *ticks in lines}
    return {core: (sum(ticks) - ticks[3] - ticks[4]) / proc.TICKS_PER_S for core, ticks in times.items()}


def quota(root: Path = Path("/")) -> Optional[float]:
    """The cores' time that control groups leave to this process; None without a limit. The smallest one counts."""
    limits = []
    for version, group in proc.control_groups("cpu", root):
        with suppress(OSError, ValueError):  # without these files, or "max", which is no limit
            most, period = map(int, " ".join((group / file).read_text() for file in QUOTAS[version]).split())
            limits += [most / period] if most > 0 else []
    return min(limits, default=None)
