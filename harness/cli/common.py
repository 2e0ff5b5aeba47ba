"""What several commands share: arguments, values that people write in ways of their own, results, being interrupted."""

from __future__ import annotations

import math
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from harness.core.progress import ProgressLine
from harness.core.spec import MOST_WORKERS
from harness.core.text import plural
from harness.errors import Interrupted, InvalidInput

if TYPE_CHECKING:
    from harness.results.result import Result
    from harness.results.selection import Selected
    from harness.running.campaign import PointStatus
    from harness.running.status import RunStatus

Completions = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
# What a command's context keeps.
_STRICT, _LEFT_OUT, _NOW = "harness.strict", "harness.left_out", "harness.now"
_MOST_NAMED = 3  # records that were left out
Command = TypeVar("Command", bound=Callable[..., object])


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


def _keep_strict(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    context.meta[_STRICT] = value


IS_STRICT: dict[str, Any] = {  # ``leave_out`` obeys it, so that no command has to
    "is_flag": True,
    "expose_value": False,
    "callback": _keep_strict,
    "help": "refuse records that cannot be read, instead of leaving them out",
}
STRICT = click.option("--strict", **IS_STRICT)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="print JSON for scripts")
WATCH = click.option("--watch", is_flag=True, help="follow them until nothing goes on by itself any more")
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
SOURCES = click.argument("sources", nargs=-1, required=True, metavar="RESULTS...", type=SOURCE, shell_complete=files)


def RESULTS(command: Command) -> Command:  # of commands that load them
    return SOURCES(STRICT(command))


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


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """While a run is on, SIGTERM and SIGHUP end it as Ctrl-C does: cleanly, with a record. Later ones are ignored.

    What is ignored from the start stays so: that is how ``nohup`` and shells keep what runs in the background from ending.
    """
    asking = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    numbers = [number for number in asking if signal.getsignal(number) != signal.SIG_IGN]

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


Status = TypeVar("Status", bound="RunStatus | PointStatus")


def follow(
    look: Callable[[], Sequence[Status]],
    table: Callable[[Sequence[Status]], str],
    lines: Callable[[Sequence[Status]], list[str]],
    as_json: bool = False,
) -> None:
    """Show what ``look`` finds until nothing of it goes on: on a terminal in one table, else a line for each change.

    Looking takes at most a tenth of the time, and a batch system is asked four times a minute. Raises Interrupted when the
    user has seen enough, InvalidInput for ``as_json``.
    """
    from rich.live import Live
    from rich.text import Text

    from harness.launch.slurm import SlurmSilent
    from harness.running.collect import ASK_S
    from harness.running.status import GOES_ON

    if as_json:
        raise InvalidInput("--watch: is for people; without it, --json says how far it is now")
    said: set[str] = set()
    try:
        with Live(auto_refresh=False) if sys.stdout.isatty() else nullcontext() as live:
            while True:
                began = time.monotonic()
                try:
                    statuses = look()
                except SlurmSilent as error:
                    click.echo(f"harness: {error}; asking again", err=True)
                    time.sleep(ASK_S[1])
                    continue
                if live:
                    live.update(Text.from_ansi(table(statuses)), refresh=True)
                else:
                    now = lines(statuses)
                    for line in now:
                        if line not in said:
                            click.echo(line)
                    said = set(now)
                if not any(status.state in GOES_ON for status in statuses):
                    return
                usual_s = ASK_S[1] if any(status.jobs for status in statuses) else ASK_S[0]
                time.sleep(max(usual_s, 9 * (time.monotonic() - began)))
    except KeyboardInterrupt:
        raise Interrupted("no longer watching; what runs goes on") from None


def reading() -> Callable[[int, int], None]:
    """What ``results.load`` tells how far it is: a progress line that is gone when all is read."""
    line = ProgressLine()

    def show(done: int, of: int) -> None:
        if done == of:
            line.clear()
        elif line.due():
            line.show(f"reading {done:,} of {of:,} records")

    return show


def leave_out() -> Callable[[str], None]:
    """What ``results.load`` calls with each record that cannot be read: one line names them when the command ends.

    With ``--strict`` the first one is refused.
    """
    from harness.results.sources import refuse

    context = click.get_current_context()
    if context.meta.get(_STRICT):
        return refuse
    if _LEFT_OUT not in context.meta:
        context.meta[_LEFT_OUT] = list[str]()
        context.call_on_close(lambda: _tell_left_out(left_out(context)))
    note: Callable[[str], None] = context.meta[_LEFT_OUT].append
    return note


def left_out(context: click.Context) -> list[str]:
    """The records that ``leave_out`` was called with in this command so far, each with its reason."""
    reasons: list[str] = context.meta.get(_LEFT_OUT, [])
    return list(dict.fromkeys(reason.replace("\n", " ") for reason in reasons))  # a command may load twice


def _tell_left_out(different: list[str]) -> None:
    if different:
        verb = "was" if len(different) == 1 else "were"
        named = "; ".join([*different[:_MOST_NAMED], *(["…"] if len(different) > _MOST_NAMED else [])])
        click.echo(f"{plural(len(different), 'record')} {verb} left out: {named}", err=True)


def any_of(sources: Sequence[str], selected: Selected | None = None, training: bool = False) -> list[Result]:
    """The results of ``sources``, of any kind and status. Raises InvalidInput if there are none, or no ``training``.

    What is read of several times with the same ``selected`` is read once, and may be nothing.
    """
    from harness.results.sources import check_any, load

    results = load(sources, reading(), leave_out(), selected)
    if selected is None:
        check_any(results, sources, training)
    return results


def some_of(sources: Sequence[str]) -> list[Result]:
    """The trainings of ``sources``, of any status. Raises InvalidInput if there are none."""
    from harness.results.sources import trainings

    return trainings(any_of(sources, training=True))


def tables(results: Sequence[Result], baseline: int | None = None, of_2017: bool = False, written: str = "text") -> str:
    """The table of trainings, or those of 2017, then that of kernels."""
    from harness.report.text import comparison, kernel_table
    from harness.report.text.table import FORMATS, text
    from harness.results.sources import kernels, trainings

    runs, of_kernels = trainings(results), kernels(results)
    shown = [kernel_table.table_of(of_kernels, baseline)] if of_kernels else []
    if written == "text":
        of_runs = [(comparison.as_of_2017 if of_2017 else comparison.runs)(runs, baseline)] if runs else []
        return "\n\n".join([*of_runs, *map(text, shown)])
    if runs:
        shown = (
            [*comparison.tables_of_2017(runs, baseline), *shown]
            if of_2017
            else [comparison.table_of_runs(runs, baseline), *shown]
        )
    return FORMATS[written](shown)
