"""Two sides of a comparison, A and B: how many repeats show a difference, and what the repeats that were made say. Pure.

**The test** is Welch's, two-sided, on logarithms of the rates of the repeats (docs/ab.md). Where m sizes of a kernel are
judged ``together``, each has an interval of 1 − 5 % / m (Bonferroni): with 95 % confidence all of them hold, whatever the
sizes have in common.

**Power** is the probability that the interval leaves out 1 where the true ratio is as large as the difference. With n
repeats each, noise s (the standard deviation of log(rate)) and sample variances s²u and s²v, the estimated logarithm of
the ratio, in units of its true error s·√(2/n), is normally distributed around δ = log(1 + difference) / (s·√(2/n)),
whatever u and v are. Welch's test finds it beyond c = t·√((u + v)/2), with Student's quantile t for the degrees of freedom
that it takes from the data, (n − 1)(u + v)²/(u² + v²). So the power is the mean of Φ(δ − c) + Φ(−δ − c) over u and v, which
are χ²/(n − 1) with n − 1 degrees of freedom each. ``tests/unit/test_ab.py`` measures it.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, variance
from typing import Literal

import numpy as np

from harness.analysis.scaling import LEVEL, MOST_REPEATS, Interval, Sample
from harness.analysis.two_samples import welch

POWER = 0.9
_CELLS = 64  # of equal probability, for each of u and v

Answer = Literal["A is faster", "B is faster", "no difference", "undecided"]


@dataclass(frozen=True)
class Noise:
    """The standard deviation of log(rate) among the repeats of a run, from so many ``repeats`` of ``runs``."""

    deviation: float
    repeats: int
    runs: int

    @classmethod
    def of(cls, samples: Sequence[Sequence[float]]) -> "Noise | None":
        """From the rates of the repeats of each run; None where no run has two."""
        logs = [[math.log(value) for value in sample] for sample in samples if len(sample) > 1]
        if not logs:
            return None
        freedom = sum(len(sample) - 1 for sample in logs)
        squares = sum((len(sample) - 1) * variance(sample) for sample in logs)
        return cls(math.sqrt(squares / freedom), freedom + len(logs), len(logs))


@cache
def power(deviation: float, difference: float, repeats: int, together: int = 1) -> float:
    """The probability that so many repeats of each side show a ``difference`` (0.02 for 2 %) in this noise."""
    from scipy.special import chdtri, ndtr, stdtrit  # scipy.stats takes ten times as long to import

    if not deviation:
        return 1.0
    freedom = repeats - 1
    variances = chdtri(freedom, (np.arange(_CELLS) + 0.5) / _CELLS) / freedom
    u, v = np.meshgrid(variances, variances)
    quantile = stdtrit(freedom * (u + v) ** 2 / (u**2 + v**2), (1 + _level(together)) / 2)
    limit = quantile * np.sqrt((u + v) / 2)
    shift = math.log1p(difference) / (deviation * math.sqrt(2 / repeats))
    return float(np.mean(ndtr(shift - limit) + ndtr(-shift - limit)))


def repeats_for(deviation: float, difference: float, together: int = 1) -> int | None:
    """How many repeats of each side show a ``difference`` in this noise with ``POWER``; None for too many."""
    most = 2
    while power(deviation, difference, most, together) < POWER:
        if most == MOST_REPEATS:
            return None
        most = min(2 * most, MOST_REPEATS)
    return bisect_left(range(most), POWER, lo=2, key=lambda repeats: power(deviation, difference, repeats, together))


@dataclass(frozen=True)
class Verdict:
    """What the repeats of both sides say. ``ratio`` is B's rate over A's (geometric means), ``ci95`` its interval.

    So many ``repeats`` of each side would decide what is undecided if ratio and noise stay as they are; None for too many.
    """

    answer: Answer
    a: Sample
    b: Sample
    difference: float
    ratio: float
    ci95: Interval
    noise: Noise
    repeats: int | None = None
    together: int = 1

    @property
    def matters(self) -> bool:
        """False where the ratio is known to be closer to 1 than the ``difference`` that was asked about."""
        return self.largest > self.difference

    @property
    def slower(self) -> bool:
        """B is slower than A, by so much that it matters as far as is known."""
        return self.answer == "A is faster" and self.matters

    @property
    def repeats_for_difference(self) -> int | None:
        """How many of each side show the difference in the noise that was seen; None for too many."""
        return repeats_for(self.noise.deviation, self.difference, self.together)

    @property
    def largest(self) -> float:
        """The largest difference that is not excluded, as a share, whichever side is faster."""
        return _largest(self.ci95)


def judge(a: Sequence[float], b: Sequence[float], difference: float, together: int = 1) -> Verdict:
    """What two or more repeats of each side say, all in one unit, about a ``difference`` (0.02 for 2 %).

    It is one of so many verdicts that are to hold ``together``.
    """
    found, noise = welch([np.log(a)], [np.log(b)]), Noise.of([a, b])
    assert noise
    low, high = (math.exp(limit[0]) for limit in found.interval(_level(together)))
    answer: Answer = "no difference" if _largest((low, high)) <= difference else "undecided"
    if not low <= 1 <= high:
        answer = "A is faster" if high < 1 else "B is faster"
    repeats = None
    if answer == "undecided":
        distance = abs(float(found.shift[0]))
        repeats = _narrowing(a, b, max(distance, math.log1p(difference) - distance), together)
    one, other = (Sample(fmean(values), tuple(values)) for values in (a, b))
    return Verdict(
        answer, one, other, difference, math.exp(found.shift[0]), (low, high), noise, repeats, together=together
    )


def _narrowing(a: Sequence[float], b: Sequence[float], width: float, together: int) -> int | None:
    """How many repeats of each side make an interval of × or ÷ exp(``width``), at the spread seen; None for too many."""
    from scipy.special import stdtrit

    u, v = (float(np.var(np.log(values), ddof=1)) for values in (a, b))
    repeats = np.arange(2, MOST_REPEATS + 1)
    quantile = stdtrit((repeats - 1) * (u + v) ** 2 / (u**2 + v**2), (1 + _level(together)) / 2)
    enough = repeats[quantile * np.sqrt((u + v) / repeats) <= width]
    return int(enough[0]) if len(enough) else None


def _level(together: int) -> float:
    """Of the interval of each of so many verdicts, all of which hold with ``LEVEL``."""
    return 1 - (1 - LEVEL) / together


def _largest(limits: Interval) -> float:
    low, high = limits
    return max(1 / low, high) - 1
