"""Figures as files for papers and slides, drawn with Matplotlib: vector text, and readable when printed in grey."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
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
    handles = [(one, _series(one, axes)) for one in figure.series]
    for mark in figure.marks:
        x: Any = datetime.fromisoformat(str(mark.x)) if figure.x.scale == "date" else mark.x
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
    _legend(handles, axes)


def _legend(drawn: Sequence[tuple[Series, Any]], axes: Axes) -> None:
    """The names of what was drawn, below those of their groups if there are several; ideal lines have one entry."""
    groups = list(dict.fromkeys(one.group for one, _ in drawn if one.kind != "ideal"))
    entries: list[tuple[Any, str]] = []
    group = ""
    for one, handle in drawn:
        if one.kind == "ideal":
            continue
        if len(groups) > 1 and one.group != group:
            group = one.group
            entries.append((axes.plot([], [], " ")[0], group))
        if one.kind not in TOLD_ONCE or one.name not in [name for _, name in entries]:
            entries.append((handle, one.name))
    entries += [(handle, "ideal") for one, handle in drawn if one.kind == "ideal"][-1:]
    handles, labels = zip(*entries, strict=True)
    legend = axes.legend(
        handles, labels, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=8, handlelength=2.6
    )
    for text in legend.get_texts():
        if len(groups) > 1 and text.get_text() in groups:
            text.set_fontweight("bold")


def _series(one: Series, axes: Axes) -> Any:
    """Draw one series; what is returned stands for it in the legend."""
    x: Any = [datetime.fromisoformat(value) if isinstance(value, str) else value for value in one.x]
    style, colour = one.style, _colour(one.style)
    match one.kind:
        case "ideal":
            return axes.plot(x, one.y, color=LIGHT.muted, linewidth=0.8, linestyle=DASHES["dash"], zorder=1)[0]
        case "line":
            return axes.plot(x, one.y, color=colour, linestyle=DASHES[style.dash], linewidth=1.4)[0]
        case "band":
            return axes.fill_between(x, one.low, one.high, color=colour, alpha=0.25, linewidth=0)
        case "column":
            base = one.low or (0.0,) * len(one.y)
            heights = [y - low for y, low in zip(one.y, base, strict=True)]
            return axes.bar(x, heights, bottom=base, width=COLUMN, color=colour)
        case "span":
            lengths = [high - low for low, high in zip(one.low, one.high, strict=True)]
            return axes.barh(one.y, lengths, left=one.low, height=SPAN, color=colour, edgecolor="white", linewidth=0.2)
        case "spread":
            return axes.errorbar(x, one.y, _bars(one), fmt="none", ecolor=colour, elinewidth=one.width * 0.75)
    drawn = axes.errorbar(
        x,
        one.y,
        _bars(one) if one.low else None,
        color=colour,
        linestyle="none" if one.kind == "accent" else DASHES[style.dash],
        linewidth=1.0 if style.hollow else 1.4,
        marker=MARKERS[style.marker],
        markersize=3.5 if one.kind == "accent" else 5,
        markerfacecolor="white" if style.hollow else colour,
        markeredgewidth=0.9,
        capsize=2,
        elinewidth=0.9,
        zorder=3,
    )
    best = [(at, y) for at, y, starred in zip(x, one.y, one.starred, strict=False) if starred]
    if best:
        star: Any = {"marker": "*", "markersize": 15, "markeredgecolor": "white", "markeredgewidth": 0.6}
        axes.plot(*zip(*best, strict=True), linestyle="none", color=colour, zorder=4, **star)
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
