"""What several commands share: arguments, how they are understood, being interrupted."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from harness.core.progress import ProgressLine
from harness.errors import InvalidInput

RESULTS = click.argument("sources", nargs=-1, required=True, metavar="RESULTS...")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="print JSON for scripts")


def not_empty(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """An empty text is a shell variable that was not set, not a wish for the default."""
    if value == "":
        raise InvalidInput(f"{option.opts[0]} '': must not be empty")
    return value


def path_option(context: click.Context, option: click.Parameter, value: str | None) -> Path | None:
    """An option's text as a path."""
    return path_of(not_empty(context, option, value))


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


def path_of(text: str | None) -> Path | None:
    """An option's text as a path."""
    return None if text is None else Path(text)


def list_of(option: str, text: str | None, default: list[str]) -> list[str]:
    """The parts of a comma-separated option. Raises InvalidInput for one without parts."""
    if text is None:
        return default
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise InvalidInput(f"{option} '{text}': must be a list such as {','.join(default)}")
    return parts


def share_of(option: str, text: str, below: float = 1.0, zero: bool = True) -> float:
    """``5%``, ``5 %`` or ``0.05`` as 0.05. Raises InvalidInput for what is no share, negative, or ``below`` or more."""
    number = text.strip().removesuffix("%").strip()
    try:
        value = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        value = float("nan")
    if not 0 <= value < below or (not zero and not value):
        least = "0 or more" if zero else "more than 0"
        raise InvalidInput(f"{option} {text!r}: must be a share such as 5% or 0.05, {least} and less than {below:.0%}")
    return value
