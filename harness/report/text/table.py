"""Tables for a terminal."""

import sys
from collections.abc import Collection, Sequence

FITTED_ROWS = 2000  # laying out a row for a terminal takes a hundred times as long as a plain one


def table(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Rows as aligned columns, the first row over a rule; the columns in ``right`` are set flush right.

    On a terminal long cells are broken so that the table fits; anywhere else, lines are as long as they are.
    """
    if sys.stdout.isatty() and len(rows) <= FITTED_ROWS:
        return _fitted(rows, right)
    columns = []
    for number, cells in enumerate(zip(*rows, strict=True)):
        width = max(map(len, cells))
        aligned = [cell.rjust(width) if number in right else cell.ljust(width) for cell in cells]
        columns.append([aligned[0], "─" * width, *aligned[1:]])
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def _fitted(rows: Sequence[Sequence[str]], right: Collection[int]) -> str:
    """A table for the terminal that is standard output, with its width, and with styles unless NO_COLOR is set."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    fitted = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold cyan")
    for number, heading in enumerate(rows[0]):
        fitted.add_column(Text(heading), justify="right" if number in right else "left", overflow="fold")
    for row in rows[1:]:
        fitted.add_row(*map(Text, row))
    console = Console()
    with console.capture() as capture:
        console.print(fitted)
    return capture.get().rstrip()
