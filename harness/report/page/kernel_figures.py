"""Figures of kernels, one each: bandwidth of the bus over message size; Gflop/s of what computes over nodes or N."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import pandas

from harness import kernels
from harness.analysis.ratios import Sample, best_interval
from harness.core.statistics import summarise
from harness.core.text import plural
from harness.kernels.kernel import BYTES_PER_S
from harness.records.kernel import size_text
from harness.report.page.curve_figures import throughput_axis
from harness.report.page.figures import Axis, Facets, Figure, Series, Spot, Style, decade_ticks, measured_ticks, slug
from harness.report.page.lines import DASHES, look
from harness.report.text.kernel_table import UNITS

CONTENDER = ["system", "backend", "framework", "transport"]
Over = Literal["size", "nodes"]


def of(frame: pandas.DataFrame) -> list[Figure]:
    """A figure for each kernel in rows of ``results.kernels.load``, of the runs that have a number.

    A point is the mean of the repeats of all runs that are alike in what the figure tells apart.
    """
    completed = frame[frame["status"] == "completed"].copy()
    in_bytes = completed["unit"] == BYTES_PER_S
    completed["scale"] = (completed["bus_bytes_per_s"] / completed["rate"]).where(in_bytes, 1.0) / 1e9
    shown = completed[completed["scale"] > 0]  # of one rank by itself a bus carries nothing
    return [_figure(str(name), of_kernel) for name, of_kernel in shown.groupby("kernel")]


def facets(row: Mapping[Any, Any]) -> Facets:
    """A kernel states no model and no data."""
    return Facets.of({**row, "origin": "measured", "model": "", "data": ""})


def _figure(name: str, frame: pandas.DataFrame) -> Figure:
    unit = frame["unit"].iloc[0]
    on_several_nodes = frame.groupby([*CONTENDER, "size"])["nodes"].nunique().max() > 1
    over: Over = "nodes" if unit != BYTES_PER_S and on_several_nodes else "size"
    series = _series(frame, over)
    if over == "nodes":
        series += [_ideal(curve) for curve in series if len(curve.spots) > 1]
    if unit == BYTES_PER_S:
        rate, x = "bus GB/s", Axis("message, bytes", "log", decade_ticks(frame["size"]))
    else:
        rate, x = UNITS[unit], Axis("nodes" if over == "nodes" else "N", "log", measured_ticks(frame[over]))
    y = replace(throughput_axis(series), name=rate)
    return Figure(slug("kernel", name), f"{name}, {rate}", name, x, y, series)


def _series(frame: pandas.DataFrame, over: Over) -> list[Series]:
    """A curve for each contender, and for each number of nodes over sizes, or for each size over nodes."""
    other: Over = "nodes" if over == "size" else "size"
    several = frame[other].nunique() > 1
    dashes = dict(zip(sorted(frame[other].unique()), itertools.cycle(DASHES), strict=False))
    curves = []
    for key, its in frame.groupby([*CONTENDER, "mpi", other]):
        row: dict[str, Any] = dict(zip([*CONTENDER, "mpi", other], key, strict=True))
        backend, framework, transport = (str(row[name]) for name in CONTENDER[1:])
        parts = [" ".join(filter(None, (backend, framework, transport, row["mpi"])))]
        if several:
            parts.append(plural(row["nodes"], "node") if other == "nodes" else f"N = {row['size']:,}")
        spots = [_spot(parts, alike.to_dict("records"), over) for _, alike in its.groupby(over)]
        style = look(backend, framework, transport, dashes[row[other]])
        curves.append(Series(", ".join(parts), "curve", spots, style, facets(row), str(row["system"])))
    return curves


def _spot(name: Sequence[str], alike: Sequence[Mapping[Any, Any]], over: Over) -> Spot:
    """Runs of one size on one number of nodes: the mean of all their repeats, with its interval."""
    last = alike[-1]
    rate = summarise([value * row["scale"] for row in alike for value in row["values"]])
    interval = best_interval([Sample(rate.mean, rate.values)])
    low, high = interval or (math.nan, math.nan)
    unit = "GB/s of the bus" if last["unit"] == BYTES_PER_S else UNITS[last["unit"]]
    limits = f" (95 % CI {low:.3g} to {high:.3g})" if interval else ""
    size = size_text(kernels.specification(last["kernel"]), last["size"])
    hover = (
        ", ".join(name),
        f"{size} on {plural(last['nodes'], 'node')}, {last['system']}",
        f"{rate.mean:.3g} {unit}{limits}",
        f"{plural(len(rate.values), 'repeat')} in {plural(len(alike), 'run')}, {last['started'][:10]}",
        last["software"],
        f"over {last['transport_seen']}",
        last["source"],
    )
    return Spot(last[over], rate.mean, low, high, hover, source=last["source"])


def _ideal(curve: Series) -> Series:
    """What a curve over nodes would be if none of them had to wait for another."""
    first, last = curve.spots[0], curve.spots[-1]
    ends = [Spot(spot.x, first.y * float(spot.x) / float(first.x)) for spot in (first, last)]
    return Series("ideal", "ideal", ends, Style("muted"), curve.facets)
