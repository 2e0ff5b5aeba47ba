"""Figures of kernels, one each: bandwidth of the bus over message size; Gflop/s of what computes over nodes or N."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Literal

from harness import kernels
from harness.analysis.ratios import Sample, best_interval
from harness.analysis.scaling import grouped
from harness.core.statistics import summarise
from harness.core.text import plural
from harness.kernels.kernel import BYTES_PER_S
from harness.records.kernel import size_text
from harness.report.page.curve_figures import NO_ENDS, ideal_of, throughput_axis
from harness.report.page.figures import Axis, Facets, Figure, Series, Spot, decade_ticks, interval, measured_ticks, slug
from harness.report.page.lines import DASHES, look
from harness.report.text.kernel_table import UNITS
from harness.results.result import Result

CONTENDER = ("system", "backend", "framework", "transport", "mpi")
Over = Literal["size", "nodes"]


def of(results: Sequence[Result]) -> list[Figure]:
    """A figure for each kernel, of the runs that have a number.

    A point is the mean of the repeats of all runs that are alike in what the figure tells apart.
    """
    shown = [run for run in results if run.completed and _scale(run) > 0]  # of one rank by itself a bus carries nothing
    return [_figure(name, of_kernel) for name, of_kernel in grouped(shown, attrgetter("kernel"))]


def _scale(run: Result) -> float:
    """The factor of a rate: to GB/s of the bus for bytes/s of the algorithm, to Gflop/s for flop/s."""
    return (run.bus_bytes_per_s / run.rate if run.unit == BYTES_PER_S else 1.0) / 1e9


def _figure(name: str, runs: Sequence[Result]) -> Figure:
    unit = runs[0].unit
    of_one = grouped(runs, attrgetter(*CONTENDER[:-1], "size"))
    on_several_nodes = any(len({run.nodes for run in alike}) > 1 for _, alike in of_one)
    over: Over = "nodes" if unit != BYTES_PER_S and on_several_nodes else "size"
    series = _series(runs, over)
    if over == "nodes":
        series += [ideal_of(curve) for curve in series if len(curve.spots) > 1]
    if unit == BYTES_PER_S:
        rate, x = "bus GB/s", Axis("message, bytes", "log", decade_ticks([run.size for run in runs]))
    else:
        ticks = measured_ticks([getattr(run, over) for run in runs])
        rate, x = UNITS[unit], Axis("nodes" if over == "nodes" else "N", "log", ticks)
    y = replace(throughput_axis(series), name=rate)
    return Figure(slug("kernel", name), f"{name}, {rate}", name, x, y, series)


def _series(runs: Sequence[Result], over: Over) -> list[Series]:
    """A curve for each contender, and for each number of nodes over sizes, or for each size over nodes."""
    other: Over = "nodes" if over == "size" else "size"
    values = sorted({getattr(run, other) for run in runs})
    dashes = dict(zip(values, itertools.cycle(DASHES), strict=False))
    curves = []
    for _, its in grouped(runs, attrgetter(*CONTENDER, other)):
        run = its[0]
        parts = [" ".join(filter(None, (run.backend, run.framework, run.transport, run.mpi)))]
        if len(values) > 1:
            parts.append(plural(run.nodes, "node") if other == "nodes" else f"N = {run.size:,}")
        spots = [_spot(parts, alike, over) for _, alike in grouped(its, attrgetter(over))]
        style = look(run.backend, run.framework, run.transport, dashes[getattr(run, other)])
        curves.append(Series(", ".join(parts), "curve", spots, style, Facets.of_run(run), run.system))
    return curves


def _spot(name: Sequence[str], alike: Sequence[Result], over: Over) -> Spot:
    """Runs of one size on one number of nodes: the mean of all their repeats, with its interval."""
    last = alike[-1]
    rate = summarise([value * _scale(run) for run in alike for value in run.values])
    ends = best_interval([Sample(rate.mean, rate.values)])
    unit = "GB/s of the bus" if last.unit == BYTES_PER_S else UNITS[last.unit]
    size = size_text(kernels.specification(last.kernel), last.size)
    hover = (
        ", ".join(name),
        f"{size} on {plural(last.nodes, 'node')}, {last.system}",
        f"{rate.mean:.3g} {unit}{interval(ends, '{:.3g}'.format)}",
        f"{plural(len(rate.values), 'repeat')} in {plural(len(alike), 'run')}, {last.started[:10]}",
        last.software,
        f"over {last.transport_seen}",
        last.source,
    )
    return Spot(getattr(last, over), rate.mean, *ends or NO_ENDS, hover, source=last.source)
