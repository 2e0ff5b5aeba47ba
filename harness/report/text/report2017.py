"""The tables of the CSCS internship report of 2017, from rows of ``results.load``: the best configuration at each size.

For each system, model and contender: the best method and number of parameter servers, img/s on synthetic and on real data,
speedup, scaling efficiency, and the I/O overhead (synthetic − real) / synthetic. Parameter servers are one contender with
two strategies, of which the better one is named, as it was in 2017.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.analysis import scaling
from harness.analysis.scaling import Curve, CurvePoint, Overhead
from harness.core.text import interval, percent, plural
from harness.report.text.comparison import with_number
from harness.report.text.table import table

if TYPE_CHECKING:
    import pandas

_DATA = ("synthetic", "real")


def tables(frame: pandas.DataFrame, baseline: int | None = None) -> str:
    """The tables, with 95 % confidence intervals where they are known.

    Efficiency is relative to each curve's smallest number of workers, or to ``baseline`` workers. Raises InvalidInput if no
    curve has that size.
    """
    measured = with_number(frame, baseline)
    measured = measured[measured["training"] == ""]
    servers = measured["family"] == "parameter_servers"
    curves = [
        *scaling.curves(measured[servers], by="family", baseline=baseline or 0),
        *scaling.curves(measured[~servers], by="contender", baseline=baseline or 0),
    ]
    weak = [curve for curve in curves if curve.scaling == "weak"]
    groups: dict[tuple[Any, ...], dict[str, Curve]] = defaultdict(dict)
    for curve in weak:
        key = tuple((name, value) for name, value in curve.facets.items() if name != "data")
        groups[key][curve.facets["data"]] = curve
    overheads = {id(curve): {one.workers: one for one in its} for curve, its in scaling.io_overheads(weak)}
    tables = [
        _table(dict(key), pair, overheads.get(id(pair.get("real")), {}))
        for key, group in groups.items()
        for pair in _pairs(group)
    ]
    return "\n\n".join(tables) or "no run with a number and the usual training"


def _pairs(group: Mapping[str, Curve]) -> list[dict[str, Curve]]:
    """Synthetic data with each kind of real data that there is: one table for cold caches, one for warm ones."""
    synthetic = {"synthetic": group["synthetic"]} if "synthetic" in group else {}
    return [synthetic | {"real": group[kind]} for kind in group if kind != "synthetic"] or [synthetic]


def _table(facets: Mapping[str, Any], pair: Mapping[str, Curve], overheads: Mapping[int, Overhead]) -> str:
    synthetic, real = ({one.workers: one for one in pair[data].points} if data in pair else {} for data in _DATA)
    rows: list[tuple[str, ...]] = [
        (
            *("workers", "method", "PS", "best of", "img/s synthetic", "img/s real", "speedup"),
            *("efficiency synthetic", "efficiency real", "I/O overhead"),
        )
    ]
    for workers in sorted({*synthetic, *real}):
        points = [point for point in (synthetic.get(workers), real.get(workers)) if point]
        rows.append(
            (
                str(workers),
                _both([point.best.backend for point in points]),
                _both([str(point.best.ps or "") for point in points]),
                "" if facets["origin"] == "published" else _both([str(len(point.tried)) for point in points]),
                *(_throughput(one.get(workers)) for one in (synthetic, real)),
                "" if math.isnan(points[0].speedup) else f"{points[0].speedup:.2f}",
                *(_efficiency(one.get(workers)) for one in (synthetic, real)),
                percent(cost.overhead, cost.interval, 2) if (cost := overheads.get(workers)) else "",
            )
        )
    used = [column for column in range(len(rows[0])) if column == 0 or any(row[column] for row in rows[1:])]
    shown = [tuple(row[column] for column in used) for row in rows]
    right = {position for position, column in enumerate(used) if column != 1}
    return f"{_title(facets, pair)}\n{table(shown, right)}\n{_relative_to(pair)}"


def _title(facets: Mapping[str, Any], pair: Mapping[str, Curve]) -> str:
    points = [point for curve in pair.values() for point in curve.points]
    software = " and ".join(sorted({point.best.software for point in points}))
    over = "/".join(sorted({point.best.transport for point in points} - {""}))
    who = facets.get("backend", "parameter servers")
    per_node = facets["devices_per_node"]
    parts = [
        facets["system"],
        facets["model"],
        f"{who} ({', '.join(part for part in (software, over) if part)})",
        f"batch {facets['batch_size']} per device" if facets["batch_size"] else "",
        f"{per_node} devices per node" if per_node > 1 else "",
        facets["precision"],
        f"{facets['steps']} steps" if facets["steps"] else "",
        *([pair["real"].facets["data"]] if pair.get("real") and pair["real"].facets["data"] != "real" else []),
    ]
    return " · ".join(part for part in parts if part)


def _relative_to(pair: Mapping[str, Curve]) -> str:
    told = [
        f"{plural(base.workers, 'worker')} with {base.img_per_s:.2f} img/s ({data})"
        for data in _DATA
        if data in pair and (base := pair[data].baseline)
    ]
    return f"efficiency and speedup relative to {', '.join(told)}" if told else "no throughput to relate to"


def _both(values: Sequence[str]) -> str:
    """The value with synthetic data, and that with real data if it is another."""
    return " / ".join(dict.fromkeys(values))


def _throughput(point: CurvePoint | None) -> str:
    if point is None or math.isnan(point.img_per_s):
        return ""
    return f"{point.img_per_s:.2f} {interval(point.interval)}".rstrip()


def _efficiency(point: CurvePoint | None) -> str:
    return "" if point is None else percent(point.efficiency, point.efficiency_interval, 2)
