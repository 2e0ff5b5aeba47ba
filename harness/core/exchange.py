"""What a step's exchange of parameters and gradients consists of: what the scaling model needs to know of a backend.

There are two mechanisms, and a backend's ``exchange`` says which one is its own, with the real placement and the real
buffers. Pure data; ``harness.prediction`` turns it into time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.core.placement import Piece

MIB = 2**20
Pulls = Literal["before_forward", "after_push"]
Tokens = Literal["none", "all_to_all", "all_to_all_per_piece"]


@dataclass(frozen=True)
class ServerExchange:
    """Every worker exchanges every piece with the parameter server that holds it.

    ``pulls`` says when a worker gets the parameters: before its forward pass, or piece by piece as soon as all workers have
    pushed that piece's gradient. ``shared_nodes``: a server sits beside a worker, which reaches it without the network.
    ``tokens`` are the messages of a step's barrier: none but the gradients themselves, one from each worker to each other
    worker, or that for every piece.
    """

    pieces: tuple[Piece, ...]
    servers: int
    shared_nodes: bool
    pulls: Pulls
    tokens: Tokens = "none"


@dataclass(frozen=True)
class AllreduceExchange:
    """All workers sum their gradients, in buffers of at most ``buffer_bytes`` filled in the order of the backward pass.

    A buffer leaves when it is full, or, with ``waits="until_free"``, with whatever is in it as soon as the buffer before it
    is done. A tensor that is larger than a buffer goes alone.
    """

    buffer_bytes: int
    waits: Literal["until_full", "until_free"] = "until_full"


Exchange = ServerExchange | AllreduceExchange
