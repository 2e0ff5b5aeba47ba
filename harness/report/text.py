"""Layout of text for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence


def table(rows: Sequence[Sequence[str]], right: set[int]) -> str:
    """Rows, of which the first are the headings, in columns; those in ``right`` are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        cells = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join(cells).rstrip()

    return "\n".join([line(rows[0]), "  ".join("─" * width for width in widths), *map(line, rows[1:])])


def interval(limits: tuple[float, float] | None, digits: int = 2, scale: float = 1.0) -> str:
    """``[1.66, 1.76]``, or nothing where it is not known."""
    return "" if limits is None else f"[{scale * limits[0]:.{digits}f}, {scale * limits[1]:.{digits}f}]"


def plural(count: int, noun: str) -> str:
    """``1 run``, ``2 runs``."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def percent(share: float, limits: tuple[float, float] | None, digits: int) -> str:
    """``52.11 % [51.9, 52.3]``, or nothing for NaN."""
    return "" if math.isnan(share) else f"{100 * share:.{digits}f} % {interval(limits, digits, 100)}".rstrip()
