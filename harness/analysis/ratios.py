"""Throughputs of repeats, the best of several configurations, their ratios, and what is significant.

Intervals are 95 % confidence intervals, taken on logarithms, so that none reaches below zero. Those of ratios have the
degrees of freedom of Welch and Satterthwaite. Picking the best of K configurations favours lucky ones, so the lower
limit of a best one is the highest of K lower limits that hold together (Šidák). Its upper limit needs no such care: the
truly best configuration's own upper limit is among the K, and the highest of them is never below it. All K
configurations of a point share one relative standard deviation, estimated from all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

LEVEL = 0.95
MOST_REPEATS = 1000  # that anybody would want to make

Interval = tuple[float, float]


@dataclass(frozen=True)
class Sample:
    """Throughputs (img/s) of one configuration in fresh processes. Published ones may be known by their mean only."""

    mean: float
    values: tuple[float, ...] = ()

    @cached_property
    def stdev(self) -> float | None:
        """In img/s; None for fewer than two values."""
        if len(self.values) < 2:
            return None
        return math.sqrt(sum((value - self.mean) ** 2 for value in self.values) / (len(self.values) - 1))


def _spread(samples: Sequence[Sample]) -> tuple[float, int] | None:
    """One relative standard deviation for all samples of a choice, and its degrees of freedom.

    None if a sample has fewer than two values: then nothing is known of the chance it had to be the best.
    """
    freedoms = [len(one.values) - 1 for one in samples]
    if not samples or min(freedoms) < 1:
        return None
    relative = [(one.stdev or 0.0) / one.mean for one in samples]
    squares = sum(freedom * deviation**2 for deviation, freedom in zip(relative, freedoms, strict=True))
    return math.sqrt(squares / sum(freedoms)), sum(freedoms)


@lru_cache(maxsize=4096)
def _quantiles(freedom: float, samples: int) -> Interval:
    """Student's t quantiles for the lower and the upper limit of the best of so many samples (see the module's text)."""
    from scipy.special import stdtrit

    side = (1 + LEVEL) / 2
    upper = float(stdtrit(freedom, side))
    return (float(stdtrit(freedom, side ** (1 / samples))) if samples > 1 else upper), upper


def best_interval(samples: Sequence[Sample]) -> Interval | None:
    """Where the best true throughput of ``samples`` lies (img/s), None where no spread is known."""
    spread = _spread(samples)
    if spread is None:
        return None
    deviation, freedom = spread
    lower, upper = _quantiles(freedom, len(samples))
    errors = [(one.mean, deviation / math.sqrt(len(one.values))) for one in samples]
    lowest = max(mean * math.exp(-lower * error) for mean, error in errors)
    return lowest, max(mean * math.exp(upper * error) for mean, error in errors)


Choice = Sequence[Sample]


class Ratio(NamedTuple):
    """A product of throughputs over another one, each throughput the best of a choice.

    ``interval`` is where the ratio of the true throughputs lies. ``p`` is the two-sided probability of a ratio that is this
    far from 1 if the true one is 1; it allows for choices as 95 % intervals do, which is more than smaller probabilities
    would need. Both are None where no spread is known.
    """

    value: float
    interval: Interval | None = None
    p: float | None = None


def ratio(over: Sequence[Choice], under: Sequence[Choice]) -> Ratio:
    """The product of the best throughputs ``over``, divided by that of the best ``under``.

    Each best throughput's distances to its own 95 % limits, over Student's quantile, are its standard errors downwards and
    upwards. They add up in squares, each towards the side it pushes the ratio to (the MOVER of Zou and Donner 2008), with
    the degrees of freedom of Welch and Satterthwaite. Without choices that is Welch's interval of the logarithm.
    """
    from scipy.special import stdtr

    dividend, divisor = (math.prod(max(one.mean for one in choice) for choice in side) for side in (over, under))
    value = dividend / divisor
    below: list[tuple[float, float]] = []
    above: list[tuple[float, float]] = []
    for sides, choices in (((below, above), over), ((above, below), under)):
        for choice in choices:
            spread = _spread(choice)
            if spread is None:
                return Ratio(value)
            deviation, freedom = spread
            lower, upper = _quantiles(freedom, len(choice))
            logs = [(math.log(one.mean), deviation / math.sqrt(len(one.values))) for one in choice]
            best = max(log for log, _ in logs)
            sides[0].append(((best - max(log - lower * error for log, error in logs)) / upper, freedom))
            sides[1].append(((max(log + upper * error for log, error in logs) - best) / upper, freedom))
    downwards, upwards = _added(below), _added(above)
    low, high = (error * _quantiles(freedom, 1)[1] for error, freedom in (downwards, upwards))
    distance, (towards_1, its_freedom) = abs(math.log(value)), upwards if value < 1 else downwards
    p = 2 * float(stdtr(its_freedom, -distance / towards_1)) if towards_1 else float(distance == 0)
    return Ratio(value, (value * math.exp(-low), value * math.exp(high)), p)


def _added(terms: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The root of the sum of squared errors, and its degrees of freedom (Welch and Satterthwaite)."""
    total = sum(error**2 for error, _ in terms)
    if total == 0:
        return 0.0, sum(freedom for _, freedom in terms)
    return math.sqrt(total), total**2 / sum(error**4 / freedom for error, freedom in terms)


def repeats_for(choices: Sequence[Choice], distance: float, margin: float, level: float) -> int | None:
    """How many repeats of every configuration it takes, at the spread seen, to tell a ratio from 1 or to see that it is
    within a margin of 1, whichever comes first, if it stays where it is.

    ``choices`` are those of the ratio, which is exp(± ``distance``) as the margin is exp(± ``margin``). To tell it from 1
    takes an interval of that ``level`` (see ``levels``), to see that it is within the margin one of ``LEVEL``. None where
    no spread is known, or ``MOST_REPEATS`` are not enough.
    """
    from scipy.special import stdtrit

    known = [(spread[0], len(choice)) for choice in choices if (spread := _spread(choice))]
    if len(known) < len(choices):
        return None
    for repeats in range(2, MOST_REPEATS + 1):
        terms = []
        for deviation, configurations in known:
            freedom = float(configurations * (repeats - 1))
            lower, upper = _quantiles(freedom, configurations)
            terms.append((deviation / math.sqrt(repeats) * lower / upper, freedom))
        error, freedom = _added(terms)
        told = float(stdtrit(freedom, (1 + level) / 2)) * error <= distance
        if not error or told or _quantiles(freedom, 1)[1] * error <= margin - distance:
            return repeats
    return None


def holm(probabilities: Sequence[float | None], weights: Sequence[float] | None = None) -> list[bool]:
    """Which of several tests are significant if all of them together shall err with probability 1 − ``LEVEL``.

    Holm's step-down procedure (1979), with the share of the error that each test gets by ``weights``, by default equal
    ones. None stands for a test that could not be made: it is not significant, and counts as one that was tried.
    """
    shares = list(weights or [1.0] * len(probabilities))
    scaled = [(1.0 if p is None else p) / share for p, share in zip(probabilities, shares, strict=True)]
    order = sorted(range(len(scaled)), key=lambda number: scaled[number])
    significant = [False] * len(scaled)
    for step, number in enumerate(order):
        if scaled[number] > (1 - LEVEL) / sum(shares[other] for other in order[step:]):
            break
        significant[number] = True
    return significant


def significant(probabilities: Sequence[float | None]) -> list[bool]:
    """``holm`` for tests at rising sizes: half of the error is the last one's, as that is where scaling is decided."""
    return holm(probabilities, _shares(len(probabilities)))


def levels(significances: Sequence[bool]) -> list[float]:
    """Of tests of which these are ``significant``, the level of the interval that has to leave out 1 for each other one to
    be the next.
    """
    shares = _shares(len(significances))
    left = sum(share for share, is_significant in zip(shares, significances, strict=True) if not is_significant)
    return [1 - (1 - LEVEL) * share / max(share, left) for share in shares]


def _shares(tests: int) -> list[float]:
    """Of the error, for tests at rising sizes."""
    return [1.0] * (tests - 1) + [max(1.0, tests - 1.0)] * bool(tests)
