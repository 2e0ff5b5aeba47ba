"""A step, event by event: who sends what when. For pictures, and to check the law, which gives the same end without it."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

from harness.core.exchange import AllreduceExchange
from harness.prediction.law import WORKER, Law, ModelProfile
from harness.prediction.parameters import Floats, Parameters

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


def timeline(
    law: Law, profile: ModelProfile, nodes: int, workers: int, step_s: float, parameters: Parameters
) -> tuple[list[Span], float]:
    """The step of ``law`` on ``nodes`` nodes, simulated: its spans, by start, and its length in seconds.

    An endpoint takes one piece at a time, in the order of the pass.
    Where gradients share a link (``Parameters.serial``), what comes back is drawn as late as the law says that it ends. A
    worker's own endpoint, which all its pieces pass, is not drawn; where it bounds the step the spans end before it does.
    """
    p, exchange = parameters, law.exchange
    parts = law.parts(nodes, workers, step_s, p)
    forward_s = float(p.forward_share) * step_s
    turn, total, computed = float(parts.forward), float(parts.total), float(parts.forward) + step_s - forward_s
    uses = float(law.factors(nodes, p)[0])

    def lasts(bytes_: float) -> float:
        return uses * (bytes_ / float(p.throughput) + float(p.message))

    if isinstance(exchange, AllreduceExchange):
        ready = turn + profile.left * (computed - turn)
        spans = list(_queued("allreduce", _buffers(exchange, law, profile, ready, lasts), lasts))
    else:
        there = dict(zip(profile.names, (turn + profile.left * (computed - turn)).tolist(), strict=True))
        gradients = [(piece.ps, piece.tensor, there[piece.tensor], piece.bytes) for piece in exchange.pieces]
        pushed = list(_queued("push", reversed(gradients), lasts))
        if exchange.pulls == "before_forward":
            pieces = [(piece.ps, piece.tensor, 0.0, piece.bytes) for piece in exchange.pieces]
            pulled = list(_queued("pull", pieces, lasts))
        else:
            pulled = list(_queued("pull", ((one.server, one.tensor, one.end, one.bytes) for one in pushed), lasts))
            late = turn + float(parts.backward) - max(one.end for one in pulled)
            if float(p.serial) and late > 0:
                pulled = [one._replace(start=one.start + late, end=one.end + late) for one in pulled]
        spans = [*pulled, *pushed]
    # Forward computes when its parameters are there; drawn at its end, as one piece.
    spans += [Span("forward", WORKER, "", turn - forward_s, turn), Span("backward", WORKER, "", turn, computed)]
    if (rest := float(parts.overhead + parts.barrier)) > 0:
        spans.append(Span("overhead", WORKER, "", total - rest, total))
    return sorted(spans, key=lambda span: span.start), total


_Queued = tuple[int, str, float, float]  # who it queues at, what it is, when it is there (s), and its bytes


def _queued(kind: Kind, pieces: Iterable[_Queued], lasts: Callable[[float], float]) -> Iterator[Span]:
    """The pieces on their way: each waits until it is there, and until the one before it has passed."""
    free: dict[int, float] = defaultdict(float)
    for server, name, ready, bytes_ in pieces:
        start = max(free[server], ready)
        free[server] = start + lasts(bytes_)
        yield Span(kind, server, name, start, free[server], bytes_)


def _buffers(
    exchange: AllreduceExchange, law: Law, profile: ModelProfile, ready: Floats, lasts: Callable[[float], float]
) -> Iterator[_Queued]:
    """``until_free`` buffers take along what is there when they leave."""
    waiting, free = [list(one) for one in law.buffers], 0.0
    while waiting:
        tensors = waiting.pop(0)
        start = max(free, float(ready[tensors[-1]]))
        while exchange.waits == "until_free" and waiting and ready[waiting[0][-1]] <= start:
            if profile.bytes[tensors + waiting[0]].sum() > exchange.buffer_bytes:
                break
            tensors += waiting.pop(0)
        bytes_ = float(profile.bytes[tensors].sum())
        free = start + lasts(bytes_)
        first, last = profile.names[tensors[0]], profile.names[tensors[-1]]
        yield WORKER, first if first == last else f"{first} … {last}", start, bytes_
