"""Cray's pm_counters: the node, and what of it the board measures apart (Cray XC and EX, "Monitoring and Managing Power").

Files say ``123456 J 1700000000000000 us``. The node's counter is that of the board: it covers all that the node has.
``freshness`` goes up with each update of all files, ``generation`` with each change of a power cap.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import List

from harness.worker.energy.counter import Counter, Stamp

UPDATE_S = 0.1  # ``raw_scan_hz`` is 10
# A GPU's counter is on some boards that of a whole module, with a processor and its memory.
COVERS = {
    "energy": "node",
    r"cpu\d*_energy": "package",
    r"memory\d*_energy": "memory",
    r"accel\d*_energy": "module",
}


def find(root: Path) -> List[Counter]:
    """The node's counter, and those of the parts that are measured."""
    names = sorted(path.name for path in root.glob("*energy"))
    # Where parts have counters of their own, that of all of them counts them again. An XC has one GPU, without a number.
    again = {f"{part}_energy" for part in ("cpu", "memory", "accel") if f"{part}0_energy" in names}
    stamp = partial(_stamp, root)
    return [
        Counter("pm_counters", covers, name, UPDATE_S, partial(_joules, root / name), stamp=stamp)
        for pattern, covers in COVERS.items()
        for name in names
        if re.fullmatch(pattern, name) and name not in again
    ]


def _joules(file: Path) -> float:
    joules, unit = file.read_text().split()[:2]
    if unit != "J":
        raise ValueError(f"{file} counts {unit}, not J")
    return float(joules)


def _stamp(root: Path) -> Stamp:
    try:
        freshness, generation = (int((root / name).read_text().split()[0]) for name in ("freshness", "generation"))
    except (OSError, ValueError, IndexError):
        return None
    return freshness, generation
