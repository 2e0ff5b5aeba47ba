"""The exchange of a traced step, as the operations of a worker's graph tell of it: when a piece moves and is applied."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import Any, DefaultDict, Dict, List

from harness.backends.parameter_server.trainer.pieces import Piece, Pieces
from harness.worker.frameworks.profile import Operation, note_layers
from harness.worker.frameworks.tensorflow_stats import done
from harness.worker.job import Job
from harness.worker.notes import APPLY, ASK, PULL, PUSH, READY, Notes

ADDS, DESCENDS = "ResourceAccumulatorApplyGradient", "ResourceApplyGradientDescent"


class Exchanged:
    """By the names of operations: the piece that one reads on its server or updates there, and those of a gradient."""

    def __init__(self, job: Job, pieces: Pieces, graph: Any) -> None:
        self._emulated, self._servers = bool(job.emulation), pieces.servers
        self._size = {piece: 4 * variable.shape.num_elements() for piece, variable in pieces.variables.items()}
        held = {variable.op.name: piece for piece, variable in pieces.variables.items()}
        self._read: Dict[str, Piece] = {}
        self._applied: Dict[str, Piece] = {}
        self._gradients: DefaultDict[str, List[Piece]] = defaultdict(list)
        for operation in graph.get_operations():
            if operation.type == "ReadVariableOp" and operation.inputs[0].op.name in held:
                self._read[operation.name] = held[operation.inputs[0].op.name]
            elif operation.type in (ADDS, DESCENDS):
                name = operation.inputs[0].op.name
                if operation.type == ADDS:
                    name = operation.inputs[0].op.get_attr("shared_name").decode().rpartition("/sum")[0]
                if name in held:
                    self._applied[operation.name] = held[name]
                    self._gradients[operation.inputs[-1].op.name].append(held[name])

    def note(self, notes: Notes, metadata: Any, step: int) -> None:
        """Note the step of which these are the metadata."""
        every = list(done(metadata))
        if not self._emulated:  # its devices note their layers themselves
            mine = (
                Operation(each.name, *each[-2:]) for each in every if (each.process, each.source) == (notes.process, "")
            )
            note_layers(notes, mine, step, notes.process)
        for name, process, source, begin, end in every:
            note, piece = partial(notes.note, step=step, clock=process), self._read.get(name)
            if source and piece:
                note(ASK, label(piece), begin, begin, source=process, target=source)
                note(PULL, label(piece), None, end, source=source, target=process, size=self._size[piece])
            elif source:
                for pushed in self._pushed(name, process):
                    note(ASK, label(pushed), begin, begin, source=process, target=source)
                    note(PUSH, label(pushed), None, end, source=source, target=process, size=self._size[pushed])
            elif piece and process != notes.process:
                note(PULL, label(piece), end, None, source=process, target=notes.process, size=self._size[piece])
            elif name in self._applied:
                note(APPLY, label(self._applied[name]), begin, end, source=process)
            elif process == notes.process:
                for made in self._gradients.get(name, ()):
                    note(READY, label(made), end, end, size=self._size[made])
                    note(PUSH, label(made), end, None, target=self._server(made), size=self._size[made])

    def _pushed(self, name: str, server: str) -> List[Piece]:
        """The pieces of a gradient, by the name of the operation that made it, which a server holds."""
        return [piece for piece in self._gradients.get(name, ()) if self._server(piece) == server]

    def _server(self, piece: Piece) -> str:
        return f"ps-{self._servers[piece]}"


def label(piece: Piece) -> str:
    return "{}:{}".format(*piece)
