"""Values that people write in ways of their own, and options that many commands have."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from harness.core.spec import MOST_WORKERS
from harness.errors import InvalidInput

Completions = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
_NOW = "harness.now"  # what a command's context keeps


def files(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Lets the shell complete the name of a file."""
    return [CompletionItem(incomplete, type="file")]


def completing(values: Callable[[], Iterable[str]]) -> Completions:
    """Completes a value in a shell, or the last one of a list, to one of ``values``; if none fits, to a file.

    ``-`` counts as ``_``.
    """

    def completions(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        begin = last.replace("-", "_")
        fitting = [value for value in values() if value.replace("-", "_").startswith(begin)]
        items = [CompletionItem(before + comma + value) for value in fitting]
        return items or files(context, parameter, incomplete)

    return completions


AS_JSON = click.option("--json", "as_json", is_flag=True, help="print JSON for scripts")
QUIET = click.option("--quiet", is_flag=True, help="no progress")


class ParsedText(click.ParamType[object]):
    """A value that ``read`` understands. What it raises as ValueError says what would be right."""

    name = "text"

    def __init__(self, read: Callable[[str], object]) -> None:
        self.read = read

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return files(ctx, param, incomplete)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        assert param is not None
        try:
            return self.read(value)
        except ValueError as error:
            raise InvalidInput(f"{param.opts[0]} {value!r}: {error}") from None


def numbers(text: str, right: str = "numbers such as 8, 1,2,4, 1..512 or 1..512+1") -> list[int]:
    """``1,2,4``; ``1..512``, which doubles; ``1..512+1``, which adds. In order, once each."""
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,6})\s*(?:\.\.\s*(\d{1,6})\s*(?:\+\s*(\d{1,6}))?)?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        step = int(match[3]) if match and match[3] else None
        if not 1 <= first <= last <= MOST_WORKERS or step == 0:
            raise ValueError(f"must be {right}; at most {MOST_WORKERS:,}")
        if step:
            found |= set(range(first, last + 1, step))
        else:
            found |= {last, *(first << doubled for doubled in range((last // first).bit_length()))}
    return sorted(found)


def source(value: str) -> str:
    """A source of results, with times for what it says relative to now.

    All that is relative counts from the same moment, so that windows that meet leave no gap, and what the command writes
    names the window that it had.
    """
    from harness.results.selection import at_time

    now = click.get_current_context().meta.setdefault(_NOW, datetime.now(UTC).replace(microsecond=0))
    return at_time(value, now)


SOURCE = ParsedText(source)


def text(value: str) -> str:
    """An empty text is a shell variable that was not set, not a wish for the default."""
    if not value:
        raise ValueError("must not be empty")
    return value


def share(value: str, zero: bool = False) -> float:
    """``5%``, ``5 %`` or ``0.05`` as 0.05."""
    number, percent, rest = value.strip().partition("%")
    try:
        read = math.nan if rest else float(number) / (100 if percent else 1)
    except ValueError:
        read = math.nan
    if not 0 <= read < 1 or (not zero and not read):
        least = "0 or more" if zero else "more than 0"
        raise ValueError(f"must be a share such as 5% or 0.05, {least} and less than 100%")
    return read


def positive(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise ValueError("must be a finite number above 0")
    return number


def parts(value: str, example: str) -> list[str]:
    if listed := [part.strip() for part in value.split(",") if part.strip()]:
        return listed
    raise ValueError(f"must be a list such as {example}")


TEXT, PATH = ParsedText(text), ParsedText(lambda value: Path(text(value)))
ANY_PATH = click.Path(path_type=Path)
SHARE, POSITIVE = ParsedText(share), ParsedText(positive)
