"""What an analysis of an experiment consists of: findings with their reasons, and every point beside its prediction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from harness.experiments.points import Interval, Point
from harness.report.page.figures import Figure

Answer = Literal["yes", "no", "cannot say"]


@dataclass(frozen=True)
class Finding:
    """The answer to a question. ``because`` is for people; ``figures`` are what it rests on, for scripts."""

    name: str
    question: str
    answer: Answer
    because: str
    figures: Mapping[str, float | None]

    def as_dict(self) -> dict[str, Any]:
        """For scripts."""
        return {**vars(self), "figures": dict(self.figures)}


@dataclass(frozen=True)
class Compared:
    """A point beside its prediction (seconds; None where nothing predicts it), with its 95 % confidence interval.

    ``fitted``: the point is one of those that the throughput comes from. ``processor_s`` is the same step on links without
    a limit, None where that was not measured.
    """

    point: Point
    predicted_s: float | None
    interval: Interval | None = None
    fitted: bool = False
    processor_s: float | None = None

    @property
    def error(self) -> float | None:
        """Predicted over measured, less one."""
        return None if self.predicted_s is None else self.predicted_s / self.point.step_s - 1

    def as_dict(self) -> dict[str, Any]:
        """For scripts."""
        one = self.point
        return {
            "point": one.label,
            "contender": one.contender,
            "nodes": one.spec.nodes,
            "ps": one.servers,
            "placement": one.placement,
            "repeats": len(one.steps_s),
            "measured_s": one.step_s,
            "interval_s": self.interval,
            "predicted_s": self.predicted_s,
            "error": self.error,
            "fitted": self.fitted,
            "fullest_server_bytes": one.fullest,
            "without_limit_s": self.processor_s,
            "source": one.source,
        }


@dataclass(frozen=True)
class Analysis:
    """Everything that a page or a script is told. ``rates`` are fitted throughputs in bytes/s, by transport."""

    name: str
    title: str
    law: str
    findings: tuple[Finding, ...]
    rates: Mapping[str, float]
    compared: tuple[Compared, ...]
    figures: tuple[Figure, ...]

    def as_dict(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "experiment": self.name,
            "findings": [one.as_dict() for one in self.findings],
            "throughput_bytes_per_s": dict(self.rates),
            "points": [one.as_dict() for one in self.compared],
        }


def beyond(value: float, interval: Interval | None, limit: float) -> Answer:
    """Whether ``value`` is greater than ``limit``; "cannot say" if the limit lies within its interval."""
    if interval is not None and interval[0] <= limit <= interval[1]:
        return "cannot say"
    return "yes" if value > limit else "no"
