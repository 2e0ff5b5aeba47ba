"""Figures of curves: throughput, scaling efficiency, numbers of parameter servers, I/O overhead, strong scaling."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from harness.analysis import scaling
from harness.analysis.scaling import Configuration, CurvePoint, Interval, Overhead
from harness.core.text import plural
from harness.report.page import provenance
from harness.report.page.figures import Axis, Figure, Series, Style, decade_ticks, measured_ticks, panel_name, slug
from harness.report.page.lines import Line
from harness.report.page.palette import LIGHT
from harness.report.page.provenance import Runs

STRONG_SIZES = 3  # batch sizes that happen to make a global batch at two sizes are no strong scaling


def throughput(lines: Sequence[Line], runs: Runs) -> list[Figure]:
    """img/s against workers, a figure for each model and kind of data. The ideal lines start at each curve's baseline."""
    return [
        _growth("throughput", "Throughput", panel, chosen, runs)
        for panel, chosen in _panels([line for line in lines if line.curve.scaling == "weak"])
    ]


def strong(lines: Sequence[Line], runs: Runs) -> list[Figure]:
    """img/s against workers that share one global batch, for curves of at least ``STRONG_SIZES`` sizes."""
    long = [line for line in lines if line.curve.scaling == "strong" and len(line.curve.points) >= STRONG_SIZES]
    return [_growth("strong-scaling", "Strong scaling", panel, chosen, runs) for panel, chosen in _panels(long)]


def efficiency(lines: Sequence[Line], runs: Runs) -> list[Figure]:
    """Scaling efficiency against workers, published ones included that came without img/s."""
    weak = [line for line in lines if line.curve.scaling == "weak"]
    return [_efficiency(panel, chosen, runs) for panel, chosen in _panels(weak)]


def io_overhead(lines: Sequence[Line], runs: Runs) -> list[Figure]:
    """What reading image files costs, in shares of the throughput with synthetic data, a figure for each model."""
    pairs = overheads(lines)
    figures = []
    for model in sorted({line.facets.model[0] for line, _ in pairs}):
        series = [
            _series(
                line,
                [one.workers for one in found],
                [one.overhead for one in found],
                [one.interval for one in found],
                [_told_of_overhead(line, one, runs) for one in found],
            )
            for line, found in pairs
            if line.facets.model == (model,)
        ]
        workers = [x for one in series for x in one.x if isinstance(x, int)]
        figures.append(
            Figure(
                name=slug("io-overhead", model),
                title=f"I/O overhead, {model}",
                choice=model,
                x=_workers(workers),
                y=Axis("I/O overhead", "linear", "share", from_zero=True),
                series=tuple(series),
                note="(synthetic − real) / synthetic img/s, as in the 2017 report. Below zero, files were faster.",
            )
        )
    return figures


def overheads(lines: Sequence[Line]) -> list[tuple[Line, list[Overhead]]]:
    """The I/O overheads of each line on real data that has a counterpart on synthetic data."""
    by_curve = {id(line.curve): line for line in lines}
    return [(by_curve[id(curve)], found) for curve, found in scaling.io_overheads([line.curve for line in lines])]


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
        shown = _best_by_ps(point.tried)
        shade = round(number * (len(LIGHT.shades) - 1) / max(1, len(points) - 1))
        intervals = [scaling.best_interval([one.sample]) for one in shown]
        hover = [
            (
                f"{line.name}, {point.workers:,} workers, {line.system}",
                f"{provenance.throughput(one.sample.mean)} img/s{provenance.interval(ends)}",
                provenance.configuration(one, runs) + (f", best of {len(point.tried)}" if one is point.best else ""),
                *provenance.of_configuration(one, runs),
            )
            for one, ends in zip(shown, intervals, strict=True)
        ]
        series.append(
            Series(
                name=f"{plural(point.workers, 'worker')}, best of {len(point.tried)}",
                kind="curve",
                x=tuple(one.ps for one in shown),
                y=tuple(one.sample.mean for one in shown),
                style=Style(shade, line.style.marker, shade=True),
                facets=line.facets,
                low=_ends(intervals, 0),
                high=_ends(intervals, 1),
                hover=tuple(hover),
                starred=tuple(one is point.best for one in shown),
            )
        )
    return Figure(
        name=slug("ps-sweep", line.full_name, *line.panel),
        title=f"Number of parameter servers, {line.full_name}, {panel_name(*line.panel)}",
        choice=f"{line.full_name}, {panel_name(*line.panel)}",
        x=Axis(
            "parameter servers", "log", "count", measured_ticks([one for each in series for one in _numbers(each.x)])
        ),
        y=Axis("img/s", "log", "img_per_s", decade_ticks(_extent(series))),
        series=tuple(reversed(series)),  # the legend then has the order of the curves, the largest on top
        note="The star is the best configuration at its size. Where options beside the number of servers were tried, "
        "the best at each number is shown.",
    )


def _best_by_ps(tried: Iterable[Configuration]) -> list[Configuration]:
    best: dict[int, Configuration] = {}
    for one in tried:
        if one.ps not in best or one.sample.mean > best[one.ps].sample.mean:
            best[one.ps] = one
    return [best[ps] for ps in sorted(best)]


def _growth(name: str, title: str, panel: tuple[str, str], lines: Sequence[Line], runs: Runs) -> Figure:
    series = []
    for line in lines:
        points = [point for point in line.curve.points if not math.isnan(point.img_per_s)]
        if not points:
            continue
        hover = [provenance.of_point(point, runs, line) for point in points]
        series.append(
            _series(
                line,
                [point.workers for point in points],
                [point.img_per_s for point in points],
                [point.interval for point in points],
                hover,
            )
        )
        if line.curve.baseline and len(points) > 1:
            series.append(_ideal(line, line.curve.baseline, max(point.workers for point in points)))
    workers = [int(x) for one in series for x in _numbers(one.x)]
    return Figure(
        name=slug(name, *panel),
        title=f"{title}, {panel_name(*panel)}",
        choice=panel_name(*panel),
        x=_workers(workers),
        y=Axis("img/s", "log", "img_per_s", decade_ticks(_extent(series))),
        series=tuple(series),
    )


def _ideal(line: Line, base: CurvePoint, largest: int) -> Series:
    ends = (base.workers, largest)
    style = Style(None, line.style.marker, "dash")
    y = tuple(base.img_per_s * one / base.workers for one in ends)
    return Series("ideal", "ideal", ends, y, style, line.facets, group=line.system)


def _efficiency(panel: tuple[str, str], lines: Sequence[Line], runs: Runs) -> Figure:
    series = []
    for line in lines:
        points = [point for point in line.curve.points if not math.isnan(point.efficiency)]
        # A curve of one size is its own baseline, which says nothing, unless the efficiency is what was published.
        if len(points) < 2 and all(not math.isnan(point.img_per_s) for point in points):
            continue
        base = line.curve.baseline
        relative = f" (relative to {base.workers})" if base and base.workers > 1 else ""
        series.append(
            _series(
                line,
                [point.workers for point in points],
                [point.efficiency for point in points],
                [point.efficiency_interval for point in points],
                [provenance.of_point(point, runs, line) for point in points],
                name=f"{line.name}{relative}",
            )
        )
    workers = [int(x) for one in series for x in _numbers(one.x)]
    if series:
        ends = (min(workers), max(workers))
        series.append(Series("ideal", "ideal", ends, (1.0, 1.0), Style(None, "circle", "dash"), None))
    return Figure(
        name=slug("efficiency", *panel),
        title=f"Scaling efficiency, {panel_name(*panel)}",
        choice=panel_name(*panel),
        x=_workers(workers),
        y=Axis("scaling efficiency", "linear", "share", from_zero=True, top=1.0),
        series=tuple(series),
    )


def _series(
    line: Line,
    x: Sequence[float],
    y: Sequence[float],
    intervals: Sequence[Interval | None],
    hover: Sequence[tuple[str, ...]],
    name: str = "",
) -> Series:
    return Series(
        name=name or line.name,
        kind="curve",
        x=tuple(x),
        y=tuple(y),
        style=line.style,
        facets=line.facets,
        low=_ends(intervals, 0),
        high=_ends(intervals, 1),
        hover=tuple(hover),
        group=line.system,
    )


def _panels(lines: Sequence[Line]) -> list[tuple[tuple[str, str], list[Line]]]:
    """Lines by model and data, those with most that we measured first: they are what the report is about."""
    panels: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        panels.setdefault(line.panel, []).append(line)

    def interest(panel: tuple[str, str]) -> tuple[int, int]:
        measured = sum(len(line.curve.points) for line in panels[panel] if not line.published)
        return measured, sum(len(line.curve.points) for line in panels[panel])

    return [(panel, panels[panel]) for panel in sorted(panels, key=lambda one: (*(-n for n in interest(one)), one))]


def distinct(figures: Sequence[Figure]) -> list[Figure]:
    """Figures with names that no two of them share, since they are names of files."""
    seen: dict[str, int] = {}
    found = []
    for figure in figures:
        seen[figure.name] = count = seen.get(figure.name, 0) + 1
        found.append(figure if count == 1 else replace(figure, name=f"{figure.name}-{count}"))
    return found


def _told_of_overhead(line: Line, one: Overhead, runs: Runs) -> tuple[str, ...]:
    def side(name: str, point: CurvePoint) -> list[str]:
        text = f"{name}: {provenance.throughput(point.img_per_s)} img/s{provenance.interval(point.interval)}"
        return [", ".join(filter(None, [text, provenance.configuration(point.best, runs)])), *sources(point)]

    def sources(point: CurvePoint) -> list[str]:
        return provenance.of_configuration(point.best, runs)

    return (
        f"{line.name}, {one.workers:,} workers, {line.system}",
        f"overhead {one.overhead:.1%}{provenance.interval(one.interval, percent=True)}",
        *side("synthetic data", one.synthetic),
        *side("image files", one.real),
    )


def _workers(values: Sequence[float]) -> Axis:
    return Axis("workers", "log", "count", measured_ticks(values))


def _ends(intervals: Sequence[Interval | None], which: int) -> tuple[float, ...]:
    return tuple(math.nan if ends is None else ends[which] for ends in intervals)


def _numbers(values: Iterable[float | str]) -> list[float]:
    return [value for value in values if not isinstance(value, str)]


def _extent(series: Iterable[Series]) -> list[float]:
    return [value for one in series for value in (*one.y, *one.low, *one.high)]
