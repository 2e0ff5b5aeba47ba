"""How throughput grows with the number of workers: curves, the best configuration at each size, and intervals.

A *curve* is what was measured with everything equal but the size. What is tuned at each size (the number of parameter
servers, placement, buffer sizes, threads) varies within a curve: each combination is a *configuration*, and the best one
makes the curve's *point*, which says of how many. Runs of one configuration are pooled: their repeats count alike.

Intervals are 95 % confidence intervals. Those of ratios are taken on logarithms, with the degrees of freedom of Welch and
Satterthwaite. Picking the best of several configurations favours lucky ones; a point's interval covers the best
configuration's true throughput nevertheless: the intervals of all K configurations hold together (Šidák), with one relative
standard deviation estimated from all of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pandas

LEVEL = 0.95

# Equal within a curve. ``batch_size`` (per device, weak scaling) or the global batch (strong scaling) comes on top.
EQUAL = (
    *("origin", "system", "model", "data", "device", "precision", "image_size", "training"),
    *("warmup_steps", "steps", "family"),
)
# What tells curves of one family apart, unless a family's best is asked for.
CONTENDER = ("backend", "framework", "software", "transport")

Scaling = Literal["weak", "strong"]
Interval = tuple[float, float]


@dataclass(frozen=True)
class Sample:
    """Throughputs (img/s) of one configuration in fresh processes. Published ones may be known by their mean only."""

    mean: float
    values: tuple[float, ...] = ()

    @property
    def relative_variance(self) -> float | None:
        """Sample variance of the values over their mean squared; None for fewer than two values."""
        if len(self.values) < 2:
            return None
        return sum((value - self.mean) ** 2 for value in self.values) / (len(self.values) - 1) / self.mean**2


@dataclass(frozen=True)
class Configuration:
    """What was tuned at one size, and what it gave. ``sources`` are record files or publications, one for each run."""

    backend: str
    ps: int
    options: Mapping[str, Any]
    threads: int
    sample: Sample
    sources: tuple[str, ...]

    @property
    def label(self) -> str:
        """``116 ps``, with nothing said of backends without servers."""
        return f"{self.ps} ps" if self.ps else ""


@dataclass(frozen=True)
class Point:
    """The best configuration of a curve at one size. Intervals are None where no spread is known.

    ``img_per_s`` is NaN where only an efficiency was published; ``speedup`` and ``efficiency`` are relative to the curve's
    baseline.
    """

    workers: int
    nodes: int
    best: Configuration
    tried: tuple[Configuration, ...]
    img_per_s: float
    interval: Interval | None
    speedup: float = math.nan
    efficiency: float = math.nan
    efficiency_interval: Interval | None = None


@dataclass(frozen=True)
class Curve:
    """Points by number of workers. ``facets`` are the columns that are equal in all of them."""

    scaling: Scaling
    facets: Mapping[str, Any]
    points: tuple[Point, ...]
    baseline: Point | None = field(default=None)


def curves(frame: pandas.DataFrame, by: Literal["contender", "family"] = "contender", baseline: int = 0) -> list[Curve]:
    """The curves in a DataFrame of ``results.load``, in the order of their facets.

    ``by="family"`` joins what a family has to offer, such as both strategies with parameter servers, into one curve of the
    best at each size, as the 2017 report did. ``baseline`` is the number of workers that efficiency is relative to; by
    default each curve's smallest. A curve that lacks it has no efficiencies.
    """
    facets = [*EQUAL, *(CONTENDER if by == "contender" else ())]
    found: list[Curve] = []
    for values, rows in frame.groupby(facets, sort=True, dropna=False):
        equal = dict(zip(facets, values, strict=True))
        for per_node, its in _by_devices_per_node(rows):
            for batch_size, same in its.groupby("batch_size", sort=True):
                found.append(
                    _curve("weak", equal | {"devices_per_node": per_node, "batch_size": batch_size}, same, baseline)
                )
            for global_batch, same in its.groupby(its["batch_size"] * its["workers"], sort=True):
                if global_batch and same["batch_size"].nunique() > 1:
                    found.append(
                        _curve(
                            "strong",
                            equal | {"devices_per_node": per_node, "global_batch": global_batch},
                            same,
                            baseline,
                        )
                    )
    return found


def _by_devices_per_node(rows: pandas.DataFrame) -> Iterable[tuple[int, pandas.DataFrame]]:
    """Rows by devices per node. Runs on one node with fewer devices are the beginning of every curve that goes on."""
    several = rows["nodes"] > 1
    sizes = sorted(rows.loc[several, "devices_per_node"].unique()) or [rows["devices_per_node"].max()]
    for size in sizes:
        yield int(size), rows[(rows["devices_per_node"] == size) | (~several & (rows["devices_per_node"] < size))]


def _curve(scaling: Scaling, facets: dict[str, Any], rows: pandas.DataFrame, baseline: int) -> Curve:
    points = [_point(same) for _, same in rows.groupby("workers", sort=True)]
    known = [point for point in points if not math.isnan(point.img_per_s)]
    base = next((point for point in known if point.workers == (baseline or known[0].workers)), None)
    related = tuple(_related(point, base) for point in points)
    return Curve(scaling, facets, related, next((one for one in related if base and one.workers == base.workers), None))


def _point(rows: pandas.DataFrame) -> Point:
    published = rows["published_efficiency"].max()
    configurations = _configurations(rows)
    best = max(configurations, key=lambda one: (not math.isnan(one.sample.mean), one.sample.mean))
    interval = best_interval([one.sample for one in configurations])
    return Point(
        workers=int(rows["workers"].iloc[0]),
        nodes=int(rows["nodes"].max()),
        best=best,
        tried=tuple(configurations),
        img_per_s=best.sample.mean,
        interval=interval,
        efficiency=float(published),
    )


def _configurations(rows: pandas.DataFrame) -> list[Configuration]:
    found = []
    key: Any
    for key, same in rows.groupby(["backend", "ps", "options", "threads"], sort=True):
        backend, ps, options, threads = key
        values = tuple(float(value) for run in same["values"] for value in run)
        # A mean without its values, as publications have it, counts as it is.
        mean = sum(values) / len(values) if values else float(same["img_per_s"].mean())
        found.append(
            Configuration(
                backend=str(backend),
                ps=int(ps),
                options=json.loads(options or "{}"),
                threads=int(threads),
                sample=Sample(mean, values),
                sources=tuple(same["source"]),
            )
        )
    return found


def _related(point: Point, base: Point | None) -> Point:
    """``point`` with its speedup and efficiency relative to ``base``."""
    if base is None or math.isnan(point.img_per_s):
        return point
    speedup = point.img_per_s / base.img_per_s
    scale = base.workers / point.workers
    interval = None if point.workers == base.workers else ratio_interval([point.best.sample], [base.best.sample])
    return Point(
        **{name: getattr(point, name) for name in ("workers", "nodes", "best", "tried", "img_per_s", "interval")},
        speedup=speedup * base.workers,
        efficiency=speedup * scale,
        efficiency_interval=interval and (interval[0] * scale, interval[1] * scale),
    )


def best_interval(samples: Sequence[Sample]) -> Interval | None:
    """The interval of the best true throughput among ``samples`` (img/s), None where no spread is known.

    With one sample it is Student's t interval of its mean.
    """
    from scipy.special import stdtrit

    known = [sample for sample in samples if sample.relative_variance is not None]
    if len(known) < len(samples) or not known:
        return None
    freedom = sum(len(sample.values) - 1 for sample in known)
    squares = sum((len(one.values) - 1) * one.relative_variance for one in known if one.relative_variance is not None)
    deviation = math.sqrt(squares / freedom)
    quantile = float(stdtrit(freedom, (1 + LEVEL ** (1 / len(known))) / 2))
    widths = [quantile * deviation / math.sqrt(len(sample.values)) for sample in known]
    pairs = list(zip(known, widths, strict=True))
    return max(one.mean * (1 - width) for one, width in pairs), max(one.mean * (1 + width) for one, width in pairs)


def ratio_interval(over: Sequence[Sample], under: Sequence[Sample], level: float = LEVEL) -> Interval | None:
    """The interval of the product of the means ``over`` divided by that of the means ``under``.

    None if the spread of one of them is not known.
    """
    from scipy.special import stdtrit

    found = log_error([*over, *under])
    if found is None:
        return None
    error, freedom = found
    ratio = math.prod(one.mean for one in over) / math.prod(one.mean for one in under)
    factor = math.exp(float(stdtrit(freedom, (1 + level) / 2)) * error) if error else 1.0
    return ratio / factor, ratio * factor


def log_error(samples: Sequence[Sample]) -> tuple[float, float] | None:
    """Standard error of the logarithm of a product or quotient of means, and its degrees of freedom (Welch–Satterthwaite).

    None if a sample has fewer than two values.
    """
    terms = []
    for sample in samples:
        variance = sample.relative_variance
        if variance is None:
            return None
        terms.append((variance / len(sample.values), len(sample.values) - 1))
    total = sum(term for term, _ in terms)
    if total == 0:
        return 0.0, float(sum(freedom for _, freedom in terms))
    return math.sqrt(total), total**2 / sum(term**2 / freedom for term, freedom in terms)


@dataclass(frozen=True)
class Overhead:
    """What reading real images costs at one size: (synthetic − real) / synthetic, the formula of the 2017 report."""

    workers: int
    synthetic: Point
    real: Point
    overhead: float
    interval: Interval | None


def io_overheads(found: Sequence[Curve]) -> list[tuple[Curve, list[Overhead]]]:
    """For each weak-scaling curve on synthetic data the overheads of the curve that is equal but for its real data."""
    told = []
    for curve in found:
        if curve.scaling != "weak" or curve.facets["data"] != "synthetic":
            continue
        other = next(
            (one for one in found if one.scaling == "weak" and one.facets == {**curve.facets, "data": "real"}), None
        )
        if other is None:
            continue
        real = {point.workers: point for point in other.points}
        overheads = [_overhead(point, real[point.workers]) for point in curve.points if point.workers in real]
        if overheads:
            told.append((curve, overheads))
    return told


def _overhead(synthetic: Point, real: Point) -> Overhead:
    interval = ratio_interval([real.best.sample], [synthetic.best.sample])
    return Overhead(
        workers=synthetic.workers,
        synthetic=synthetic,
        real=real,
        overhead=(synthetic.img_per_s - real.img_per_s) / synthetic.img_per_s,
        interval=interval and (1 - interval[1], 1 - interval[0]),
    )
