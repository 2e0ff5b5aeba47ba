"""Throughputs of jobs, the best of several configurations, their ratios, and what is significant.

The unit of chance is the job: its repeats share its nodes and its hour, so they count as one value, the mean of their
logarithms. Contenders that took turns in the same jobs are compared as pairs: a difference for each job or, in a single
one, for each round of repeats, which says something of that allocation only.

Intervals are 95 % confidence intervals, taken on logarithms, so that none reaches below zero. Intervals of ratios have the
degrees of freedom of Welch and Satterthwaite. Picking the best of K configurations favours lucky ones, so the lower
limit of a best one is the highest of K lower limits that hold together (Šidák). Its upper limit needs no such care: the
truly best configuration's own upper limit is among the K, and the highest of them is never below it. All K
configurations of a point share one relative standard deviation, estimated from all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import fmean, stdev, variance
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from harness.records.record import ALONE

LEVEL = 0.95
ROUNDED = 1e-12  # relative deviation below which figures are equal, which no measurement gives
MOST_REPEATS = 1000  # that anybody would want to make
EQUAL_NUMBERS, UNEQUAL_NUMBERS = 0.7, 0.25  # of the estimated degrees of freedom beyond the fewest (``satterthwaite``)
TRUST = 1.5  # by which the scatter of other contenders may divide a probability, at most (``ratio``)
LESS, MORE = -1, 1  # the sign of a shift
NORMAL = 1e6  # degrees of freedom beyond which Student's t is the normal distribution

Interval = tuple[float, float]
Vector: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """Throughputs (img/s) of one configuration in fresh processes, and the job of each. Without jobs each is a job.

    Published ones may be known by their mean, and by the ``published`` deviation of so many runs. In the jobs so many runs
    took ``turns``.
    """

    mean: float
    values: tuple[float, ...] = ()
    jobs: tuple[str, ...] = ()
    turns: int = 2
    published: tuple[float, int] | None = None

    @classmethod
    def of_publication(cls, mean: float, deviation: float, runs: int) -> Sample:
        """A mean without its values. A deviation (NaN: none) of an unknown number of runs, 0, is of two at least."""
        return cls(mean, published=(deviation, runs or 2) if deviation > 0 and runs != 1 else None)

    @classmethod
    def of(cls, values: Sequence[float], jobs: Sequence[str], turns: int = 2) -> Sample:
        """``values`` whose mean is the geometric one of their jobs."""
        sample = cls(math.nan, tuple(map(float, values)), tuple(jobs), turns)
        return cls(math.exp(fmean(sample.units)), sample.values, sample.jobs, turns)

    @cached_property
    def by_job(self) -> Mapping[str, Sequence[float]]:
        """The logarithms of the values of each job."""
        logs: dict[str, list[float]] = {}
        for number, value in enumerate(self.values):
            logs.setdefault(self.jobs[number] if self.jobs else str(number), []).append(math.log(value))
        return logs

    @cached_property
    def units(self) -> tuple[float, ...]:
        """The mean of each job's logarithms."""
        return tuple(map(fmean, self.by_job.values()))

    @property
    def size(self) -> int:
        """The number of jobs, or of runs that were published."""
        return self.published[1] if self.published else len(self.by_job)

    @property
    def spread(self) -> float:
        """The relative standard deviation of two or more jobs or, without jobs, values."""
        if self.published:
            return self.published[0] / self.mean
        if self.jobs:
            return stdev(self.units)
        return math.sqrt(sum((value - self.mean) ** 2 for value in self.values) / (len(self.values) - 1)) / self.mean


def pooled_variance(groups: Iterable[Sequence[float]]) -> tuple[float, int]:
    """The variance within groups of values, from those with several, and its degrees of freedom; 0 and 0 without any."""
    several = [group for group in groups if len(group) > 1]
    freedom = sum(len(group) - 1 for group in several)
    return sum((len(group) - 1) * variance(group) for group in several) / max(1, freedom), freedom


def _spread(samples: Sequence[Sample]) -> tuple[float, int] | None:
    """One relative standard deviation between jobs for all samples of a choice, and its degrees of freedom.

    None if a sample has fewer than two jobs: then nothing is known of the chance it had to be the best. Nor is it if none
    of them scatters, as no measurement does: figures were rounded, or are one figure written several times.
    """
    freedoms = [sample.size - 1 for sample in samples]
    if not samples or min(freedoms) < 1:
        return None
    squares = sum(freedom * sample.spread**2 for freedom, sample in zip(freedoms, samples, strict=True))
    return (math.sqrt(squares / sum(freedoms)), sum(freedoms)) if squares > ROUNDED**2 else None


def turn_factor(pairs: int, turns: int = 2) -> float:
    """The factor of the standard error of the mean of so many differences between two runs of one allocation.

    Runs take turns there and back, so that pairs next to each other correlate if the machine drifts. With noise of
    correlation ρ from repeat to repeat, an AR(1), pairs of runs that are m places apart correlate by ρ(1 − ρᵐ)/2 or less,
    which is largest where ρᵐ = 1/(m + 1): r = 1/8 for two runs. Then the variance of the mean of n differences is at most
    1 + 2r(n − 1)/n of what independent ones would have, and their sample variance is at least 1 − 2r/n of theirs.
    """
    m = max(1, turns - 1)
    r = (m + 1) ** (-1 / m) * m / (m + 1) / 2
    return math.sqrt((1 + 2 * r * (pairs - 1) / pairs) / (1 - 2 * r / pairs))


@lru_cache(maxsize=4096)
def _quantiles(freedom: float, samples: int) -> Interval:
    """Student's t quantiles for the lower and the upper limit of the best of so many samples (see the module's text)."""
    from scipy.special import stdtrit

    side = (1 + LEVEL) / 2
    upper = float(stdtrit(freedom, side))
    return (float(stdtrit(freedom, side ** (1 / samples))) if samples > 1 else upper), upper


def best_interval(samples: Sequence[Sample]) -> Interval | None:
    """The interval of the best true throughput of ``samples`` (img/s), None where no spread is known.

    Where a sample has a single job it is the repeatability of repeats, whatever other jobs would give.
    """
    if samples and min(sample.size for sample in samples) == 1:
        samples = [Sample(sample.mean, sample.values) for sample in samples]
    spread = _spread(samples)
    if spread is None:
        return None
    deviation, freedom = spread
    lower, upper = _quantiles(freedom, len(samples))
    errors = [(sample.mean, deviation / math.sqrt(sample.size)) for sample in samples]
    lowest = max(mean * math.exp(-lower * error) for mean, error in errors)
    return lowest, max(mean * math.exp(upper * error) for mean, error in errors)


Choice = Sequence[Sample]


class ChanceUnit(NamedTuple):
    """The units of chance: the fewest and the most jobs of any configuration or, if not 0, pairs in one job."""

    fewest: int = 0
    most: int = 0
    pairs: int = 0


class Ratio(NamedTuple):
    """A product of throughputs over another one, each throughput the best of a choice.

    ``interval`` is where the ratio of the true throughputs lies. ``p`` is the two-sided probability of a ratio that is this
    far from 1 if the true one is 1; it allows for choices as 95 % intervals do, which is more than smaller probabilities
    would need. Both are None where no spread is known, as with one job of each.
    """

    value: float
    interval: Interval | None = None
    p: float | None = None
    unit: ChanceUnit = ChanceUnit()


def chance_takes(ratio: float, throughputs: int) -> float:
    """The relative standard deviation of single runs with which chance takes a ratio of so many ``throughputs`` this far
    from 1 in one of twenty comparisons.
    """
    return abs(math.log(ratio)) / (1.96 * math.sqrt(throughputs))


class _Term(NamedTuple):
    """One relative standard deviation of what is compared: of a choice or, in pairs, of one ``over`` another one.

    Each unit beyond the first of all configurations brings so many degrees of freedom.
    """

    over: Choice
    under: Choice
    deviation: float
    freedom: float
    per_unit: int


def _terms(over: Sequence[Choice], under: Sequence[Choice]) -> list[_Term] | None:
    """The parts whose errors add up in a ratio; None where the spread of one is not known."""
    terms = []
    for above, below in zip(over, under, strict=True):
        if (paired := _paired([*above, *below])) is not None:
            terms.append(_Term(above, below, *paired))
            continue
        ours, theirs = _spread(above), _spread(below)
        if ours is None or theirs is None:
            return None
        terms += [_Term(above, (), *ours, len(above)), _Term((), below, *theirs, len(below))]
    return terms


def _paired(samples: Choice) -> tuple[float, int, int] | None:
    """The deviation of configurations that took turns in the same jobs, with its degrees of freedom, and those per unit.

    It is that of a table of configurations by jobs, or rounds, without what each of these does to all alike. Of two
    configurations that makes the paired t-test. None where they did not take turns.
    """
    jobs = list(samples[0].by_job)
    if not samples[0].jobs or any(set(sample.by_job) != set(jobs) for sample in samples):
        return None
    if len(jobs) > 1:
        table = [[fmean(sample.by_job[job]) for job in jobs] for sample in samples]
    elif jobs[0].startswith(ALONE) or len({len(sample.values) for sample in samples}) > 1:
        return None
    else:
        table = [list(sample.by_job[jobs[0]]) for sample in samples]
    columns, rows = len(table), len(table[0])
    if rows < 2 or columns < 2:
        return None
    values = np.array(table)
    residuals = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
    freedom = (columns - 1) * (rows - 1)
    factor = 1.0 if len(jobs) > 1 else turn_factor(rows, max(sample.turns for sample in samples))
    squares = float((residuals**2).sum())
    return (factor * math.sqrt(squares / freedom), freedom, columns - 1) if squares > ROUNDED**2 else None


class Common(NamedTuple):
    """The scatter that several choices have in common: a ``variance`` with its ``freedom``, as much as they are alike.

    ``most`` are the degrees of freedom of all of them.
    """

    variance: float
    freedom: float
    most: float

    def drawing(self, term: _Term) -> _Term:
        """The term with a deviation that is drawn towards the common one."""
        freedom = self.freedom + term.freedom
        squares = self.freedom * self.variance + term.freedom * term.deviation**2
        return term._replace(deviation=math.sqrt(squares / freedom), freedom=freedom)


def common_scatter(choices: Sequence[Choice]) -> Common | None:
    """The scatter that all choices have in common; None where fewer than three of them scatter.

    G. K. Smyth, Linear models and empirical Bayes methods, Stat. Appl. Genet. Mol. Biol. 3 (2004) 3, section 6.2, with no
    more degrees of freedom for what is common than choices beyond two have.
    """
    from scipy.special import polygamma, psi

    known = [spread for choice in choices if (spread := _spread(choice)) and spread[0]]
    if len(known) < 3:
        return None
    logs = [2 * math.log(deviation) - float(psi(freedom / 2)) + math.log(freedom / 2) for deviation, freedom in known]
    scatter = variance(logs) - fmean(float(polygamma(1, freedom / 2)) for _, freedom in known)
    most = float(sum(freedom for _, freedom in known))
    freedom, common = most * (1 - 2 / len(known)), math.exp(fmean(logs))
    if scatter > 0:
        half = 0.5 + 1 / scatter
        for _ in range(20):  # Newton's method, towards the inverse of the trigamma function
            at = float(polygamma(1, half))
            half += at * (1 - at / scatter) / float(polygamma(2, half))
        freedom = min(freedom, 2 * half)
        common *= math.exp(float(psi(freedom / 2))) / (freedom / 2)
    return Common(common, freedom, most)


def ratio(over: Sequence[Choice], under: Sequence[Choice], common: Common | None = None) -> Ratio:
    """The product of the best throughputs ``over``, divided by that of the best ``under``; each over its own one is a pair.

    Each best throughput's distances to its own 95 % limits, over Student's quantile, are its standard errors downwards and
    upwards. They add up in squares, each towards the side it pushes the ratio to (the MOVER of Zou and Donner 2008), with
    the degrees of freedom of Welch and Satterthwaite. Without choices that is Welch's interval of the logarithm.

    Three jobs say little of their own scatter. A scatter in ``common`` says more if all contenders scatter alike, and
    misleads if they do not. So the probability of the ratio's jobs counts, and at best 1 / ``TRUST`` of it, where
    scatter drawn towards the common one bears that out. Pairs have differences with a scatter of their own.
    """
    dividend, divisor = (math.prod(max(each.mean for each in choice) for choice in side) for side in (over, under))
    value, terms = dividend / divisor, _terms(over, under)
    samples = [sample for choice in (*over, *under) for sample in choice]
    jobs = [sample.size for sample in samples]
    in_pairs = [len(sample.values) for sample in samples if sample.size == 1 and terms is not None]
    unit = ChanceUnit(min(jobs), max(jobs), min(in_pairs, default=0))
    if terms is None:
        return Ratio(value, unit=unit)
    careful, tail = bool(over[0][0].jobs or over[0][0].published), 1 - LEVEL
    widths, p = _tested(value, terms, careful)
    low, high = widths(tail)
    if careful and common and not any(term.over and term.under for term in terms):
        drawn_widths, drawn_p = _tested(value, list(map(common.drawing, terms)), careful, common.most)
        limits = zip((low, high), drawn_widths(tail), widths(TRUST * tail), strict=True)
        low, high = (min(width, max(drawn, least)) for width, drawn, least in limits)
        p = min(p, max(drawn_p, p / TRUST))
    return Ratio(value, (value * math.exp(-low), value * math.exp(high)), p, unit)


def _tested(
    value: float, terms: Sequence[_Term], careful: bool, most: float = math.inf
) -> tuple[Callable[[float], Interval], float]:
    """The distances that an interval reaches down and up, on logarithms, by the share that it may miss; and the ratio's p.

    Both have ``most`` degrees of freedom or fewer.
    """
    from scipy.special import stdtr, stdtrit

    downwards, upwards = [], []
    for term in terms:
        over, under = _errors(term.over, term), _errors(term.under, term)
        downwards.append((math.hypot(over[0], under[1]), term.freedom))
        upwards.append((math.hypot(over[1], under[0]), term.freedom))
    (down, freedom_down), (up, freedom_up) = _added(downwards, careful, most), _added(upwards, careful, most)
    distance, (towards_1, freedom) = abs(math.log(value)), (up, freedom_up) if value < 1 else (down, freedom_down)
    p = 2 * float(stdtr(freedom, -distance / towards_1)) if towards_1 else float(distance == 0)

    def widths(tail: float) -> Interval:
        return down * float(stdtrit(freedom_down, 1 - tail / 2)), up * float(stdtrit(freedom_up, 1 - tail / 2))

    return widths, p


def _errors(choice: Choice, term: _Term) -> Interval:
    """The standard errors of a choice's best, downwards and upwards, on logarithms."""
    if not choice:
        return 0.0, 0.0
    lower, upper = _quantiles(term.freedom, len(choice))
    counts = [sample.size if sample.size > 1 else len(sample.values) for sample in choice]
    errors = [term.deviation / math.sqrt(count) for count in counts]
    logs = [(math.log(sample.mean), error) for sample, error in zip(choice, errors, strict=True)]
    best = max(log for log, _ in logs)
    down = best - max(log - lower * error for log, error in logs)
    return down / upper, (max(log + upper * error for log, error in logs) - best) / upper


def _added(terms: Sequence[tuple[float, float]], careful: bool, most: float = math.inf) -> tuple[float, float]:
    """The root of the sum of squared errors, and its degrees of freedom (see ``satterthwaite``), ``most`` or fewer."""
    total = sum(error**2 for error, _ in terms)
    freedom = satterthwaite(terms, careful) if total else sum(freedom for _, freedom in terms)
    return math.sqrt(total), min(freedom, most)


def satterthwaite(terms: Sequence[tuple[float, float]], careful: bool = True) -> float:
    """The degrees of freedom of the sum of squared errors, each with its own, as Welch and Satterthwaite estimate them.

    Estimated from few jobs they are too many by chance: of equal contenders Welch's test then calls up to 6 % different
    with 3 jobs each, and 12 % with 2 and 10, where noise is unequal. ``careful``-ly they are drawn towards the fewest of
    any error, which are never too many (Mickey and Brown 1966): a part of the way, and more where their numbers differ.
    """
    total = sum(error**2 for error, _ in terms)
    estimated = total**2 / sum(error**4 / freedom for error, freedom in terms)
    least = min(freedom for _, freedom in terms)
    if not careful:
        return estimated
    share = EQUAL_NUMBERS if all(freedom == least for _, freedom in terms) else UNEQUAL_NUMBERS
    return least + share * (min(estimated, len(terms) * least) - least)


def units_for(
    over: Sequence[Choice], under: Sequence[Choice], distance: float, margin: float, level: float
) -> int | None:
    """The number of jobs of every configuration (pairs, in one job) that it takes, at the spread seen, to tell a ratio
    from 1 or to see that it is within a margin of 1, whichever comes first, if it stays where it is.

    The ratio is exp(± ``distance``) as the margin is exp(± ``margin``). To tell it from 1 takes an interval of that
    ``level`` (see ``levels``), to see that it is within the margin one of ``LEVEL``. None where no spread is known, or
    ``MOST_REPEATS`` are not enough.
    """
    from scipy.special import stdtrit

    terms = _terms(over, under)
    if terms is None:
        return None
    for units in range(2, MOST_REPEATS + 1):
        errors = []
        for term in terms:
            freedom = float(term.per_unit * (units - 1))
            quantiles = [_quantiles(freedom, len(choice)) for choice in (term.over, term.under) if choice]
            shares = math.hypot(*(lower / upper for lower, upper in quantiles))
            errors.append((term.deviation / math.sqrt(units) * shares, freedom))
        error, freedom = _added(errors, bool(over[0][0].jobs))
        differs = float(stdtrit(freedom, (1 + level) / 2)) * error <= distance
        if not error or differs or _quantiles(freedom, 1)[1] * error <= margin - distance:
            return units
    return None


def holm(probabilities: Sequence[float | None], weights: Sequence[float]) -> list[bool]:
    """True for each of several tests that is significant, if all together shall err with probability 1 − ``LEVEL``.

    Holm's step-down procedure (1979), with the share of the error that each test gets by ``weights``. None stands for a
    test that could not be made: it is not significant, and counts as one that was tried.
    """
    scaled = [(1.0 if p is None else p) / share for p, share in zip(probabilities, weights, strict=True)]
    order = sorted(range(len(scaled)), key=lambda number: scaled[number])
    significant = [False] * len(scaled)
    for step, number in enumerate(order):
        if scaled[number] > (1 - LEVEL) / sum(weights[other] for other in order[step:]):
            break
        significant[number] = True
    return significant


def significant(probabilities: Sequence[float | None], family: int = 1) -> list[bool]:
    """``holm`` for tests at rising sizes: 19 of 20 parts of the error are the last one's, where scaling is decided.

    So many tests as the ``family`` has, each at all sizes, share the error (Bonferroni).
    """
    return holm([None if p is None else p * family for p in probabilities], _shares(len(probabilities)))


def levels(significances: Sequence[bool], family: int = 1) -> list[float]:
    """The level of the interval that must leave out 1 for a test that is not ``significant`` to be the next, by test."""
    shares = _shares(len(significances))
    left = sum(share for share, is_significant in zip(shares, significances, strict=True) if not is_significant)
    return [1 - (1 - LEVEL) / family * share / max(share, left) for share in shares]


def _shares(tests: int) -> list[float]:
    """The shares of the error, for tests at rising sizes."""
    return [1.0] * (tests - 1) + [max(1.0, 19.0 * (tests - 1))] * bool(tests)


class Shift(NamedTuple):
    """A difference NEW − OLD of the means of logarithms, which is the logarithm of the ratio of geometric means.

    Its estimated ``variance`` has so many degrees of ``freedom``: inf for a known one. Student's t-test judges it.
    """

    value: float
    variance: float
    freedom: float

    def p(self, sign: int) -> float:
        """The one-sided p-value of a shift to ``LESS`` or to ``MORE``."""
        from scipy.special import stdtr

        return float(stdtr(min(self.freedom, NORMAL), -sign * self.value / math.sqrt(self.variance)))

    def interval(self, level: float) -> Interval:
        """The two-sided confidence interval of ``value``."""
        from scipy.special import stdtrit

        half = float(stdtrit(min(self.freedom, NORMAL), (1 + level) / 2)) * math.sqrt(self.variance)
        return self.value - half, self.value + half


def welch(old: Sequence[float], new: Sequence[float], careful: bool = False) -> Shift:
    """Welch's t-test: logarithms, two or more values each. ``satterthwaite`` says what is ``careful``.

    B. L. Welch, Biometrika 34 (1947) 28–35. Samples without any spread, which no measurement gives, have an interval of
    next to no width.
    """
    errors = [(math.sqrt(max(variance(sample), 1e-28) / len(sample)), len(sample) - 1.0) for sample in (old, new)]
    return Shift(fmean(new) - fmean(old), sum(error**2 for error, _ in errors), satterthwaite(errors, careful))


def benjamini_hochberg(p: Vector) -> Vector:
    """p-values adjusted for the number of tests: those below α are rejected with a false discovery rate of α.

    Y. Benjamini, Y. Hochberg, J. R. Stat. Soc. B 57 (1995) 289–300. ``scipy.stats`` has it, too, but loading that takes
    longer than all else that a comparison does.
    """
    order = np.argsort(p)[::-1]
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum.accumulate(p[order] * len(p) / np.arange(len(p), 0, -1))
    return adjusted
