"""Linux powercap, where Intel's and AMD's RAPL counters are: packages, and the memory beside them.

Documentation/power/powercap/powercap.rst and Documentation/ABI/testing/sysfs-class-powercap of Linux. Since Linux 5.10
root alone may read ``energy_uj`` (CVE-2020-8694).
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import List

from harness.worker.energy.counter import Counter

UPDATE_S = 0.001  # Intel, Software Developer's Manual, volume 3, "RAPL Interfaces"
MOST_W = 1000.0  # no package draws more, whatever its limits say: without a limit they have an absurd value
COVERS = {"package": "package", "dram": "memory"}  # "core" and "uncore" are in their package, "psys" is around all


def find(root: Path) -> List[Counter]:
    """The counters of packages, and of memory."""
    counters, known = [], set()
    # intel-rapl before its -mmio, which shows the same packages again.
    for zone in sorted(root.glob("*:*"), key=lambda path: path.name.partition(":")[::2]):
        parent = root / zone.name.rpartition(":")[0]  # the zone intel-rapl:0:1 is within intel-rapl:0
        names = [(each / "name").read_text().strip() for each in (parent, zone) if (each / "energy_uj").exists()]
        covers = COVERS.get(names[-1].partition("-")[0]) if names else None
        if covers is None or "/".join(names) in known:
            continue
        known.add("/".join(names))
        range_j = _millionths(zone / "max_energy_range_uj")
        read = partial(_millionths, zone / "energy_uj")
        counters.append(Counter("powercap", covers, "/".join(names), UPDATE_S, read, range_j, _most_w(zone)))
    return counters


def _millionths(file: Path) -> float:
    return int(file.read_text()) / 1e6


def _most_w(zone: Path) -> float:
    limits = []
    for file in zone.glob("constraint_*_power_limit_uw"):
        with suppress(OSError, ValueError):
            limits.append(_millionths(file))
    return min(MOST_W, max(limits, default=0) or MOST_W)  # 0: memory that cannot be limited
