"""The errors of a law on measurements that it has not seen."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from operator import eq, ge, gt, le, lt, ne

from harness.errors import InvalidInput
from harness.prediction.fitting import Fit, fit
from harness.prediction.observations import Observation, ObservationGroup, informative

FIELDS = ("nodes", "workers", "ps")
_COMPARED = {">": gt, ">=": ge, "<": lt, "<=": le, "=": eq, "==": eq, "!=": ne}
Condition = Callable[[Observation], bool]


@dataclass(frozen=True)
class HeldOut:
    """A fit to some observations of a group, and those it has not seen."""

    fit: Fit
    seen: tuple[Observation, ...]
    unseen: tuple[Observation, ...]

    @cached_property
    def errors(self) -> tuple[float, ...]:
        """The errors on those it has not seen: predicted over measured throughput, minus 1."""
        return tuple(run.step_s / self.fit.forecast(run)[0] - 1 for run in self.unseen)

    @cached_property
    def covered(self) -> int:
        """The number of those that the intervals contain."""
        forecasts = [(self.fit.forecast(run), run.step_s) for run in self.unseen]
        return sum(low <= step_s <= high for (_, low, high), step_s in forecasts)


def condition(text: str) -> Condition:
    """The test of which observations to hold out: comparisons of ``FIELDS`` with numbers; commas mean "and".

    Raises InvalidInput for a text that is no condition.
    """
    parts = [re.fullmatch(r"\s*(\w+)\s*(>=|<=|==|!=|>|<|=)\s*(\d+)\s*", part) for part in text.split(",")]
    if not all(part and part[1] in FIELDS for part in parts):
        raise InvalidInput(
            f"--hold-out '{text}': must be conditions such as nodes>=64 or workers>32,ps=116, on {', '.join(FIELDS)}"
        )
    return lambda run: all(part and _COMPARED[part[2]](getattr(run, part[1]), int(part[3])) for part in parts)


def parted(
    group: ObservationGroup, unseen: Condition
) -> tuple[tuple[Observation, ...], tuple[Observation, ...]] | None:
    """The observations of ``group`` to fit and those to test with; None if there are none of one kind."""
    left = tuple(run for run in group.observations if not unseen(run))
    tests = tuple(informative([run for run in group.observations if unseen(run)]))
    return (left, tests) if tests and informative(left) else None


def hold_out(group: ObservationGroup, unseen: Condition) -> HeldOut | None:
    """The fit of ``group`` without some of its observations; None if that leaves none to fit or none to test."""
    parts = parted(group, unseen)
    return parts and HeldOut(fit(group, parts[0]), *parts)
