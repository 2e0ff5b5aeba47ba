"""Figures as Plotly draws them: JSON-ready dicts.

Colours are names (``@c3`` for a palette's fourth colour, ``@ink`` for its text) which the page replaces when it knows
whether it is light or dark. Text is escaped, since Plotly reads markup in names and labels.
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Sequence
from typing import Any

from harness.report.page.figures import COLUMN, SPAN, TOLD_ONCE, Axis, Figure, Series, Style

HOVER_WIDTH = 76  # characters
SIZE = {"curve": 8, "accent": 6}
FORMATS = {"share": ".0%", "img_per_s": ",~g", "ms": ",~g", "s": ",~g", "MB": ",~g", "count": ",~g", "date": ""}


def traces(figure: Figure) -> list[dict[str, Any]]:
    """The traces of ``figure``, each with the facets it is filtered by in ``facets`` (which Plotly ignores)."""
    kinds = [one.kind for one in figure.series]
    return [
        _trace(one, in_legend=one.kind not in TOLD_ONCE or kinds.index(one.kind) == number)
        for number, one in enumerate(figure.series)
    ]


def layout(figure: Figure) -> dict[str, Any]:
    """Axes, ticks and marks of ``figure``; fonts and sizes are the page's."""
    yaxis = _axis(figure.y)
    if any(one.kind == "span" for one in figure.series):
        yaxis["range"] = [figure.y.ticks[0][0] - 0.6, figure.y.ticks[-1][0] + 0.6]
    return {
        "xaxis": _axis(figure.x),
        "yaxis": yaxis,
        # Points of bars are as small as bars are thin; the legend shows them in one size.
        "barmode": "overlay",
        "legend": {"itemsizing": "constant"} if any(one.kind == "spread" for one in figure.series) else {},
        "shapes": [
            {"type": "line", "x0": mark.x, "x1": mark.x, "y0": 0, "y1": 1, "yref": "paper"}
            | {"line": {"color": "@accent", "width": 1.5, "dash": "dash"}}
            for mark in figure.marks
        ],
        "annotations": [
            {"x": mark.x, "y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False, "text": text(mark.text)}
            | {"font": {"color": "@accent"}}
            for mark in figure.marks
        ],
    }


def text(value: str) -> str:
    """``value`` as Plotly shows it literally."""
    return html.escape(value, quote=False)


def _axis(axis: Axis) -> dict[str, Any]:
    made: dict[str, Any] = {
        "title": {"text": text(axis.name), "standoff": 10},
        "type": axis.scale,
        "tickformat": FORMATS[axis.unit],
    }
    if axis.ticks:
        made |= {"tickvals": [value for value, _ in axis.ticks], "ticktext": [label for _, label in axis.ticks]}
    if axis.from_zero:
        made["rangemode"] = "tozero"
    if axis.scale == "linear" and axis.name == "rank":
        made["zeroline"] = False
    return made


def _trace(one: Series, in_legend: bool) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "scatter",
        "name": text(one.name),
        "x": list(one.x),
        "y": _numbers(one.y),
        "showlegend": in_legend,
        "facets": one.facets,
        "kind": one.kind,
        "hoverinfo": "skip",
    }
    if one.group and one.kind != "ideal":
        made["group"] = text(one.group)
    if one.hover:
        made |= {"hovertext": [hover(lines) for lines in one.hover], "hoverinfo": "text"}
    return made | _drawn(one, colour_name(one.style))


def _drawn(one: Series, colour: str) -> dict[str, Any]:
    """What is special of each kind."""
    match one.kind:
        case "ideal":
            line = {"color": "@muted", "width": 1, "dash": "dash"}
            return {"mode": "lines", "line": line, "legendgroup": "ideal", "legendrank": 2000, "opacity": 0.7}
        case "spread":
            bars = _bars(one, colour) | {"thickness": one.width, "width": 0}
            # The bars need a point, which is as wide as they are; the legend shows it.
            point = {"color": colour, "symbol": "line-ns", "size": 1, "line": {"color": colour, "width": one.width}}
            return {"mode": "markers", "marker": point, "error_y": bars}
        case "accent":
            return {"mode": "markers", "marker": _marker(one, colour)}
        case "line":
            return {"mode": "lines", "line": {"color": colour, "width": 2, "dash": one.style.dash}}
        case "band":
            there_and_back = {"x": [*one.x, *reversed(one.x)], "y": _numbers([*one.high, *reversed(one.low)])}
            area = {"mode": "lines", "fill": "toself", "opacity": 0.5, "line": {"color": colour, "width": 0}}
            return there_and_back | area | {"legendgroup": "band"}
        case "column":
            base = one.low or [0.0] * len(one.y)
            heights = _numbers([y - low for y, low in zip(one.y, base, strict=True)])
            return {"type": "bar", "base": _numbers(base), "y": heights, "width": COLUMN, "marker": {"color": colour}}
        case "span":
            lengths = [high - low for low, high in zip(one.low, one.high, strict=True)]
            # What follows each other is told apart by a thin gap.
            marker = {"color": colour, "line": {"color": "@paper", "width": 0.4}}
            lying = {"type": "bar", "orientation": "h", "base": _numbers(one.low), "x": _numbers(lengths)}
            return lying | {"width": SPAN, "marker": marker}
    line = {"color": colour, "width": 1.4 if one.style.hollow else 2, "dash": one.style.dash}
    bars = {"error_y": _bars(one, colour) | {"thickness": 1.3, "width": 4}} if one.low else {}
    return {"mode": "lines+markers", "line": line, "marker": _marker(one, colour)} | bars


def _marker(one: Series, colour: str) -> dict[str, Any]:
    shape = one.style.marker + ("-open" if one.style.hollow else "")
    size = SIZE[one.kind]
    if any(one.starred):
        symbols = ["star" if best else shape for best in one.starred]
        return {"color": colour, "symbol": symbols, "size": [16 if best else size for best in one.starred]}
    return {"color": colour, "symbol": shape, "size": size, "line": {"width": 1.5 if one.style.hollow else 0}}


def _bars(one: Series, colour: str) -> dict[str, Any]:
    above = [high - y for y, high in zip(one.y, one.high, strict=True)]
    below = [y - low for y, low in zip(one.y, one.low, strict=True)]
    return {
        "type": "data",
        "symmetric": False,
        "array": _numbers(above),
        "arrayminus": _numbers(below),
        "color": colour,
    }


def colour_name(style: Style) -> str:
    """What the page replaces with a colour of its theme."""
    return "@grey" if style.colour is None else f"@{'s' if style.shade else 'c'}{style.colour}"


def hover(lines: Sequence[str]) -> str:
    """Lines of text as a hover label: the first one stands out, long ones are broken."""
    broken = [
        part for line in lines for part in ([line] if len(line) <= HOVER_WIDTH else textwrap.wrap(line, HOVER_WIDTH))
    ]
    head, *rest = [text(line) for line in broken]
    return "<br>".join([f"<b>{head}</b>", *rest])


def _numbers(values: Sequence[float]) -> list[float | None]:
    """Seven digits are more than any measurement has, and JSON has no NaN."""
    return [None if math.isnan(value) else float(f"{value:.7g}") for value in values]
