"""Figures of energy: images per second against joules per image, one for each panel and each kind of counter."""

from collections import defaultdict
from collections.abc import Sequence
from operator import attrgetter

from harness.analysis.scaling import grouped
from harness.core.text import plural
from harness.report.page.figures import Axis, Facets, Figure, Series, Spot, panel_name, slug, throughput
from harness.report.page.lines import look
from harness.results.result import Result


def rates_and_joules(completed: Sequence[Result]) -> list[Figure]:
    """A point for each run whose energy was measured; what joules cover is never mixed within a figure."""
    measured = [run for run in completed if run.energy]
    return [_figure(runs) for _, runs in grouped(measured, attrgetter("system", "model", "data", "energy"))]


def _figure(runs: Sequence[Result]) -> Figure:
    """The figure of runs that are alike in system, model, data and what their joules cover."""
    covers = runs[0].energy
    contenders: dict[tuple[str, str, str], list[Result]] = defaultdict(list)
    for run in runs:
        contenders[run.backend, run.framework, run.transport].append(run)
    series = []
    for contender, own in sorted(contenders.items()):
        name = " ".join(filter(None, contender))
        facets = Facets.of_runs(*own)
        series.append(Series(name, "accent", [_spot(name, run) for run in own], look(*contender), facets))
    what = f"{runs[0].system}, {panel_name(runs[0].model, runs[0].data)}, {covers}"
    return Figure(
        name=slug("energy", what),
        title=f"Energy, {what}",
        choice=what,
        x=Axis(f"J/img of {covers}", "linear"),
        y=Axis("img/s", "linear", from_zero=True),
        series=series,
        note="A run is the better the further it is to the upper left.",
    )


def _spot(name: str, run: Result) -> Spot:
    hover = (
        f"{name}, {plural(run.workers, 'worker')}",
        f"{throughput(run.img_per_s)} img/s, {run.joules:.3g} J/img",
        *filter(None, (run.software, run.energy_note)),
        run.source,
    )
    return Spot(run.joules, run.img_per_s, hover=hover, source=run.source)
