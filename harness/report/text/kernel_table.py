"""Results of kernels in many runs: a table, and its points for scripts."""

import tomllib
from collections.abc import Callable, Sequence
from math import inf
from operator import attrgetter
from typing import Any

from harness import kernels
from harness.analysis.ratios import Sample, best_interval
from harness.analysis.strong import with_efficiencies
from harness.core.text import plural
from harness.kernels.kernel import BYTES_PER_S, FLOP_PER_S
from harness.records.kernel import size_text
from harness.report.text.runs import reasons
from harness.report.text.table import NOTHING, Cell, Column, Table, column_of, dated, number_cell, share_cell
from harness.results import published
from harness.results.result import Result, varied_options

UNITS = {BYTES_PER_S: "GB/s", FLOP_PER_S: "Gflop/s"}
# Fields that tell rows apart beside their columns, named in rows where they differ.
_PARTS: dict[str, Callable[[Any], str]] = {
    "system": str,
    "mpi": str,
    "device": str,
    "devices_per_node": lambda count: f"{plural(count, 'device')} per node",
    "ps": lambda count: f"ps={count}" if count else "",
    "threads": "threads={}".format,
}


def table_of(results: Sequence[Result], baseline: int | None = None) -> Table:
    """One row for each size of each run, and one for each run without a number.

    Strong scaling efficiency, of what computes, is relative to ``baseline`` workers, by default to the fewest on which the
    same was measured.
    """
    order = attrgetter("kernel", "backend", "framework", "transport", "system", "size", "nodes", "started")
    efficiencies = with_efficiencies(results, baseline)
    runs = sorted(efficiencies, key=order)
    figures = [_figures(run, efficiencies[run]) for run in runs]
    ways = {name: [getattr(run, name) for run in runs] for name in ("framework", "transport")}
    columns = [
        Column("kernel", [run.kernel for run in runs]),
        Column("backend", [run.backend for run in runs]),
        *(Column(name, cells, optional=len(set(cells)) == 1) for name, cells in ways.items()),
        Column("nodes", [str(run.nodes) for run in runs], right=True),
        *(column_of(heading, [cells[heading] for cells in figures]) for heading in _HEADINGS),
        Column("tag", [run.tag for run in runs], optional=True),
        Column("configuration", _configurations(runs)),
        Column("reason", *reasons(runs), optional=True),
    ]
    always = {"kernel", "backend", "nodes", *_HEADINGS[:3]}
    return Table([column for column in columns if column.heading in always or any(column.cells)])


_HEADINGS = ("size", "p50, ms", "rate", "unit", "bus GB/s", "± 95 % CI", "efficiency", "G/J", "energy of")


def _figures(run: Result, efficiency: float) -> dict[str, Cell]:
    if not run.completed:
        return dict.fromkeys(_HEADINGS, NOTHING) | {"rate": (run.status, None)}
    return {
        "size": (size_text(kernels.specification(run.kernel), run.size), run.size),
        "p50, ms": number_cell(run.p50_s * 1e3, "{:,.4g}"),
        "rate": number_cell(run.rate / 1e9, "{:.3g}"),
        "unit": (UNITS[run.unit], UNITS[run.unit]),
        "bus GB/s": number_cell(run.bus_bytes_per_s / 1e9, "{:.3g}"),
        "± 95 % CI": share_cell(run.ci95 / run.rate),
        "efficiency": share_cell(efficiency),
        "G/J": number_cell(run.work_per_joule / 1e9, "{:.3g}"),
        "energy of": (run.energy, run.energy or None),
    }


def _configurations(runs: Sequence[Result]) -> list[str]:
    """The words that tell rows apart which are alike in their columns; at last the time at which they were measured."""
    varied = [name for name in _PARTS if len({getattr(run, name) for run in runs}) > 1]
    # On one machine threads change with the number of nodes, which is a column.
    if len({(run.backend, run.nodes, run.threads) for run in runs}) == len({(run.backend, run.nodes) for run in runs}):
        varied = [name for name in varied if name != "threads"]
    backends = {run.backend for run in runs}
    options = {each: varied_options(run.options for run in runs if run.backend == each) for each in backends}
    configurations = []
    for run in runs:
        words = [_PARTS[name](getattr(run, name)) for name in varied]
        words += [f"{name}={value}" for name, value in run.options.items() if name in options[run.backend]]
        configurations.append(" ".join(filter(None, words)))
    return dated(runs, configurations, "kernel", "backend", "framework", "transport", "nodes", "size")


# The headings of the fields of kernels.toml.
_PUBLISHED = {"kernel": "kernel", "system": "machine", "transport": "transport", "size": "N", "gpus": "GPUs"}
_PUBLISHED |= {"figure": "figure", "unit": "unit"}


def published_elsewhere(results: Sequence[Result]) -> list[Table]:
    """A table of published figures of the kernels in ``results``, if there are any."""
    content = tomllib.loads((published.FOLDER / "kernels.toml").read_text(encoding="utf-8"))
    measured = {run.kernel for run in results}
    rows = [figure | _words(**figure) for figure in content["figure"] if figure["kernel"] in measured]
    every = [
        Column(head, [str(row.get(name, "")) for row in rows], right=name == "figure")
        for name, head in _PUBLISHED.items()
    ]
    columns = [column for column in every if any(column.cells)]
    return [Table(columns, f"Published figures, measured elsewhere ({content['source']}):")] if rows else []


def _words(low: float = -inf, high: float = inf, devices: Sequence[int] = (), **_: object) -> dict[str, str]:
    exact = f"{low:g}" if low == high else f"{low:g} – {high:g}"
    figure = f"> {low:g}" if high == inf else f"< {high:g}" if low == -inf else exact
    return {"figure": figure, "gpus": " → ".join(map(str, devices))}


def points(results: Sequence[Result], baseline: int | None = None) -> list[dict[str, object]]:
    """The rows with a number, for scripts."""
    names = (
        *("kernel", "backend", "framework", "transport", "mpi", "system", "nodes", "workers", "size", "unit", "rate"),
        *("bus_bytes_per_s", "p50_s", "p99_s", "sent_bytes", "work_per_joule", "energy", "values", "id", "source"),
    )
    efficiencies = with_efficiencies([run for run in results if run.completed], baseline)
    return [
        {name: getattr(run, name) for name in names}
        | {"rate_ci95": best_interval([Sample(run.rate, run.values)]), "efficiency": efficiency}
        for run, efficiency in efficiencies.items()
    ]
