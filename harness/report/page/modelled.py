"""The scaling model of the curves of a report: fits of their groups, and each curve predicted."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from harness.analysis.scaling import CurvePoint
from harness.core.text import plural
from harness.prediction import fitting, forecast
from harness.prediction.explain import PARTITIONING, Explanation, sentences
from harness.prediction.fitting import Fit
from harness.prediction.forecast import Basis, Prediction
from harness.prediction.observations import Observation, ObservationGroup, groups, work_of
from harness.prediction.workload import Workload
from harness.report.page.figures import Facets
from harness.report.page.lines import Line
from harness.results.result import Result

FEWEST_SIZES = 3
MOST_GROUPS = 6
MOST_CURVES = 6  # of a group
BEYOND = 4  # sizes up to so many times the largest one are predicted
MOST_FITTED = 200  # of more configurations of a group only the best at each size are fitted, which takes long enough


@dataclass(frozen=True)
class Size:
    """A predicted size, with its prediction; ``point`` is the measurement, if there is one."""

    workload: Workload
    basis: Basis
    prediction: Prediction
    point: CurvePoint | None = None

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
    """A curve of the report with its predictions, the smallest size first, and the largest measured one."""

    line: Line
    sizes: Sequence[Size]
    largest: Size


@dataclass(frozen=True)
class Explained:
    """A fitted group with its curves, the one with the largest size first."""

    fit: Fit
    curves: Sequence[Modelled]

    @property
    def name(self) -> str:
        return self.fit.group.name

    @property
    def facets(self) -> Facets:
        every = zip(*(curve.line.facets for curve in self.curves), strict=True)
        return Facets(*(tuple(dict.fromkeys(value for values in part for value in values)) for part in every))

    @cached_property
    def sentence(self) -> str:
        """The cause that binds the largest measured size, and remedies.

        As ``explain.explain``, but with the same number of servers: to try them all takes too long for a page.
        """
        size = self.curves[0].largest
        workload, basis, prediction = size.workload, size.basis, size.prediction
        alternatives = {}
        if workload.can_be_sliced:
            alternatives[PARTITIONING] = forecast.at(workload.sliced(), basis, prediction.nodes, prediction.ps)
        explanation = "; ".join(sentences(Explanation(workload, basis, prediction, alternatives)))
        return f"{plural(size.workers, 'worker')}, {workload.model}: {explanation}."


def explained(results: Sequence[Result], lines: Sequence[Line]) -> tuple[list[Explained], list[str]]:
    """The groups of trainings that are large enough to fit, with their curves among ``lines``.

    The groups with most sizes, then runs, come first. Also the names of those that are left out.
    """
    weak = [line for line in lines if line.curve.scaling == "weak"]
    large = []
    for group in groups(results)[0]:
        its = [line for line in weak if _points(line, group)]
        sizes = len({run.workers for run in group.observations if not run.relative})
        if its and sizes >= FEWEST_SIZES and any(run.nodes > 1 for run in group.observations):
            large.append((sizes, len(group.observations), group, its))
    large.sort(key=lambda each: each[:2], reverse=True)
    return [_explained(*each[2:]) for each in large[:MOST_GROUPS]], [each[2].name for each in large[MOST_GROUPS:]]


def _explained(group: ObservationGroup, lines: Sequence[Line]) -> Explained:
    if len(group.observations) > MOST_FITTED:
        slowest_first = sorted(group.observations, key=lambda run: -run.step_s)
        fastest = {(run.workload.backend, run.nodes, run.workers, run.work): run for run in slowest_first}.values()
        in_order = sorted(fastest, key=lambda run: (run.workers, run.workload.backend, run.ps))
        group = replace(group, observations=tuple(in_order))
    fit = fitting.fit(group)
    # A curve of one or two sizes says little by itself.
    lines = [line for line in lines if len(line.curve.points) >= FEWEST_SIZES] or lines
    lines = sorted(lines, key=lambda line: (-line.curve.points[-1].workers, -len(line.curve.points)))
    return Explained(fit, [_modelled(fit, line) for line in lines[:MOST_CURVES]])


def _points(line: Line, group: ObservationGroup) -> list[tuple[CurvePoint, Observation]]:
    """The points of ``line`` that are in ``group``, each with the observation there."""
    if (line.facets.transport, line.curve.facets.get("mpi", "")) != ((group.key.transport,), group.key.mpi):
        return []
    known = {(run.workload.backend, run.nodes, run.workers, run.ps, run.work): run for run in group.observations}
    pairs = []
    for point in line.curve.points:
        best, nodes = point.best, point.nodes or point.workers
        run = known.get((best.backend, nodes, point.workers, best.ps, work_of(best.runs[0])))
        if run is not None and not math.isnan(point.img_per_s):
            pairs.append((point, run))
    return pairs


def _modelled(fit: Fit, line: Line) -> Modelled:
    sizes = []
    for point, run in _points(line, fit.group):
        single_s = fit.single_s(run)
        draws = fit.single_draws[run.work] if run.single_s is None else single_s
        basis = Basis(fit.parameters, single_s, fit.draws, draws)
        sizes.append(Size(run.workload, basis, forecast.at(run.workload, basis, run.nodes, run.ps), point))
    measured, largest = tuple(sizes), sizes[-1]
    others = {2**power for power in range((BEYOND * largest.workers).bit_length())} | {BEYOND * largest.workers}
    for workers in sorted(others - {size.workers for size in measured}):
        # As the next smaller size that was measured.
        like = [measured[0], *(size for size in measured if size.workers < workers)][-1]
        devices = min(workers, largest.workload.devices_per_node)
        if workers % devices:
            continue
        workload, nodes = replace(like.workload, devices_per_node=devices), workers // devices
        servers = counts(workload.most_servers(nodes)) if workload.has_servers else None
        (best,) = forecast.best(workload, like.basis, [nodes], servers)
        sizes.append(Size(workload, like.basis, best))
    return Modelled(line, sorted(sizes, key=lambda size: size.workers), largest)


def counts(most: int) -> list[int]:
    """Numbers of servers that are tried where none was measured: about 1.4 times one another, since each takes a while."""
    return sorted({min(most, round(2 ** (half / 2))) for half in range(2 * most.bit_length() + 1)})
