"""Do MPI-based toolkits scale better than parameter servers here? The answer, from a DataFrame of ``results.load``.

Each toolkit contender (backend, framework, software, transport) is compared with the best that the parameter servers offer
at each size (both strategies, all numbers and placements), like for like: system, model, data, device, precision, image
size, per-device batch, devices per node, warm-up and steps are equal, nothing is another training, and the scaling is weak.

What is judged is the ratio of scaling efficiencies, both relative to the smallest common size B: the speed of the
frameworks on B workers cancels. Its interval allows for the parameter servers' best having been picked
(``scaling.ratio``). Sizes at which the ratio is not 1 are told with Holm's correction: all sizes of a contender together
err with 5 % probability. Half of that is the largest size's, as that is where scaling is decided. ``docs/verdict.md`` says
what this can and cannot tell.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal

from harness.analysis import scaling
from harness.analysis.scaling import Curve, CurvePoint, Interval

if TYPE_CHECKING:
    import pandas

MARGIN = 0.05
FAR_APART_DAYS = 30

# What like for like means. ``training`` is "" on both sides.
TERMS = (
    *("system", "model", "data", "device", "precision", "image_size", "batch_size", "devices_per_node"),
    *("warmup_steps", "steps", "origin"),
)
# What may differ, and is named if it does.
OTHERS = ("processor", "framework", "software", "transport", "threads", "options")

Answer = Literal["better", "worse", "no difference", "changes", "cannot say"]
Overall = Literal["yes", "no", "some", "depends", "no difference", "cannot say"]
Reason = Literal["", "no spread", "one size", "too wide", "no counterpart", "other training"]


@dataclass(frozen=True)
class AtSize:
    """Both sides at one size. Efficiencies are relative to the smallest common size; ratios are toolkit over servers.

    ``p`` and intervals are None where a spread is not known, and at the smallest size, where the efficiency is 1 by
    definition.
    """

    workers: int
    nodes: int
    toolkit: CurvePoint
    servers: CurvePoint
    efficiency_ratio: float
    efficiency_interval: Interval | None
    throughput_ratio: float
    throughput_interval: Interval | None
    p: float | None = None
    significant: bool = False

    @property
    def direction(self) -> Literal["better", "worse", ""]:
        """Which way the toolkit differs, if that is significant."""
        if not self.significant:
            return ""
        return "better" if self.efficiency_ratio > 1 else "worse"


@dataclass(frozen=True)
class Terms:
    """What is equal on both sides, what differs (toolkit's and servers' value), and what is not known of either."""

    equal: Mapping[str, str]
    unequal: Mapping[str, tuple[str, str]]
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class Indication:
    """The nearest parameter servers, where there are none like for like. Not a comparison.

    ``differs`` are the terms that are not equal, with the toolkit's and the servers' values. Efficiencies are at
    ``workers`` relative to ``base``, the largest and the smallest size that both have; NaN where there are no two.
    """

    differs: Mapping[str, tuple[Any, Any]]
    servers: Curve
    base: int = 0
    workers: int = 0
    toolkit_efficiency: float = math.nan
    servers_efficiency: float = math.nan


@dataclass(frozen=True)
class ComparedContender:
    """One contender against the best of the parameter servers. ``facets`` are those of the contender's curve.

    ``base`` is the smallest common size (workers), ``sizes`` are all common ones. ``parts`` are the sizes between which
    they part for good. ``repeats`` is how many repeats it would take, at the noise seen, to know every ratio to within the
    margin; ``telling`` how many to tell every ratio from 1, or that it is within the margin, if the ratios stay as seen.
    """

    facets: Mapping[str, Any]
    answer: Answer
    reason: Reason = ""
    base: int = 0
    sizes: tuple[AtSize, ...] = ()
    parts: tuple[int, int] | None = None
    repeats: int | None = None
    telling: int | None = None
    terms: Terms | None = None
    indication: Indication | None = None

    @property
    def judged(self) -> tuple[AtSize, ...]:
        """The sizes with a known interval, without the smallest one."""
        return tuple(one for one in self.sizes if one.p is not None)


@dataclass(frozen=True)
class LeftOut:
    """Runs that the verdict does not use, and why."""

    runs: int
    what: str
    why: str


@dataclass(frozen=True)
class Verdict:
    """The answer. ``controls`` are the frameworks' own collectives, which are neither side and not in ``answer``."""

    answer: Overall
    margin: float
    comparisons: tuple[ComparedContender, ...]
    controls: tuple[ComparedContender, ...]
    left_out: tuple[LeftOut, ...]


def verdict(frame: pandas.DataFrame, margin: float = MARGIN) -> Verdict:
    """The answer from rows of ``results.load``, of any status. A ratio within 1 ± ``margin`` counts as no difference."""
    completed = frame[frame["status"] == "completed"]
    usable = completed[completed["img_per_s"].notna()]
    # Every index label once, so that a configuration's rows are found again.
    usable = usable.reset_index(drop=True)
    same = usable["training"] == ""
    servers = usable["family"] == "parameter_servers"
    best = [one for one in scaling.curves(usable[servers], by="family") if one.scaling == "weak"]
    offered = {_terms(one): one for one in best if not one.facets["training"]}
    found = scaling.curves(usable[same & ~servers])
    strong = {row for one in found if one.scaling == "strong" for row in _rows(one.points)}
    weak = [
        one for one in found if one.scaling == "weak" and not (len(one.points) == 1 and _rows(one.points) <= strong)
    ]
    used = {row for one in weak for row in _rows(one.points)}
    described = usable[[*OTHERS, "started"]]
    comparisons = [_compared(curve, offered.get(_terms(curve)), best, described, margin) for curve in weak]
    known = {_contender(one) for one in weak}
    for curve in scaling.curves(usable[~same & ~servers]):
        if curve.scaling == "weak" and _contender(curve) not in known:
            known.add(_contender(curve))
            comparisons.append(ComparedContender(curve.facets, "cannot say", "other training"))
    toolkits = tuple(one for one in comparisons if one.facets["family"] == "toolkit")
    return Verdict(
        answer=_overall([one.answer for one in toolkits]),
        margin=margin,
        comparisons=toolkits,
        controls=tuple(one for one in comparisons if one.facets["family"] == "collectives"),
        left_out=tuple(_left_out(frame, completed, usable, len(strong - used), best, {_terms(one) for one in weak})),
    )


def compared(toolkit: Curve, servers: Curve, margin: float = MARGIN) -> ComparedContender:
    """One contender's weak-scaling curve against the parameter servers' best, whatever else they have in common."""
    theirs = {point.workers: point for point in servers.points}
    both = [(point, theirs[point.workers]) for point in toolkit.points if point.workers in theirs]
    if len(both) < 2:
        sizes = tuple(_at_size(*pair, *pair, first=True) for pair in both)
        return ComparedContender(toolkit.facets, "cannot say", "one size", both[0][0].workers if both else 0, sizes)
    base = both[0]
    at = [_at_size(*pair, *base, first=pair is base) for pair in both]
    judged = [number for number, one in enumerate(at) if one.p is not None]
    others = len(judged) - 1
    told = scaling.holm([at[number].p for number in judged], [1.0] * others + [max(1.0, others)] * bool(judged))
    for number, significant in zip(judged, told, strict=True):
        at[number] = replace(at[number], significant=significant)
    sizes = tuple(at)
    answer, reason, parts = _judged([at[number] for number in judged], sizes, margin)
    wide = math.log(1 + margin)
    apart = [abs(math.log(one.efficiency_ratio)) for one in at[1:]]
    return ComparedContender(
        facets=toolkit.facets,
        answer=answer,
        reason=reason,
        base=base[0].workers,
        sizes=sizes,
        parts=parts,
        repeats=_repeats(both, [wide] * len(apart)),
        telling=_repeats(both, [max(one, wide - one) for one in apart]),
    )


def _compared(
    toolkit: Curve, servers: Curve | None, every: Sequence[Curve], frame: pandas.DataFrame, margin: float
) -> ComparedContender:
    if servers is None:
        indication = _indication(toolkit, every)
        return ComparedContender(toolkit.facets, "cannot say", "no counterpart", indication=indication)
    found = compared(toolkit, servers, margin)
    sides = [_of_best(one, _common(toolkit, servers), frame) for one in (toolkit, servers)]
    return replace(found, terms=_held(toolkit, *sides))


def _at_size(
    toolkit: CurvePoint, servers: CurvePoint, base: CurvePoint, base_servers: CurvePoint, first: bool
) -> AtSize:
    efficiency = scaling.ratio([toolkit.samples, base_servers.samples], [base.samples, servers.samples])
    throughput = scaling.ratio([toolkit.samples], [servers.samples])
    return AtSize(
        workers=toolkit.workers,
        nodes=toolkit.nodes,
        toolkit=scaling.relative_to(toolkit, base),
        servers=scaling.relative_to(servers, base_servers),
        efficiency_ratio=1.0 if first else efficiency.value,
        efficiency_interval=None if first else efficiency.interval(),
        throughput_ratio=throughput.value,
        throughput_interval=throughput.interval(),
        p=None if first else efficiency.p,
    )


def _judged(
    judged: Sequence[AtSize], sizes: Sequence[AtSize], margin: float
) -> tuple[Answer, Reason, tuple[int, int] | None]:
    """The answer, why there is none, and between which sizes they part."""
    if not judged:
        return "cannot say", "no spread", None
    if len(judged) == len(sizes) - 1 and all(_within(one.efficiency_interval, margin) for one in judged):
        return "no difference", "", None
    directions = {one.direction for one in judged if one.direction}
    if not directions:
        return "cannot say", "too wide", None
    last = judged[-1].direction
    parts = None
    if last:
        first_apart = list(takewhile(lambda one: one.direction == last, reversed(judged)))[-1].workers
        workers = [one.workers for one in sizes]
        parts = (workers[workers.index(first_apart) - 1], first_apart)
    return "changes" if not last or len(directions) > 1 else last, "", parts


def _within(interval: Interval | None, margin: float) -> bool:
    return interval is not None and 1 - margin <= interval[0] and interval[1] <= 1 + margin


def _repeats(both: Sequence[tuple[CurvePoint, CurvePoint]], widths: Sequence[float]) -> int | None:
    """The most repeats that any size needs for an interval as wide as its width, on logarithms."""
    base = both[0]
    needed = [
        scaling.repeats_for([point.samples for point in (*pair, *base)], width)
        for pair, width in zip(both[1:], widths, strict=True)
    ]
    known = [one for one in needed if one is not None]
    return max(known) if len(known) == len(needed) else None


def _overall(answers: Sequence[Answer]) -> Overall:
    told = {one for one in answers if one != "cannot say"}
    if not told:
        return "cannot say"
    if "better" in told:
        return "yes" if told == {"better"} else "some"
    if "changes" in told:
        return "depends"
    return "no" if "worse" in told else "no difference"


# --- what is equal, and what is not ---------------------------------------------------------------


def _terms(curve: Curve) -> tuple[Any, ...]:
    return tuple(curve.facets[name] for name in TERMS) if curve.scaling == "weak" else ()


def _contender(curve: Curve) -> tuple[Any, ...]:
    return (*(curve.facets[name] for name in (*TERMS, *scaling.CONTENDER) if name in curve.facets),)


def _rows(points: Iterable[CurvePoint]) -> set[int]:
    return {row for point in points for one in point.tried for row in one.rows}


def _of_best(curve: Curve, workers: Sequence[int], frame: pandas.DataFrame) -> pandas.DataFrame:
    """The runs of a curve's best configurations at these sizes."""
    return frame.loc[sorted(row for point in curve.points if point.workers in workers for row in point.best.rows)]


def _held(curve: Curve, toolkit: pandas.DataFrame, servers: pandas.DataFrame) -> Terms:
    values = {name: str(curve.facets[name]) for name in TERMS}
    equal = {name: value for name, value in values.items() if value not in ("", "0")}
    unknown = [name for name in TERMS if name not in equal]
    unequal: dict[str, tuple[str, str]] = {}
    for name in OTHERS:
        told = _named(name, toolkit), _named(name, servers)
        if not any(told):
            unknown.append(name)
        elif told[0] == told[1]:
            equal[name] = told[0]
        else:
            unequal[name] = told
    if apart := _far_apart(toolkit, servers):
        unequal["dates"] = apart
    return Terms(equal, unequal, tuple(unknown))


def _named(column: str, rows: pandas.DataFrame) -> str:
    values = sorted(rows[column].unique())
    if column == "software":  # the framework's version; the toolkit's own is the contender's name
        return ", ".join(sorted({framework_of(value) for value in values}))
    if column != "options":
        return ", ".join(str(value) for value in values if value not in ("", 0))
    options: dict[str, set[str]] = defaultdict(set)
    for text in values:
        for name, value in json.loads(text or "{}").items():
            options[name].add(str(value))
    return ", ".join(f"{name}={'|'.join(sorted(several))}" for name, several in sorted(options.items()))


def framework_of(software: str) -> str:
    """``TensorFlow 1.14`` of ``TensorFlow 1.14, Horovod 0.16.4``."""
    return software.partition(", ")[0]


def _far_apart(toolkit: pandas.DataFrame, servers: pandas.DataFrame) -> tuple[str, str] | None:
    """When both sides were measured, if more than ``FAR_APART_DAYS`` lie between the one and the other."""
    spans = [(min(days), max(days)) for rows in (toolkit, servers) if (days := sorted(filter(None, rows["started"])))]
    if len(spans) < 2:
        return None
    (first, last), (other_first, other_last) = spans
    later, earlier = max(first, other_first), min(last, other_last)
    if (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).days <= FAR_APART_DAYS:
        return None
    return f"{first[:10]} to {last[:10]}", f"{other_first[:10]} to {other_last[:10]}"


def _indication(toolkit: Curve, every: Sequence[Curve]) -> Indication | None:
    """The parameter servers that differ least: on the same system if there are any, then in the fewest terms."""
    if not every:
        return None

    def differs(servers: Curve) -> dict[str, tuple[Any, Any]]:
        sides = [(name, toolkit.facets[name], servers.facets[name]) for name in (*TERMS, "training")]
        return {name: (one, other) for name, one, other in sides if one != other}

    nearest = min(every, key=lambda one: ("system" in differs(one), len(differs(one)), -len(_common(toolkit, one))))
    sizes = _common(toolkit, nearest)
    if len(sizes) < 2 or "system" in differs(nearest) or nearest.facets["training"]:
        return Indication(differs(nearest), nearest)
    efficiencies = []
    for curve in (toolkit, nearest):
        at = {point.workers: point for point in curve.points}
        efficiencies.append(scaling.relative_to(at[sizes[-1]], at[sizes[0]]).efficiency)
    return Indication(differs(nearest), nearest, sizes[0], sizes[-1], *efficiencies)


def _common(toolkit: Curve, servers: Curve) -> list[int]:
    """The sizes that both curves have."""
    theirs = {point.workers for point in servers.points}
    return [point.workers for point in toolkit.points if point.workers in theirs]


def _left_out(
    frame: pandas.DataFrame,
    completed: pandas.DataFrame,
    usable: pandas.DataFrame,
    strong: int,
    servers: Sequence[Curve],
    compared_with: set[tuple[Any, ...]],
) -> list[LeftOut]:
    def counted(runs: pandas.DataFrame, *columns: str) -> list[tuple[tuple[str, ...], int]]:
        return sorted(Counter(zip(*(runs[name] for name in columns), strict=True)).items())

    left_out = [
        LeftOut(runs, f"{backend} on {system}", f"{status}, so it has no number")
        for (status, backend, system), runs in counted(
            frame[frame["status"] != "completed"], "status", "backend", "system"
        )
    ]
    for (backend, system), runs in counted(completed[completed["img_per_s"].isna()], "backend", "system"):
        left_out.append(LeftOut(runs, f"{backend} on {system}", "only an efficiency was published"))
    for (backend, training), runs in counted(usable[usable["training"] != ""], "backend", "training"):
        left_out.append(LeftOut(runs, f"{backend} with {training}", "another training"))
    if strong:
        left_out.append(LeftOut(strong, "toolkits with a constant global batch", "strong scaling is not judged"))
    for curve in servers:
        if not curve.facets["training"] and _terms(curve) not in compared_with:
            facets = curve.facets
            what = f"parameter servers on {facets['system']}: {facets['model']}, {facets['data']} data"
            left_out.append(LeftOut(len(_rows(curve.points)), what, "no toolkit was measured like that"))
    return left_out
