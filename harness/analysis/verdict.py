"""Do MPI-based toolkits scale better than parameter servers here? The answer, from results.

Each toolkit contender is compared, like for like, with the best that the parameter servers offer at each size. The
ratio of scaling efficiencies is judged, both relative to the smallest common size (docs/verdict.md).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import takewhile
from typing import Literal

from harness.analysis import ratios, scaling
from harness.analysis.ratios import Ratio
from harness.analysis.scaling import Curve, CurvePoint, SharedFacets, common
from harness.results.result import Result

MARGIN = 0.05  # how close to 1 a ratio must be to count as no difference
FAR_APART_DAYS = 30

# Equal in a comparison like for like. ``training`` is "" on both sides.
TERMS = ("system", "model", "data", "device", "precision", "image_size", "batch_size", "devices_per_node", "origin")
# Named where they differ.
OTHERS = ("processor", "framework", "software", "transport", "threads", "options", "warmup_steps", "steps")

ScalingAnswer = Literal["better", "worse", "no difference", "changes", "cannot say"]
Overall = Literal["yes", "no", "some", "depends", "no difference", "cannot say"]
Reason = Literal["", "no spread", "one size", "too wide", "no counterpart", "other training"]


@dataclass(frozen=True)
class AtSize:
    """Both sides at one size. Efficiencies are relative to the smallest common size, where their ratio is 1 by definition;
    ratios are toolkit over servers.
    """

    workers: int
    toolkit: CurvePoint
    servers: CurvePoint
    efficiency_ratio: Ratio
    throughput_ratio: Ratio
    significant: bool = False

    @property
    def direction(self) -> Literal["better", "worse", ""]:
        if not self.significant:
            return ""
        return "better" if self.efficiency_ratio.value > 1 else "worse"


@dataclass(frozen=True)
class Terms:
    """Names and values that are equal on both sides, those that differ (toolkit's, servers'), and names without a value."""

    equal: Mapping[str, str]
    unequal: Mapping[str, tuple[str, str]]
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class Indication:
    """The nearest parameter servers, where there are none like for like. Not a comparison.

    ``differs`` are the terms that are not equal, with the toolkit's and the servers' values. ``largest`` are both at the
    largest common size, relative to the smallest one; None where there are no two.
    """

    differs: Mapping[str, tuple[object, object]]
    servers: Curve = field(repr=False)
    largest: tuple[CurvePoint, CurvePoint] | None = None


@dataclass(frozen=True)
class ComparedContender:
    """One contender against the best of the parameter servers. ``facets`` are those of the contender's curve.

    ``sizes`` are all common ones, the smallest first; ``parts`` are those between which they part for good. ``units`` is
    the number of jobs, or of repeats where one job has pairs, that tells every ratio from 1, or that it is within the
    margin, at the noise seen, if the ratios stay as they are.
    """

    facets: SharedFacets
    answer: ScalingAnswer
    reason: Reason = ""
    sizes: tuple[AtSize, ...] = ()
    parts: tuple[int, int] | None = None
    units: int | None = None
    terms: Terms | None = None
    indication: Indication | None = None

    @property
    def judged(self) -> tuple[AtSize, ...]:
        """The sizes with a known interval, without the smallest one."""
        return tuple(size for size in self.sizes if size.efficiency_ratio.p is not None)


@dataclass(frozen=True)
class LeftOut:
    """Runs that the verdict does not use, and why."""

    runs: int
    subject: str
    why: str


@dataclass(frozen=True)
class Verdict:
    """The answer. ``controls`` are the frameworks' own collectives, which are neither side and not in ``answer``.

    ``scatters`` is the publication whose runs are known to scatter most, in relation to their mean.
    """

    answer: Overall
    margin: float
    comparisons: tuple[ComparedContender, ...]
    controls: tuple[ComparedContender, ...]
    left_out: tuple[LeftOut, ...]
    scatters: Result | None = field(default=None, repr=False)


def verdict(results: Sequence[Result], margin: float = MARGIN) -> Verdict:
    """The answer from trainings of any status. A ratio within 1 ± ``margin`` counts as no difference."""
    usable = [run for run in results if run.completed and not math.isnan(run.img_per_s)]
    servers, others = ([run for run in usable if (run.family == "parameter_servers") == ours] for ours in (True, False))
    best = [curve for curve in scaling.curves(servers, by="family") if curve.scaling == "weak"]
    offered = {_terms(curve): curve for curve in best if not curve.facets["training"]}
    curves = scaling.curves([run for run in others if not run.training])
    strong = {run for curve in curves if curve.scaling == "strong" for run in curve.runs}
    weak = [
        curve for curve in curves if curve.scaling == "weak" and not (len(curve.points) == 1 and curve.runs <= strong)
    ]
    # All toolkits beside the same servers shall err together as seldom as one by itself.
    family = Counter(_terms(curve) for curve in weak if curve.facets["family"] == "toolkit")
    comparisons = [
        _compared(curve, offered.get(_terms(curve)), best, margin, max(1, family[_terms(curve)])) for curve in weak
    ]
    known = {_contender(curve) for curve in weak}
    for curve in scaling.curves([run for run in others if run.training]):
        if curve.scaling == "weak" and _contender(curve) not in known:
            known.add(_contender(curve))
            comparisons.append(ComparedContender(curve.facets, "cannot say", "other training"))
    toolkits, controls = (
        tuple(comparison for comparison in comparisons if comparison.facets["family"] == family)
        for family in ("toolkit", "collectives")
    )
    reasons = Counter(reason for run in results if (reason := _why_unused(run)))
    left_out = [LeftOut(runs, name, why) for (_, why, name), runs in sorted(reasons.items())]
    if unjudged := strong.difference(*(curve.runs for curve in weak)):
        left_out.append(LeftOut(len(unjudged), "toolkits with a constant global batch", "strong scaling is not judged"))
    for terms, curve in offered.items():
        if terms not in map(_terms, weak):
            name = "parameter servers on {system}: {model}, {data} data".format(**curve.facets)
            left_out.append(LeftOut(len(curve.runs), name, "no toolkit was measured like that"))
    return Verdict(
        answer=_overall({toolkit.answer for toolkit in toolkits} - {"cannot say"}),
        margin=margin,
        comparisons=toolkits,
        controls=controls,
        left_out=tuple(left_out),
        scatters=max(
            (run for run in usable if not run.measured and run.stdev > 0),
            key=lambda run: run.stdev / run.rate,
            default=None,
        ),
    )


def _why_unused(run: Result) -> tuple[int, str, str] | None:
    """The reason why a run does not count, between its place in a list and the run's name; None for one that counts."""
    if not run.completed:
        return 0, f"{run.status}, so it has no number", f"{run.backend} on {run.system}"
    if math.isnan(run.img_per_s):
        return 1, "only an efficiency was published", f"{run.backend} on {run.system}"
    return (2, "another training", f"{run.backend} with {run.training}") if run.training else None


def _compared(
    toolkit: Curve, servers: Curve | None, offered: Sequence[Curve], margin: float, family: int
) -> ComparedContender:
    """One contender's weak-scaling curve, of a ``family`` of so many, against the parameter servers' best."""
    if servers is None:
        return ComparedContender(
            toolkit.facets, "cannot say", "no counterpart", indication=_indication(toolkit, offered)
        )
    both = common(toolkit, servers)
    scatter = ratios.common_scatter([point.samples for pair in both for point in pair])
    sizes: list[AtSize] = []
    for pair in both:
        ours, theirs = (scaling.relative_to(point, base) for point, base in zip(pair, both[0], strict=True))
        efficiency = ratios.ratio(*scaling.ratio_terms(ours, theirs, by_efficiency=True), scatter)
        throughput = ratios.ratio(*scaling.ratio_terms(ours, theirs, by_efficiency=False), scatter)
        sizes.append(AtSize(ours.workers, ours, theirs, efficiency if sizes else Ratio(1.0), throughput))
    judged = {number: p for number, size in enumerate(sizes) if (p := size.efficiency_ratio.p) is not None}
    significances = ratios.significant([*judged.values()], family)
    for number, significant in zip(judged, significances, strict=True):
        sizes[number] = replace(sizes[number], significant=significant)
    # The runs of the best configurations at these sizes.
    sides = [[run for pair in both for run in pair[side].best.runs] for side in (0, 1)]
    answer, reason, parts = _judged(sizes, margin)
    units = _units(sizes, dict(zip(judged, ratios.levels(significances, family), strict=True)), margin)
    return ComparedContender(toolkit.facets, answer, reason, tuple(sizes), parts, units, _held(toolkit, *sides))


def _judged(sizes: Sequence[AtSize], margin: float) -> tuple[ScalingAnswer, Reason, tuple[int, int] | None]:
    """The answer, why there is none, and between which sizes they part."""
    if len(sizes) < 2:
        return "cannot say", "one size", None
    judged = [size for size in sizes if size.efficiency_ratio.p is not None]
    if not judged:
        return "cannot say", "no spread", None
    intervals = [size.efficiency_ratio.interval for size in judged if size.efficiency_ratio.interval]
    if len(judged) == len(sizes) - 1 and all(1 - margin <= low and high <= 1 + margin for low, high in intervals):
        return "no difference", "", None
    directions = {size.direction for size in judged if size.direction}
    if not directions:
        return "cannot say", "too wide", None
    last = judged[-1].direction
    if not last:
        return "changes", "", None
    first_apart = list(takewhile(lambda size: size.direction == last, reversed(judged)))[-1].workers
    below = max(size.workers for size in sizes if size.workers < first_apart)
    return "changes" if len(directions) > 1 else last, "", (below, first_apart)


def _units(sizes: Sequence[AtSize], levels: Mapping[int, float], margin: float) -> int | None:
    """The most jobs or pairs that any size but the first needs if its ratio stays as it is; None where one is not known.

    ``levels`` are those of the intervals, by the number of the size, of sizes with a known one.
    """
    most = None
    for number, size in enumerate(sizes[1:], start=1):
        terms = scaling.ratio_terms(size.toolkit, size.servers, by_efficiency=True)
        distance = abs(math.log(size.efficiency_ratio.value))
        units = ratios.units_for(*terms, distance, math.log1p(margin), levels.get(number, ratios.LEVEL))
        if units is None:
            return None
        most = max(units, most or 0)
    return most


def _overall(answers: set[ScalingAnswer]) -> Overall:
    if not answers:
        return "cannot say"
    if "better" in answers:
        return "yes" if answers == {"better"} else "some"
    if "changes" in answers:
        return "depends"
    return "no" if "worse" in answers else "no difference"


def _terms(curve: Curve) -> tuple[object, ...]:
    return tuple(curve.facets[name] for name in TERMS)


def _contender(curve: Curve) -> tuple[object, ...]:
    return (*_terms(curve), *(curve.facets[name] for name in scaling.CONTENDER))


def _held(curve: Curve, toolkit: Sequence[Result], servers: Sequence[Result]) -> Terms:
    values = {name: str(curve.facets[name]) for name in TERMS}
    equal = {name: value for name, value in values.items() if value not in ("", "0")}
    unknown = [name for name in TERMS if name not in equal]
    unequal: dict[str, tuple[str, str]] = {}
    for name in OTHERS:
        both = _named(name, toolkit), _named(name, servers)
        if not any(both):
            unknown.append(name)
        elif both[0] == both[1]:
            equal[name] = both[0]
        else:
            unequal[name] = both
    ours, theirs = (sorted(run.started for run in runs if run.started) for runs in (toolkit, servers))
    if ours and theirs:
        apart = datetime.fromisoformat(max(ours[0], theirs[0])) - datetime.fromisoformat(min(ours[-1], theirs[-1]))
        if apart.days > FAR_APART_DAYS:
            unequal["dates"] = f"{ours[0][:10]} to {ours[-1][:10]}", f"{theirs[0][:10]} to {theirs[-1][:10]}"
    return Terms(equal, unequal, tuple(unknown))


def _named(column: str, runs: Sequence[Result]) -> str:
    if column == "options":
        options: dict[str, set[str]] = defaultdict(set)
        for run in runs:
            for name, value in run.options.items():
                options[name].add(str(value))
        return ", ".join(f"{name}={'|'.join(sorted(texts))}" for name, texts in sorted(options.items()))
    values = sorted({getattr(run, column) for run in runs})
    if column == "software":  # ``TensorFlow 1.14, Horovod 0.16.4``: the toolkit's own version is the contender's name
        return ", ".join(sorted({value.partition(", ")[0] for value in values}))
    return ", ".join(str(value) for value in values if value not in ("", 0))


def _indication(toolkit: Curve, offered: Sequence[Curve]) -> Indication | None:
    """The parameter servers that differ least: on the same system if there are any, then in the fewest terms."""
    candidates = []
    for servers in offered:
        sides = {name: (toolkit.facets[name], servers.facets[name]) for name in (*TERMS, "training")}
        differs = {name: values for name, values in sides.items() if values[0] != values[1]}
        candidates.append((differs, servers, common(toolkit, servers)))
    if not candidates:
        return None
    differs, nearest, both = min(candidates, key=lambda each: ("system" in each[0], len(each[0]), -len(each[2])))
    if len(both) < 2 or "system" in differs or nearest.facets["training"]:
        return Indication(differs, nearest)
    ours, theirs = (scaling.relative_to(last, base) for base, last in zip(both[0], both[-1], strict=True))
    return Indication(differs, nearest, (ours, theirs))
