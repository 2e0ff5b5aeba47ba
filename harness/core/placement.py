"""Which parameter server holds which part of which tensor. Pure functions, shared by plan, backends and predictions.

``round_robin`` and ``greedy`` keep every tensor whole, as TensorFlow 1 did, so the fullest server can never hold less
than the largest tensor. ``partitioned`` first cuts tensors into slices, which removes that floor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from harness.models.layers import BYTES_PER_ELEMENT, Tensor

STRATEGIES = ("greedy", "round_robin", "partitioned")


@dataclass(frozen=True)
class Piece:
    """Elements ``begin`` to ``end`` (exclusive, in C order) of a tensor, held by parameter server ``ps``."""

    tensor: str
    ps: int
    begin: int
    end: int

    @property
    def bytes(self) -> int:
        """Bytes of float32 values this piece takes."""
        return (self.end - self.begin) * BYTES_PER_ELEMENT


def cut(tensors: Sequence[Tensor], strategy: str, slice_bytes: int) -> list[Piece]:
    """The pieces that ``strategy`` places, not yet on a server: whole tensors, or slices of at most ``slice_bytes``."""
    pieces = []
    for tensor in tensors:
        count = -(-tensor.bytes // max(slice_bytes, BYTES_PER_ELEMENT)) if strategy == "partitioned" else 1
        bounds = [tensor.elements * number // count for number in range(count + 1)]
        pieces += [Piece(tensor.name, 0, begin, end) for begin, end in pairwise(bounds)]
    return pieces


def place(tensors: Sequence[Tensor], servers: int, strategy: str, slice_bytes: int) -> list[Piece]:
    """Place ``tensors`` on ``servers`` parameter servers; the result keeps the tensors' creation order.

    ``round_robin`` deals to the servers in turn; the others give each piece to the server that holds the fewest bytes so
    far (the lowest number first).
    """
    held = [0] * servers
    placed = []
    for number, piece in enumerate(cut(tensors, strategy, slice_bytes)):
        ps = number % servers if strategy == "round_robin" else held.index(min(held))
        held[ps] += piece.bytes
        placed.append(Piece(piece.tensor, ps, piece.begin, piece.end))
    return placed


def bytes_per_server(pieces: Sequence[Piece], servers: int) -> list[int]:
    """Bytes of parameters that each server holds, in server order."""
    held = [0] * servers
    for piece in pieces:
        held[piece.ps] += piece.bytes
    return held
