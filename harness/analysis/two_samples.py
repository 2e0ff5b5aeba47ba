"""Two samples of throughputs: how much the second differs from the first, and how sure that is.

Everything here works on logarithms of img/s: a difference of means of logarithms is the logarithm of the ratio of
geometric means.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from harness.analysis.ratios import Interval, satterthwaite

Vector: TypeAlias = NDArray[np.float64]


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


def benjamini_hochberg(p: Vector) -> Vector:
    """p-values adjusted for the number of tests: those below α are rejected with a false discovery rate of α.

    Y. Benjamini, Y. Hochberg, J. R. Stat. Soc. B 57 (1995) 289–300. ``scipy.stats`` has it, too, but loading that takes
    longer than all else that a comparison does.
    """
    order = np.argsort(p)[::-1]
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum.accumulate(p[order] * len(p) / np.arange(len(p), 0, -1))
    return adjusted
