"""The parts of a report, and the report as one HTML page that needs nothing else: script, style, Plotly and data are in it.

Data enter the page as JSON in an element that browsers do not run, and leave it as text only. On top of that a policy in
the page lets browsers run nothing but its two scripts, named by their hashes, and load nothing from anywhere.
"""

import base64
import hashlib
import importlib.util
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.report.page import plotly
from harness.report.page.figures import DARK, LIGHT, Facets, Figure

TEMPLATES = Path(__file__).parent / "templates"

PageCell = str | int | float | None
PageRow = tuple[Facets | list[Facets] | None, Sequence[PageCell]]
SHOWN_LEFT_OUT = 100
_ABOUT = tomllib.loads((TEMPLATES / "tables.toml").read_text(encoding="utf-8"))
TABLES, FIELDS = _ABOUT["tables"], _ABOUT["fields"]
KINDS = {column: kind for kind, columns in _ABOUT["kinds"].items() for column in columns}


@dataclass(frozen=True)
class PageTable:
    """A row has the facets that it is filtered by, all of several, and cells; one without facets is always shown.

    The fields after the rows are those of ``tables.toml``.
    """

    name: str
    rows: Sequence[PageRow]
    title: str
    columns: Sequence[str]
    note: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Answer:
    """Sentences, numbers with labels and whether they are sure, and names of figures of other sections that stand below.

    Of several answers a page shows the first one whose ``facets`` its filters leave.
    """

    sentences: Sequence[str]
    numbers: Sequence[tuple[str, str, bool]]
    figures: Sequence[str]
    facets: Facets


@dataclass(frozen=True)
class Section:
    """A section of the page: an answer and other words, figures of which one at a time is shown, tables, titled lists.

    ``links`` are texts that lead to figures of the section of histories.
    """

    name: str
    title: str
    paragraphs: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    tables: Sequence[PageTable] = ()
    answer: str = ""
    lists: Mapping[str, Sequence[str]] = field(default_factory=dict)
    answers: Sequence[Answer] = ()
    links: Sequence[tuple[str, Figure]] = ()


@dataclass(frozen=True)
class Page:
    """``facts`` have labels; ``runs`` tells how many runs each facets have, and how many no number.

    ``left_out`` are the reasons why records are not among the results, one for each.
    """

    title: str
    lead: str
    facts: Mapping[str, str]
    sections: Sequence[Section]
    runs: Mapping[Facets, tuple[int, int]]
    left_out: Sequence[str] = ()


def render(page: Page, base: str = ".") -> str:
    """The page as HTML; ``base`` leads from its folder to the one that the paths of records start from."""
    from jinja2 import Environment, FileSystemLoader

    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    package = importlib.util.find_spec("plotly")  # not imported: that takes a second
    assert package and package.origin
    library = (Path(package.origin).parent / "package_data/plotly.min.js").read_text(encoding="utf-8")
    script = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    hashes = (base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in (library, script))
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "allow_nan": False, "separators": (",", ":")}
    return environment.get_template("page.html.j2").render(
        page=page,
        data=data(page) | {"base": base},
        titles={each.name: each.title for section in page.sections for each in section.figures},
        hashes=list(hashes),
        style=(TEMPLATES / "page.css").read_text(encoding="utf-8"),
        script=script,
        plotly=library,
        SHOWN_LEFT_OUT=SHOWN_LEFT_OUT,
    )


def data(page: Page) -> dict[str, object]:
    """The data of the page's script. Facets stand in it once; everything else refers to them by number."""
    numbers: dict[Facets, int] = {}

    def number(facets: Facets | None) -> int:
        return -1 if facets is None else numbers.setdefault(facets, len(numbers))

    return {
        "facets": [{"name": name, "title": name.capitalize()} for name in Facets._fields],
        "runs": [[number(facets), *counts] for facets, counts in page.runs.items()],
        "figures": {
            figure.name: {
                "title": figure.title,
                "traces": [plotly.trace(each) | {"facets": number(each.facets)} for each in figure.series],
                "layout": plotly.layout(figure),
            }
            for section in page.sections
            for figure in section.figures
        },
        "tables": {table.name: _columns(table, number) for section in page.sections for table in section.tables},
        "answers": [number(each.facets) for section in page.sections for each in section.answers],
        "links": [number(figure.series[0].facets) for section in page.sections for _, figure in section.links],
        "sets": list(numbers),
        "themes": {"light": LIGHT, "dark": DARK},
    }


def _columns(table: PageTable, number: Callable[[Facets | None], int]) -> dict[str, object]:
    """A table by columns; text that repeats stands in it once."""
    columns: list[dict[str, object]] = []
    for index, name in enumerate(table.columns):
        cells: list[Any] = [row[index] for _, row in table.rows]
        end = name == "to" or name.endswith(" from")
        kind = columns[-1]["kind"] if end else KINDS.get(name, "text")
        if kind in ("text", "date"):
            words = {word: place for place, word in enumerate(dict.fromkeys(cells))}
            columns.append({"name": name, "kind": kind, "words": list(words), "cells": [words[cell] for cell in cells]})
        else:
            columns.append({"name": name, "kind": kind, "cells": plotly.numbers(cells)})
    facets = [[*map(number, of)] if isinstance(of, list) else number(of) for of, _ in table.rows]
    return {"columns": columns, "facets": facets}
