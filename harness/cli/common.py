"""What several commands share: arguments, values that people write in ways of their own, results, being interrupted."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.core.progress import ProgressLine
from harness.errors import InvalidInput

if TYPE_CHECKING:
    import pandas

RESULTS = click.argument("sources", nargs=-1, required=True, metavar="RESULTS...")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="print JSON for scripts")
QUIET = click.option("--quiet", is_flag=True, help="no progress")


class Written(click.ParamType[Any]):
    """A value that ``read`` understands. What it raises as ValueError says what would be right."""

    name = "text"

    def __init__(self, read: Callable[[str], Any]) -> None:
        self.read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        assert param is not None
        try:
            return self.read(value)
        except ValueError as error:
            raise InvalidInput(f"{param.opts[0]} {value!r}: {error}") from None


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
    number = float(value)
    if not 0 < number < math.inf:
        raise ValueError("must be a finite number above 0")
    return number


def parts(value: str, example: str) -> list[str]:
    """The parts of a comma-separated list."""
    if listed := [part.strip() for part in value.split(",") if part.strip()]:
        return listed
    raise ValueError(f"must be a list such as {example}")


TEXT, PATH = Written(text), Written(lambda value: Path(text(value)))
ANY_PATH = click.Path(path_type=Path)
SHARE, POSITIVE = Written(share), Written(positive)


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """While a run is on, SIGTERM and SIGHUP end it as Ctrl-C does: cleanly, with a record. Later ones are ignored."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt(number: int, frame: object) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)  # the end is short, and must not be cut off
        raise KeyboardInterrupt(f"interrupted by {signal.Signals(number).name}")

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def reading() -> Callable[[int, int], None]:
    """What ``results.load`` tells how far it is: a progress line that is gone when all is read."""
    line = ProgressLine()

    def show(done: int, of: int) -> None:
        if done == of:
            line.clear()
        elif line.due():
            line.show(f"reading {done:,} of {of:,} records")

    return show


def loaded(*sources: str) -> pandas.DataFrame:
    """The rows of ``sources``, of any status."""
    from harness import results

    return results.load(sources, status=None, progress=reading())


def some_of(sources: tuple[str, ...]) -> pandas.DataFrame:
    """The rows of ``sources``. Raises InvalidInput if there are none."""
    frame = loaded(*sources)
    if frame.empty:
        raise InvalidInput(f"no record.json at or below {', '.join(sources)}")
    return frame
