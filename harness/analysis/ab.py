"""Two sides of a comparison, A and B: how many repeats show a difference, and what the repeats that were made say. Pure.

**The test** is the paired t-test, two-sided, on logarithms of the rates (docs/ab.md). In one job the k-th repeats of A and
B make a pair, and the standard error is that of ``ratios.turn_factor``; the answer is about that allocation. In several
jobs the means of A and B in each job do. Where m sizes of a kernel are judged ``together``, each has an interval of 1 − 5 %
/ m (Bonferroni): with 95 % confidence all of them hold, whatever the sizes have in common.

**Power** is the probability that the interval leaves out 1 where the true ratio is as large as the difference. With n
pairs, noise s of a repeat (the standard deviation of log(rate)) and a sample variance 2s²u of the differences, the
estimated logarithm of the ratio, in units of its true error s·√(2/n), is normally distributed around δ = log(1 +
difference) / (s·√(2/n)), whatever u is. The test finds it beyond c = t·f·√u, with Student's quantile t for n − 1 degrees of
freedom and the factor f of turns. So the power is the mean of Φ(δ − c) + Φ(−δ − c) over u, which is χ²/(n − 1) with n − 1
degrees of freedom. ``tests/unit/test_ab.py`` measures it.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import ClassVar, Literal

import numpy as np

from harness.analysis.ratios import LEVEL, MOST_REPEATS, ROUNDED, Interval, Sample, pooled_variance, turn_factor

POWER = 0.9
_CELLS = 1024  # of equal probability, for u

PairAnswer = Literal["A is faster", "B is faster", "no difference", "undecided"]


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
        pooled, freedom = pooled_variance(logs)
        return cls(math.sqrt(pooled), freedom + len(logs), len(logs))


@cache
def power(deviation: float, difference: float, repeats: int, together: int = 1) -> float:
    """The probability that so many repeats of each side show a ``difference`` (0.02 for 2 %) in this noise."""
    from scipy.special import chdtri, ndtr, stdtrit  # scipy.stats takes ten times as long to import

    if not deviation:
        return 1.0
    freedom = repeats - 1
    u = chdtri(freedom, (np.arange(_CELLS) + 0.5) / _CELLS) / freedom
    limit = stdtrit(freedom, (1 + _level(together)) / 2) * turn_factor(repeats) * np.sqrt(u)
    shift = math.log1p(difference) / (deviation * math.sqrt(2 / repeats))
    return float(np.mean(ndtr(shift - limit) + ndtr(-shift - limit)))


def repeats_for(deviation: float, difference: float, together: int = 1) -> int | None:
    """The number of repeats of each side that show a ``difference`` in this noise with ``POWER``; None for too many."""
    most = 2
    while power(deviation, difference, most, together) < POWER:
        if most == MOST_REPEATS:
            return None
        most = min(2 * most, MOST_REPEATS)
    return bisect_left(range(most), POWER, lo=2, key=lambda repeats: power(deviation, difference, repeats, together))


@dataclass(frozen=True)
class PairedVerdict:
    """The verdict of the repeats of both sides. ``ratio`` is B's rate over A's (geometric means), ``ci95`` its interval.

    So many ``units`` of each side would decide what is undecided if ratio and noise stay as they are; None for too many.
    These are repeats, or ``jobs`` if there are several.
    """

    DERIVED: ClassVar = ("matters", "slower", "repeats_for_difference")

    answer: PairAnswer
    a: Sample
    b: Sample
    difference: float
    ratio: float
    ci95: Interval
    noise: Noise
    jobs: int
    units: int | None = None
    together: int = 1

    @property
    def scatters(self) -> bool:
        """False where all differences are equal, as no measurements are: the interval has no width, and decides nothing."""
        low, high = self.ci95
        return high / low - 1 > ROUNDED

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
        """The number of repeats of each side that show the difference in the noise that was seen; None for too many."""
        return repeats_for(self.noise.deviation, self.difference, self.together)

    @property
    def largest(self) -> float:
        """The largest difference that is not excluded, as a share, whichever side is faster."""
        low, high = self.ci95
        return max(1 / low, high) - 1


def judge(a: Sample, b: Sample, difference: float, together: int = 1) -> PairedVerdict:
    """Judge two or more repeats of each side, that took turns in the same jobs, by a ``difference`` (0.02 for 2 %).

    The verdict is one of so many that are to hold ``together``.
    """
    from scipy.special import stdtrit

    jobs, noise = len(a.by_job), Noise.of([a.values, b.values])
    assert noise
    of_job = [(a.by_job[job], b.by_job[job]) for job in a.by_job]
    pairs = [tuple(map(fmean, sides)) for sides in of_job] if jobs > 1 else [*zip(*of_job[0], strict=True)]
    differences = np.diff(pairs).ravel()
    shift, deviation = float(differences.mean()), float(differences.std(ddof=1))

    def half(units: int) -> float:
        """Half the width of the interval that so many pairs have."""
        factor = 1.0 if jobs > 1 else turn_factor(units)
        quantile = float(stdtrit(units - 1, (1 + _level(together)) / 2))
        return quantile * factor * max(deviation, 1e-14) / math.sqrt(units)

    low, high = math.exp(shift - half(len(pairs))), math.exp(shift + half(len(pairs)))
    answer: PairAnswer = "no difference" if max(1 / low, high) - 1 <= difference else "undecided"
    if deviation <= ROUNDED:
        answer = "undecided"
    elif not low <= 1 <= high:
        answer = "A is faster" if high < 1 else "B is faster"
    units = None
    if answer == "undecided" and deviation > ROUNDED:
        width = max(abs(shift), math.log1p(difference) - abs(shift))
        units = next((each for each in range(2, MOST_REPEATS + 1) if half(each) <= width), None)
    return PairedVerdict(answer, a, b, difference, math.exp(shift), (low, high), noise, jobs, units, together)


def _level(together: int) -> float:
    """The level of the interval of each of so many verdicts, all of which hold with ``LEVEL``."""
    return 1 - (1 - LEVEL) / together
