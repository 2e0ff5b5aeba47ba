"""Profiles that frameworks take of themselves, as notes: operations by their names, and the layers that they belong to.

A step is marked in the profile, by which its times become those of this process's clock. A layer's operations are in a
scope with its name, and the framework names their gradients after them.
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, Iterator, NamedTuple, Tuple

from harness.models.layers import SCOPE
from harness.worker.notes import BACKWARD, FORWARD, Notes

STEP = "harness step "  # and its number: the name of a mark
OF_LAYER = re.compile(rf"\b{SCOPE}/([\w.]+)")
READS = "ReadVariableOp"  # in the names of operations that TensorFlow runs as a step begins
OF_GRADIENT = re.compile(r"^gradients|gradient_tape/|transpose\(")


class Operation(NamedTuple):
    """An operation by its name in the program, in seconds of some clock."""

    name: str
    begin: float
    end: float


def by_step(profiled: Iterable[Operation], began: Dict[int, float]) -> Iterator[Tuple[int, Operation]]:
    """Operations in seconds of the clock by which each step ``began``, with the number of their step."""
    operations = sorted(profiled, key=lambda each: each.begin)
    marks = [each for each in operations if each.name.startswith(STEP)]
    for mark, after in zip(marks, [*marks[1:], None]):
        step = int(mark.name[len(STEP) :].split("#")[0])
        ahead = mark.begin - began[step]
        for name, begin, end in operations:
            if mark.begin <= begin and (after is None or begin < after.begin):
                yield step, Operation(name, begin - ahead, end - ahead)


def note_layers(notes: Notes, operations: Iterable[Operation], step: int, clock: str = "") -> None:
    """Note the passes of each layer: from the begin of its first operation to the end of its last."""
    passes: Dict[Tuple[str, str], Tuple[float, float]] = {}
    for name, begin, end in operations:
        layer = OF_LAYER.search(name)
        if layer and READS not in name:
            key = BACKWARD if OF_GRADIENT.search(name) else FORWARD, layer[1]
            first, last = passes.get(key, (begin, end))
            passes[key] = min(first, begin), max(last, end)
    for (kind, layer_name), (begin, end) in passes.items():
        notes.note(kind, layer_name, begin, end, step=step, clock=clock)
