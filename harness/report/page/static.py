"""Figures as files for papers and slides, drawn with Matplotlib: vector text, and readable when printed in grey."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import InvalidInput
from harness.report.page.figures import COLUMN, SPAN, TOLD_ONCE, Axis, Dash, Figure, Marker, Series, Style
from harness.report.page.palette import LIGHT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH_IN, HEIGHT_IN = 7.2, 4.0  # a text block's width, or two columns
ENTRY_IN = 0.185  # of a legend
DPI = 300
MARKERS: dict[Marker, str] = {
    "square": "s",
    "diamond": "D",
    "cross": "P",
    "x": "X",
    "pentagon": "p",
    "circle": "o",
    "hexagon": "h",
    "star": "*",
    "triangle-up": "^",
    "triangle-down": "v",
    "triangle-left": "<",
    "triangle-right": ">",
}
DASHES: dict[Dash, Any] = {"solid": "-", "dash": (0, (5, 2)), "dot": (0, (1, 1.5)), "dashdot": (0, (5, 1.5, 1, 1.5))}
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LIGHT.grid,
    "grid.linewidth": 0.6,
    "axes.edgecolor": LIGHT.muted,
    "axes.labelcolor": LIGHT.ink,
    "xtick.color": LIGHT.ink,
    "ytick.color": LIGHT.ink,
    "text.color": LIGHT.ink,
    "text.parse_math": False,  # a name may hold a $
    "pdf.fonttype": 42,  # text that journals and editors can use
    "svg.hashsalt": "harness",  # the same figure is the same file
}


def write(figures: Sequence[Figure], folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write each figure once in each format, named after it. Raises InvalidInput if the folder cannot be written."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for figure in figures:
            with pyplot.rc_context(STYLE):
                canvas, axes = pyplot.subplots(figsize=(WIDTH_IN, height_in(figure)))
                draw(figure, axes)
                for name in formats:
                    path = folder / f"{figure.name}.{name}"
                    fixed = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(name, {})
                    canvas.savefig(path, dpi=DPI, bbox_inches="tight", metadata=fixed)
                    written.append(path)
                pyplot.close(canvas)
    except OSError as error:
        raise InvalidInput(f"{folder}: cannot be written: {error.strerror}") from None
    return written


def height_in(figure: Figure) -> float:
    """Height of a figure whose legend, which stands beside the axes, may be long."""
    groups = {one.group for one in figure.series if one.group}
    entries = sum(one.kind != "ideal" for one in figure.series) + 1 + (len(groups) if len(groups) > 1 else 0)
    return max(HEIGHT_IN, ENTRY_IN * entries + 0.5)


def draw(figure: Figure, axes: Axes) -> None:
    """Draw ``figure`` into ``axes``, with a legend that names the system above its curves, and ideal lines once, last."""
    axes.set_title(figure.title, loc="left", fontsize=10, fontweight="bold", wrap=True)
    several = len({one.group for one in figure.series if one.kind != "ideal"}) > 1
    entries: list[tuple[Any, str]] = []
    ideal: list[tuple[Any, str]] = []
    group = ""
    for one in figure.series:
        if one.kind == "ideal":
            ideal = [(_ideal(one, axes), "ideal")]
            continue
        if several and one.group != group:
            group = one.group
            entries.append((_nothing(axes), group))
        drawn = _series(one, axes)
        if one.kind not in TOLD_ONCE or one.name not in [name for _, name in entries]:
            entries.append((drawn, one.name))
    for mark in figure.marks:
        x: Any = _dates([mark.x])[0] if figure.x.scale == "date" else mark.x
        axes.axvline(x, color=LIGHT.accent, linewidth=1, linestyle="--")
        axes.annotate(
            mark.text, (x, 1), xycoords=("data", "axes fraction"), color=LIGHT.accent, ha="center", va="bottom"
        )
    _axis(figure.x, axes.xaxis, axes.set_xscale)
    _axis(figure.y, axes.yaxis, axes.set_yscale)
    axes.set_xlabel(figure.x.name)
    axes.set_ylabel(figure.y.name)
    if figure.y.from_zero:
        low, high = axes.get_ylim()
        axes.set_ylim(min(0.0, low), max(high, (figure.y.top or 0) * 1.05))
    if figure.x.scale == "date":
        for label in axes.get_xticklabels():
            label.set(rotation=30, ha="right")
    handles, labels = zip(*entries, *ideal, strict=True)
    legend = axes.legend(
        handles, labels, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=8, handlelength=2.6
    )
    groups = {one.group for one in figure.series if several}
    for text in legend.get_texts():
        if text.get_text() in groups:
            text.set_fontweight("bold")


def _nothing(axes: Axes) -> Any:
    """What stands in a legend before the name of a group."""
    return axes.plot([], [], " ")[0]


def _ideal(one: Series, axes: Axes) -> Any:
    return axes.plot(one.x, one.y, color=LIGHT.muted, linewidth=0.8, linestyle=DASHES["dash"], zorder=1)[0]


def _series(one: Series, axes: Axes) -> Any:
    """Draw one series; what is returned stands for it in the legend."""
    x = _dates(one.x) if one.x and isinstance(one.x[0], str) else one.x
    colour = _colour(one.style)
    marker = MARKERS[one.style.marker]
    face = "white" if one.style.hollow else colour
    match one.kind:
        case "line":
            return axes.plot(x, one.y, color=colour, linestyle=DASHES[one.style.dash], linewidth=1.4)[0]
        case "band":
            return axes.fill_between(x, one.low, one.high, color=colour, alpha=0.25, linewidth=0)
        case "column":
            base = one.low or (0.0,) * len(one.y)
            heights = [y - low for y, low in zip(one.y, base, strict=True)]
            return axes.bar(x, heights, bottom=base, width=COLUMN, color=colour)
        case "span":
            lengths = [high - low for low, high in zip(one.low, one.high, strict=True)]
            return axes.barh(one.y, lengths, left=one.low, height=SPAN, color=colour, edgecolor="white", linewidth=0.2)
    if one.kind == "spread":
        return axes.errorbar(x, one.y, _bars(one), fmt="none", ecolor=colour, elinewidth=one.width * 0.75)
    line = "none" if one.kind == "accent" else DASHES[one.style.dash]
    size = 3.5 if one.kind == "accent" else 5
    drawn = axes.errorbar(
        x,
        one.y,
        _bars(one) if one.low else None,
        color=colour,
        linestyle=line,
        linewidth=1.0 if one.style.hollow else 1.4,
        marker=marker,
        markersize=size,
        markerfacecolor=face,
        markeredgewidth=0.9,
        capsize=2,
        elinewidth=0.9,
        zorder=3,
    )
    best = [number for number, starred in enumerate(one.starred) if starred]
    if best:
        axes.plot(
            [x[number] for number in best],
            [one.y[number] for number in best],
            marker="*",
            markersize=15,
            linestyle="none",
            color=colour,
            markeredgecolor="white",
            markeredgewidth=0.6,
            zorder=4,
        )
    return drawn


def _bars(one: Series) -> list[list[float]]:
    """Lengths below and above the points, 0 where there is no interval."""
    below = [0.0 if math.isnan(low) else y - low for y, low in zip(one.y, one.low, strict=True)]
    above = [0.0 if math.isnan(high) else high - y for y, high in zip(one.y, one.high, strict=True)]
    return [below, above]


def _axis(axis: Axis, drawn: Any, set_scale: Any) -> None:
    from matplotlib.ticker import FuncFormatter, NullLocator, PercentFormatter

    if axis.scale == "log":
        set_scale("log")
        drawn.set_minor_locator(NullLocator())
    if axis.ticks:
        low, high = drawn.get_view_interval()
        inside = [(value, label) for value, label in axis.ticks if low <= value <= high]
        drawn.set_ticks([value for value, _ in inside], [label for _, label in inside])
    elif axis.unit == "share":
        drawn.set_major_formatter(PercentFormatter(1.0, decimals=0))
    elif axis.unit in ("img_per_s", "ms", "s", "MB", "count"):
        drawn.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def _colour(style: Style) -> str:
    if style.colour is None:
        return LIGHT.grey
    return (LIGHT.shades if style.shade else LIGHT.colours)[style.colour]


def _dates(values: Sequence[Any]) -> list[Any]:
    from datetime import datetime

    return [datetime.fromisoformat(value) for value in values]
