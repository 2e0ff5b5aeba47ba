"""The tables of a report, and what a section of it holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness.analysis.scaling import Interval, Overhead
from harness.analysis.verdict import Verdict
from harness.predict.fitting import LEVEL, mean_error
from harness.predict.observations import informative
from harness.records.measurement import FILE_NAME
from harness.report.page import provenance
from harness.report.page.figures import Facets, Figure
from harness.report.page.lines import Line
from harness.report.page.modelled import MOST_FITTED, Explained
from harness.report.page.provenance import Runs
from harness.report.text.verdict import contender, mark

if TYPE_CHECKING:
    import pandas

LISTED_RUNS = 20_000  # a page that holds more opens slowly

Kind = Literal["text", "count", "img_per_s", "share", "ratio", "date"]
Cell = str | int | float | None


@dataclass(frozen=True)
class Column:
    """A column of a table. Cells of a kind other than text are numbers (dates: ISO text), None where there is none."""

    name: str
    kind: Kind = "text"


@dataclass(frozen=True)
class Table:
    """``facets`` say for each row what it is filtered by; rows without any are always shown."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    facets: tuple[Facets | None, ...] = ()
    note: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Section:
    """A section of the page: an answer and other words, figures of which one at a time is shown, tables, titled lists."""

    name: str
    title: str
    paragraphs: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    answer: str = ""
    lists: tuple[tuple[str, tuple[str, ...]], ...] = ()


_WHAT = (
    *(Column("system"), Column("model"), Column("data"), Column("backend"), Column("workers", "count")),
    Column("nodes", "count"),
)


def points(lines: Sequence[Line], runs: Runs) -> Table:
    """Every point of every curve."""
    columns = (
        *_WHAT,
        Column("configuration"),
        *_with_interval("img/s", "img_per_s"),
        *_with_interval("efficiency", "share"),
        *(Column("best of", "count"), Column("repeats", "count"), Column("runs", "count")),
        *(Column("scaling"), Column("date", "date"), Column("run or source")),
    )
    rows, facets = [], []
    for line in lines:
        for point in line.curve.points:
            best = point.best
            rows.append(
                (
                    *_what(line, point.workers, point.nodes),
                    provenance.configuration(best, runs),
                    *_numbers(point.img_per_s, point.interval),
                    *_numbers(point.efficiency, point.efficiency_interval),
                    len(point.tried),
                    len(best.sample.values) or None,
                    len(best.sources),
                    line.curve.scaling,
                    (runs.seen(best.sources, "started") or [None])[-1],
                    _run(best.sources[-1]),
                )
            )
            facets.append(line.facets)
    return Table("points", "Points of the curves", columns, tuple(rows), tuple(facets))


def ps_search(lines: Sequence[Line], runs: Runs) -> Table:
    """Every configuration with parameter servers at the sizes where several were tried."""
    columns = (
        *_WHAT,
        *(Column("PS", "count"), Column("options")),
        *(Column("img/s", "img_per_s"), Column("of the best", "share"), Column("repeats", "count"), Column("rank")),
    )
    rows, facets = [], []
    for line in lines:
        for point in line.curve.points if line.curve.scaling == "weak" else ():
            if len(point.tried) < 2 or not any(one.ps for one in point.tried):
                continue
            ordered = sorted(point.tried, key=lambda one: -one.sample.mean)
            for number, one in enumerate(ordered, start=1):
                share = one.sample.mean / point.img_per_s
                place = f"best of {len(ordered)}" if number == 1 else f"{number} of {len(ordered)}"
                rows.append(
                    (
                        *_what(line, point.workers, point.nodes),
                        *(one.ps, provenance.options(one, runs)),
                        *(one.sample.mean, share, len(one.sample.values) or None, place),
                    )
                )
                facets.append(line.facets)
    return Table("ps-search", "Search for the number of parameter servers", columns, tuple(rows), tuple(facets))


def io_overheads(found: Sequence[tuple[Line, Sequence[Overhead]]]) -> Table:
    """What reading image files costs at each size."""
    columns = (
        *_WHAT,
        *(Column("synthetic img/s", "img_per_s"), Column("files img/s", "img_per_s")),
        *_with_interval("overhead", "share"),
    )
    rows, facets = [], []
    for line, overheads in found:
        for one in overheads:
            rows.append(
                (
                    *_what(line, one.workers, one.synthetic.nodes),
                    *(one.synthetic.img_per_s, one.real.img_per_s),
                    *_numbers(one.overhead, one.interval),
                )
            )
            facets.append(line.facets)
    return Table("io-overheads", "I/O overhead", columns, tuple(rows), tuple(facets))


_RUN_COLUMNS = {
    "started": Column("started", "date"),
    "status": Column("status"),
    "origin": Column("origin"),
    "system": Column("system"),
    "model": Column("model"),
    "data": Column("data"),
    "backend": Column("backend"),
    "framework": Column("framework"),
    "transport": Column("transport"),
    "workers": Column("workers", "count"),
    "ps": Column("PS", "count"),
    "batch_size": Column("batch per device", "count"),
    "img_per_s": Column("img/s", "img_per_s"),
    "ci95": Column("± 95 % CI", "img_per_s"),
    "software": Column("software"),
    "source": Column("source"),
}
_FAILED_COLUMNS = ("started", "status", "system", "model", "data", "backend", "framework", "transport", "workers", "ps")


def without_number(frame: pandas.DataFrame) -> Table:
    """The runs that have no number, with their reasons, the latest first."""
    found = frame[frame["status"] != "completed"]
    columns = (*(_RUN_COLUMNS[name] for name in _FAILED_COLUMNS), Column("reason"), Column("source"))
    rows = _rows(found, (*_FAILED_COLUMNS, "reason", "source"))
    return Table(
        "without-number",
        "Runs without a number",
        columns,
        rows,
        run_facets(found)[::-1][:LISTED_RUNS],
        _left_out(found),
    )


def all_runs(frame: pandas.DataFrame) -> Table:
    """Every run, the latest first."""
    rows = _rows(frame, tuple(_RUN_COLUMNS))
    columns, facets = tuple(_RUN_COLUMNS.values()), run_facets(frame)[::-1]
    return Table("runs", "All runs", columns, rows, facets[:LISTED_RUNS], _left_out(frame), folded=True)


def run_facets(frame: pandas.DataFrame) -> tuple[Facets, ...]:
    """The facets of each run of ``frame``, in its order. Equal ones are the same object."""
    known: dict[tuple[str, ...], Facets] = {}
    found = []
    for values in zip(*(frame[name].tolist() for name in Facets._fields), strict=True):
        if values not in known:
            known[values] = Facets(*((value,) for value in values))
        found.append(known[values])
    return tuple(found)


def _left_out(frame: pandas.DataFrame) -> str:
    return f"The latest {LISTED_RUNS:,} of {len(frame):,} runs." if len(frame) > LISTED_RUNS else ""


def _rows(frame: pandas.DataFrame, names: Sequence[str]) -> tuple[tuple[Cell, ...], ...]:
    latest = frame.iloc[::-1][:LISTED_RUNS]
    lists: list[list[Any]] = [latest[name].tolist() for name in names]
    return tuple(zip(*lists, strict=True))


def _run(source: str) -> str:
    """A run's folder, which has its id for a name, or the publication."""
    return Path(source).parent.name if Path(source).name == FILE_NAME else source


def _what(line: Line, workers: int, nodes: int) -> tuple[Cell, ...]:
    return (line.system, *line.panel, line.name, workers, nodes or None)


def fits(found: Sequence[Explained]) -> Table:
    """How close the scaling model comes to what was measured, for each fitted group and backend."""
    columns = (
        *(Column("system"), Column("software"), Column("backend"), Column("transport")),
        *(Column("runs", "count"), Column("numbers", "ratio"), Column("MAPE", "share")),
        *(Column("worst", "share"), Column("at")),
        *(Column("χ²", "ratio"), Column("p", "ratio"), Column("contradicted")),
    )
    rows: list[tuple[Cell, ...]] = []
    facets = []
    for one in found:
        key = one.fit.group.key
        observations = informative(one.fit.group.observations)
        for backend in sorted({each.backend for each in observations}):
            mine = [number for number, each in enumerate(observations) if each.backend == backend]
            worst = max(mine, key=lambda number: abs(one.fit.errors[number]))
            rows.append(
                (
                    *(key.system, key.software, backend, key.transport, len(mine), one.fit.fitted),
                    mean_error([one.fit.errors[number] for number in mine]),
                    *(one.fit.errors[worst], observations[worst].label),
                    *(one.fit.misfit.chi2, one.fit.misfit.p_value, "yes" if one.fit.misfit.contradicts else "no"),
                )
            )
            facets.append(one.facets._replace(backend=(backend,)))
    note = (
        "Errors are predicted over measured throughput, minus 1; MAPE is the mean of their sizes. Numbers: how many the "
        "runs of the whole group determine; χ² is that of the group, with measurement errors alone. "
        f"Of more than {MOST_FITTED} configurations only the best at each size are fitted. Runs of one configuration count "
        "as one. `harness fit` leaves out one run after the other as well."
    )
    return Table("model-fits", "How well the model fits", columns, tuple(rows), tuple(facets), note)


def parameters(found: Sequence[Explained]) -> Table:
    """The parameters of each fitted group, with their intervals and where they come from."""
    columns = (
        *(Column("system"), Column("mechanism"), Column("transport"), Column("parameter")),
        *(
            Column("value", "ratio"),
            Column(f"{100 * LEVEL:.0f} % from", "ratio"),
            Column("to", "ratio"),
            Column("unit"),
        ),
        *(Column("obtained"), Column("software")),
    )
    meanings: dict[str, str] = {}
    rows: list[tuple[Cell, ...]] = []
    facets = []
    for one in found:
        group, p = one.fit.group, one.fit.parameters
        who = group.key.system, group.key.mechanism, group.key.transport
        its: list[tuple[Cell, ...]] = [
            (
                *(each.quantity.name.replace("_", " "), each.value * each.quantity.scale),
                *(each.low * each.quantity.scale, each.high * each.quantity.scale),
                *(each.quantity.unit, each.how),
            )
            for each in one.fit.estimates
        ]
        meanings |= {each.quantity.name.replace("_", " "): each.quantity.meaning for each in one.fit.estimates}
        share, share_how = one.fit.problems[0].share.typical, "assumed" if group.forward_share is None else "measured"
        its.append(("forward share of compute", share, None, None, "", share_how))
        for work, step_s in one.fit.singles.items():
            run = next(each for each in group.observations if each.work == work)
            its.append((f"step of one worker, {run.model}", step_s, None, None, "s", "fitted; nobody measured it"))
        its += [
            (f"{' + '.join(each.names)}", each.value, each.low, each.high, "s", "only the sum is identified")
            for each in one.fit.sums
        ]
        if group.key.mechanism == "allreduce":
            how = "the better of ring and tree" if len(one.fit.chances) > 1 else "as this transport does"
            its.append((f"summed {p.summed}", None, None, None, "", how))
        rows += [(*who, *each, group.key.software) for each in its]
        facets += [one.facets] * len(its)
    note = f"{'; '.join(f'{name}: {meaning}' for name, meaning in meanings.items())}."
    return Table("model-parameters", "Parameters of the model", columns, tuple(rows), tuple(facets), note)


def comparison(found: Verdict) -> Table:
    """Each toolkit beside the best of the parameter servers, at every size that both have."""
    columns = (
        *(Column("toolkit"), Column("where"), Column("workers", "count")),
        *(*_with_interval("ratio of efficiencies", "ratio"), Column("differs")),
        *(Column("efficiency", "share"), Column("PS efficiency", "share")),
        *(Column("img/s", "img_per_s"), Column("PS img/s", "img_per_s"), Column("PS best of", "count")),
        *_with_interval("ratio of img/s", "ratio"),
    )
    rows: list[tuple[Cell, ...]] = []
    for one in (*found.comparisons, *found.controls):
        facets = one.facets
        who = contender(facets), f"{facets['system']}, {facets['model']}, {facets['data']}"
        for size in one.sizes:
            servers = size.servers
            rows.append(
                (
                    *(*who, size.workers),
                    *_numbers(size.efficiency_ratio, size.efficiency_interval),
                    mark(size, size.workers == one.base),
                    *(size.toolkit.efficiency, servers.efficiency, size.toolkit.img_per_s, servers.img_per_s),
                    None if facets["origin"] == "published" else len(servers.tried),
                    *_numbers(size.throughput_ratio, size.throughput_interval),
                )
            )
    return Table("verdict", "The comparison", columns, tuple(rows))


def _with_interval(name: str, kind: Kind) -> tuple[Column, Column, Column]:
    return Column(name, kind), Column("95 % CI from", kind), Column("to", kind)


def _numbers(value: float, ends: Interval | None) -> tuple[Cell, Cell, Cell]:
    low, high = ends or (None, None)
    return None if math.isnan(value) else value, low, high
