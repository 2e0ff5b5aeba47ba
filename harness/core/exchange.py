"""The placement of tensors on parameter servers, and the parts of a step's exchange of gradients.

A backend's ``exchange`` describes its mechanism, one of two, with the real placement and the real buffers. Pure data and
functions; ``harness.prediction`` turns it into time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapreplace
from itertools import pairwise
from typing import Literal

from harness.models.layers import BYTES_PER_ELEMENT, Tensor

MIB = 2**20
# A worker gets the parameters before its forward pass, or each piece once all workers have pushed its gradient.
Pulls = Literal["before_forward", "after_push"]
# The messages of a step's barrier: only the gradients, or one from each worker to each other one, for a step or a piece.
Tokens = Literal["none", "all_to_all", "all_to_all_per_piece"]


@dataclass(frozen=True)
class Piece:
    """Elements ``begin`` to ``end`` (exclusive, in C order) of a tensor, held by parameter server ``ps``."""

    tensor: str
    ps: int
    begin: int
    end: int

    @property
    def bytes(self) -> int:
        return (self.end - self.begin) * BYTES_PER_ELEMENT


def place(tensors: Sequence[Tensor], servers: int, strategy: str, slice_bytes: int) -> list[Piece]:
    """Place ``tensors`` on ``servers`` parameter servers; the result keeps the tensors' creation order.

    ``round_robin`` deals to the servers in turn; the others give each piece to the server that holds the fewest bytes so
    far (the lowest number first). ``partitioned`` first cuts tensors into slices of at most ``slice_bytes``; the others
    keep them whole, as TensorFlow 1 did, so that the fullest server can never hold less than the largest tensor.
    """
    emptiest = [(0, ps) for ps in range(servers)]  # a heap
    pieces: list[Piece] = []
    for tensor in tensors:
        count = -(-tensor.bytes // max(slice_bytes, BYTES_PER_ELEMENT)) if strategy == "partitioned" else 1
        bounds = [tensor.elements * number // count for number in range(count + 1)]
        for begin, end in pairwise(bounds):
            held, ps = (0, len(pieces) % servers) if strategy == "round_robin" else emptiest[0]
            pieces.append(Piece(tensor.name, ps, begin, end))
            if strategy != "round_robin":
                heapreplace(emptiest, (held + pieces[-1].bytes, ps))
    return pieces


def bytes_per_server(pieces: Sequence[Piece], servers: int) -> list[int]:
    held = [0] * servers
    for piece in pieces:
        held[piece.ps] += piece.bytes
    return held


@dataclass(frozen=True)
class ServerExchange:
    """Every worker exchanges every piece with the parameter server that holds it.

    The servers of one node share its link: ``servers`` and ``pieces`` count and number them as one.
    """

    pieces: tuple[Piece, ...]
    servers: int
    shared_nodes: bool  # a server sits beside a worker, which reaches it without the network
    pulls: Pulls
    tokens: Tokens = "none"
    ordered: bool | None = None  # parameters come before the forward pass in the order of use; None: nobody says
    ps_per_node: int = 1  # processes that count as one server, at most
    workers_per_node: int = 1  # they share a link, too, and each exchanges every piece

    def name(self, server: int) -> str:
        """``PS 17``; ``PS node 17``, the 18th that has servers, where one has several."""
        return f"PS node {server}" if self.ps_per_node > 1 else f"PS {server}"


@dataclass(frozen=True)
class AllreduceExchange:
    """All workers sum their gradients, in buffers filled in the order of the backward pass. A larger tensor goes alone."""

    buffer_bytes: int  # at most
    # A buffer leaves when it is full, or with whatever is in it as soon as the buffer before it is done.
    waits: Literal["until_full", "until_free"] = "until_full"
    overlapped: bool = True  # if not, nothing is computed meanwhile


Exchange = ServerExchange | AllreduceExchange
