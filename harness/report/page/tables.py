"""The tables of a report, and what a section of it holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from harness.analysis.scaling import Interval, Overhead
from harness.analysis.verdict import Verdict
from harness.prediction.fitting import LEVEL, mean_error
from harness.prediction.observations import informative
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
# Columns that do not hold text, by their names. The ends of an interval are of the kind of the column before them.
KINDS: dict[str, Kind] = {
    **dict.fromkeys(
        ("workers", "nodes", "PS", "batch per device", "best of", "PS best of", "repeats", "runs"), "count"
    ),
    **dict.fromkeys(("img/s", "± 95 % CI", "synthetic img/s", "files img/s", "PS img/s"), "img_per_s"),
    **dict.fromkeys(("efficiency", "PS efficiency", "of the best", "overhead", "MAPE", "worst"), "share"),
    **dict.fromkeys(("ratio of efficiencies", "ratio of img/s", "numbers", "χ²", "p", "value"), "ratio"),
    **dict.fromkeys(("date", "started"), "date"),
}
CI = ("95 % CI from", "to")
POINT = ("system", "model", "data", "backend", "workers", "nodes")


class Column(NamedTuple):
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

    @classmethod
    def of(cls, name: str, title: str, names: Iterable[str], rows: Sequence[Row], note: str = "") -> Table:
        """The table with columns of these ``names``."""
        return cls(name, title, _columns(names), tuple(cells for _, cells in rows), tuple(own for own, _ in rows), note)


Row = tuple[Facets | None, tuple[Cell, ...]]


def _columns(names: Iterable[str]) -> tuple[Column, ...]:
    columns: list[Column] = []
    for name in names:
        end = name == "to" or name.endswith(" from")
        columns.append(Column(name, columns[-1].kind if end else KINDS.get(name, "text")))
    return tuple(columns)


def _numbers(value: float, ends: Interval | None) -> tuple[Cell, Cell, Cell]:
    return None if math.isnan(value) else value, *(ends or (None, None))


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


# --- points of curves -----------------------------------------------------------------------------


def _point(line: Line, workers: int, nodes: int) -> tuple[Cell, ...]:
    return (line.system, *line.panel, line.name, workers, nodes or None)


def points(lines: Sequence[Line], runs: Runs) -> Table:
    """Every point of every curve."""
    names = [*POINT, "configuration", "img/s", *CI, "efficiency", *CI]
    names += ["best of", "repeats", "runs", "scaling", "date", "run or source"]
    rows: list[Row] = []
    for line in lines:
        for point in line.curve.points:
            best = point.best
            path = Path(best.sources[-1])
            cells = (
                *_point(line, point.workers, point.nodes),
                provenance.configuration(best, runs),
                *_numbers(point.img_per_s, point.interval),
                *_numbers(point.efficiency, point.efficiency_interval),
                *(len(point.tried), len(best.sample.values) or None, len(best.sources)),
                line.curve.scaling,
                (runs.seen(best.sources, "started") or [None])[-1],
                path.parent.name
                if path.name == FILE_NAME
                else best.sources[-1],  # a run's folder is named after its id
            )
            rows.append((line.facets, cells))
    return Table.of("points", "Points of the curves", names, rows)


def ps_search(lines: Sequence[Line], runs: Runs) -> Table:
    """Every configuration with parameter servers at the sizes where several were tried."""
    names = (*POINT, "PS", "options", "img/s", "of the best", "repeats", "rank")
    rows: list[Row] = []
    for line in lines:
        for point in line.curve.points if line.curve.scaling == "weak" else ():
            if len(point.tried) < 2 or not any(one.ps for one in point.tried):
                continue
            ordered = sorted(point.tried, key=lambda one: -one.sample.mean)
            for number, one in enumerate(ordered, start=1):
                cells = (
                    *_point(line, point.workers, point.nodes),
                    *(one.ps, provenance.options(one, runs)),
                    *(one.sample.mean, one.sample.mean / point.img_per_s, len(one.sample.values) or None),
                    f"best of {len(ordered)}" if number == 1 else f"{number} of {len(ordered)}",
                )
                rows.append((line.facets, cells))
    return Table.of("ps-search", "Search for the number of parameter servers", names, rows)


def io_overheads(pairs: Sequence[tuple[Line, Sequence[Overhead]]]) -> Table:
    """What reading image files costs at each size."""
    rows: list[Row] = []
    for line, overheads in pairs:
        for one in overheads:
            where = _point(line, one.workers, one.synthetic.nodes)
            both = one.synthetic.img_per_s, one.real.img_per_s
            rows.append((line.facets, (*where, *both, *_numbers(one.overhead, one.interval))))
    names = (*POINT, "synthetic img/s", "files img/s", "overhead", *CI)
    return Table.of("io-overheads", "I/O overhead", names, rows)


# --- runs -----------------------------------------------------------------------------------------

_LABELS = {"ps": "PS", "batch_size": "batch per device", "img_per_s": "img/s", "ci95": "± 95 % CI"}
_FAILED = ("started", "status", "system", "model", "data", "backend", "framework", "transport", "workers", "ps")
_ALL = (
    *("started", "status", "origin", "system", "model", "data", "backend", "framework", "transport", "workers", "ps"),
    *("batch_size", "img_per_s", "ci95", "software", "source"),
)


def without_number(frame: pandas.DataFrame) -> Table:
    """The runs that have no number, with their reasons, the latest first."""
    failed = frame[frame["status"] != "completed"]
    return _latest("without-number", "Runs without a number", failed, (*_FAILED, "reason", "source"))


def all_runs(frame: pandas.DataFrame) -> Table:
    """Every run, the latest first."""
    return _latest("runs", "All runs", frame, _ALL, folded=True)


def _latest(name: str, title: str, frame: pandas.DataFrame, names: Sequence[str], folded: bool = False) -> Table:
    latest = frame.iloc[::-1][:LISTED_RUNS]
    rows = tuple(zip(*(latest[column].tolist() for column in names), strict=True))
    note = f"The latest {LISTED_RUNS:,} of {len(frame):,} runs." if len(frame) > LISTED_RUNS else ""
    columns = _columns(_LABELS.get(column, column) for column in names)
    return Table(name, title, columns, rows, run_facets(latest), note, folded)


def run_facets(frame: pandas.DataFrame) -> tuple[Facets, ...]:
    """The facets of each run of ``frame``, in its order. Equal ones are the same object."""
    values = list(zip(*(frame[name].tolist() for name in Facets._fields), strict=True))
    known = {each: Facets(*((value,) for value in each)) for each in dict.fromkeys(values)}
    return tuple(known[each] for each in values)


# --- the scaling model ----------------------------------------------------------------------------


def fits(groups: Sequence[Explained]) -> Table:
    """How close the scaling model comes to what was measured, for each fitted group and backend."""
    names = ("system", "software", "backend", "transport", "runs", "numbers", "MAPE", "worst", "at", "χ²", "p")
    rows: list[Row] = []
    for group in groups:
        fit, key = group.fit, group.fit.group.key
        pairs = list(zip(fit.errors, informative(fit.group.observations), strict=True))
        for backend in sorted({run.backend for _, run in pairs}):
            own = [pair for pair in pairs if pair[1].backend == backend]
            error, worst = max(own, key=lambda pair: abs(pair[0]))
            cells = (
                *(key.system, key.software, backend, key.transport, len(own), fit.fitted),
                *(mean_error([error for error, _ in own]), error, worst.label),
                *(fit.misfit.chi2, fit.misfit.p_value, "yes" if fit.misfit.contradicts else "no"),
            )
            rows.append((group.facets._replace(backend=(backend,)), cells))
    note = (
        "Errors are predicted over measured throughput, minus 1; MAPE is the mean of their sizes. Numbers: how many the "
        "runs of the whole group determine; χ² is that of the group, with measurement errors alone. "
        f"Of more than {MOST_FITTED} configurations only the best at each size are fitted. Runs of one configuration count "
        "as one. `harness fit` leaves out one run after the other as well."
    )
    return Table.of("model-fits", "How well the model fits", (*names, "contradicted"), rows, note)


def parameters(groups: Sequence[Explained]) -> Table:
    """The parameters of each fitted group, with their intervals and where they come from."""
    names = ["system", "mechanism", "transport", "parameter", "value", f"{100 * LEVEL:.0f} % from", "to"]
    meanings: dict[str, str] = {}
    rows: list[Row] = []
    for each in groups:
        fit, key = each.fit, each.fit.group.key
        its: list[tuple[Cell, ...]] = []
        for one in fit.estimates:
            quantity, name = one.quantity, one.quantity.name.replace("_", " ")
            meanings[name] = quantity.meaning
            scaled = (value * quantity.scale for value in (one.value, one.low, one.high))
            its.append((name, *scaled, quantity.unit, one.how))
        how = "assumed" if fit.group.forward_share is None else "measured"
        its.append(("forward share of compute", fit.problems[0].share.typical, None, None, "", how))
        for work, step_s in fit.singles.items():
            model = next(run.model for run in fit.group.observations if run.work == work)
            its.append((f"step of one worker, {model}", step_s, None, None, "s", "fitted; nobody measured it"))
        its += [
            (" + ".join(sum_.names), sum_.value, sum_.low, sum_.high, "s", "only the sum is identified")
            for sum_ in fit.sums
        ]
        if key.mechanism == "allreduce":
            how = "the better of ring and tree" if len(fit.chances) > 1 else "as this transport does"
            its.append((f"summed {fit.parameters.summed}", None, None, None, "", how))
        rows += [(each.facets, (key.system, key.mechanism, key.transport, *cells, key.software)) for cells in its]
    note = f"{'; '.join(f'{name}: {meaning}' for name, meaning in meanings.items())}."
    names += ["unit", "obtained", "software"]
    return Table.of("model-parameters", "Parameters of the model", names, rows, note)


# --- the verdict ----------------------------------------------------------------------------------


def comparison(verdict: Verdict) -> Table:
    """Each toolkit beside the best of the parameter servers, at every size that both have."""
    names = ["toolkit", "where", "workers", "ratio of efficiencies", *CI, "differs", "efficiency", "PS efficiency"]
    names += ["img/s", "PS img/s", "PS best of", "ratio of img/s", *CI]
    rows: list[Row] = []
    for one in (*verdict.comparisons, *verdict.controls):
        facets = one.facets
        for size in one.sizes:
            servers = size.servers
            cells = (
                *(contender(facets), f"{facets['system']}, {facets['model']}, {facets['data']}", size.workers),
                *_numbers(size.efficiency_ratio, size.efficiency_interval),
                mark(size, size.workers == one.base),
                *(size.toolkit.efficiency, servers.efficiency, size.toolkit.img_per_s, servers.img_per_s),
                None if facets["origin"] == "published" else len(servers.tried),
                *_numbers(size.throughput_ratio, size.throughput_interval),
            )
            rows.append((None, cells))
    return Table.of("verdict", "The comparison", names, rows)
