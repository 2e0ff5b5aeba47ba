"""Parts of text: intervals, percentages, plurals."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2


UNITS = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9}

LARGEST_SIZE = 2**36  # of a kernel: no memory holds more


def interval(limits: tuple[float, float] | None, digits: int = 2, scale: float = 1.0) -> str:
    """``[1.66, 1.76]``, or nothing where it is not known."""
    return "" if limits is None else f"[{scale * limits[0]:.{digits}f}, {scale * limits[1]:.{digits}f}]"


def plural(count: int, noun: str) -> str:
    """``1 run``, ``2 runs``."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def listed(items: Iterable[object], word: str = "and") -> str:
    """``1, 2 and 8``."""
    *others, last = map(str, items)
    return f"{', '.join(others)} {word} {last}" if others else last


def percent(share: float, limits: tuple[float, float] | None, digits: int) -> str:
    """``52.11 % [51.9, 52.3]``, or nothing for NaN."""
    return "" if math.isnan(share) else f"{100 * share:.{digits}f} % {interval(limits, digits, 100)}".rstrip()


def minute(time: str) -> str:
    """``2026-01-31 04:05`` of an ISO 8601 time."""
    return time[:16].replace("T", " ")


def duration(seconds: float) -> str:
    """``12.3 s``, ``4 min 5 s``, ``1 h 20 min``, ``2 d 3 h``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest_s = divmod(round(seconds), 60)
    hours, rest_min = divmod(minutes, 60)
    days, rest_h = divmod(hours, 24)
    if days:
        return f"{days} d {rest_h} h"
    return f"{hours} h {rest_min} min" if hours else f"{minutes} min {rest_s} s"


def parse_size(text: str) -> int:
    """Bytes in a size such as ``512KiB``, ``1MB`` or ``4096``. Raises ValueError for anything else."""
    match = re.fullmatch(r"\s*(\d{1,18}(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    if not match or match[2].lower() not in UNITS:
        raise ValueError("must be a size such as 512KiB, 1MiB or 4MB")
    return int(float(match[1]) * UNITS[match[2].lower()])


SIZES = f"sizes such as 1KiB..64MiB (each twice the last) or 4KiB,1MiB, at most {LARGEST_SIZE >> 30}GiB"


def sizes(text: str, right: str = SIZES) -> tuple[int, ...]:
    """The bytes in a list such as ``1KiB..1MiB,100MB``: ranges double. Raises ValueError, with what would be ``right``."""
    counts: list[int] = []
    for part in text.split(","):
        first, several, last = part.partition("..")
        try:
            least, most = parse_size(first), parse_size(last or first)
        except ValueError:
            raise ValueError(f"must be {right}") from None
        if not 1 <= least <= most or bool(several) != bool(last):
            raise ValueError(f"must be {right}")
        if most > LARGEST_SIZE:
            raise ValueError(f"must be {LARGEST_SIZE:,} or less")
        while least <= most:
            counts.append(least)
            least *= 2
    return tuple(sorted(set(counts)))


def size(count: int) -> str:
    """``64 KiB`` where that is exact, else ``1,000 B``."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count and count % factor == 0:
            return f"{count // factor:,} {unit}"
    return f"{count:,} B"


def last_line(text: str) -> str:
    """The last line that a program has written, which is the one that counts."""
    return text.rstrip().rpartition("\n")[2].strip() or "no reason given"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``did you mean …?``, or nothing if no known name is close."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]}?" if close else ""


def templates(folder: Path, trimmed: bool = False) -> jinja2.Environment:
    """The templates in a folder, of text that is no HTML. ``trimmed`` ones have their statements on lines of their own."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=trimmed,
        lstrip_blocks=trimmed,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - values are quoted for what the text is
    )


def template(file: Path) -> jinja2.Template:
    """A page in Markdown, which may use ``interval``, ``plural`` and the test ``known`` (no NaN)."""
    environment = templates(file.parent, trimmed=True)
    environment.globals.update(interval=interval, plural=plural)
    environment.tests["known"] = lambda value: not math.isnan(value)
    return environment.get_template(file.name)
