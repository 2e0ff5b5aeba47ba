"""What the scaling model says about the curves of a report: fits of their groups, and each curve predicted."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.analysis.scaling import CurvePoint
from harness.core.text import plural
from harness.prediction import fitting, forecast
from harness.prediction.explain import Explanation, partitioned, sentences
from harness.prediction.fitting import Fit
from harness.prediction.forecast import Basis, Prediction, What
from harness.prediction.observations import Observation, ObservationGroup, groups, work_of
from harness.report.page.figures import Facets
from harness.report.page.lines import Line

if TYPE_CHECKING:
    import pandas

FEWEST_SIZES = 3
MOST_GROUPS = 6
MOST_CURVES = 6  # of a group
BEYOND = 4  # sizes up to so many times the largest one are predicted
MOST_FITTED = 200  # of more configurations of a group only the best at each size are fitted, which takes long enough


@dataclass(frozen=True)
class Size:
    """A predicted size, with what was predicted; ``point`` is what was measured, if it was."""

    what: What
    basis: Basis
    prediction: Prediction
    point: CurvePoint | None

    @property
    def workers(self) -> int:
        return self.prediction.workers

    @property
    def error(self) -> float:
        """Of a measured size: predicted over measured, minus 1."""
        assert self.point is not None
        return self.prediction.img_per_s / self.point.img_per_s - 1


@dataclass(frozen=True)
class Modelled:
    """A curve of the report with its predictions, the smallest size first."""

    line: Line
    sizes: tuple[Size, ...]

    @property
    def largest(self) -> Size:
        """The largest measured size."""
        return [one for one in self.sizes if one.point is not None][-1]


@dataclass(frozen=True)
class Explained:
    """A fitted group with its curves, the one with the largest size first, and what binds that one there."""

    fit: Fit
    curves: tuple[Modelled, ...]
    explanation: Explanation

    @property
    def name(self) -> str:
        return self.fit.group.name

    @property
    def facets(self) -> Facets:
        """All that its curves have."""
        every = [one.line.facets for one in self.curves]
        return Facets(
            *(tuple(dict.fromkeys(value for one in part for value in one)) for part in zip(*every, strict=True))
        )

    @property
    def said(self) -> str:
        """What binds the largest measured size, and what would help, in a sentence."""
        size = self.curves[0].largest
        where = f"{plural(size.workers, 'worker')}, {self.curves[0].line.facets.model[0]}"
        return f"{where}: {'; '.join(sentences(self.explanation))}."


def explained(frame: pandas.DataFrame, lines: Sequence[Line]) -> tuple[list[Explained], list[str]]:
    """The groups in a DataFrame of ``results.load`` that are large enough to fit, with their curves among ``lines``.

    Those with most sizes, then runs, come first. Also what was left out, and why.
    """
    weak = [line for line in lines if line.curve.scaling == "weak"]
    found = [(group, [line for line in weak if _points(line, group)]) for group in groups(frame)[0]]
    large = [one for one in found if one[1] and _sizes(one[0]) >= FEWEST_SIZES and _distributed(one[0])]
    large.sort(key=lambda one: (-_sizes(one[0]), -len(one[0].observations)))
    left_out = [one.name for one, _ in large[MOST_GROUPS:]]
    return [_explained(group, its) for group, its in large[:MOST_GROUPS]], left_out


def _sizes(group: ObservationGroup) -> int:
    return len({one.workers for one in group.observations if not one.relative})


def _distributed(group: ObservationGroup) -> bool:
    return any(one.nodes > 1 for one in group.observations)


def _explained(group: ObservationGroup, lines: Sequence[Line]) -> Explained:
    fit = fitting.fit(_best(group) if len(group.observations) > MOST_FITTED else group)
    # A curve of one or two sizes says little by itself.
    lines = [one for one in lines if len(one.curve.points) >= FEWEST_SIZES] or list(lines)
    lines = sorted(lines, key=lambda one: (-_largest(one), -len(one.curve.points)))[:MOST_CURVES]
    curves = tuple(_modelled(fit, line) for line in lines)
    largest = curves[0].largest
    return Explained(fit, curves, _explanation(largest))


def _best(group: ObservationGroup) -> ObservationGroup:
    """With the fastest configuration of each backend at each size only."""
    fastest: dict[Hashable, Observation] = {}
    for one in group.observations:
        key = (one.backend, one.nodes, one.workers, one.work)
        if key not in fastest or one.step_s < fastest[key].step_s:
            fastest[key] = one
    return replace(group, observations=tuple(fastest.values()))


def _largest(line: Line) -> int:
    return max(point.workers for point in line.curve.points)


def _explanation(size: Size) -> Explanation:
    """As ``explain.explain``, but with the same number of servers: to try them all takes too long for a page."""
    alternatives = []
    if size.what.has_servers and json.loads(size.what.options).get("placement") != "partitioned":
        other = forecast.at(partitioned(size.what), size.basis, size.prediction.nodes, size.prediction.ps)
        alternatives.append(("partitioning tensors to 1 MiB slices", other))
    return Explanation(size.what, size.basis, size.prediction, tuple(alternatives))


# --- which observation a point is -----------------------------------------------------------------


def _points(line: Line, group: ObservationGroup) -> list[tuple[CurvePoint, Observation]]:
    """The points of ``line`` that are in ``group``, each with the observation there."""
    key = group.key
    where = line.facets.system[0], line.curve.facets["software"], line.facets.transport[0]
    if where != (key.system, key.software, key.transport):
        return []
    equal = {name: line.curve.facets[name] for name in ("precision", "training", "image_size", "batch_size")}
    equal |= {"system": key.system, "software": key.software, "model": line.panel[0], "data": line.panel[1]}
    known = {(one.backend, one.nodes, one.workers, one.ps, one.work): one for one in group.observations}
    found = []
    for point in line.curve.points:
        best, nodes = point.best, point.nodes or point.workers
        one = known.get((best.backend, nodes, point.workers, best.ps, work_of(equal | {"threads": best.threads})))
        if one is not None and not math.isnan(point.img_per_s):
            found.append((point, one))
    return found


# --- predicted sizes ------------------------------------------------------------------------------


def _modelled(fit: Fit, line: Line) -> Modelled:
    measured = [_measured(fit, line, point, one) for point, one in _points(line, fit.group)]
    known = {one.workers for one in measured}
    largest = measured[-1]
    sizes = list(measured)
    others = {2**power for power in range((BEYOND * largest.workers).bit_length())} | {BEYOND * largest.workers}
    for workers in sorted(others - known):
        # As the next smaller size that was measured.
        like = max((one for one in measured if one.workers < workers), key=lambda one: one.workers, default=measured[0])
        devices = min(workers, largest.what.devices_per_node)
        if workers % devices == 0:
            sizes.append(_predicted(replace(like.what, devices_per_node=devices), like.basis, workers // devices))
    return Modelled(line, tuple(sorted(sizes, key=lambda one: one.workers)))


def _measured(fit: Fit, line: Line, point: CurvePoint, one: Observation) -> Size:
    single_s = fit.single_s(one)
    draws = fit.single_draws[one.work] if one.single_s is None else single_s
    basis = Basis(fit.parameters, single_s, fit.draws, draws)
    what = What(
        backend=one.backend,
        model=one.model,
        batch_size=one.batch,
        image_size=one.image_size or None,
        devices_per_node=one.workers // one.nodes,
        options=json.dumps(dict(point.best.options), sort_keys=True),
        as_in_2017=line.published,
    )
    return Size(what, basis, forecast.at(what, basis, one.nodes, one.ps), point)


def _predicted(what: What, basis: Basis, nodes: int) -> Size:
    if not what.has_servers:
        return Size(what, basis, forecast.at(what, basis, nodes, 0), None)
    (best,) = forecast.best(what, basis, [nodes], counts(what.most_servers(nodes)))
    return Size(what, basis, best, None)


def counts(most: int) -> list[int]:
    """Numbers of servers that are tried where none was measured: about 1.4 times one another, since each takes a while."""
    return sorted({min(most, round(2 ** (half / 2))) for half in range(2 * most.bit_length() + 1)})
