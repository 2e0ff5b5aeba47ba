"""Predictions: throughput at any size and number of parameter servers, with an interval and with what bounds the step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from harness import backend as backends
from harness.exchange import ServerExchange
from harness.placement import bytes_per_server
from harness.predict.fitting import LEVEL, SEED
from harness.predict.law import COMPUTE, WORKER, Cost, Law, Phase
from harness.predict.observations import DISCREPANCY, law_for, of_2017
from harness.predict.parameters import Parameters
from harness.predict.profile import Floats, profile

Pass = Literal["forward", "backward"]


@dataclass(frozen=True)
class Basis:
    """What predictions start from: parameters, a single worker's step, and draws of both that say how sure they are.

    ``draws`` holds arrays [draws] and ``single_draws`` is one; without draws there are no intervals. ``told`` says where
    all of it comes from, line by line.
    """

    parameters: Parameters
    single_s: float
    draws: Parameters | None = None
    single_draws: Floats | None = None
    told: tuple[str, ...] = ()


@dataclass(frozen=True)
class What:
    """What is predicted. ``options`` (JSON) are the backend's own, without the number of servers; batch is per device.

    ``as_in_2017``: with the barriers of the software that published results with servers were measured with.
    """

    backend: str
    model: str
    batch_size: int
    image_size: int | None = None
    devices_per_node: int = 1
    options: str = "{}"
    as_in_2017: bool = False

    def law(self, ps: int) -> Law:
        """The law with ``ps`` servers, 0 where there are none."""
        law = law_for(self.backend, self.model, self.image_size, ps, self.options)
        return of_2017(law) if self.as_in_2017 else law

    @property
    def has_servers(self) -> bool:
        """Whether a number of parameter servers has to be chosen."""
        return "ps" in backends.backend(self.backend).options.model_fields

    def most_servers(self, nodes: int) -> int:
        """More servers would find no place, or nothing to hold."""
        exchange = self.law(1).exchange
        assert isinstance(exchange, ServerExchange)
        return min(nodes, len(exchange.pieces)) if exchange.shared_nodes else len(exchange.pieces)


@dataclass(frozen=True)
class Bound:
    """What a pass waits for: its compute, a server, or the workers' own endpoints (``law.COMPUTE``, ``law.WORKER``).

    ``bytes`` go through that endpoint during the pass, in ``seconds``; ``tensor`` is the largest piece among them.
    """

    which: Pass
    server: int
    tensor: str
    tensor_bytes: float
    bytes: float
    seconds: float

    @property
    def name(self) -> str:
        """``compute``, ``PS 17`` or ``network``."""
        if self.server == COMPUTE:
            return "compute"
        return "network" if self.server == WORKER else f"PS {self.server}"

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "pass": self.which,
            "by": self.name,
            "tensor": self.tensor,
            "tensor_bytes": self.tensor_bytes,
            "bytes": self.bytes,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class Prediction:
    """One size. ``low`` and ``high`` (img/s) are the ends of the interval, NaN where nothing is known of the spread.

    ``efficiency`` is relative to a single worker. ``bounds`` are those of forward, where parameters are pulled before it,
    and of backward.
    """

    nodes: int
    workers: int
    ps: int
    step_s: float
    img_per_s: float
    low: float
    high: float
    efficiency: float
    bounds: tuple[Bound, ...]


def steps(what: What, basis: Basis, nodes: Sequence[int], ps: int) -> Floats:
    """Predicted steps (s) with ``ps`` servers on so many nodes [nodes]; infinite where that many have no place."""
    sizes = np.asarray(nodes, float)
    seconds = what.law(ps).seconds(sizes, sizes * what.devices_per_node, basis.single_s, basis.parameters)
    if not ps:
        return seconds
    exchange = what.law(ps).exchange
    assert isinstance(exchange, ServerExchange)
    return np.where((sizes >= ps) | (not exchange.shared_nodes), seconds, math.inf)


def sweep(
    what: What, basis: Basis, nodes: Sequence[int], counts: Sequence[int] | None = None
) -> tuple[Sequence[int], Floats]:
    """Numbers of servers, by default all that are possible on the largest size, and the predicted steps (s)
    [servers, nodes].

    Without servers that is one row, for 0.
    """
    if not what.has_servers:
        return [0], steps(what, basis, nodes, 0)[None]
    if counts is None:
        counts = range(1, what.most_servers(max(nodes)) + 1)
    return list(counts), np.stack([steps(what, basis, nodes, ps) for ps in counts])


def best(what: What, basis: Basis, nodes: Sequence[int], counts: Sequence[int] | None = None) -> list[Prediction]:
    """At each size the prediction for the number of servers that is fastest, of ``counts`` or of all that are possible; the
    smallest of equally fast ones.
    """
    counts, seconds = sweep(what, basis, nodes, counts)
    # Equal to a thousandth is equal: nobody would see the difference, and a smaller number says more.
    chosen = [int(np.argmax(column <= column.min() * 1.001)) for column in seconds.T]
    return [at(what, basis, size, counts[row]) for size, row in zip(nodes, chosen, strict=True)]


def at(what: What, basis: Basis, nodes: int, ps: int) -> Prediction:
    """The prediction for ``nodes`` nodes and ``ps`` servers."""
    law, workers = what.law(ps), nodes * what.devices_per_node
    images = workers * what.batch_size
    step_s = float(law.seconds(nodes, workers, basis.single_s, basis.parameters))
    low, high = _interval(law, nodes, workers, basis)
    return Prediction(
        nodes=nodes,
        workers=workers,
        ps=ps,
        step_s=step_s,
        img_per_s=images / step_s,
        low=images / high,
        high=images / low,
        efficiency=basis.single_s / step_s,
        bounds=tuple(bounds(what, basis, nodes, ps)),
    )


def _interval(law: Law, nodes: int, workers: int, basis: Basis) -> tuple[float, float]:
    """Where a measured mean step would lie with probability ``LEVEL`` (s): parameters may be others, and so may the law."""
    if basis.draws is None or basis.single_draws is None:
        return math.nan, math.nan
    drawn = law.seconds(nodes, workers, basis.single_draws, basis.draws)
    beside = np.random.default_rng(SEED).standard_normal(len(drawn))
    low, high = np.quantile(drawn * np.exp(DISCREPANCY * beside), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def bounds(what: What, basis: Basis, nodes: int, ps: int) -> Iterable[Bound]:
    """What each pass waits for."""
    law = what.law(ps)
    forward_s = float(basis.parameters.forward_share) * basis.single_s
    if law.forward is not None:
        yield _bound("forward", law, law.forward, forward_s, what, basis, nodes)
    yield _bound("backward", law, law.backward, basis.single_s - forward_s, what, basis, nodes)


def _bound(which: Pass, law: Law, phase: Phase, pass_s: float, what: What, basis: Basis, nodes: int) -> Bound:
    p = basis.parameters
    found: list[tuple[float, int, int, float]] = [(pass_s, COMPUTE, -1, 0.0)]
    for queue, factor in zip((phase.served, phase.own), law.factors(nodes, p), strict=True):
        if queue is not None:
            ends = queue.seconds(np.asarray(pass_s), Cost(factor / p.throughput, factor * p.message))
            line = int(np.argmax(ends))
            passed = float(queue.bytes[line] * factor)
            found.append((float(ends[line]), int(queue.server[line]), int(queue.piece[line]), passed))
    # What ends with compute, to a hundredth, is hidden by it.
    ends_s, server, piece, bytes_ = max(found, key=lambda one: one[0])
    if ends_s <= pass_s * 1.01:
        return Bound(which, COMPUTE, "", 0.0, 0.0, pass_s)
    name, size = _largest(law, what, server, piece)
    return Bound(which, server, name, size, bytes_, ends_s)


def _largest(law: Law, what: What, server: int, piece: int) -> tuple[str, float]:
    """The largest piece of the queue up to ``piece``, and its bytes."""
    if isinstance(law.exchange, ServerExchange):
        queued = [one for one in law.exchange.pieces[: piece + 1] if server in (WORKER, one.ps)]
        one = max(queued, key=lambda each: each.bytes)
        return one.tensor, float(one.bytes)
    model = profile(what.model, what.image_size)
    tensor = int(np.argmax(model.bytes[: piece + 1]))
    return model.names[tensor], float(model.bytes[tensor])


def held(what: What, ps: int) -> list[int]:
    """Bytes that each server holds, in server order; empty without servers."""
    exchange = what.law(ps).exchange
    return bytes_per_server(exchange.pieces, exchange.servers) if isinstance(exchange, ServerExchange) else []
