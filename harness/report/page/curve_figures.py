"""Figures of curves: throughput, scaling efficiency, numbers of parameter servers, I/O overhead, strong scaling."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from harness.analysis import scaling
from harness.analysis.scaling import Configuration, CurvePoint, Overhead
from harness.core.text import plural
from harness.report.page import provenance
from harness.report.page.figures import (
    Axis,
    Figure,
    Series,
    Spot,
    Style,
    decade_ticks,
    measured_ticks,
    panel_name,
    slug,
)
from harness.report.page.lines import Line
from harness.report.page.palette import LIGHT
from harness.report.page.provenance import Runs

STRONG_SIZES = 3  # batch sizes that happen to make a global batch at two sizes are no strong scaling
NO_ENDS = (math.nan, math.nan)


def throughput(lines: Sequence[Line], runs: Runs) -> list[Figure]:
    """img/s against workers, a figure for each model and kind of data. The ideal lines start at each curve's baseline."""
    weak = [line for line in lines if line.curve.scaling == "weak"]
    return [_growth("throughput", "Throughput", panel, its, runs) for panel, its in _panels(weak)]


def strong(lines: Sequence[Line], runs: Runs) -> list[Figure]:
    """img/s against workers that share one global batch, for curves of at least ``STRONG_SIZES`` sizes."""
    long = [line for line in lines if line.curve.scaling == "strong" and len(line.curve.points) >= STRONG_SIZES]
    return [_growth("strong-scaling", "Strong scaling", panel, its, runs) for panel, its in _panels(long)]


def efficiency(lines: Sequence[Line], runs: Runs) -> list[Figure]:
    """Scaling efficiency against workers, published ones included that came without img/s."""
    weak = [line for line in lines if line.curve.scaling == "weak"]
    return [_efficiency(panel, its, runs) for panel, its in _panels(weak)]


def io_overhead(lines: Sequence[Line], runs: Runs) -> list[Figure]:
    """What reading image files costs, in shares of the throughput with synthetic data, a figure for each model."""
    pairs = overheads(lines)
    figures = []
    for model in sorted({line.facets.model[0] for line, _ in pairs}):
        series = [
            _curve(
                line,
                [
                    Spot(one.workers, one.overhead, *one.interval or NO_ENDS, _of_overhead(line, one, runs))
                    for one in its
                ],
            )
            for line, its in pairs
            if line.facets.model == (model,)
        ]
        figures.append(
            Figure(
                name=slug("io-overhead", model),
                title=f"I/O overhead, {model}",
                choice=model,
                x=workers_axis(_sizes(series)),
                y=Axis("I/O overhead", "linear", "share", from_zero=True),
                series=tuple(series),
                note="(synthetic − real) / synthetic img/s, as in the 2017 report. Below zero, files were faster.",
            )
        )
    return figures


def overheads(lines: Sequence[Line]) -> list[tuple[Line, list[Overhead]]]:
    """The I/O overheads of each line on real data that has a counterpart on synthetic data."""
    by_curve = {id(line.curve): line for line in lines}
    return [(by_curve[id(curve)], its) for curve, its in scaling.io_overheads([line.curve for line in lines])]


def _of_overhead(line: Line, one: Overhead, runs: Runs) -> tuple[str, ...]:
    lines = [
        f"{line.name}, {one.workers:,} workers, {line.system}",
        f"overhead {one.overhead:.1%}{provenance.interval(one.interval, percent=True)}",
    ]
    for name, point in (("synthetic data", one.synthetic), ("image files", one.real)):
        text = f"{name}: {provenance.throughput(point.img_per_s)} img/s{provenance.interval(point.interval)}"
        lines.append(", ".join(filter(None, [text, provenance.configuration(point.best, runs)])))
        lines += provenance.of_configuration(point.best, runs)
    return tuple(lines)


def ps_sweeps(lines: Sequence[Line], runs: Runs) -> list[Figure]:
    """img/s against the number of parameter servers, for each curve that was measured with several at one size."""
    figures = []
    for line in lines:
        swept = [point for point in line.curve.points if len({one.ps for one in point.tried}) > 1]
        if swept and line.curve.scaling == "weak":
            figures.append(_ps_sweep(line, swept, runs))
    return distinct(figures)


def _ps_sweep(line: Line, points: Sequence[CurvePoint], runs: Runs) -> Figure:
    series = []
    for number, point in enumerate(points):
        shade = round(number * (len(LIGHT.shades) - 1) / max(1, len(points) - 1))
        spots = [_tried(line, point, one, runs) for one in _best_by_ps(point.tried)]
        name = f"{plural(point.workers, 'worker')}, best of {len(point.tried)}"
        series.append(Series.of(name, "curve", spots, Style(shade, line.style.marker, shade=True), line.facets))
    return Figure(
        name=slug("ps-sweep", line.full_name, *line.panel),
        title=f"Number of parameter servers, {line.full_name}, {panel_name(*line.panel)}",
        choice=f"{line.full_name}, {panel_name(*line.panel)}",
        x=Axis("parameter servers", "log", "count", measured_ticks(_sizes(series))),
        y=Axis("img/s", "log", "img_per_s", decade_ticks(_extent(series))),
        series=tuple(reversed(series)),  # the legend then has the order of the curves, the largest on top
        note="The star is the best configuration at its size. Where options beside the number of servers were tried, "
        "the best at each number is shown.",
    )


def _tried(line: Line, point: CurvePoint, one: Configuration, runs: Runs) -> Spot:
    ends = scaling.best_interval([one.sample])
    hover = (
        f"{line.name}, {point.workers:,} workers, {line.system}",
        f"{provenance.throughput(one.sample.mean)} img/s{provenance.interval(ends)}",
        provenance.configuration(one, runs) + (f", best of {len(point.tried)}" if one is point.best else ""),
        *provenance.of_configuration(one, runs),
    )
    return Spot(one.ps, one.sample.mean, *ends or NO_ENDS, hover, starred=one is point.best)


def _best_by_ps(tried: Iterable[Configuration]) -> list[Configuration]:
    best: dict[int, Configuration] = {}
    for one in tried:
        if one.ps not in best or one.sample.mean > best[one.ps].sample.mean:
            best[one.ps] = one
    return [best[ps] for ps in sorted(best)]


def _growth(name: str, title: str, panel: tuple[str, str], lines: Sequence[Line], runs: Runs) -> Figure:
    series = []
    for line in lines:
        spots = [
            Spot(point.workers, point.img_per_s, *point.interval or NO_ENDS, provenance.of_point(point, runs, line))
            for point in line.curve.points
            if not math.isnan(point.img_per_s)
        ]
        if spots:
            series.append(_curve(line, spots))
        if (base := line.curve.baseline) and len(spots) > 1:
            ends = base.workers, max(int(spot.x) for spot in spots)
            ideal = [Spot(workers, base.img_per_s * workers / base.workers) for workers in ends]
            dashed = Style(None, line.style.marker, "dash")
            series.append(Series.of("ideal", "ideal", ideal, dashed, line.facets, line.system))
    return Figure(
        name=slug(name, *panel),
        title=f"{title}, {panel_name(*panel)}",
        choice=panel_name(*panel),
        x=workers_axis(_sizes(series)),
        y=Axis("img/s", "log", "img_per_s", decade_ticks(_extent(series))),
        series=tuple(series),
    )


def _efficiency(panel: tuple[str, str], lines: Sequence[Line], runs: Runs) -> Figure:
    series = []
    for line in lines:
        points = [point for point in line.curve.points if not math.isnan(point.efficiency)]
        # A curve of one size is its own baseline, which says nothing, unless the efficiency is what was published.
        if len(points) < 2 and all(not math.isnan(point.img_per_s) for point in points):
            continue
        base = line.curve.baseline
        relative = f" (relative to {base.workers})" if base and base.workers > 1 else ""
        spots = [
            Spot(one.workers, one.efficiency, *one.efficiency_interval or NO_ENDS, provenance.of_point(one, runs, line))
            for one in points
        ]
        series.append(_curve(line, spots, f"{line.name}{relative}"))
    sizes = _sizes(series)
    if series:
        ideal = [Spot(int(end), 1.0) for end in (min(sizes), max(sizes))]
        series.append(Series.of("ideal", "ideal", ideal, Style(None, "circle", "dash"), None))
    return Figure(
        name=slug("efficiency", *panel),
        title=f"Scaling efficiency, {panel_name(*panel)}",
        choice=panel_name(*panel),
        x=workers_axis(sizes),
        y=Axis("scaling efficiency", "linear", "share", from_zero=True, top=1.0),
        series=tuple(series),
    )


def _curve(line: Line, spots: Sequence[Spot], name: str = "") -> Series:
    return Series.of(name or line.name, "curve", spots, line.style, line.facets, line.system)


def _panels(lines: Sequence[Line]) -> list[tuple[tuple[str, str], list[Line]]]:
    """Lines by model and data, those with most that we measured first: they are what the report is about."""
    panels: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        panels.setdefault(line.panel, []).append(line)

    def order(panel: tuple[str, str]) -> tuple[int, int, tuple[str, str]]:
        measured = sum(len(line.curve.points) for line in panels[panel] if not line.published)
        return -measured, -sum(len(line.curve.points) for line in panels[panel]), panel

    return [(panel, panels[panel]) for panel in sorted(panels, key=order)]


def distinct(figures: Sequence[Figure]) -> list[Figure]:
    """Figures with names that no two of them share, since they are names of files."""
    seen: dict[str, int] = {}
    renamed = []
    for figure in figures:
        seen[figure.name] = count = seen.get(figure.name, 0) + 1
        renamed.append(figure if count == 1 else replace(figure, name=f"{figure.name}-{count}"))
    return renamed


def workers_axis(sizes: Iterable[float]) -> Axis:
    return Axis("workers", "log", "count", measured_ticks(sizes))


def _sizes(series: Iterable[Series]) -> list[float]:
    return [x for one in series for x in one.x if not isinstance(x, str)]


def _extent(series: Iterable[Series]) -> list[float]:
    return [value for one in series for value in (*one.y, *one.low, *one.high)]
