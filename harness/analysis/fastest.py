"""The ways of distributing that are fastest at each size, by how much and how sure; and those that scale best.

A *race* was measured like for like: system, model, data, device, precision, image size, per-device batch and devices per
node are equal, and nothing is another training. Contenders differ in backend, framework, software, transport or MPI
library, each with its best configuration at each size.

The best one of several is claimed to be better than all others if it differs significantly from each of them
(docs/verdict.md). That needs no correction for the number of contenders (Gutmann and Maymin 1987, "Is the selected
population the best?"; Hung and Fithian 2019, "Rank verification for exponential families").
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from harness.analysis import ratios, scaling
from harness.analysis.ratios import Ratio
from harness.analysis.scaling import Curve, CurvePoint, SharedFacets
from harness.analysis.verdict import MARGIN
from harness.results.result import LENGTH, Result

# Equal in a race.
TERMS = (*(name for name in scaling.EQUAL if name != "family"), "batch_size", "devices_per_node")


@dataclass(frozen=True)
class Standing:
    """A contender at one size, and the ratio of the best contender's figure to its own. ``facets`` are its curve's."""

    facets: SharedFacets
    point: CurvePoint
    ratio: Ratio


@dataclass(frozen=True)
class Ranking:
    """Contenders at one size, the best first: by img/s or, relative to ``base`` workers, by scaling efficiency.

    ``decided`` says that the first is better than every other one: in an interval of that ``level``. Figures that are
    within the ``margin`` of one another are equal.
    """

    DERIVED: ClassVar = ("equal", "p", "units")

    workers: int
    standings: tuple[Standing, ...]
    base: int = 0
    decided: bool = False
    level: float = ratios.LEVEL
    margin: float = MARGIN

    @property
    def best(self) -> Standing:
        return self.standings[0]

    @property
    def p(self) -> float | None:
        """The largest of the probabilities of differences as large as those between the first and each other one."""
        known = [p for standing in self.standings[1:] if (p := standing.ratio.p) is not None]
        return max(known, default=None) if len(known) == len(self.standings) - 1 else None

    @property
    def rivals(self) -> tuple[Standing, ...]:
        """The others that may be as good as the first: none if it is decided, else at least the hardest one to tell."""
        if self.decided or len(self.standings) < 2:
            return ()
        limit = min(1 - ratios.LEVEL, 1.0 if self.p is None else self.p)
        return tuple(other for other in self.standings[1:] if other.ratio.p is None or other.ratio.p >= limit)

    @property
    def unit(self) -> ratios.ChanceUnit:
        """The unit of the comparison with the fewest jobs."""
        return min(other.ratio.unit for other in self.standings[1:])

    @cached_property
    def units(self) -> int | None:
        """The number of jobs, or of repeats where one job has pairs, that tells the first from the hardest one to tell
        from it, or tells that both are within the margin, at the noise seen, if their ratio stays; None where not known.
        """
        if len(self.standings) < 2:
            return None
        hardest = max(self.standings[1:], key=lambda other: other.ratio.p or 0.0)
        over, under = scaling.ratio_terms(self.best.point, hardest.point, by_efficiency=self.base > 0)
        return ratios.units_for(over, under, math.log(hardest.ratio.value), math.log1p(self.margin), self.level)

    @property
    def equal(self) -> bool:
        """True if the first is known to be within the margin of all its rivals."""
        limits = [rival.ratio.interval for rival in self.rivals]
        return bool(limits) and all(each is not None and each[1] <= 1 + self.margin for each in limits)


@dataclass(frozen=True)
class Race:
    """Rankings of what is alike in ``facets``: by img/s at each size, the smallest first, and by how it scales.

    ``scales`` compares the largest size that several contenders were measured at with the smallest one that several of
    these have in common; None where there are no two such sizes. ``varying`` has what may differ between runs and does, of
    ``LENGTH``, with its values.
    """

    facets: Mapping[str, object]
    sizes: tuple[Ranking, ...]
    scales: Ranking | None
    varying: Mapping[str, Sequence[int]]

    @property
    def base(self) -> int:
        """The workers that efficiencies in this race are relative to; 0 where each curve's smallest size has to do."""
        return self.scales.base if self.scales else 0

    @property
    def contested(self) -> tuple[Ranking, ...]:
        """The sizes at which there is something to compare."""
        return tuple(ranking for ranking in self.sizes if len(ranking.standings) > 1)


def races(results: Sequence[Result], curves: Sequence[Curve] | None = None, margin: float = MARGIN) -> list[Race]:
    """The races among trainings, of any status: those at the largest sizes first, with most contenders.

    ``curves`` are those of the completed runs, if they are known already. Figures within the ``margin`` of one another
    count as equal.
    """
    if curves is None:
        curves = scaling.curves([run for run in results if run.completed])
    groups: dict[tuple[object, ...], list[Curve]] = defaultdict(list)
    for curve in curves:
        points = tuple(point for point in curve.points if not math.isnan(point.img_per_s))
        if points and curve.scaling == "weak" and not curve.facets["training"]:
            groups[tuple(curve.facets[name] for name in TERMS)].append(replace(curve, points=points))
    races = [_race(dict(zip(TERMS, alike, strict=True)), entered, margin) for alike, entered in groups.items()]
    return sorted(races, key=_contested, reverse=True)


def on_common_bases(curves: Sequence[Curve], races: Sequence[Race]) -> list[Curve]:
    """``curves`` with efficiencies relative to the base of their race, so that they can be compared.

    A curve that was not measured there has no efficiencies. Curves of strong scaling, of other trainings, and of races
    without a base stay relative to their smallest size.
    """
    bases = {tuple(race.facets[name] for name in TERMS): race.base for race in races}
    rebased = []
    for curve in curves:  # those of strong scaling have no ``batch_size``
        base = bases.get(tuple(curve.facets.get(name) for name in TERMS))
        rebased.append(scaling.rebased(curve, base) if base else curve)
    return rebased


def _contested(race: Race) -> tuple[int, int, int]:
    """At what size, between how many contenders, and at how many sizes a race is decided."""
    last = race.contested[-1:]
    return (last[0].workers, len(last[0].standings), len(race.contested)) if last else (0, 0, 0)


def _race(facets: Mapping[str, object], curves: Sequence[Curve], margin: float) -> Race:
    runs = set[Result]().union(*(curve.runs for curve in curves))
    lengths = {name: sorted({value for run in runs if (value := getattr(run, name)) == value}) for name in LENGTH}
    varying = {name: values for name, values in lengths.items() if len(values) > 1}
    entered: dict[int, list[_Entry]] = defaultdict(list)
    for curve in curves:
        for point in curve.points:
            entered[point.workers].append((curve, point))
    sizes, scales = [_ranking(entered[workers], margin) for workers in sorted(entered)], None
    contested = [number for number, ranking in enumerate(sizes) if len(ranking.standings) > 1]
    significances = ratios.significant([sizes[n].p for n in contested])
    for number, significant, level in zip(contested, significances, ratios.levels(significances), strict=True):
        sizes[number] = replace(sizes[number], decided=significant, level=level)
    # Efficiencies are relative to the smallest size that several of those at the largest contested one have.
    last = sizes[contested[-1]].workers if contested else 0
    for size in sorted(size for size in entered if size < last):
        several = [
            (curve, scaling.relative_to(point, base))
            for curve, point in entered[last]
            for other, base in entered[size]
            if other is curve
        ]
        if len(several) > 1:
            scales = _ranking(several, margin, size)
            scales = replace(scales, decided=ratios.significant([scales.p])[0])
            break
    return Race(facets, tuple(sizes), scales, varying)


_Entry = tuple[Curve, CurvePoint]  # a contender, and its point at a size


def _ranking(entered: Sequence[_Entry], margin: float, base: int = 0) -> Ranking:
    """The ranking by img/s or, relative to ``base`` workers, by efficiency."""
    ordered = sorted(entered, key=lambda entry: entry[1].efficiency if base else entry[1].img_per_s, reverse=True)
    first = ordered[0][1]
    choices = [point.samples for _, point in entered]
    choices += [point.base.samples for _, point in entered if base and point.base]
    common = ratios.common_scatter(choices)
    standings = []
    for curve, point in ordered:
        terms = scaling.ratio_terms(first, point, by_efficiency=base > 0)
        ratio = Ratio(1.0) if point is first else ratios.ratio(*terms, common)
        standings.append(Standing(curve.facets, point, ratio))
    return Ranking(first.workers, tuple(standings), base, margin=margin)
