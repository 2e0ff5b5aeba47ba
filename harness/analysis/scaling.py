"""Throughput by number of workers: curves, the best configuration at each size, and intervals.

A *curve* was measured with everything equal but the size. The number of parameter servers, placement, buffer sizes and
threads are tuned at each size, and vary within a curve: each combination is a *configuration*. The best one makes the
curve's *point*, which says of how many. Runs of one configuration are pooled: their jobs count alike.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar, Literal, TypeVar

from harness.analysis.ratios import Choice, Interval, Sample, best_interval, ratio
from harness.core.statistics import scaling_efficiency
from harness.results.result import Result

# Equal within a curve. ``batch_size`` (per device, weak scaling) or the global batch (strong scaling) comes on top.
EQUAL = ("origin", "system", "model", "data", "device", "precision", "image_size", "training", "family")
# Tells curves of one family apart, unless a family's best is asked for.
CONTENDER = ("backend", "framework", "software", "transport", "mpi")
# Tuned at each size. Versions are never pooled, also where a family's best is asked for, nor are publications.
TUNED = (*CONTENDER, "ps", "tuned", "threads", "publication")

Scaling = Literal["weak", "strong"]
Of = TypeVar("Of")


@dataclass(frozen=True)
class Configuration:
    """The values of what is tuned at each size, equal in all of its ``runs``, and their throughputs."""

    backend: str
    ps: int
    options: Mapping[str, object]
    threads: int
    sample: Sample
    runs: tuple[Result, ...] = field(repr=False)
    framework: str = ""
    software: str = ""
    transport: str = ""
    mpi: str = ""

    @property
    def sources(self) -> tuple[str, ...]:
        """Record files or publications, one for each run."""
        return tuple(run.source for run in self.runs)


@dataclass(frozen=True)
class CurvePoint:
    """The best configuration of a curve at one size. Intervals are None where no spread is known.

    ``img_per_s`` is NaN where only an efficiency was published; ``speedup`` and ``efficiency`` are relative to ``base``,
    the curve's baseline. Intervals are computed when asked for: most tables do not, and SciPy takes a while to load.
    """

    DERIVED: ClassVar = ("interval", "efficiency_interval", "base_workers", "jobs")

    workers: int
    nodes: int
    best: Configuration
    tried: tuple[Configuration, ...]
    img_per_s: float
    speedup: float = math.nan
    efficiency: float = math.nan
    base: "CurvePoint | None" = field(default=None, repr=False)

    @cached_property
    def interval(self) -> Interval | None:
        """The interval of the best true throughput (img/s)."""
        return best_interval(self.samples)

    @cached_property
    def efficiency_interval(self) -> Interval | None:
        """The interval of the true scaling efficiency; None for the baseline itself."""
        if self.base is None or self.base.workers == self.workers:
            return None
        interval = ratio(*ratio_terms(self, self.base, by_efficiency=False)).interval
        scale = self.base.workers / self.workers
        return interval and (interval[0] * scale, interval[1] * scale)

    @property
    def base_workers(self) -> int | None:
        return self.base.workers if self.base else None

    @property
    def jobs(self) -> int:
        """The fewest jobs of any configuration; with one job ``interval`` is the repeatability within it."""
        return min(sample.size for sample in self.samples)

    @property
    def samples(self) -> tuple[Sample, ...]:
        return tuple(configuration.sample for configuration in self.tried)


SharedFacets = Mapping[str, Any]  # the values of columns that all results of a group share


@dataclass(frozen=True)
class Curve:
    """Points by number of workers. ``facets`` are the columns that are equal in all of them."""

    scaling: Scaling
    facets: SharedFacets
    points: tuple[CurvePoint, ...]

    @property
    def baseline(self) -> CurvePoint | None:
        """The point that efficiencies are relative to, maybe of another curve; None where there is none."""
        return next((point.base for point in self.points if point.base), None)

    @property
    def runs(self) -> set[Result]:
        return {run for point in self.points for configuration in point.tried for run in configuration.runs}


def curves(
    results: Sequence[Result], by: Literal["contender", "family"] = "contender", baseline: int = 0
) -> list[Curve]:
    """The curves of trainings that have a number, in the order of their facets.

    ``by="family"`` joins what a family has to offer, such as both strategies with parameter servers, into one curve of the
    best at each size, as the 2017 report did. ``baseline`` is the number of workers that efficiency is relative to; by
    default each curve's smallest. A curve that lacks it has no efficiencies.
    """
    facets = [*EQUAL, *(CONTENDER if by == "contender" else ())]
    taking = turns(results)
    curves: list[Curve] = []
    for values, alike in grouped(results, attrgetter(*facets)):
        equal = dict(zip(facets, values, strict=True))
        several = {run.devices_per_node for run in alike if run.nodes > 1}
        for per_node in sorted(several) or [max(run.devices_per_node for run in alike)]:
            # Runs on one node with fewer devices are the beginning of every curve that goes on.
            members = [
                run
                for run in alike
                if run.devices_per_node == per_node or (run.nodes <= 1 and run.devices_per_node < per_node)
            ]
            equal["devices_per_node"] = per_node
            for batch_size, same in grouped(members, attrgetter("batch_size")):
                curves.append(_curve("weak", equal | {"batch_size": batch_size}, same, taking, baseline))
            for batch, same in grouped(members, lambda run: run.batch_size * run.workers):
                if batch and len({run.batch_size for run in same}) > 1:
                    curves.append(_curve("strong", equal | {"global_batch": batch}, same, taking, baseline))
    return curves


def curves_of_sides(results: Sequence[Result], baseline: int = 0) -> list[Curve]:
    """The ``curves`` where parameter servers are one contender, of which the better strategy counts, as in 2017."""
    servers = [run for run in results if run.family == "parameter_servers"]
    others = [run for run in results if run.family != "parameter_servers"]
    return [*curves(servers, by="family", baseline=baseline), *curves(others, baseline=baseline)]


def turns(results: Sequence[Result]) -> dict[Result, int]:
    """The most runs that took turns in one job of each run: all that have repeats in it on its system."""
    jobs_of = {run: {(run.system, job) for job in run.jobs} for run in results}
    runs = Counter(job for jobs in jobs_of.values() for job in jobs)
    return {run: max((runs[job] for job in jobs), default=1) for run, jobs in jobs_of.items()}


def grouped(results: Iterable[Result], alike_in: Callable[[Result], Of]) -> list[tuple[Of, list[Result]]]:
    """The results that are ``alike_in`` something, sorted by that."""
    groups: dict[Of, list[Result]] = defaultdict(list)
    for result in results:
        groups[alike_in(result)].append(result)
    return sorted(groups.items(), key=lambda group: group[0])  # type: ignore[return-value, arg-type]


def _curve(
    scaling: Scaling, facets: dict[str, object], runs: list[Result], taking: Mapping[Result, int], baseline: int
) -> Curve:
    points = tuple(_point(same, taking) for _, same in grouped(runs, attrgetter("workers")))
    return rebased(Curve(scaling, facets, points), baseline)


def _point(runs: list[Result], taking: Mapping[Result, int]) -> CurvePoint:
    configurations = [_configuration(same, taking) for _, same in grouped(runs, attrgetter(*TUNED))]
    best = max(configurations, key=lambda each: (not math.isnan(each.sample.mean), each.sample.mean))
    published = [run.published_efficiency for run in runs]
    return CurvePoint(
        workers=runs[0].workers,
        nodes=max(run.nodes for run in runs),
        best=best,
        tried=tuple(configurations),
        img_per_s=best.sample.mean,
        efficiency=max((share for share in published if not math.isnan(share)), default=math.nan),
    )


def _configuration(runs: list[Result], taking: Mapping[Result, int]) -> Configuration:
    first = max(runs, key=lambda run: (not math.isnan(run.rate), run.rate))
    values = [value for run in runs for value in run.values]
    # Values without a job would count as jobs. A mean without its values, as publications have it, counts as it is.
    jobs = [job for run in runs for job in (run.jobs or [run.source] * len(run.values))]
    sample = Sample.of_publication(first.img_per_s, first.stdev, first.runs)
    if values:
        sample = Sample.of(values, jobs, max(taking[run] for run in runs))
    tuned = {name: getattr(first, name) for name in (*CONTENDER, "ps", "options", "threads")}
    return Configuration(**tuned, sample=sample, runs=tuple(runs))


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


def ratio_terms(point: CurvePoint, other: CurvePoint, by_efficiency: bool) -> tuple[list[Choice], list[Choice]]:
    """The dividend and the divisor of two points: their throughputs or, ``by_efficiency``, each over its base's."""
    if by_efficiency and point.base and other.base:
        return [point.samples, other.base.samples], [other.samples, point.base.samples]
    return [point.samples], [other.samples]


def rebased(curve: Curve, workers: int) -> Curve:
    """``curve`` with speedups and efficiencies relative to ``workers`` workers; 0 stands for its smallest size.

    It has none if it was not measured there. Efficiencies that were published without a throughput stay as they are.
    """
    known = [point for point in curve.points if not math.isnan(point.img_per_s)]
    base = next((point for point in known if workers in (0, point.workers)), None)
    if base is None:
        bare = {point.workers: replace(point, speedup=math.nan, efficiency=math.nan, base=None) for point in known}
        return replace(curve, points=tuple(bare.get(point.workers, point) for point in curve.points))
    return replace(curve, points=tuple(relative_to(point, base) for point in curve.points))


def common(curve: Curve, other: Curve) -> list[tuple[CurvePoint, CurvePoint]]:
    """The points of both curves at the sizes that both have."""
    beside = {point.workers: point for point in other.points}
    return [(point, beside[point.workers]) for point in curve.points if point.workers in beside]


@dataclass(frozen=True)
class Overhead:
    """The cost of reading real images at one size: (synthetic − real) / synthetic, the formula of the 2017 report."""

    workers: int
    synthetic: CurvePoint
    real: CurvePoint
    overhead: float
    interval: Interval | None


def io_overheads(curves: Sequence[Curve]) -> list[tuple[Curve, list[Overhead]]]:
    """The overheads of each weak-scaling curve on real data over the curve that is equal but for its synthetic data."""

    def terms(curve: Curve) -> frozenset[tuple[str, object]]:
        return frozenset((name, value) for name, value in curve.facets.items() if name != "data")

    weak = [curve for curve in curves if curve.scaling == "weak"]
    synthetic = {terms(curve): curve for curve in weak if curve.facets["data"] == "synthetic"}
    pairs = []
    for curve in weak:
        other = synthetic.get(terms(curve))
        both = common(curve, other) if other and other is not curve else []
        if both:
            pairs.append((curve, [_overhead(real, without) for real, without in both]))
    return pairs


def _overhead(real: CurvePoint, synthetic: CurvePoint) -> Overhead:
    interval = ratio(*ratio_terms(real, synthetic, by_efficiency=False)).interval
    lost = (synthetic.img_per_s - real.img_per_s) / synthetic.img_per_s
    return Overhead(real.workers, synthetic, real, lost, interval and (1 - interval[1], 1 - interval[0]))
