"""Figures of energy: images per second against joules per image, one for each panel and each kind of counter."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pandas

from harness.core.text import plural
from harness.report.page.figures import Axis, Facets, Figure, Series, Spot, panel_name, slug, throughput
from harness.report.page.lines import look


def rates_and_joules(completed: pandas.DataFrame) -> list[Figure]:
    """A point for each run whose energy was measured; what joules cover is never mixed within a figure."""
    measured = completed[completed["energy"] != ""]
    alike = ["system", "model", "data", "energy"]
    return [_figure(runs.to_dict("records")) for _, runs in measured.groupby(alike)]


def _figure(runs: Sequence[dict[Any, Any]]) -> Figure:
    """The figure of runs that are alike in system, model, data and what their joules cover."""
    system, model, data, covers = (str(runs[0][name]) for name in ("system", "model", "data", "energy"))
    contenders: dict[tuple[str, str, str], list[dict[Any, Any]]] = defaultdict(list)
    for run in runs:
        contenders[run["backend"], run["framework"], run["transport"]].append(run)
    series = []
    for contender, own in sorted(contenders.items()):
        name = " ".join(filter(None, contender))
        facets = Facets.of(*own)
        series.append(Series(name, "accent", [_spot(name, run) for run in own], look(*contender), facets))
    what = f"{system}, {panel_name(model, data)}, {covers}"
    return Figure(
        name=slug("energy", what),
        title=f"Energy, {what}",
        choice=what,
        x=Axis(f"J/img of {covers}", "linear"),
        y=Axis("img/s", "linear", from_zero=True),
        series=series,
        note="A run is the better the further it is to the upper left.",
    )


def _spot(name: str, run: dict[Any, Any]) -> Spot:
    hover = (
        f"{name}, {plural(run['workers'], 'worker')}",
        f"{throughput(run['img_per_s'])} img/s, {run['joules_per_image']:.3g} J/img",
        *filter(None, (run["software"], run["energy_note"])),
        run["source"],
    )
    return Spot(run["joules_per_image"], run["img_per_s"], hover=hover, source=run["source"])
