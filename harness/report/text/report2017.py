"""Results as the tables of the CSCS internship report of 2017."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from harness.analysis import scaling
from harness.analysis.scaling import Curve, CurvePoint, Overhead
from harness.core.text import interval, plural
from harness.errors import InvalidInput
from harness.report.text.runs import with_number
from harness.report.text.table import NOTHING, Cell, Table, column_of, number_cell, share_cell
from harness.results.result import Result

_DATA = ("synthetic", "real")
_HEADINGS_2017 = (
    *("workers", "method", "PS", "best of", "img/s synthetic", "img/s real", "speedup"),
    *("efficiency synthetic", "efficiency real", "I/O overhead"),
)


def tables_of_2017(results: Sequence[Result], baseline: int | None = None) -> list[Table]:
    """The tables of the CSCS internship report of 2017, with 95 % confidence intervals where they are known.

    Parameter servers are one contender with two strategies, of which the better one is named, as it was in 2017. I/O
    overhead is (synthetic − real) / synthetic. Efficiency is relative to each curve's smallest number of workers, or to
    ``baseline`` workers. Raises InvalidInput if no curve has that size, or there is none.
    """
    usual = [run for run in with_number(results, baseline) if not run.training]
    weak = [curve for curve in scaling.curves_of_sides(usual, baseline or 0) if curve.scaling == "weak"]
    overheads = {id(curve): {each.workers: each for each in costs} for curve, costs in scaling.io_overheads(weak)}
    groups: dict[tuple[object, ...], dict[str, Curve]] = defaultdict(dict)
    for curve in weak:
        groups[tuple(value for name, value in curve.facets.items() if name != "data")][curve.facets["data"]] = curve
    tables = []
    for group in groups.values():
        # Synthetic data with each kind of real data that there is: one table for cold caches, one for warm ones.
        synthetic = {data: curve for data, curve in group.items() if data == "synthetic"}
        pairs = [synthetic | {"real": curve} for data, curve in group.items() if data != "synthetic"]
        tables += [_table_of_2017(pair, overheads.get(id(pair.get("real")), {})) for pair in pairs or [synthetic]]
    if not tables:
        raise InvalidInput("no run with a number and the usual training")
    return tables


def _table_of_2017(pair: Mapping[str, Curve], overheads: Mapping[int, Overhead]) -> Table:
    synthetic, real = ({each.workers: each for each in pair[data].points} if data in pair else {} for data in _DATA)
    rows: list[tuple[Cell, ...]] = []
    for workers in sorted({*synthetic, *real}):
        both = synthetic.get(workers), real.get(workers)
        points = [point for point in both if point]
        published = next(iter(pair.values())).facets["origin"] == "published"
        cost = overheads.get(workers)
        words = (
            _both(point.best.backend for point in points),
            _both(str(point.best.ps or "") for point in points),
            "" if published else _both(str(len(point.tried)) for point in points),
        )
        rows.append(
            (
                (str(workers), workers),
                *((word, word) for word in words),
                *(_throughput(each) for each in both),
                number_cell(points[0].speedup, "{:.2f}"),
                *(share_cell(each.efficiency, each.efficiency_interval, 2) if each else NOTHING for each in both),
                share_cell(cost.overhead, cost.interval, 2) if cost else NOTHING,
            )
        )
    unknown = "real" in pair and not pair["real"].facets["data"]  # where nobody has said what was read
    headings = [heading.removesuffix(" real") if unknown else heading for heading in _HEADINGS_2017]
    columns = [column_of(*column) for column in zip(headings, zip(*rows, strict=True), strict=True)]
    return Table([column for column in columns if any(column.cells)], _title(pair))


def _throughput(point: CurvePoint | None) -> Cell:
    if point is None or math.isnan(point.img_per_s):
        return NOTHING
    return f"{point.img_per_s:.2f} {interval(point.interval)}".rstrip(), point.img_per_s


def _title(pair: Mapping[str, Curve]) -> str:
    facets = next(iter(pair.values())).facets
    points = [point for curve in pair.values() for point in curve.points]
    software = " and ".join(sorted({point.best.software for point in points}))
    transports = "/".join(sorted({point.best.transport for point in points} - {""}))
    known = [*filter(None, (software, transports))]
    per_node = facets["devices_per_node"]
    base = next(iter(pair.values())).baseline
    real = pair["real"].facets["data"] if "real" in pair else "real"
    parts = (
        facets["system"],
        facets["model"],
        facets.get("backend", "parameter servers") + (f" ({', '.join(known)})" if known else ""),
        f"batch {facets['batch_size']} per device" if facets["batch_size"] else "",
        f"{per_node} devices per node" if per_node > 1 else "",
        facets["precision"],
        real if real != "real" else "",
        f"relative to {plural(base.workers, 'worker')}" if base and len(points) > 1 else "",
    )
    return " · ".join(filter(None, parts))


def _both(values: Iterable[str]) -> str:
    """The value with synthetic data, and that with real data if it is another."""
    return " / ".join(dict.fromkeys(values))
