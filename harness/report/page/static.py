"""Figures as files for papers and slides, drawn with Matplotlib: vector text, and readable when printed in grey."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.errors import writing
from harness.report.page.figures import COLUMN, LIGHT, LOOKS, MARK, SPAN, Axis, Figure, Series, side_by_side, window

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MM = 1 / 25.4  # in inches
WIDTH_MM = 183.0  # a text block's width, or two columns
# Around the axes, in mm: room for the labels on the left, at the right, below, and above, which is the same in all figures.
LEFT, RIGHT, BELOW, ABOVE = 17.0, 3.0, 10.0, 5.0
SHAPE = 0.6  # of the axes: height over width
POINTS = 8  # size of text; 7 in legends and on narrow figures
NARROW_MM = 120.0
ENTRY_MM = 3.6  # of a legend, a line
LETTER_MM, KEY_MM = 1.32, 13.0  # of a legend's text, and of what stands before it
DPI = 300
MARKERS: dict[str, str] = LOOKS["letters"]
DASHES: dict[str, object] = {name: (0, lengths) if lengths else "-" for name, lengths in LOOKS["dashes"].items()}
STYLE = Path(__file__).parent / "templates/static.mplstyle"
_INK = dict.fromkeys(("axes.labelcolor", "xtick.color", "ytick.color", "text.color"), LIGHT["ink"])
INKS = {"grid.color": LIGHT["grid"], "axes.edgecolor": LIGHT["muted"], **_INK}


def write(figures: Sequence[Figure], folder: Path, formats: Sequence[str], width_mm: float = WIDTH_MM) -> list[Path]:
    """Write each figure once in each format, named after it, all of one width with axes of one size and no title.

    Raises InvalidInput if the folder cannot be written.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    written = []
    size = POINTS if width_mm >= NARROW_MM else POINTS - 1
    sizes = dict.fromkeys(("font.size", "axes.labelsize", "xtick.labelsize", "ytick.labelsize"), size)
    with pyplot.style.context([STYLE, INKS | sizes]), writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for figure in figures:
            canvas, axes = pyplot.subplots()
            draw(figure, axes, width_mm)
            for name in formats:
                written.append(folder / f"{figure.name}.{name}")
                fixed = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(name, {})
                canvas.savefig(written[-1], dpi=DPI, metadata=fixed)
            pyplot.close(canvas)
    return written


def draw(figure: Figure, axes: Axes, width_mm: float = WIDTH_MM) -> None:
    """Draw ``figure`` into ``axes``, with a legend below them: systems above their curves, ideal lines once, last."""
    from matplotlib.dates import ConciseDateFormatter

    drawn = side_by_side(figure.series, figure.x.scale == "log")
    handles = [(series, _series(series, axes)) for series in drawn]
    for time, word in figure.marks:
        x = _across(time)
        axes.axvline(x, color=LIGHT[MARK], linewidth=1, linestyle="--")
        axes.annotate(word, (x, 1), xycoords=("data", "axes fraction"), color=LIGHT[MARK], ha="center", va="bottom")
    _axis(figure.x, axes.xaxis, axes.set_xscale)
    if figure.y.scale == "log":
        axes.set_yscale("log")
    axes.set_ylim(window(figure.series, figure.y))
    _arrows(drawn, axes)
    _axis(figure.y, axes.yaxis, axes.set_yscale)
    letters = int(SHAPE * (width_mm - LEFT - RIGHT) / LETTER_MM)
    axes.set(xlabel=figure.x.title, ylabel=textwrap.fill(figure.y.title, letters))
    if figure.x.scale == "date":
        axes.xaxis.set_major_formatter(ConciseDateFormatter(axes.xaxis.get_major_locator()))
    _legend(handles, axes, width_mm)


def _arrows(every: Sequence[Series], axes: Axes) -> None:
    """Mark the ends of intervals that leave the axes."""
    bottom, top = axes.get_ylim()
    for series in (series for series in every if series.kind == "curve"):
        for spot in series.spots:
            colour = LIGHT[series.style.colour]
            arrow = partial(axes.plot, _across(spot.x), color=colour, markersize=5, clip_on=False, zorder=5)
            if max(spot.y, np.nan_to_num(spot.high)) > top:
                arrow(top, "^")
            if spot.low < bottom:
                arrow(bottom, "v")


def _legend(drawn: Sequence[tuple[Series, object]], axes: Axes, width_mm: float) -> None:
    """The names of what was drawn, below those of their groups if there are several; ideal lines have one entry.

    The canvas is as high as they need it to be, the axes are not smaller for it.
    """
    curves = [(series, handle) for series, handle in drawn if series.kind != "ideal"]
    groups = {series.group for series, _ in curves}
    entries: list[tuple[object, str]] = []
    group = ""
    for series, handle in curves:
        if len(groups) > 1 and series.group != group:
            group = series.group
            entries.append((axes.plot([], [], " ")[0], group))
        if series.kind != "band" or series.name not in [name for _, name in entries]:
            entries.append((handle, series.name))
    entries += [(handle, "ideal") for series, handle in drawn if series.kind == "ideal"][-1:]
    # As many columns as the longest name leaves room for, of lines that fit.
    longest = max((len(name) for _, name in entries), default=1)
    columns = max(1, min(len(entries), int(width_mm / (KEY_MM + LETTER_MM * longest))))
    letters = int((width_mm / columns - KEY_MM) / LETTER_MM)
    wrapped = [(handle, textwrap.fill(name, letters)) for handle, name in entries]
    lines = [text.count("\n") + 1 for _, text in wrapped]
    rows = -(-len(lines) // columns)
    high = max((sum(lines[first : first + rows]) for first in range(0, len(lines), rows)), default=0) * ENTRY_MM + 2
    wide = width_mm - LEFT - RIGHT
    height = ABOVE + SHAPE * wide + BELOW + high
    canvas = axes.figure
    canvas.set_size_inches(width_mm * MM, height * MM)  # type: ignore[union-attr]
    axes.set_position((LEFT / width_mm, (BELOW + high) / height, wide / width_mm, SHAPE * wide / height))
    looks: Any = {"loc": "lower left", "bbox_to_anchor": (0.0, 0.0), "bbox_transform": canvas.transFigure}
    looks |= {"frameon": False, "fontsize": POINTS - 1, "ncols": columns, "handlelength": 2.6, "borderaxespad": 0.3}
    looks |= {"labelspacing": 0.25, "columnspacing": 1.2}
    for label in axes.legend(*zip(*wrapped, strict=True), **looks).get_texts():
        if len(groups) > 1 and label.get_text() in groups:
            label.set_fontweight("bold")


def _across(x: str | float) -> Any:
    """The place of a point from left to right: a date, or a number."""
    return datetime.fromisoformat(x) if isinstance(x, str) else x


def _series(series: Series, axes: Axes) -> object:
    """Draw one series and return its part of the legend."""
    x = [*map(_across, series.column("x"))]
    y, low, high = series.heights()
    # Lengths below and above the points, 0 where there is no interval.
    bars = None if np.isnan(low).all() else np.nan_to_num([y - low, high - y])
    style, colour = series.style, LIGHT[series.style.colour]
    match series.kind:
        case "ideal":
            return axes.plot(x, y, color=LIGHT["grey"], linewidth=0.8, linestyle=DASHES["dash"], zorder=1)[0]
        case "line" | "span":
            width = SPAN / 2 if series.kind == "span" else 1.4
            return axes.plot(x, y, color=colour, linestyle=DASHES[style.dash], linewidth=width, solid_capstyle="butt")[
                0
            ]
        case "band":
            return axes.fill_between(x, low, high, color=colour, alpha=0.25, linewidth=0)
        case "column":
            base = np.nan_to_num(low)
            return axes.bar(x, y - base, bottom=base, width=COLUMN, color=colour)
    accent = series.kind == "accent"
    markers: Any = {"marker": MARKERS[style.marker], "markersize": 3.5 if accent else 5, "markeredgewidth": 0.9}
    markers["markerfacecolor"] = "white" if style.hollow else colour
    markers |= {"linestyle": "none" if accent else DASHES[style.dash], "linewidth": 1.0 if style.hollow else 1.4}
    drawn = axes.errorbar(x, y, bars, color=colour, capsize=2, elinewidth=0.9, zorder=3, **markers)
    if best := [(at, spot.y) for at, spot in zip(x, series.spots, strict=True) if spot.starred]:
        star: Any = {"marker": "*", "markersize": 15, "markeredgecolor": "white", "markeredgewidth": 0.6}
        axes.plot(*zip(*best, strict=True), linestyle="none", color=colour, zorder=4, **star)
    return drawn


def _axis(axis: Axis, drawn: Any, set_scale: Any) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, PercentFormatter

    if axis.scale == "log":
        set_scale("log")
        drawn.set_minor_locator(FixedLocator(axis.minor))
        drawn.set_minor_formatter(NullFormatter())
    if axis.ticks:
        low, high = drawn.get_view_interval()
        inside = {value: label for value, label in axis.ticks if low <= value <= high}
        drawn.set_ticks(list(inside), list(inside.values()))
    elif axis.percent:
        drawn.set_major_formatter(PercentFormatter(1.0, decimals=None))
    elif axis.scale != "date":
        drawn.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
