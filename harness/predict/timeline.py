"""A step, event by event: who sends what when. For pictures, and to check the law, which gives the same end without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from harness.core.exchange import AllreduceExchange, ServerExchange
from harness.predict.law import WORKER, Law
from harness.predict.parameters import Parameters
from harness.predict.profile import Profile, of_pieces

Kind = Literal["forward", "backward", "pull", "push", "allreduce", "overhead"]


class Span(NamedTuple):
    """Something that takes from ``start`` to ``end`` (seconds since the step began): compute, or a piece on its way.

    ``server`` is who sends or receives (``law.WORKER``: the workers themselves), ``tensor`` what.
    """

    kind: Kind
    server: int
    tensor: str
    start: float
    end: float
    bytes: float = 0.0


@dataclass(frozen=True)
class Timeline:
    """The spans of one step, by start, and its length in seconds."""

    spans: tuple[Span, ...]
    seconds: float


def timeline(law: Law, profile: Profile, nodes: int, workers: int, step_s: float, parameters: Parameters) -> Timeline:
    """The step of ``law`` on ``nodes`` nodes, simulated: an endpoint takes one piece at a time, in the order of the pass.

    Where gradients share a link (``Parameters.serial``), what comes back is drawn as late as the law says that it ends. A
    worker's own endpoint, which all its pieces pass, is not drawn; where it bounds the step the spans end before it does.
    """
    p = parameters
    exchange = law.exchange
    parts = law.parts(nodes, workers, step_s, p)
    forward_s = float(p.forward_share) * step_s
    turn = float(parts.forward)
    spans = []
    if isinstance(exchange, AllreduceExchange):
        spans += _buffers(exchange, law, profile, nodes, turn, step_s - forward_s, p)
    elif exchange.pulls == "before_forward":
        pulled = _pulled(exchange, law, nodes, p)
        pushed = _pushed(exchange, law, profile, nodes, turn, step_s - forward_s, p)
        spans += [*pulled, *pushed]
    else:
        spans += _pushed_and_pulled(exchange, law, profile, nodes, turn, step_s - forward_s, p)
        late = turn + float(parts.backward) - max(one.end for one in spans)
        if float(p.serial) and late > 0:
            later = [one._replace(start=one.start + late, end=one.end + late) for one in spans if one.kind == "pull"]
            spans = [*(one for one in spans if one.kind != "pull"), *later]
    # Forward computes when its parameters are there; drawn at its end, as one piece.
    spans.append(Span("forward", WORKER, "", turn - forward_s, turn))
    spans.append(Span("backward", WORKER, "", turn, turn + step_s - forward_s))
    total = float(parts.total)
    if (rest := float(np.asarray(parts.overhead) + np.asarray(parts.barrier))) > 0:
        spans.append(Span("overhead", WORKER, "", total - rest, total))
    return Timeline(tuple(sorted(spans, key=lambda one: one.start)), total)


def _piece_s(law: Law, bytes_: float, nodes: int, p: Parameters) -> float:
    served = float(law.factors(nodes, p)[0])
    return served * (bytes_ / float(p.throughput) + float(p.message))


def _pulled(exchange: ServerExchange, law: Law, nodes: int, p: Parameters) -> list[Span]:
    free = dict.fromkeys(range(exchange.servers), 0.0)
    spans = []
    for piece in exchange.pieces:
        start = free[piece.ps]
        free[piece.ps] = start + _piece_s(law, piece.bytes, nodes, p)
        spans.append(Span("pull", piece.ps, piece.tensor, start, free[piece.ps], piece.bytes))
    return spans


def _pushed(
    exchange: ServerExchange, law: Law, profile: Profile, nodes: int, turn: float, backward_s: float, p: Parameters
) -> list[Span]:
    left, _, _ = of_pieces(profile, exchange.pieces)
    free = dict.fromkeys(range(exchange.servers), 0.0)
    spans = []
    for number in reversed(range(len(exchange.pieces))):
        piece = exchange.pieces[number]
        start = max(free[piece.ps], turn + float(left[number]) * backward_s)
        free[piece.ps] = start + _piece_s(law, piece.bytes, nodes, p)
        spans.append(Span("push", piece.ps, piece.tensor, start, free[piece.ps], piece.bytes))
    return spans


def _pushed_and_pulled(
    exchange: ServerExchange, law: Law, profile: Profile, nodes: int, turn: float, backward_s: float, p: Parameters
) -> list[Span]:
    pushed = _pushed(exchange, law, profile, nodes, turn, backward_s, p)
    free = dict.fromkeys(range(exchange.servers), 0.0)
    pulled = []
    for one in pushed:
        start = max(free[one.server], one.end)
        free[one.server] = start + (one.end - one.start)
        pulled.append(Span("pull", one.server, one.tensor, start, free[one.server], one.bytes))
    return [*pushed, *pulled]


def _buffers(
    exchange: AllreduceExchange, law: Law, profile: Profile, nodes: int, turn: float, backward_s: float, p: Parameters
) -> list[Span]:
    """``until_free`` buffers take along what is there when they leave."""
    waiting = [list(one) for one in law.buffers]
    ready = {one[-1]: turn + float(profile.left[one[-1]]) * backward_s for one in waiting}
    free, spans = 0.0, []
    while waiting:
        tensors = waiting.pop(0)
        start = max(free, ready[tensors[-1]])
        bytes_ = float(profile.bytes[tensors].sum())
        while exchange.waits == "until_free" and waiting and ready[waiting[0][-1]] <= start:
            if bytes_ + (more := float(profile.bytes[waiting[0]].sum())) > exchange.buffer_bytes:
                break
            tensors, bytes_ = [*tensors, *waiting.pop(0)], bytes_ + more
        free = start + _piece_s(law, bytes_, nodes, p)
        names = [profile.names[one] for one in tensors]
        told = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
        spans.append(Span("allreduce", WORKER, told, start, free, bytes_))
    return spans
