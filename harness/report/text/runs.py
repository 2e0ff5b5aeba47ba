"""Results as a table with one line per run, and as points of scaling curves."""

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from harness.analysis import scaling
from harness.analysis.fastest import on_common_bases, races
from harness.analysis.scaling import Curve, CurvePoint, grouped
from harness.core.plain import plain
from harness.core.statistics import scaling_efficiency
from harness.core.text import minute, percent, plural
from harness.errors import InvalidInput
from harness.report.text.table import NOTHING, Cell, CellValue, Column, Table, column_of, dated, number_cell
from harness.results.result import Result, varied_options

REASON = 72  # characters
_SHOWN = 20  # notes
# Fields that tell runs apart beside their backend and size, and their words: in rows where they differ, else above them.
_PARTS: Mapping[str, Callable[[Any], str]] = {
    **dict.fromkeys(("origin", "system", "model", "device", "data", "mpi"), str),
    "devices_per_node": lambda count: f"{plural(count, 'device')} per node",
    "image_size": "{} px".format,
    "batch_size": "batch {}".format,
    "precision": str,
    "warmup": lambda count: f"{count} warm-up step{'s' * (count != '1')}",
    "steps": lambda count: plural(count, "step"),
    "software": str,
    "threads": "threads={}".format,
}
_OF_BACKEND = ("software", "threads")  # differ between backends anyway; named where they do between rows of one
_USUAL = {"origin": "measured", "devices_per_node": 1}  # is not said of all rows


def notes(results: Sequence[Result]) -> list[str]:
    """Lines about what disturbed measured runs, one for each of the latest ones."""
    noted = sorted((run for run in results if run.measured and run.note), key=attrgetter("started"), reverse=True)
    lines = [
        f"NOTE: {run.backend} on {plural(run.nodes, 'node')}, {run.started[:19]}: {run.note}" for run in noted[:_SHOWN]
    ]
    return lines + [f"NOTE: {len(noted) - _SHOWN} earlier runs have notes, too"] * (len(noted) > _SHOWN)


def _curves(results: Sequence[Result], baseline: int | None) -> list[Curve]:
    """The curves of runs that have a number, with efficiencies relative to ``baseline`` workers. Raises InvalidInput.

    By default those of measured runs are relative to the base of their race, as the answer says, and those of publications
    to the smallest size, as they were published.
    Of two strategies with parameter servers publications tell the better one at each size. So the published curve of each
    is relative to what they have in common, as in the report of 2017.
    """
    numbers = [run for run in results if run.completed]
    check_baseline([run for run in numbers if not math.isnan(run.img_per_s)], baseline, "run")
    curves = scaling.curves(numbers, baseline=baseline or 0)
    entered = [] if baseline else races(numbers, curves)
    servers = [run for run in numbers if not run.measured and run.family == "parameter_servers"]
    for joined in scaling.curves(servers, by="family", baseline=baseline or 0):
        for number, curve in enumerate(curves):
            if joined.facets.items() <= curve.facets.items() and curve.scaling == joined.scaling:
                points = tuple(scaling.relative_to(point, joined.baseline) for point in curve.points)
                curves[number] = replace(curve, points=points)
    return [
        curve if curve.facets["origin"] == "published" else on_common_bases([curve], entered)[0] for curve in curves
    ]


def check_baseline(having: Sequence[Result], baseline: int | None, kind: str) -> None:
    """Raises InvalidInput unless one of the results, which are ``having`` a number, is on ``baseline`` workers."""
    sizes = sorted({run.workers for run in having})
    if baseline is not None and baseline not in sizes:
        there = f"no {kind} on {plural(baseline, 'worker')} has a number; {kind}s are on"
        raise InvalidInput(f"--baseline {baseline}: {there} {', '.join(map(str, sizes)) or 'none'}")


_Base = tuple[CurvePoint, bool]


def _baselines(curves: Sequence[Curve]) -> dict[Result, _Base]:
    """The baseline of each run's curve, and whether the run is one of those that make it.

    Curves of several sizes come first, of those weak scaling. Runs on one node may begin several curves: then that with as
    many devices per node counts.
    """
    of_any_curve: dict[Result, _Base] = {}
    of_its_curve: dict[Result, _Base] = {}
    for curve in sorted(curves, key=lambda curve: (len(curve.points) == 1, curve.scaling == "strong")):
        base = curve.baseline
        if base is None:
            continue
        for run in curve.runs:
            alike = run.devices_per_node == curve.facets["devices_per_node"]
            (of_its_curve if alike else of_any_curve).setdefault(run, (base, run in base.best.runs))
    return of_any_curve | of_its_curve


def table_of_runs(results: Sequence[Result], baseline: int | None = None) -> Table:
    """One row for each run, those without a number included, in which baselines of efficiencies are marked.

    Efficiency is relative to the best configuration at the size that the answer names, or at ``baseline`` workers. Raises
    InvalidInput if no curve has that size.
    """
    bases = _baselines(_curves(results, baseline))
    data, who = _data(results), attrgetter("backend", "framework", "transport")

    def varies(name: str, runs: Sequence[Result] = results) -> bool:
        return len({getattr(run, name) for run in runs}) > 1

    varied = {name for name in _PARTS if varies(name)}
    contenders = grouped([run for run in results if run.completed], who)
    several = {name for name in _OF_BACKEND if any(varies(name, runs) for _, runs in contenders)}
    parts = [name for name in _PARTS if name in varied and (name not in _OF_BACKEND or name in several)]
    ways = [name for name in ("framework", "transport") if varies(name)]
    common: dict[str, tuple[str, CellValue]] = {}
    for name in ("framework", "transport", *_PARTS):
        value = data[results[0].data] if name == "data" else getattr(results[0], name)
        if name not in (*ways, *varied) and value not in ("", 0, _USUAL.get(name)):
            common[name] = _PARTS.get(name, str)(value), value
    searched = {run.backend for run in results if run.ps > 1}
    options = {contender: varied_options(run.options for run in runs) for contender, runs in grouped(results, who)}
    orders, configurations = dict[Result, tuple[object, ...]](), dict[Result, str]()
    for run in results:
        values = {name: data[run.data] if name == "data" else getattr(run, name) for name in parts}
        words = [_PARTS[name](value) for name, value in values.items() if value not in ("", 0)]
        option_words = _option_words(run, options[who(run)])
        servers = f"ps={run.ps}" if run.backend in searched and run.ps else ""
        # On one machine the usual number of threads changes with that of workers, which does not make it another curve.
        kind = *who(run), *(value for name, value in values.items() if name != "threads"), option_words
        orders[run] = (*kind, run.nodes, run.workers, run.ps, run.threads, run.started)
        configurations[run] = " ".join(filter(None, (*words, option_words, servers)))
    runs = sorted(results, key=orders.__getitem__)
    dates = dated(runs, [configurations[run] for run in runs], "backend", "framework", "transport", "nodes", "workers")
    figures = [_figures(run, bases.get(run)) for run in runs]
    nodes = [str(run.nodes) if run.nodes else f"({plural(run.workers, 'worker')})" for run in runs]  # all that some say
    columns = [
        Column("backend", [run.backend for run in runs]),
        Column("nodes", nodes, right=True),
        *(column_of(name, [cells[name] for cells in figures], name in _LEFT_OUT_FIRST) for name in _FIGURES),
        *(Column(name, [getattr(run, name) for run in runs], optional=True) for name in (*ways, "tag")),
        Column("configuration", dates),
        Column("THROTTLED by", [run.throttled for run in runs]),
        Column("NOTE", [run.note if run.measured else "" for run in runs], optional=True),
        Column("reason", *reasons(runs), optional=True),
    ]
    always = {"backend", "nodes", "img/s", "scaling efficiency"}
    return Table([column for column in columns if column.heading in always or any(column.cells)], common=common)


def _data(results: Sequence[Result]) -> dict[str, str]:
    """The names of data: none for synthetic ones beside others, the kind of image files where there are several."""
    kinds = {run.data for run in results}
    if kinds == {"synthetic"}:
        return {"synthetic": "synthetic data"}
    one_kind = len(kinds - {"synthetic"}) == 1
    return {kind: "" if kind in ("synthetic", "") else "images" if one_kind else kind for kind in kinds}


def _option_words(run: Result, varied: Sequence[str]) -> str:
    """The options that are ``varied`` between runs of a contender, and those that make it another training."""
    values = {name: value for name in varied if (value := run.options.get(name)) is not None}
    words = [f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in values.items()]
    return " ".join([*words, *(word for word in run.training.split(", ") if word and word not in words)])


_FIGURES = ("img/s", "± 95 % CI", "scaling efficiency", "MB sent/step", "J/img", "energy of")
_LEFT_OUT_FIRST = _FIGURES[3:]


def _figures(run: Result, base: _Base | None) -> dict[str, Cell]:
    cells = dict.fromkeys(_FIGURES, NOTHING)
    if not run.completed:
        return cells | {"img/s": (run.status, None)}
    if math.isnan(run.img_per_s):
        published = f"{percent(run.published_efficiency, None, 1)} (published)", run.published_efficiency
        return cells | {"scaling efficiency": published}
    if base is not None:
        point, is_base = base
        rate = statistics.geometric_mean(run.values) if run.values else run.img_per_s  # as a curve's points are
        share = scaling_efficiency(rate, run.workers, point.img_per_s, point.workers)
        cells["scaling efficiency"] = percent(share, None, 1) + (" (baseline)" if is_base else ""), share
    return cells | {
        "img/s": number_cell(run.img_per_s, "{:.2f}"),
        "± 95 % CI": number_cell(run.ci95, "{:.2f}"),
        "MB sent/step": number_cell(run.sent_bytes / 1e6, "{:.1f}"),
        "J/img": number_cell(run.joules, "{:.3g}"),
        "energy of": (run.energy, run.energy),
    }


def reasons(runs: Sequence[Result]) -> tuple[list[str], list[CellValue]]:
    """The reasons why runs have no number: for people the beginning, beside the status; for CSV all, with it."""
    words = [run.reason.split("\n")[0] for run in runs]
    short = [word if len(word) <= REASON else f"{word[: REASON - 1]}…" for word in words]
    return short, [f"{run.status}: {word}" if word else "" for run, word in zip(runs, words, strict=True)]


_OF_ACCURACY = ("backend", "framework", "transport", "model", "nodes", "workers", "epochs", "target")


def table_of_accuracies(results: Sequence[Result]) -> Table:
    """A row for each training to an accuracy, those without a number included."""
    runs = sorted(results, key=attrgetter(*_OF_ACCURACY, "started"))
    columns = [Column(name, [str(getattr(run, name) or "") for run in runs]) for name in _OF_ACCURACY]
    columns += [
        column_of("s to target", [number_cell(run.time_to_accuracy_s, "{:,.1f}") for run in runs]),
        column_of("best top-1", [number_cell(run.top1, "{:.4g}") for run in runs]),
        column_of("img/s", [number_cell(run.rate, "{:.2f}") if run.completed else (run.status, None) for run in runs]),
        Column("started", [minute(run.started) if run.started else "" for run in runs], optional=True),
        Column("reason", *reasons(runs), optional=True),
    ]
    shown = [column for column in columns if any(column.cells)]
    return Table(shown, "Trainings to an accuracy; img/s are those while they trained:")


def accuracy_points(results: Sequence[Result]) -> list[dict[str, object]]:
    """The trainings to an accuracy that have a number, for scripts."""
    names = (*_OF_ACCURACY, "system", "top1", "time_to_accuracy_s", "rate", "id", "source")
    return [{name: getattr(run, name) for name in names} for run in results if run.completed]


def points(results: Sequence[Result], baseline: int | None = None) -> list[dict[str, object]]:
    """The points of all curves for scripts, each with its curve's columns."""
    return [
        {"scaling": curve.scaling, **curve.facets, **plain(point)}
        for curve in _curves(results, baseline)
        for point in curve.points
    ]
