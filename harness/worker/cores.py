"""How busy the cores of a machine were in the window: with this run, and with everything else that is on them.

One rank of each node reads, at the window's barriers. Python 3.9; standard library.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional, Set

from harness.worker import proc
from harness.worker.energy import BOOT_ID

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
# Of a control group's version 1 and 2: its folder, and the files with the time that it may use in each period (µs).
QUOTAS = {"cpu": ("cpu.cfs_quota_us", "cpu.cfs_period_us"), "": ("cpu.max",)}
CGROUPS = Path("/sys/fs/cgroup")


class Reading(NamedTuple):
    """Seconds on the clock, seconds that each core has been busy, and core-seconds of this run's processes."""

    now_s: float
    busy_s: Dict[int, float]
    own_s: float
    usable: Set[int]


class Cores:
    """The cores that the processes of ``run_dir`` on this machine may use."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir

    def read(self) -> Optional[Reading]:
        """None where the kernel does not tell."""
        with suppress(OSError, ValueError):
            busy_s = busy(Path("/proc/stat").read_text())
            family = proc.family(["--run", str(self.run_dir)])
            # With the time of the children that have ended and were waited for: proc(5), fields 14 to 17.
            own_s = sum(int(ticks) for fields in family.values() for ticks in fields[11:15]) * TICK_S
            return Reading(time.perf_counter(), busy_s, own_s, {core for pid in family for core in proc.cores(pid)})
        return None

    def between(self, before: Optional[Reading], after: Optional[Reading]) -> Optional[Dict[str, Any]]:
        """What there is to say of the time between two readings, as JSON (see ``CoreUse`` of the record)."""
        if not before or not after or not before.usable | after.usable:
            return None
        cores = before.usable | after.usable
        busy_s = sum(after.busy_s.get(core, 0.0) - before.busy_s.get(core, 0.0) for core in cores)
        own_s = after.own_s - before.own_s
        return {
            "machine": BOOT_ID.read_text().strip(),
            "processes": os.readlink("/proc/self/ns/pid"),  # noqa: PTH115
            "cores": len(cores),
            "quota": quota(Path("/proc/self/cgroup").read_text()),
            "interval_s": after.now_s - before.now_s,
            "own_core_s": own_s,
            "others_core_s": busy_s - own_s,
        }


def busy(stat: str) -> Dict[int, float]:
    """Seconds that each core has been busy, the hypervisor's share included, by the text of /proc/stat (proc(5))."""
    found = {}
    for name, *ticks in (line.split() for line in stat.splitlines() if line.startswith("cpu")):
        if name != "cpu":
            user, nice, system, _, _, irq, softirq, steal = map(int, ticks[:8])
            found[int(name[3:])] = (user + nice + system + irq + softirq + steal) * TICK_S
    return found


def quota(groups: str, top: Path = CGROUPS) -> Optional[float]:
    """How many cores' time control groups leave to a process, by the text of its /proc/PID/cgroup; None without a limit.

    A limit holds for a group with all groups below it, so that the smallest one on the way up counts (cgroups(7)).
    """
    limits = []
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in set(QUOTAS) & set(controllers.split(",")):
            group = top / controller / path.lstrip("/")
            for each in (group, *group.parents):
                with suppress(OSError, ValueError):  # without this file, or "max", which is no limit
                    most, period = map(int, " ".join((each / file).read_text() for file in QUOTAS[controller]).split())
                    limits += [most / period] if most > 0 else []
    return min(limits, default=None)
