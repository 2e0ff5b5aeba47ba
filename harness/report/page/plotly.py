"""Figures as Plotly draws them: JSON-ready dicts.

Colours are names (``@c3``, ``@ink``) which the page replaces when it knows whether it is light or dark. Text is escaped,
since Plotly reads markup in names and labels.
"""

import html
import math
import textwrap
from collections.abc import Iterable
from functools import partial

import numpy as np

from harness.report.page.figures import COLUMN, MARK, SPAN, Axis, Figure, Series

HOVER_WIDTH = 76  # characters
SIZE, SMALL, BEST = 8, 6, 16  # of markers

text = partial(html.escape, quote=False)  # as Plotly shows it literally


def layout(figure: Figure) -> dict[str, object]:
    """Axes, ticks and marks of ``figure``; fonts and sizes are the page's."""
    line = {"type": "line", "y0": 0, "y1": 1, "yref": "paper"}
    line |= {"line": {"color": f"@{MARK}", "width": 1.5, "dash": "dash"}}
    label = {"y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False, "font": {"color": f"@{MARK}"}}
    return {
        "views": figure.views,  # which only the page's script reads
        "xaxis": _axis(figure.x),
        "yaxis": _axis(figure.y),
        "barmode": "overlay",
        "shapes": [{"x0": x, "x1": x, **line} for x, _ in figure.marks],
        "annotations": [{"x": x, "text": text(word), **label} for x, word in figure.marks],
    }


def _axis(axis: Axis) -> dict[str, object]:
    made: dict[str, object] = {
        "title": {"text": text(axis.title), "standoff": 10, "font": {"size": 13}},
        "type": axis.scale,
        "tickformat": "" if axis.scale == "date" else "~%" if axis.percent else ",~g",
    }
    if axis.minor:
        made["minor"] = {"tickmode": "array", "tickvals": axis.minor, "ticks": "outside", "ticklen": 3}
    if axis.ticks:
        made |= {"tickvals": [value for value, _ in axis.ticks], "ticktext": [label for _, label in axis.ticks]}
    return made | ({"rangemode": "tozero"} if axis.from_zero else {})


def trace(series: Series) -> dict[str, object]:
    """The trace of ``series``, with what only the page's script reads: ``kind`` and ``group``."""
    x, hovers, starred = (series.column(name) for name in ("x", "hover", "starred"))
    y, low, high = series.heights()
    made: dict[str, object] = {"type": "scatter", "name": text(series.name), "x": list(x), "y": numbers(y)}
    made |= {"showlegend": True, "kind": series.kind, "group": text(series.group), "hoverinfo": "skip"}
    if any(hovers):
        labels = [[text(part) for line in lines for part in textwrap.wrap(line, HOVER_WIDTH)] for lines in hovers]
        made |= {"hoverinfo": "text", "hovertext": ["<br>".join([f"<b>{head}</b>", *rest]) for head, *rest in labels]}
    if any(sources := series.column("source")):
        made["customdata"] = list(sources)
    style, colour = series.style, f"@{series.style.colour}"
    bars = {"type": "data", "symmetric": False, "color": colour}
    bars |= {"array": numbers(high - y), "arrayminus": numbers(y - low)}
    intervals = {} if np.isnan(low).all() else {"error_y": bars | {"thickness": 1.3, "width": 4}}
    line = {"color": colour, "width": 1.4 if style.hollow else 2, "dash": style.dash}
    shape = style.marker + "-open" * style.hollow
    marker = {"color": colour, "symbol": shape, "size": SMALL if series.kind == "accent" else SIZE}
    if any(starred):
        marker["symbol"] = ["star" if best else shape for best in starred]
        marker["size"] = [BEST if best else SIZE for best in starred]
    else:
        marker["line"] = {"width": 1.5 if style.hollow else 0}
    match series.kind:
        case "ideal":
            line = {"color": "@grey", "width": 1, "dash": "dash"}
            return made | {"mode": "lines", "line": line, "legendgroup": "ideal", "legendrank": 2000}
        case "accent":
            return made | {"mode": "markers", "marker": marker} | intervals
        case "line" | "span":
            return made | {"mode": "lines", "line": line | ({"width": SPAN} if series.kind == "span" else {})}
        case "band":
            there_and_back = {"x": [*x, *reversed(x)], "y": numbers([*high, *reversed(low)])}
            area = {"mode": "lines", "fill": "toself", "opacity": 0.5, "line": {"color": colour, "width": 0}}
            return made | there_and_back | area | {"legendgroup": "band"}
        case "column":
            base = np.nan_to_num(low)
            standing = {"base": numbers(base), "y": numbers(y - base), "width": COLUMN}
            return made | {"type": "bar", "marker": {"color": colour}} | standing
    return made | {"mode": "lines+markers", "line": line, "marker": marker} | intervals


def numbers(values: Iterable[float | None]) -> list[float | None]:
    """Seven digits are more than any measurement has, and JSON has no NaN."""
    return [None if value is None or math.isnan(value) else float(f"{value:.7g}") for value in values]
