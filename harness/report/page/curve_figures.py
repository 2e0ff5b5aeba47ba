"""Figures of curves: throughput, scaling efficiency, numbers of parameter servers, I/O overhead, strong scaling."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from harness.analysis import ratios, scaling
from harness.analysis.fastest import Race
from harness.analysis.scaling import Configuration, CurvePoint, Overhead
from harness.core.text import plural
from harness.report.page.figures import (
    SHADES,
    Axis,
    Facets,
    Figure,
    Series,
    Spot,
    Style,
    decade_ticks,
    interval,
    measured_ticks,
    panel_name,
    relative,
    slug,
    throughput,
)
from harness.report.page.lines import DASHES, Line

STRONG_SIZES = 3  # batch sizes that happen to make a global batch at two sizes are no strong scaling
SWEPT = ("circle", "square", "diamond", "triangle-up")  # markers of placements
NO_ENDS = (math.nan, math.nan)


def growth(lines: Iterable[Line], kind: Literal["weak", "strong"]) -> list[Figure]:
    """img/s against workers, a figure for each model and kind of data. The ideal lines start at each curve's baseline.

    Strong scaling, of workers that share one global batch, is that of curves of at least ``STRONG_SIZES`` sizes.
    """
    title, fewest = ("Throughput", 1) if kind == "weak" else ("Strong scaling", STRONG_SIZES)
    figures = []
    for panel, its in _panels(line for line in lines if line.curve.scaling == kind):
        series = []
        for line in its:
            points = [point for point in line.curve.points if not math.isnan(point.img_per_s)]
            if len(points) < fewest:
                continue
            series.append(_curve(line, [_spot(line, each, each.img_per_s, each.interval) for each in points]))
            if len(points) > 1:
                series.append(ideal_of(series[-1]))
        figures.append(replace(_figure(slug(title), title, panel, throughput_axis(series), series), views=True))
    return figures


def efficiencies(lines: Iterable[Line], races: Sequence[Race]) -> list[Figure]:
    """Scaling efficiency against workers, published ones included that came without img/s.

    All curves of a figure are relative to one size, and begin there. A model and kind of data has a figure for each size
    that curves begin with, the smallest first, which readers know best, and for the base of each race.
    """
    figures = []
    for panel, its in _panels(line for line in lines if line.curve.scaling == "weak"):
        of_races = {race.base for race in races if (race.facets["model"], race.facets["data"]) == panel and race.base}
        bases = sorted(of_races | {min(sizes) for line in its if len(sizes := _sizes(line)) > 1}) or [0]
        unit = "node" if all(each.nodes == each.workers for line in its for each in line.curve.points) else "worker"
        for number, base in enumerate(bases):
            series, lacking = [], set()
            for line in its:
                curve = scaling.rebased(line.curve, base)
                points = [p for p in curve.points if not math.isnan(p.efficiency) and p.workers >= base]
                # A curve of one size is its own baseline, which says nothing, unless the efficiency is what was published.
                if len(points) > 1 or any(math.isnan(point.img_per_s) for point in points):
                    spots = [_spot(line, point, point.efficiency, point.efficiency_interval) for point in points]
                    series.append(_curve(line, spots))
                elif len(_sizes(line)) > 1 and base not in _sizes(line):
                    lacking.add(f"{line.name} on {line.system}")
            if not series:
                continue
            workers = [spot.x for each in series for spot in each.spots]
            series.append(ideal([Spot(end, 1.0) for end in (min(workers), max(workers))]))
            suffix = relative(base, unit)
            y = Axis(f"scaling efficiency{suffix}", "linear", percent=True, from_zero=True)
            absent = f"Not measured on {plural(base, unit)}, so not shown: {'; '.join(sorted(lacking))}."
            figure = _figure("efficiency", "Scaling efficiency", panel, y, series, absent if lacking else "")
            if len(bases) > 1:
                name = f"{figure.name}-from-{base}" if number else figure.name
                figure = replace(figure, name=name, title=figure.title + suffix, choice=figure.choice + suffix)
            figures.append(figure)
    return figures


def _sizes(line: Line) -> list[int]:
    """The sizes that the curve has a throughput at, in workers."""
    return [point.workers for point in line.curve.points if not math.isnan(point.img_per_s)]


def _figure(name: str, title: str, panel: Sequence[str], y: Axis, series: Sequence[Series], note: str = "") -> Figure:
    """A figure against workers, of a model, of a model and a kind of data, or of a curve."""
    subject = panel_name(*panel) if len(panel) > 1 else panel[0]
    return Figure(slug(name, *panel), f"{title}, {subject}", subject, workers_axis(series), y, series, note)


def io_overhead(pairs: Iterable[tuple[Line, Sequence[Overhead]]]) -> list[Figure]:
    """The cost of reading image files, in shares of the throughput with synthetic data, a figure for each model."""
    by_model = defaultdict(list)
    for line, its in pairs:
        spots = []
        for each in its:
            name, *facts = line.hover(each.real)
            cost = f"overhead {each.overhead:.1%}{interval(each.interval, '{:.1%}'.format)}"
            spots.append(_spot(line, each.real, each.overhead, each.interval, (name, cost, *facts)))
        by_model[line.facets.model].append(_curve(line, spots))
    y = Axis("I/O overhead", "linear", percent=True, from_zero=True)
    return [_figure("io-overhead", "I/O overhead", model, y, by_model[model]) for model in sorted(by_model)]


def overheads(lines: Sequence[Line]) -> list[tuple[Line, list[Overhead]]]:
    """The I/O overheads of each line on real data that has a counterpart on synthetic data."""
    by_curve = {id(line.curve): line for line in lines}
    return [(by_curve[id(curve)], its) for curve, its in scaling.io_overheads([line.curve for line in lines])]


def ps_sweeps(lines: Iterable[Line]) -> list[Figure]:
    """img/s against the number of parameter servers, for each curve that was measured with several at one size.

    A line for each number of workers and each placement of variables on servers.
    """
    figures: list[Figure] = []
    for line in lines:
        points = [point for point in line.curve.points if len({each.ps for each in point.tried}) > 1]
        if not points or line.curve.scaling != "weak":
            continue
        placements = sorted({_placement(each) for point in points for each in point.tried})
        series = []
        for number, point in enumerate(points):
            shade = round(number * (SHADES - 1) / max(1, len(points) - 1))
            slowest_first = sorted(point.tried, key=lambda each: (each.ps, each.sample.mean))
            best_of = f", best of {len(point.tried)}"
            for placed, placement in enumerate(placements):
                fastest = {each.ps: each for each in slowest_first if _placement(each) == placement}.values()
                if not fastest:
                    continue
                spots = []
                for each in fastest:
                    mean, ends, starred = each.sample.mean, ratios.best_interval([each.sample]), each is point.best
                    hover = (
                        f"{line.name}, {point.workers:,} workers, {line.system}",
                        f"{throughput(mean)} img/s{interval(ends)}",
                        line.tuned(each) + best_of * starred,
                        *line.origin(each),
                    )
                    spots.append(Spot(each.ps, mean, *ends or NO_ENDS, hover, starred, each.sources[-1]))
                name = plural(point.workers, "worker")
                name += f", {placement}" if placement and len(placements) > 1 else ""
                name += best_of if point.best in fastest else ""
                looks = Style(f"s{shade}", SWEPT[placed % len(SWEPT)], DASHES[placed % len(DASHES)])
                series.append(Series(name, "curve", spots, looks, line.facets))
        subject = f"{line.name}, {line.system}, {panel_name(*line.panel)}"
        name, title = f"ps-sweep-{len(figures) + 1}", "Number of parameter servers"
        series.reverse()  # the legend then has the order of the curves, the largest on top
        figure = _figure(name, title, [subject], throughput_axis(series), series)
        figures.append(replace(figure, x=replace(figure.x, name="parameter servers")))
    return figures


def _placement(configuration: Configuration) -> str:
    return str(configuration.options.get("placement") or "")


def _spot(
    line: Line, point: CurvePoint, y: float, interval: tuple[float, float] | None, hover: Sequence[str] = ()
) -> Spot:
    """A point of ``line``; its default text is all that the line says of it."""
    return Spot(point.workers, y, *interval or NO_ENDS, hover or line.hover(point), source=point.best.sources[-1])


def _curve(line: Line, spots: Sequence[Spot]) -> Series:
    return Series(line.name, "curve", spots, line.style, line.facets, line.system)


def ideal_of(curve: Series) -> Series:
    """The line that a curve would follow if its first point grew without any loss."""
    first, last = curve.spots[0], curve.spots[-1]
    return ideal([Spot(spot.x, first.y * float(spot.x) / float(first.x)) for spot in (first, last)], curve.facets)


def ideal(ends: Sequence[Spot], facets: Facets | None = None) -> Series:
    return Series("ideal", "ideal", ends, Style("muted"), facets)


def _panels(lines: Iterable[Line]) -> list[tuple[tuple[str, str], list[Line]]]:
    """Lines by model and data, those with most that we measured first: they are what the report is about."""
    panels: dict[tuple[str, str], list[Line]] = defaultdict(list)
    points: dict[tuple[str, str], Counter[bool]] = defaultdict(Counter)  # how many are published, and how many not
    for line in lines:
        panels[line.panel].append(line)
        points[line.panel][line.published] += len(line.curve.points)
    return sorted(panels.items(), key=lambda item: (-points[item[0]][False], -points[item[0]].total(), item[0]))


def workers_axis(series: Iterable[Series]) -> Axis:
    return Axis("workers", "log", measured_ticks(x for each in series for x in each.column("x")))


def throughput_axis(series: Iterable[Series]) -> Axis:
    values = [value for each in series for spot in each.spots for value in (spot.y, spot.low, spot.high)]
    return Axis("img/s", "log", decade_ticks(values))
