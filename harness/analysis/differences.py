"""What differs between the environments of two groups of runs: the first suspects when their throughput does."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
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
        r".*",
    )
]
_PORT = re.compile(r"(?<=[\d\]]):\d+")
_NODES = re.compile(r'"nodes": ("(?:[^"\\]|\\.)*")(?:, )?')


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
    (rest_old, before), (rest_new, after) = _nodes_apart(old), _nodes_apart(new)
    found = _of_the_rest(rest_old, rest_new)
    if not before or not after or before == after:
        return found
    return (*found, Difference("nodes", ", ".join(sorted(before - after)), ", ".join(sorted(after - before))))


def _nodes_apart(texts: Sequence[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """The environments without their nodes, and all the nodes: many runs have the former in common, few the latter."""
    rests, nodes = set(), set[str]()
    for text in texts:
        if found := _NODES.search(text):
            nodes.update(json.loads(found[1]).split(", "))
            text = text[: found.start()] + text[found.end() :]
        rests.add(text)
    return tuple(sorted(rests)), frozenset(nodes)


@lru_cache(maxsize=4096)
def _of_the_rest(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[Difference, ...]:
    """What differs but the nodes."""
    before, after = _values(old), _values(new)
    known = {_group(name) for name in before} & {_group(name) for name in after}
    return tuple(
        Difference(name, _joined(before.get(name)), _joined(after.get(name)))
        for name in sorted(before.keys() | after.keys(), key=lambda name: (_rank(name), name))
        if _group(name) in known and before.get(name) != after.get(name)
    )


def _values(texts: Sequence[str]) -> dict[str, set[str]]:
    """Which values each name has in a group of runs."""
    values: dict[str, set[str]] = {}
    for text in texts:
        for name, value in json.loads(text).items():
            # Every run finds free ports of its own.
            values.setdefault(name, set()).add(_PORT.sub("", value) if name == "gradients" else value)
    return values


def _joined(values: set[str] | None) -> str:
    return ", ".join(sorted(values or ()))


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
