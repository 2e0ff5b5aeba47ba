"""The tables of the CSCS internship report of 2017, from rows of ``results.load``: the best configuration at each size.

For each system, model and contender: the best method and number of parameter servers, img/s on synthetic and on real data,
speedup, scaling efficiency, and the I/O overhead (synthetic − real) / synthetic. Parameter servers are one contender with
two strategies, of which the better one is named, as it was in 2017.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from harness.analysis import scaling
from harness.analysis.scaling import Curve, CurvePoint, Overhead
from harness.core.text import interval, percent, plural
from harness.report.text.comparison import with_number
from harness.report.text.table import table

if TYPE_CHECKING:
    import pandas

_DATA = ("synthetic", "real")
_HEADINGS = (
    *("workers", "method", "PS", "best of", "img/s synthetic", "img/s real", "speedup"),
    *("efficiency synthetic", "efficiency real", "I/O overhead"),
)


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
    overheads = {id(curve): {each.workers: each for each in costs} for curve, costs in scaling.io_overheads(weak)}
    groups: dict[tuple[Any, ...], dict[str, Curve]] = defaultdict(dict)
    for curve in weak:
        groups[tuple(value for name, value in curve.facets.items() if name != "data")][curve.facets["data"]] = curve
    tables = []
    for group in groups.values():
        # Synthetic data with each kind of real data that there is: one table for cold caches, one for warm ones.
        synthetic = {data: curve for data, curve in group.items() if data == "synthetic"}
        pairs = [synthetic | {"real": curve} for data, curve in group.items() if data != "synthetic"]
        tables += [_table(pair, overheads.get(id(pair.get("real")), {})) for pair in pairs or [synthetic]]
    return "\n\n".join(tables) or "no run with a number and the usual training"


def _table(pair: Mapping[str, Curve], overheads: Mapping[int, Overhead]) -> str:
    synthetic, real = ({each.workers: each for each in pair[data].points} if data in pair else {} for data in _DATA)
    rows = []
    for workers in sorted({*synthetic, *real}):
        both = synthetic.get(workers), real.get(workers)
        points = [point for point in both if point]
        published = next(iter(pair.values())).facets["origin"] == "published"
        cost = overheads.get(workers)
        rows.append(
            (
                str(workers),
                _both(point.best.backend for point in points),
                _both(str(point.best.ps or "") for point in points),
                "" if published else _both(str(len(point.tried)) for point in points),
                *map(_throughput, both),
                "" if math.isnan(points[0].speedup) else f"{points[0].speedup:.2f}",
                *("" if each is None else percent(each.efficiency, each.efficiency_interval, 2) for each in both),
                percent(cost.overhead, cost.interval, 2) if cost else "",
            )
        )
    used = [column for column in zip(_HEADINGS, *rows, strict=True) if any(column[1:])]
    right = {number for number, column in enumerate(used) if column[0] != "method"}
    return f"{_title(pair)}\n{table(list(zip(*used, strict=True)), right)}\n{_relative_to(pair)}"


def _title(pair: Mapping[str, Curve]) -> str:
    facets = next(iter(pair.values())).facets
    points = [point for curve in pair.values() for point in curve.points]
    software = " and ".join(sorted({point.best.software for point in points}))
    transports = "/".join(sorted({point.best.transport for point in points} - {""}))
    per_node = facets["devices_per_node"]
    real = pair["real"].facets["data"] if "real" in pair else "real"
    parts = (
        facets["system"],
        facets["model"],
        f"{facets.get('backend', 'parameter servers')} ({', '.join(filter(None, (software, transports)))})",
        f"batch {facets['batch_size']} per device" if facets["batch_size"] else "",
        f"{per_node} devices per node" if per_node > 1 else "",
        facets["precision"],
        f"{facets['steps']} steps" if facets["steps"] else "",
        real if real != "real" else "",
    )
    return " · ".join(filter(None, parts))


def _relative_to(pair: Mapping[str, Curve]) -> str:
    bases = [(data, pair[data].baseline) for data in _DATA if data in pair]
    named = [
        f"{plural(base.workers, 'worker')} with {base.img_per_s:.2f} img/s ({data})" for data, base in bases if base
    ]
    return f"efficiency and speedup relative to {', '.join(named)}" if named else "no throughput to relate to"


def _both(values: Iterable[str]) -> str:
    """The value with synthetic data, and that with real data if it is another."""
    return " / ".join(dict.fromkeys(values))


def _throughput(point: CurvePoint | None) -> str:
    if point is None or math.isnan(point.img_per_s):
        return ""
    return f"{point.img_per_s:.2f} {interval(point.interval)}".rstrip()
