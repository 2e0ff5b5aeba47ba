"""What an experiment has measured, point by point, beside what the law of a step predicts for it.

A step's time is taken from each repeat's throughput, so that it is the mean over the measured window of the slowest rank.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from harness.core import backend as backends
from harness.core.exchange import ServerExchange
from harness.core.placement import bytes_per_server
from harness.core.spec import RunSpec
from harness.predict.law import law
from harness.predict.parameters import FORWARD_SHARE, Parameters
from harness.predict.profile import profile

if TYPE_CHECKING:
    import pandas

Interval = tuple[float, float]
# Seconds of a step, for a spec, the step of a single worker (s), and the throughput of an endpoint (bytes/s).
Predictor = Callable[[RunSpec, float, float], float]


@dataclass(frozen=True)
class Point:
    """A spec and its step times: seconds, one for each repeat. ``source`` is its record."""

    spec: RunSpec
    steps_s: tuple[float, ...]
    source: str = ""

    @cached_property
    def step_s(self) -> float:
        """The mean of the repeats."""
        return sum(self.steps_s) / len(self.steps_s)

    @cached_property
    def servers(self) -> int:
        """The number of parameter servers; 0 without."""
        return int(self.spec.options.get("ps", 0))

    @property
    def placement(self) -> str:
        """How tensors are spread over the servers; "" without servers."""
        return str(self.spec.options.get("placement", ""))

    @cached_property
    def held(self) -> tuple[int, ...]:
        """Bytes that each parameter server holds, by the real placement; nothing without servers."""
        exchange = _exchange(self.spec)
        return tuple(bytes_per_server(exchange.pieces, exchange.servers)) if exchange else ()

    @cached_property
    def fullest(self) -> int:
        """Bytes on the server that holds most; 0 without servers."""
        return max(self.held, default=0)

    @property
    def label(self) -> str:
        """``distributed_replicated, 8 nodes, 4 ps greedy``."""
        nodes = f"{self.spec.nodes} node{'s' * (self.spec.nodes > 1)}"
        servers = f", {self.servers} ps {self.placement}" if self.servers else ""
        return f"{self.contender}, {nodes}{servers}"

    @property
    def contender(self) -> str:
        """What distributes the training: ``parameter_server``, ``horovod:tensorflow:mpi``, ``pytorch:gloo``."""
        several = {
            "horovod": f"horovod:{self.spec.framework}:{self.spec.transport}",
            "pytorch": f"pytorch:{self.spec.transport}",
        }
        return several.get(self.spec.backend, self.spec.backend)


@dataclass(frozen=True)
class Spread:
    """How much repeats of one point differ: the standard deviation of the logarithms, pooled over all points.

    Two or three repeats of one point alone say next to nothing about their spread; those of all points together do, if
    they were measured alike, in turn on one system.
    """

    deviation: float
    freedom: int

    @classmethod
    def of(cls, points: Iterable[Point]) -> Spread | None:
        """That of ``points``; None if none of them was repeated."""
        logs = [np.log(one.steps_s) for one in points if len(one.steps_s) > 1]
        if not logs:
            return None
        freedom = sum(len(one) - 1 for one in logs)
        return cls(math.sqrt(sum(float(((one - one.mean()) ** 2).sum()) for one in logs) / freedom), freedom)

    def interval(self, point: Point) -> Interval:
        """The 95 % confidence interval of a point's step (s)."""
        return self._around(point.step_s, 1 / len(point.steps_s))

    def of_ratio(self, slow: Point, fast: Point) -> Interval:
        """The 95 % confidence interval of ``ratio``."""
        return self._around(ratio(slow, fast), 1 / len(slow.steps_s) + 1 / len(fast.steps_s))

    def _around(self, value: float, share: float) -> Interval:
        from scipy.special import stdtrit

        factor = math.exp(float(stdtrit(self.freedom, 0.975)) * self.deviation * math.sqrt(share))
        return float(value / factor), float(value * factor)


def ratio(slow: Point, fast: Point) -> float:
    """How many times longer a step of ``slow`` takes."""
    return slow.step_s / fast.step_s


def of_frame(frame: pandas.DataFrame) -> list[Point]:
    """The points of a DataFrame of ``results.load``: runs of the same measurement are one point."""
    found: dict[str, tuple[RunSpec, list[float], str]] = {}
    columns = ("spec", "values", "workers", "batch_size", "source")
    for text, values, workers, batch, source in zip(*(frame[name] for name in columns), strict=True):
        spec = RunSpec.model_validate(json.loads(text))
        _, steps, _ = found.setdefault(text, (spec, [], str(source)))
        steps += [workers * batch / value for value in values]
    return [Point(spec, tuple(steps), source) for spec, steps, source in found.values()]


def by_law(spec: RunSpec, step_s: float, rate: float) -> float:
    """What ``harness.predict`` says that a step takes: its law, with no parameter but the throughput ``rate``."""
    backend = backends.backend(spec.backend)
    assert backend.exchange is not None
    given = Parameters(rate, forward_share=FORWARD_SHARE["cuda" if spec.device == "cuda" else "cpu"])
    found = law(backend.exchange(spec), profile(spec.model, spec.image_size))
    return float(found.seconds(spec.nodes, spec.workers, step_s, given))


def fitted_rate(points: Sequence[Point], alone: Callable[[Point], float], predict: Predictor) -> float:
    """The throughput (bytes/s) that explains ``points`` best: least squares on the logarithm of the step time.

    ``alone`` gives a point's step on a single worker, in seconds.
    """
    from scipy.optimize import minimize_scalar

    def misfit(log_rate: float) -> float:
        return sum(math.log(predict(one.spec, alone(one), math.exp(log_rate)) / one.step_s) ** 2 for one in points)

    # Where compute hides the network the misfit is flat: the search begins at what the network would have to be at least.
    best = min(np.arange(math.log(1e5), math.log(1e12), 0.25), key=misfit)
    return math.exp(minimize_scalar(misfit, bounds=(best - 0.5, best + 0.5), method="bounded").x)


def chosen(
    points: Iterable[Point], contender: str, nodes: int | None = None, placement: str | None = None
) -> list[Point]:
    """The points of one contender, of one size and placement if told, by nodes and servers."""
    return sorted(
        (
            one
            for one in points
            if one.contender == contender and nodes in (None, one.spec.nodes) and placement in (None, one.placement)
        ),
        key=lambda one: (one.spec.nodes, one.servers),
    )


def _exchange(spec: RunSpec) -> ServerExchange | None:
    made = backends.backend(spec.backend).exchange
    exchange = made(spec) if made else None
    return exchange if isinstance(exchange, ServerExchange) else None
