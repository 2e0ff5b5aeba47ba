"""How throughput grows with the number of workers: curves, the best configuration at each size, and intervals.

A *curve* is what was measured with everything equal but the size. What is tuned at each size (the number of parameter
servers, placement, buffer sizes, threads) varies within a curve: each combination is a *configuration*, and the best one
makes the curve's *point*, which says of how many. Runs of one configuration are pooled: their repeats count alike.

Intervals are 95 % confidence intervals, taken on logarithms, so that none reaches below zero. Those of ratios have the
degrees of freedom of Welch and Satterthwaite. Picking the best of K configurations favours lucky ones, so the lower
limit of a best one is the highest of K lower limits that hold together (Šidák). Its upper limit needs no such care: the
truly best configuration's own upper limit is among the K, and the highest of them is never below it. All K
configurations of a point share one relative standard deviation, estimated from all of them.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import pandas

from harness.core.statistics import scaling_efficiency

LEVEL = 0.95
MOST_REPEATS = 1000  # that anybody would want to make

# Equal within a curve. ``batch_size`` (per device, weak scaling) or the global batch (strong scaling) comes on top.
EQUAL = (*("origin", "system", "model", "data", "device", "precision", "image_size", "training", "family"),)
# What tells curves of one family apart, unless a family's best is asked for.
CONTENDER = ("backend", "framework", "software", "transport", "mpi")
# Tuned at each size. Versions are never pooled, also where a family's best is asked for.
TUNED = (*CONTENDER, "ps", "options", "threads")

# What many runs have in common: all that decides which curve, point and configuration they belong to.
_ALIKE = (*EQUAL, *TUNED, "workers", "nodes", "devices_per_node", "batch_size", "global_batch")
_Row = dict[str, Any]  # these columns, and the "runs"

Scaling = Literal["weak", "strong"]
Interval = tuple[float, float]


class _Run(NamedTuple):
    """What a run has of its own; ``place`` is that among the rows, ``row`` its label."""

    place: int
    row: int
    source: str
    img_per_s: float
    published_efficiency: float
    values: Sequence[float]


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


@dataclass(frozen=True)
class Configuration:
    """What was tuned at one size, and what it gave.

    ``sources`` are record files or publications, one for each run; ``rows`` are the runs' labels in the DataFrame's index.
    """

    backend: str
    ps: int
    options: Mapping[str, Any]
    threads: int
    sample: Sample
    sources: tuple[str, ...]
    framework: str = ""
    software: str = ""
    transport: str = ""
    mpi: str = ""
    rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class CurvePoint:
    """The best configuration of a curve at one size. Intervals are None where no spread is known.

    ``img_per_s`` is NaN where only an efficiency was published; ``speedup`` and ``efficiency`` are relative to ``base``,
    the curve's baseline. Intervals are computed when asked for: most tables do not, and SciPy takes a while to load.
    """

    workers: int
    nodes: int
    best: Configuration
    tried: tuple[Configuration, ...]
    img_per_s: float
    speedup: float = math.nan
    efficiency: float = math.nan
    base: "CurvePoint | None" = None

    @cached_property
    def interval(self) -> Interval | None:
        """Where the best true throughput lies (img/s)."""
        return best_interval(self.samples)

    @cached_property
    def efficiency_interval(self) -> Interval | None:
        """Where the true scaling efficiency lies; None for the baseline itself."""
        if self.base is None or self.base.workers == self.workers:
            return None
        interval = ratio([self.samples], [self.base.samples]).interval
        scale = self.base.workers / self.workers
        return interval and (interval[0] * scale, interval[1] * scale)

    @property
    def samples(self) -> tuple[Sample, ...]:
        return tuple(one.sample for one in self.tried)


@dataclass(frozen=True)
class Curve:
    """Points by number of workers. ``facets`` are the columns that are equal in all of them."""

    scaling: Scaling
    facets: Mapping[str, Any]
    points: tuple[CurvePoint, ...]

    @property
    def baseline(self) -> CurvePoint | None:
        """What efficiencies are relative to; None where they are not."""
        return next((point for point in self.points if point.base and point.base.workers == point.workers), None)


def curves(frame: pandas.DataFrame, by: Literal["contender", "family"] = "contender", baseline: int = 0) -> list[Curve]:
    """The curves in a DataFrame of ``results.load``, in the order of their facets.

    ``by="family"`` joins what a family has to offer, such as both strategies with parameter servers, into one curve of the
    best at each size, as the 2017 report did. ``baseline`` is the number of workers that efficiency is relative to; by
    default each curve's smallest. A curve that lacks it has no efficiencies.
    """
    facets = [*EQUAL, *(CONTENDER if by == "contender" else ())]
    wide = frame.assign(place=range(len(frame)), row=frame.index, global_batch=frame["batch_size"] * frame["workers"])
    # to_dict takes three times as long
    keys, runs = (zip(*(wide[name].tolist() for name in names), strict=True) for names in (_ALIKE, _Run._fields))
    together: dict[tuple[Any, ...], list[_Run]] = defaultdict(list)
    for key, run in zip(keys, map(_Run._make, runs), strict=True):
        together[key].append(run)
    rows = [dict(zip(_ALIKE, key, strict=True)) | {"runs": its} for key, its in together.items()]
    found: list[Curve] = []
    for values, alike in _by(facets, rows):
        equal = dict(zip(facets, values, strict=True))
        several = {row["devices_per_node"] for row in alike if row["nodes"] > 1}
        for per_node in sorted(several) or [max(row["devices_per_node"] for row in alike)]:
            # Runs on one node with fewer devices are the beginning of every curve that goes on.
            its = [
                row
                for row in alike
                if row["devices_per_node"] == per_node or (row["nodes"] <= 1 and row["devices_per_node"] < per_node)
            ]
            equal["devices_per_node"] = per_node
            for batch_size, same in _by(["batch_size"], its):
                found.append(_curve("weak", equal | {"batch_size": batch_size}, same, baseline))
            for batch, same in _by(["global_batch"], its):
                if batch and len({row["batch_size"] for row in same}) > 1:
                    found.append(_curve("strong", equal | {"global_batch": batch}, same, baseline))
    return found


def _by(names: Sequence[str], rows: Iterable[_Row]) -> list[tuple[Any, list[_Row]]]:
    """The rows that are alike in these columns, sorted. Groups are small and many, for which pandas takes long.

    What they are alike in is a tuple, or the value itself of a single column.
    """
    groups = defaultdict(list)
    alike_in = itemgetter(*names)
    for row in rows:
        groups[alike_in(row)].append(row)
    return sorted(groups.items(), key=itemgetter(0))


def _curve(scaling: Scaling, facets: dict[str, Any], rows: list[_Row], baseline: int) -> Curve:
    points = [_point(same) for _, same in _by(["workers"], rows)]
    known = [point for point in points if not math.isnan(point.img_per_s)]
    base = next((point for point in known if baseline in (0, point.workers)), None)
    return Curve(scaling, facets, tuple(relative_to(point, base) for point in points))


def _point(rows: list[_Row]) -> CurvePoint:
    configurations = [_configuration(same) for _, same in _by(TUNED, rows)]
    best = max(configurations, key=lambda one: (not math.isnan(one.sample.mean), one.sample.mean))
    published = [run.published_efficiency for row in rows for run in row["runs"]]
    return CurvePoint(
        workers=rows[0]["workers"],
        nodes=max(row["nodes"] for row in rows),
        best=best,
        tried=tuple(configurations),
        img_per_s=best.sample.mean,
        efficiency=max((share for share in published if not math.isnan(share)), default=math.nan),
    )


def _configuration(rows: list[_Row]) -> Configuration:
    tuned = {name: rows[0][name] for name in TUNED}
    runs = sorted(run for row in rows for run in row["runs"])
    values = tuple(float(value) for run in runs for value in run.values)
    # A mean without its values, as publications have it, counts as it is.
    means = values or [run.img_per_s for run in runs]
    return Configuration(
        **tuned | {"options": json.loads(tuned["options"] or "{}")},
        sample=Sample(sum(means) / len(means), values),
        sources=tuple(run.source for run in runs),
        rows=tuple(run.row for run in runs),
    )


def relative_to(point: CurvePoint, base: CurvePoint | None) -> CurvePoint:
    """``point`` with its speedup and efficiency relative to ``base``, as it is where one of them has no throughput.

    The baseline counts as a speedup of its own number of workers, so that ideal scaling is a speedup of ``workers``.
    """
    if base is None or math.isnan(point.img_per_s):
        return point
    return replace(
        point,
        speedup=point.img_per_s / base.img_per_s * base.workers,
        efficiency=scaling_efficiency(point.img_per_s, point.workers, base.img_per_s, base.workers),
        base=base,
    )


def rebased(curve: Curve, workers: int) -> Curve:
    """``curve`` with speedups and efficiencies relative to ``workers`` workers; without any if it was not measured there.

    Efficiencies that were published without a throughput stay as they are.
    """
    known = [point for point in curve.points if not math.isnan(point.img_per_s)]
    base = next((point for point in known if point.workers == workers), None)
    bare = [
        replace(point, speedup=math.nan, efficiency=math.nan, base=None) if point in known else point
        for point in curve.points
    ]
    return replace(curve, points=tuple(relative_to(point, base) for point in bare))


def common(curve: Curve, other: Curve) -> list[tuple[CurvePoint, CurvePoint]]:
    """The points of both curves at the sizes that both have."""
    beside = {point.workers: point for point in other.points}
    return [(point, beside[point.workers]) for point in curve.points if point.workers in beside]


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


def repeats_for(choices: Sequence[Choice], width: float, most: int = MOST_REPEATS) -> int | None:
    """How many repeats of every configuration it takes, at the spread seen, for an interval of × or ÷ exp(``width``).

    ``choices`` are those of a ratio. None where no spread is known, or ``most`` repeats are not enough.
    """
    known = [(spread[0], len(choice)) for choice in choices if (spread := _spread(choice))]
    if len(known) < len(choices):
        return None
    for repeats in range(2, most + 1):
        terms = []
        for deviation, configurations in known:
            freedom = float(configurations * (repeats - 1))
            lower, upper = _quantiles(freedom, configurations)
            terms.append((deviation / math.sqrt(repeats) * lower / upper, freedom))
        error, freedom = _added(terms)
        if not error or _quantiles(freedom, 1)[1] * error <= width:
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
    others = len(probabilities) - 1
    return holm(probabilities, [1.0] * others + [max(1.0, others)] * bool(probabilities))


@dataclass(frozen=True)
class Overhead:
    """What reading real images costs at one size: (synthetic − real) / synthetic, the formula of the 2017 report."""

    workers: int
    synthetic: CurvePoint
    real: CurvePoint
    overhead: float
    interval: Interval | None


def io_overheads(curves: Sequence[Curve]) -> list[tuple[Curve, list[Overhead]]]:
    """For each weak-scaling curve on real data its overheads over the curve that is equal but for its synthetic data."""

    def terms(curve: Curve) -> frozenset[tuple[str, Any]]:
        return frozenset((name, value) for name, value in curve.facets.items() if name != "data")

    weak = [curve for curve in curves if curve.scaling == "weak"]
    synthetic = {terms(curve): curve for curve in weak if curve.facets["data"] == "synthetic"}
    pairs = []
    for curve in weak:
        without = synthetic.get(terms(curve))
        if without is None or curve is without:
            continue
        overheads = []
        for real, other in common(curve, without):
            interval = ratio([real.samples], [other.samples]).interval
            lost = (other.img_per_s - real.img_per_s) / other.img_per_s
            limits = interval and (1 - interval[1], 1 - interval[0])
            overheads.append(Overhead(real.workers, other, real, lost, limits))
        if overheads:
            pairs.append((curve, overheads))
    return pairs
