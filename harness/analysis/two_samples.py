"""Two samples of throughputs: how much the second differs from the first, and how sure that is.

Everything here works on logarithms of img/s: a difference of means of logarithms is the logarithm of the ratio of
geometric means.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from statistics import fmean, variance
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr, stdtrit

from harness.analysis.ratios import Interval, satterthwaite

Test = Literal["welch", "mann-whitney"]
Vector: TypeAlias = NDArray[np.float64]

EXACT_UP_TO = 2500  # differences between two samples: beyond, U is as good as normally distributed


@dataclass(frozen=True)
class Shift:
    """NEW − OLD of the logarithms, and the one-sided p-values for "lower" and for "higher"."""

    value: float
    p_lower: float
    p_higher: float
    interval: Callable[[float], Interval]  # the two-sided confidence interval of ``value`` at a level


def welch(old: Sequence[float], new: Sequence[float], careful: bool = False) -> Shift:
    """Welch's t-test: logarithms, two or more values each. ``satterthwaite`` says what is ``careful``.

    B. L. Welch, Biometrika 34 (1947) 28–35. Samples without any spread, which no measurement gives, have an interval of
    next to no width.
    """
    errors = [(math.sqrt(max(variance(sample), 1e-28) / len(sample)), len(sample) - 1.0) for sample in (old, new)]
    return student(fmean(new) - fmean(old), sum(error**2 for error, _ in errors), satterthwaite(errors, careful))


def student(shift: float, variance: float, freedom: float) -> Shift:
    """Student's t-test of a shift, whose estimated ``variance`` has so many degrees of freedom; inf for a known one."""
    freedom = min(freedom, 1e6)  # beyond which Student's t is the normal distribution
    error = math.sqrt(variance)

    def interval(level: float) -> Interval:
        half = float(stdtrit(freedom, (1 + level) / 2)) * error
        return shift - half, shift + half

    return Shift(shift, float(stdtr(freedom, shift / error)), float(stdtr(freedom, -shift / error)), interval)


def mann_whitney(old: Sequence[float], new: Sequence[float]) -> Shift:
    """The Mann–Whitney test; the shift is Hodges and Lehmann's, the median of all differences."""
    from scipy.stats import mannwhitneyu

    lower, higher = (float(mannwhitneyu(new, old, alternative=side).pvalue) for side in ("less", "greater"))
    shift = float(np.median(np.subtract.outer(new, old)))
    return Shift(shift, lower, higher, lambda level: hodges_lehmann(old, new, level))


def hodges_lehmann(old: Sequence[float], new: Sequence[float], level: float) -> Interval:
    """The interval that belongs to the Mann–Whitney test: two of the differences in their order.

    It is infinite where the samples are too small for the level (M. Hollander, D. A. Wolfe, Nonparametric Statistical
    Methods, 4.3).
    """
    differences = np.sort(np.subtract.outer(new, old), axis=None).tolist()
    left_out = _left_out(len(old), len(new), (1 - level) / 2)
    return (differences[left_out - 1], differences[-left_out]) if left_out else (-math.inf, math.inf)


def least_p(n_old: int, n_new: int) -> float:
    """The smallest one-sided p-value that the Mann–Whitney test can have for samples of these sizes."""
    return 1 / math.comb(n_old + n_new, n_old)


@cache
def _left_out(n_old: int, n_new: int, tail: float) -> int:
    """Which of the ordered differences, counted from 1, bounds an interval with ``tail`` on either side; 0 if none does."""
    pairs = n_old * n_new
    if pairs > EXACT_UP_TO:
        return max(0, int(pairs / 2 + ndtri(tail) * math.sqrt(pairs * (n_old + n_new + 1) / 12)))
    total = math.comb(n_old + n_new, n_old)
    below = [count / total for count in accumulate(_arrangements(n_old, n_new))]  # P(U ≤ 0), P(U ≤ 1), …
    return bisect_right(below, tail)


def _arrangements(n_old: int, n_new: int) -> list[int]:
    """How many arrangements of two samples without ties have U = 0, 1, …: the coefficients of a Gaussian binomial."""
    counts = [1] + [0] * (n_old * n_new)
    for one in range(1, n_old + 1):
        for u in range(len(counts) - 1, n_new + one - 1, -1):  # times 1 − q^(n_new + one)
            counts[u] -= counts[u - n_new - one]
        for u in range(one, len(counts)):  # divided by 1 − q^one
            counts[u] += counts[u - one]
    return counts


def benjamini_hochberg(p: Vector) -> Vector:
    """p-values adjusted for the number of tests: those below α are rejected with a false discovery rate of α.

    Y. Benjamini, Y. Hochberg, J. R. Stat. Soc. B 57 (1995) 289–300. ``scipy.stats`` has it, too, but loading that takes
    longer than all else that a comparison does.
    """
    order = np.argsort(p)[::-1]
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum.accumulate(p[order] * len(p) / np.arange(len(p), 0, -1))
    return adjusted
