"""What several commands share: options, how they are understood, waiting, and being interrupted."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.core.progress import ProgressLine
from harness.errors import InvalidInput, RunFailed

if TYPE_CHECKING:
    from harness.records.measurement import AnyRecord
    from harness.report.text.progress import RunLine
    from harness.running.run import AnyRun
    from harness.running.where import Where

RESULTS = click.argument("sources", nargs=-1, required=True, metavar="RESULTS...")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="print JSON for scripts")


def run_options() -> list[click.Option]:
    """How to run: options of every command that measures."""
    from harness.cli.options import grouped
    from harness.core.plan import LAST_PORT

    return grouped(
        [
            click.Option(
                ["--output"], metavar="DIR", callback=not_empty, help="folder for run directories  [default: runs]"
            ),
            click.Option(
                ["--env", "environment"],
                metavar="PATH",
                callback=not_empty,
                help="Python environment to use instead of the built one",
            ),
            click.Option(
                ["--port"],
                type=click.IntRange(1, LAST_PORT),
                metavar="NUMBER",
                help="first port to listen on  [default: free ports are found]",
            ),
            click.Option(
                ["--dry-run"], is_flag=True, help="show every process with its host, role, command and environment"
            ),
            click.Option(["--json", "as_json"], is_flag=True, help="print JSON for scripts"),
            click.Option(["--quiet"], is_flag=True, help="no progress"),
        ],
        "How to run",
    )


def site_options() -> list[click.Option]:
    """Where to run: options of every command that measures."""
    from harness.cli.options import grouped

    return grouped(
        [
            click.Option(
                ["--site"],
                metavar="NAME|FILE",
                callback=not_empty,
                help="cluster to run on, as SYSTEM or SYSTEM:PARTITION; see `harness list sites`  [default: this machine]",
            ),
            click.Option(
                ["--environ"],
                metavar="NAME",
                callback=not_empty,
                help="one of the site's environments  [default: the first]",
            ),
            click.Option(
                ["-J", "--job-option", "job_options"],
                metavar="OPTION",
                multiple=True,
                help="option for the scheduler, such as reservation=maintenance; may be given several times",
            ),
            click.Option(
                ["--account"], metavar="NAME", callback=not_empty, help="project that pays; short for -J account=NAME"
            ),
            click.Option(
                ["--time-limit"],
                metavar="1h30m",
                callback=not_empty,
                help="of the job  [default: the sum of its repeats' --timeout, at most the site's]",
            ),
            click.Option(
                ["--hosts"], metavar="FILE", callback=not_empty, help="host file, for sites that are reached with ssh"
            ),
            click.Option(
                ["--no-wait"], is_flag=True, help="submit and return; see `harness status` and `harness collect`"
            ),
            click.Option(
                ["--no-submit"],
                is_flag=True,
                help="write the run directory and the job script only, to submit it by hand",
            ),
        ],
        "Where to run",
    )


def not_empty(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """An empty text is a shell variable that was not set, not a wish for the default."""
    if value == "":
        raise InvalidInput(f"{option.opts[0]} '': must not be empty")
    return value


def where_of(given: dict[str, Any]) -> Where:
    """What the options of ``site_options`` and ``run_options`` say about the place. Raises InvalidInput."""
    from harness.running.where import Where

    return Where.chosen(
        site=given["site"],
        environ=given["environ"],
        job_options=[*given["job_options"], *([f"account={given['account']}"] if given["account"] else [])],
        time_limit=given["time_limit"],
        hosts=path_of(given["hosts"]),
        output=path_of(given["output"]),
        port=given["port"],
        environment=path_of(given["environment"]),
        dry_run=given["dry_run"],
    )


def wait_for(runs: Sequence[AnyRun], line: RunLine, study: str | None = None) -> list[AnyRecord]:
    """Wait for the records of ``runs``, the runs of a study if ``study`` is what commands call it."""
    from harness.running import batch, submission

    with signals_interrupt():
        try:
            return batch.wait(runs, line)
        except KeyboardInterrupt as signal_name:
            ids = list(dict.fromkeys(job for run in runs for job in submission.known_jobs(run.folder)))
            jobs = f"the jobs ({', '.join(ids)})" if len(ids) < 20 else f"its {len(ids)} jobs"
            which, of = ("study ", study) if study else ("", " ".join(str(run.folder) for run in runs))
            raise batch.GoesOn(
                f"{signal_name or 'interrupted'}; {jobs} go on and nothing is lost\n"
                f"    harness {which}status {of}\n    harness {which}collect {of}\n    harness {which}cancel {of}"
            ) from None
        finally:
            line.clear()


def failed(record: AnyRecord, path: Path) -> RunFailed:
    """The error for a run whose record, at ``path``, does not have what was wanted."""
    number = "" if record.spec.training else "no number; "
    return RunFailed(f"{record.spec.backend}: {record.problem}\n{number}logs and record: {path.parent}")


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """While a run is on, SIGTERM and SIGHUP end it as Ctrl-C does: cleanly, with a record. Later ones are ignored."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt(number: int, frame: object) -> None:
        for one in numbers:
            signal.signal(one, signal.SIG_IGN)  # the end is short, and must not be cut off
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
