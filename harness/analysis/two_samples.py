"""Two samples of throughputs: how much the second differs from the first, and how sure that is.

Everything here works on logarithms of img/s and on many pairs of samples at once: a difference of means of logarithms is
the logarithm of the ratio of geometric means.
"""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr, stdtrit

Test = Literal["welch", "mann-whitney"]
Vector: TypeAlias = NDArray[np.float64]

EXACT_UP_TO = 2500  # differences between two samples: beyond, U is as good as normally distributed


@dataclass(frozen=True)
class Shifts:
    """What ``len(shift)`` comparisons found: NEW − OLD of the logarithms, and the one-sided p-values for "lower"."""

    shift: Vector
    p_lower: Vector
    p_higher: Vector
    interval: Callable[[float], tuple[Vector, Vector]]  # the two-sided confidence interval of ``shift`` at a level


def welch(old: Sequence[Vector], new: Sequence[Vector]) -> Shifts:
    """Welch's t-test of each pair of samples: logarithms, two or more values each. Satterthwaite's degrees of freedom.

    B. L. Welch, Biometrika 34 (1947) 28–35. Samples without any spread, which no measurement gives, have an interval of
    next to no width.
    """
    mean_old, error_old, n_old = _moments(old)
    mean_new, error_new, n_new = _moments(new)
    variance = error_old + error_new
    freedom = variance**2 / (error_old**2 / (n_old - 1) + error_new**2 / (n_new - 1))
    return student(mean_new - mean_old, variance, freedom)


def student(shift: Vector, variance: Vector, freedom: Vector) -> Shifts:
    """Student's t-test of each shift, whose estimated ``variance`` has so many degrees of freedom; inf for a known one."""
    freedom = np.minimum(freedom, 1e6)  # beyond which Student's t is the normal distribution
    t = shift / np.sqrt(variance)

    def interval(level: float) -> tuple[Vector, Vector]:
        half = stdtrit(freedom, (1 + level) / 2) * np.sqrt(variance)
        return shift - half, shift + half

    return Shifts(shift, stdtr(freedom, t), stdtr(freedom, -t), interval)


def _moments(samples: Sequence[Vector]) -> tuple[Vector, Vector, Vector]:
    """Mean, squared standard error of the mean, and size of each sample."""
    sizes = np.array([len(sample) for sample in samples], dtype=float)
    mean = np.array([np.mean(sample) for sample in samples])
    variance = np.array([np.var(sample, ddof=1) for sample in samples])
    # No less than what rounding leaves in equal values.
    return mean, np.maximum(variance, (1e-14 * np.maximum(1.0, np.abs(mean))) ** 2) / sizes, sizes


def mann_whitney(old: Sequence[Vector], new: Sequence[Vector]) -> Shifts:
    """The Mann–Whitney test of each pair of samples; the shift is Hodges and Lehmann's, the median of all differences.

    The interval's ends are differences in their order (M. Hollander, D. A. Wolfe, Nonparametric Statistical Methods, 4.3),
    infinite where the samples are too small for the level.
    """
    from scipy import stats

    shift, lower, higher = (np.empty(len(old)) for _ in range(3))
    ordered: dict[tuple[int, int], tuple[Sequence[int], Vector]] = {}
    alike: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, (one, other) in enumerate(zip(old, new, strict=True)):
        alike[len(one), len(other)].append(number)
    for sizes, numbers in alike.items():
        before = np.array([old[number] for number in numbers], dtype=float)
        after = np.array([new[number] for number in numbers], dtype=float)
        differences = np.sort((after[:, :, None] - before[:, None, :]).reshape(len(numbers), -1), axis=1)
        ordered[sizes] = (numbers, differences)
        shift[numbers] = np.median(differences, axis=1)
        lower[numbers] = stats.mannwhitneyu(after, before, alternative="less", axis=1).pvalue
        higher[numbers] = stats.mannwhitneyu(after, before, alternative="greater", axis=1).pvalue

    def interval(level: float) -> tuple[Vector, Vector]:
        low, high = np.full(len(old), -np.inf), np.full(len(old), np.inf)
        for sizes, (numbers, differences) in ordered.items():
            if (left_out := _left_out(*sizes, (1 - level) / 2)) > 0:
                low[numbers], high[numbers] = differences[:, left_out - 1], differences[:, -left_out]
        return low, high

    return Shifts(shift, lower, higher, interval)


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
