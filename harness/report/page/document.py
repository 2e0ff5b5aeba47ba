"""The report as one HTML page that needs nothing else: its style, its script, Plotly and all data are inside.

Data enter the page as JSON in an element that browsers do not run, and leave it as text only. On top of that a policy in
the page lets browsers run nothing but its two scripts, named by their hashes, and load nothing from anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import HarnessError, InvalidInput
from harness.files import whole_file
from harness.report.page import palette, plotly
from harness.report.page.figures import Facets
from harness.report.page.tables import Section, Table

TEMPLATES = Path(__file__).parent / "templates"
TITLES = {
    "origin": "Origin",
    "system": "System",
    "model": "Model",
    "data": "Data",
    "backend": "Backend",
    "framework": "Framework",
    "transport": "Transport",
}
CHIPS = 4  # so many figures of a section are chosen with buttons, more with a list
PRINTED = 6  # sections with more figures are printed with the chosen one only


@dataclass(frozen=True)
class Page:
    """``facts`` are pairs of a label and a value; ``runs`` tells how many runs each facets have, and how many no number."""

    title: str
    lead: str
    facts: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    runs: Mapping[Facets, tuple[int, int]] = field(default_factory=dict)


def render(page: Page) -> str:
    """``page`` as HTML."""
    from jinja2 import Environment, FileSystemLoader
    from markupsafe import Markup

    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    library, script = _plotly(), (TEMPLATES / "page.js").read_text()
    return environment.get_template("page.html.j2").render(
        page=page,
        chips=CHIPS,
        printed=PRINTED,
        policy=_policy(library, script),
        style=Markup((TEMPLATES / "page.css").read_text()),  # noqa: S704 (our own files, not data)
        data=Markup(embedded(data(page))),  # noqa: S704 (escaped for where it stands)
        plotly=Markup(library),  # noqa: S704
        script=Markup(script),  # noqa: S704
    )


def write(text: str, path: Path) -> None:
    """Write the page, whole or not at all. Raises InvalidInput where that cannot be."""
    try:
        if path.is_dir():
            raise InvalidInput(
                f"{path}: is a folder; the page needs the name of a file, such as {path / 'report.html'}"
            )
        with whole_file(path) as stream:  # a device is written to, not replaced
            stream.write(text.encode())
    except FileNotFoundError:
        raise InvalidInput(f"{path.parent}: no such folder to write {path.name} in") from None
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be written: {error.strerror}") from None


def data(page: Page) -> dict[str, Any]:
    """What the page's script works on. Facets are told once; everything else refers to them by number."""
    figures = [figure for section in page.sections for figure in section.figures]
    tables = [table for section in page.sections for table in section.tables]
    known = dict.fromkeys(page.runs)
    known |= dict.fromkeys(one.facets for figure in figures for one in figure.series if one.facets)
    known |= dict.fromkeys(facets for table in tables for facets in table.facets if facets)
    numbers = {facets: number for number, facets in enumerate(known)}
    return {
        "facets": [{"name": name, "title": TITLES[name]} for name in Facets._fields],
        "sets": [list(facets) for facets in numbers],
        "runs": [[numbers[facets], *counts] for facets, counts in page.runs.items()],
        "figures": {
            figure.name: {
                "title": figure.title,
                "traces": [trace | {"facets": numbers.get(trace["facets"], -1)} for trace in plotly.traces(figure)],
                "layout": plotly.layout(figure),
            }
            for figure in figures
        },
        "tables": {table.name: _columns(table, numbers) for table in tables},
        "themes": {"light": _colours(palette.LIGHT), "dark": _colours(palette.DARK)},
    }


def embedded(document: Any) -> str:
    """JSON as it can stand inside a script element: no text in it ends the element or starts a comment."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _columns(table: Table, numbers: Mapping[Facets, int]) -> dict[str, Any]:
    """A table by columns; text that repeats is told once."""
    by_column = zip(*table.rows, strict=True) if table.rows else ((),) * len(table.columns)
    columns = []
    for column, cells in zip(table.columns, by_column, strict=True):
        made: dict[str, Any] = {"name": column.name, "kind": column.kind}
        if column.kind in ("text", "date"):
            words = {word: number for number, word in enumerate(dict.fromkeys(cells))}
            made |= {"words": list(words), "cells": [words[cell] for cell in cells]}
        else:
            made["cells"] = [None if cell is None or cell != cell else _short(cell) for cell in cells]
        columns.append(made)
    return {"columns": columns, "facets": [-1 if one is None else numbers[one] for one in table.facets]}


def _short(number: Any) -> Any:
    return float(f"{number:.7g}") if isinstance(number, float) else number


def _colours(theme: palette.Theme) -> dict[str, str]:
    """A theme by the names that ``plotly`` uses."""
    named = {name: getattr(theme, name) for name in ("grey", "accent", "ink", "muted", "grid", "paper")}
    named |= {f"c{number}": colour for number, colour in enumerate(theme.colours)}
    return named | {f"s{number}": colour for number, colour in enumerate(theme.shades)}


def _policy(*scripts: str) -> str:
    """Only these scripts run, and nothing is loaded. Plotly sets styles, and makes its exports through images."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts
    )
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"


def _plotly() -> str:
    """Plotly's script, from the installed package, which is not imported: that takes a second."""
    found = importlib.util.find_spec("plotly")
    file = Path(found.origin).parent / "package_data" / "plotly.min.js" if found and found.origin else None
    if file is None or not file.is_file():
        raise HarnessError("the plotly package lacks package_data/plotly.min.js; reinstall plotly")
    return file.read_text(encoding="utf-8")
