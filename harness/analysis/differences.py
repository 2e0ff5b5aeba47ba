"""What differs between the environments of two groups of runs: the first suspects when their throughput does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

NOTHING = "nothing that the records hold differs"
_NAMES = 6  # nodes that are named; a run on 512 nodes has too many to read

# Most relevant first: the hardware, what computes, what is below it, and what is next to it.
_ORDER = [
    re.compile(pattern)
    for pattern in (
        r"site",
        r"machine (cpu|gpu name|architecture|cores|usable_cores)",
        r"package (tensorflow|tensorflow[-_](cpu|gpu|intel)|torch|horovod|caffe2?|jax|keras)",
        r"machine gpu driver",
        r"machine kernel",
        r"machine os",
        r"gradients",
        r"package (mpi|mpich|openmpi|nccl|nvidia|cuda|cudnn|numpy|intel|mkl|onednn|grpcio|gloo|ucx|libfabric).*",
        r"python",
        r"harness",
        r"package .*",
        r"machine .*",
        r"variable .*",
        r"nodes",
        r".*",
    )
]
_PORT = re.compile(r"(?<=[\d\]]):\d+")


@dataclass(frozen=True)
class Difference:
    """One thing that differs. Several values, as several runs have them, are joined by commas; "" is none."""

    name: str
    old: str
    new: str

    def __str__(self) -> str:
        if self.name == "nodes":
            parts = [("new", self.new), ("no longer", self.old)]
            return "nodes: " + "; ".join(f"{what} {_shortened(names)}" for what, names in parts if names)
        return f"{self.name} {self.old or 'none'} → {self.new or 'none'}"


def environments(old: Sequence[str], new: Sequence[str]) -> tuple[Difference, ...]:
    """What differs between the environments (JSON, as in the column ``environment``) of two groups of runs.

    Most relevant first. For ``nodes`` only those are told that the other side did not use. A whole group of names that one
    side lacks, such as the packages of a run that failed before it could tell them, is not a difference but not known.
    """
    before, after = _values(old), _values(new)
    groups = [{_group(name) for name in side} for side in (before, after)]
    found = []
    for name in sorted(before.keys() | after.keys(), key=lambda name: (_rank(name), name)):
        if _group(name) not in groups[0] & groups[1]:
            continue
        one, other = before.get(name, frozenset()), after.get(name, frozenset())
        if one == other:
            continue
        if name == "nodes":
            one, other = one - other, other - one
        found.append(Difference(name, ", ".join(sorted(one)), ", ".join(sorted(other))))
    return tuple(found)


def _values(texts: Iterable[str]) -> dict[str, frozenset[str]]:
    """Which values each name has in a group of runs."""
    values: dict[str, set[str]] = {}
    for text in texts:
        for name, value in _parsed(text):
            values.setdefault(name, set()).update(value)
    return {name: frozenset(found) for name, found in values.items()}


@lru_cache(maxsize=4096)
def _parsed(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found = json.loads(text)
    return tuple((name, _parts(name, str(value))) for name, value in found.items())


def _parts(name: str, value: str) -> tuple[str, ...]:
    if name == "nodes":
        return tuple(value.split(", "))
    if name == "gradients":
        return (_PORT.sub("", value),)  # every run finds free ports of its own
    return (value,)


def _group(name: str) -> str:
    """``package torch`` belongs to the packages; what has one word stands alone."""
    return name.split(" ", 1)[0]


@lru_cache(maxsize=4096)
def _rank(name: str) -> int:
    return next(rank for rank, pattern in enumerate(_ORDER) if pattern.fullmatch(name))


def _shortened(names: str) -> str:
    listed = names.split(", ")
    more = len(listed) - _NAMES
    return ", ".join(listed[:_NAMES]) + (f" and {more} more" if more > 0 else "")
