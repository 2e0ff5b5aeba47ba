"""Tables for a terminal, and the same tables as CSV, Markdown and LaTeX."""

import math
import re
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from harness.core.elsewhere import no_formula
from harness.core.text import percent

FITTED_ROWS = 2000  # laying out a row for a terminal takes a hundred times as long as a plain one
NARROW = 24  # characters of a column whose words are not broken
LEAST_WIDE = 20  # characters of another column on a terminal that is too narrow for all

CellValue = str | int | float | None
Cell = tuple[str, CellValue]  # as people read it, and as CSV has it
NOTHING: Cell = ("", None)
_OF_WORDS = ("unit", "energy of")  # columns that hold no figures


@dataclass(frozen=True)
class Column:
    """``cells`` are what people read; ``values`` are for CSV, by default the cells.

    The first ``optional`` columns are left out first on a terminal that is too narrow for all.
    """

    heading: str
    cells: Sequence[str]
    values: Sequence[CellValue] | None = None
    right: bool = False
    optional: bool = False

    @property
    def words(self) -> list[str]:
        return [self.heading, *self.cells]


def column_of(heading: str, cells: Sequence[Cell], optional: bool = False) -> Column:
    """A column of figures, or of words if its heading says so."""
    words, values = zip(*cells, strict=True)
    return Column(heading, words, values, right=heading not in _OF_WORDS, optional=optional)


@dataclass(frozen=True)
class Table:
    """``common`` holds for every row, as people read it and as CSV has it: only there it is in columns."""

    columns: Sequence[Column]
    title: str = ""
    common: Mapping[str, tuple[str, CellValue]] = field(default_factory=dict)

    @property
    def above(self) -> str:
        """The title, and what all rows have in common."""
        common = ", ".join(words for words, _ in self.common.values())
        return "\n".join(filter(None, [self.title, common and f"All rows: {common}."]))


def number_cell(value: float, form: str) -> Cell:
    """A figure in this form; nothing for NaN."""
    return NOTHING if math.isnan(value) else (form.format(value), value)


def share_cell(share: float) -> Cell:
    return percent(share, None, 1), None if math.isnan(share) else share


def dated(runs: Sequence[Any], configurations: Sequence[str], *names: str) -> list[str]:
    """Configurations, with the time where rows that are equal in ``names`` could not be told apart: of runs done again."""
    rows = [*zip(configurations, map(attrgetter(*names), runs), strict=True)]
    times = Counter(rows)
    return [
        f"{row[0]} {run.started[:19].replace('T', ' ')}".strip() if times[row] > 1 else row[0]
        for run, row in zip(runs, rows, strict=True)
    ]


def text(shown: Table) -> str:
    """For a terminal, with the columns that it has room for, or for a pipe with lines that are whole."""
    columns, missing = list(shown.columns), list[str]()
    if _fits_terminal(columns):
        width = shutil.get_terminal_size().columns
        for column in shown.columns:
            if column.optional and sum(_least(other) + 2 for other in columns) > width:
                columns.remove(column)
                missing.append(column.heading)
    laid_out = _laid_out(columns)
    if missing:
        laid_out += f"\n\nThis terminal has no room for: {', '.join(missing)}."
    return f"{prose(shown.above)}\n{'' if shown.title else chr(10)}{laid_out}" if shown.above else laid_out


def as_text(shown: Sequence[Table]) -> str:
    return "\n\n".join(map(text, shown))


def prose(text: str) -> str:
    """``text`` whose lines end between words where a terminal ends; anywhere else they are as long as they are."""
    if not sys.stdout.isatty():
        return text
    wrapper = textwrap.TextWrapper(shutil.get_terminal_size().columns, break_long_words=False, break_on_hyphens=False)
    lines = []
    for line in text.split("\n"):
        wrapper.subsequent_indent = " " * (len(line) - len(line.lstrip(" -")))  # of the item of a list
        lines.append(wrapper.fill(line))
    return "\n".join(lines)


def _least(column: Column) -> int:
    """The characters that a column needs: a narrow one for its longest word, another one for a few words of a line."""
    if max(map(len, column.words)) > NARROW:
        return LEAST_WIDE
    return max(len(word) for cell in column.words for word in ["", *cell.split()])


def table(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Rows as aligned columns, the first row over a rule; the columns in ``right`` are set flush right.

    On a terminal long cells are broken so that the table fits; anywhere else, lines are as long as they are.
    """
    columns = enumerate(zip(*rows, strict=True))
    return _laid_out([Column(heading, cells, right=number in right) for number, (heading, *cells) in columns])


def _fits_terminal(columns: Sequence[Column]) -> bool:
    return sys.stdout.isatty() and len(columns[0].cells) < FITTED_ROWS


def _laid_out(columns: Sequence[Column]) -> str:
    if _fits_terminal(columns):
        return _fitted(columns)
    aligned = []
    for column in columns:
        width = max(map(len, column.words))
        heading, *cells = [word.rjust(width) if column.right else word.ljust(width) for word in column.words]
        aligned.append([heading, "─" * width, *cells])
    return "\n".join("  ".join(line).rstrip() for line in zip(*aligned, strict=True))


def _fitted(columns: Sequence[Column]) -> str:
    """A table for the terminal that is standard output, with its width, and with styles unless NO_COLOR is set."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console, JustifyMethod
    from rich.table import Table
    from rich.text import Text

    console = Console()
    fitted = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold cyan")
    widths = _widths(columns, console.width - 2 * (len(columns) - 1))
    for column, width in zip(columns, widths, strict=True):
        justify: JustifyMethod = "right" if column.right else "left"
        fitted.add_column(Text(column.heading), width=width, justify=justify, overflow="fold")
    for cells in zip(*(column.cells for column in columns), strict=True):
        fitted.add_row(*map(Text, cells))
    with console.capture() as capture:
        console.print(fitted)
    return capture.get().rstrip()


def _widths(columns: Sequence[Column], room: int) -> list[int]:
    """The widths of columns that together are as wide as there is room: the widest give way first.

    Where there is no room for what each column needs (see ``_least``), words are broken.
    """
    widths = [max(map(len, column.words)) for column in columns]
    least = [min(width, _least(column)) for width, column in zip(widths, columns, strict=True)]
    for smallest in (least, [1] * len(widths)):
        while sum(widths) > room and (shrinking := [n for n, width in enumerate(widths) if width > smallest[n]]):
            widths[max(shrinking, key=widths.__getitem__)] -= 1
    return widths


def as_csv(shown: Sequence[Table]) -> str:
    """One CSV file: figures without units or thousands separators, shares between 0 and 1, nothing left out.

    Of several tables each row begins with its table's title.
    """
    import pandas

    rows = []
    for each in shown:
        title = {"table": each.title} if len(shown) > 1 else {}
        columns = {column.heading: column.cells if column.values is None else column.values for column in each.columns}
        for cells in zip(*columns.values(), strict=True):
            named = dict(zip(columns, cells, strict=True))
            row = {**title, **named, **{name: value for name, (_, value) in each.common.items()}}
            rows.append({name: no_formula(value) if isinstance(value, str) else value for name, value in row.items()})
    return pandas.DataFrame(rows, dtype=object).to_csv(index=False, lineterminator="\n").rstrip("\n")


def as_markdown(shown: Sequence[Table]) -> str:
    parts: list[str] = []
    for each in shown:
        rows = zip(*(column.cells for column in each.columns), strict=True)
        rule = ["---:" if column.right else "---" for column in each.columns]
        lines = [[literally(column.heading) for column in each.columns], rule, *(map(literally, row) for row in rows)]
        parts += filter(None, [literally(each.above).replace("\n", "\n\n")])
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join(parts)


def literally(words: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", words)


def as_latex(shown: Sequence[Table]) -> str:
    """A ``tabular`` for each table, with the rules of the package booktabs; what holds for all rows is a comment."""
    import pandas

    parts = ["% needs \\usepackage{booktabs}"]
    for each in shown:
        cells = {column.heading: column.cells for column in each.columns}
        sides = "".join("r" if column.right else "l" for column in each.columns)
        tabular = pandas.DataFrame(cells).to_latex(index=False, escape=True, column_format=sides)
        parts.append("\n".join([*(f"% {line}" for line in each.above.splitlines()), tabular]))
    return "\n".join(parts).rstrip()


FORMATS: Mapping[str, Callable[[Sequence[Table]], str]] = {
    "text": as_text,
    "csv": as_csv,
    "markdown": as_markdown,
    "latex": as_latex,
}
