"""Commands that take long: following what goes on, and being interrupted."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, TypeVar

import click

from harness.errors import Interrupted, InvalidInput

if TYPE_CHECKING:
    from harness.running.campaign import PointStatus
    from harness.running.status import RunStatus

WATCH = click.option("--watch", is_flag=True, help="follow them until nothing goes on by itself any more")


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
