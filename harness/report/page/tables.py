"""The tables of a report: the contender, then its figures, then what explains them.

The first column stays where it is when a table is scrolled. The page leaves out columns that are the same in all rows.
"""

import math
from collections.abc import Sequence
from pathlib import Path

from harness.analysis.ratios import Interval
from harness.analysis.scaling import Overhead
from harness.analysis.strong import with_efficiencies
from harness.analysis.verdict import Verdict
from harness.core.text import plural
from harness.prediction.fitting import mean_error
from harness.prediction.observations import informative
from harness.records.measurement import Record
from harness.report.page.document import FIELDS, TABLES, PageCell, PageRow, PageTable
from harness.report.page.figures import Facets
from harness.report.page.lines import Line
from harness.report.page.modelled import MOST_FITTED, Explained
from harness.report.text.kernel_table import UNITS
from harness.report.text.verdict import contender, mark
from harness.results.result import Result


def _where(line: Line) -> tuple[PageCell, ...]:
    return (line.system, *line.panel)


def _numbers(value: float, ends: Interval | None) -> tuple[PageCell, ...]:
    return value, *(ends or (None, None))


def points(lines: Sequence[Line]) -> PageTable:
    rows: list[PageRow] = []
    for line in lines:
        for point in line.curve.points:
            best = point.best
            path = Path(best.sources[-1])
            cells = (
                *(line.name, point.workers),
                *_numbers(point.img_per_s, point.interval),
                *_numbers(point.efficiency, point.efficiency_interval),
                plural(point.base.workers, "worker") if point.base else "",
                *(line.tuned(best), len(point.tried), len(best.sample.values) or None),
                *(point.jobs or None, point.nodes or None),
                *(len(best.sources), line.curve.scaling, *_where(line)),
                max(line.seen(best, "started"), default=None),
                # A run's folder is named after its id.
                path.parent.name if path.name == Record.file_name else best.sources[-1],
            )
            rows.append((line.facets, cells))
    return PageTable("points", rows, **TABLES["points"])


def ps_search(lines: Sequence[Line]) -> PageTable:
    """Every configuration with parameter servers at the sizes where several were tried."""
    rows: list[PageRow] = []
    for line in lines:
        for point in line.curve.points if line.curve.scaling == "weak" else ():
            if len(point.tried) < 2 or not any(each.ps for each in point.tried):
                continue
            ordered = sorted(point.tried, key=lambda each: -each.sample.mean)
            for number, each in enumerate(ordered, start=1):
                cells = (
                    *(line.name, point.workers, each.ps, each.sample.mean, each.sample.mean / point.img_per_s),
                    f"best of {len(ordered)}" if number == 1 else f"{number} of {len(ordered)}",
                    *(line.options(each), len(each.sample.values) or None, point.nodes or None, *_where(line)),
                )
                rows.append((line.facets, cells))
    return PageTable("ps-search", rows, **TABLES["ps-search"])


def io_overheads(pairs: Sequence[tuple[Line, Sequence[Overhead]]]) -> PageTable:
    rows: list[PageRow] = []
    for line, overheads in pairs:
        for each in overheads:
            cells = (
                *(line.name, each.workers, *_numbers(each.overhead, each.interval)),
                *(each.synthetic.img_per_s, each.real.img_per_s, each.synthetic.nodes or None, *_where(line)),
            )
            rows.append((line.facets, cells))
    return PageTable("io-overheads", rows, **TABLES["io-overheads"])


def of_runs(name: str, runs: Sequence[Result]) -> PageTable:
    """The table of this name, with a row for each run, the latest first."""
    names = [FIELDS.get(column, column) for column in TABLES[name]["columns"]]
    rows: list[PageRow] = [(Facets.of_run(run), tuple(_cell(run, field) for field in names)) for run in runs[::-1]]
    return PageTable(name, rows, **TABLES[name])


def _cell(run: Result, field: str) -> PageCell:
    if field == "note" and not run.measured:  # a publication's is with its point
        return ""
    value: PageCell = getattr(run, field)
    return None if field == "ps" and not value else value


def kernels(runs: Sequence[Result]) -> PageTable:
    """The figures of kernels, a row for each size of each run, and one for each run without a number."""
    rows: list[PageRow] = []
    for run, efficiency in with_efficiencies(runs).items():
        figures: tuple[PageCell, ...] = (None,) * 8
        if run.completed:
            rate, half = run.rate / 1e9, run.ci95 / 1e9
            ends = None if math.isnan(half) else (rate - half, rate + half)
            others = (run.bus_bytes_per_s / 1e9, run.p50_s * 1e3, efficiency)
            figures = (run.size, *_numbers(rate, ends), UNITS[run.unit], *others)
        where = (run.status, run.framework, run.transport, run.mpi, run.system, run.started, run.source)
        rows.append((Facets.of_run(run), (run.backend, run.kernel, run.nodes, *figures, *where)))
    return PageTable("kernels", rows, **TABLES["kernels"])


def fits(groups: Sequence[Explained]) -> PageTable:
    """The errors of the scaling model, for each fitted group and backend."""
    rows: list[PageRow] = []
    for group in groups:
        fit, key = group.fit, group.fit.group.key
        pairs: dict[str, list[tuple[float, str]]] = {}
        for error, run in zip(fit.errors, informative(fit.group.observations), strict=True):
            pairs.setdefault(run.workload.backend, []).append((error, run.label))
        for backend, errors in sorted(pairs.items()):
            worst = max(errors, key=lambda error: abs(error[0]))
            cells = (
                *(backend, mean_error([error for error, _ in errors]), *worst),
                *("yes" if fit.misfit.contradiction else "no", fit.misfit.chi2, fit.misfit.p_value),
                *(len(errors), fit.fitted, key.transport, key.software, key.system),
            )
            rows.append((group.facets._replace(backend=(backend,)), cells))
    about = TABLES["model-fits"]
    return PageTable("model-fits", rows, **about | {"note": about["note"].format(most=MOST_FITTED)})


def comparison(verdict: Verdict) -> PageTable:
    """Each toolkit beside the best of the parameter servers, at every size that both have."""
    rows: list[PageRow] = []
    for compared in (*verdict.comparisons, *verdict.controls):
        facets = compared.facets
        for size in compared.sizes:
            servers = size.servers
            sides = [Facets.of({**facets, **vars(side.best)}) for side in (size.toolkit, servers)]
            cells = (
                *(contender(facets), size.workers, *_numbers(*size.throughput_ratio[:2])),
                *(*_numbers(*size.efficiency_ratio[:2]), mark(size, size is compared.sizes[0])),
                *(size.toolkit.img_per_s, servers.img_per_s, size.toolkit.efficiency, servers.efficiency),
                None if facets["origin"] == "published" else len(servers.tried),
                f"{facets['system']}, {facets['model']}, {facets['data']}",
            )
            rows.append((sides, cells))
    return PageTable("verdict", rows, **TABLES["verdict"])
