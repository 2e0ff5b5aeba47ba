"""Which measurements are kept from a fit to test it: ``nodes>=64``, ``workers>32, ps=116``."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from harness.errors import InvalidInput
from harness.predict.fitting import Fit, fit
from harness.predict.observations import Observation, ObservationGroup, informative

FIELDS = ("nodes", "workers", "ps")
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True)
class HeldOut:
    """A fit to some observations of a group, and those it has not seen."""

    fit: Fit
    seen: tuple[Observation, ...]
    unseen: tuple[Observation, ...]

    @cached_property
    def errors(self) -> tuple[float, ...]:
        """Of those it has not seen: predicted over measured throughput, minus 1."""
        return tuple(one.step_s / self.fit.forecast(one)[0] - 1 for one in self.unseen)

    @cached_property
    def covered(self) -> int:
        """How many of those the intervals contain."""
        intervals = [(self.fit.forecast(one), one.step_s) for one in self.unseen]
        return sum(low <= step_s <= high for (_, low, high), step_s in intervals)


def condition(text: str) -> Callable[[Observation], bool]:
    """Whether an observation is to be held out; of several conditions, separated by commas, all must be true.

    Raises InvalidInput for what is no condition.
    """
    parts = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\w+)\s*(>=|<=|==|!=|>|<|=)\s*(\d+)\s*", part)
        if not match or match[1] not in FIELDS:
            raise InvalidInput(
                f"--hold-out '{text}': must be conditions such as nodes>=64 or workers>32,ps=116, on {', '.join(FIELDS)}"
            )
        parts.append((match[1], _COMPARISONS[match[2]], int(match[3])))
    return lambda one: all(compare(getattr(one, field), value) for field, compare, value in parts)


def parted(
    group: ObservationGroup, unseen: Callable[[Observation], bool]
) -> tuple[tuple[Observation, ...], tuple[Observation, ...]] | None:
    """The observations of ``group`` to fit and those to test with; None if there are none of one kind."""
    left = tuple(one for one in group.observations if not unseen(one))
    tests = tuple(one for one in informative(group.observations) if unseen(one))
    return (left, tests) if tests and informative(left) else None


def hold_out(group: ObservationGroup, unseen: Callable[[Observation], bool]) -> HeldOut | None:
    """The fit of ``group`` without some of its observations; None if that leaves none to fit or none to test."""
    parts = parted(group, unseen)
    return parts and HeldOut(fit(group, parts[0]), *parts)
