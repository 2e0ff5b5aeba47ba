"""The record of a program that is not ours: the end of each of its processes, and the img/s that it prints.

The file has a name of its own: these img/s are measured by the program's own clock, and never get into a table of ours.
"""

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from harness.core import elsewhere, statistics
from harness.core.program import program_of
from harness.core.spec import Frozen, Program, RunSpec
from harness.core.text import listed
from harness.records.record import AnyRank, AnyRecord, AnyRepeat, Check, checks_of, verify_repeats

PATIENCE_S, BYTES_PER_S = 10.0, 5e6  # for an expression, and for each part of a log
NO_NUMBER = "its output has no number"
UNITS = elsewhere.RATES | elsewhere.STEPS | elsewhere.PERIODS


class Moved(Frozen):
    """Bytes that a network interface carried during a process, for any process."""

    sent: int
    received: int


class ProgramRank(AnyRank):
    """One process, worker or server: its exit code, negative for a signal, None if nobody has seen its end.

    ``stopped``: the launcher ended it, a server because the workers were done. ``printed`` is the img/s in its output,
    ``unread`` why there are none.
    ``interfaces`` are those of its whole host. ``evidence`` has the arguments that it was started with.
    """

    role: Literal["worker", "ps"]
    code: int | None
    stopped: bool
    seconds: float | None
    printed: float | None
    unread: str
    interfaces: dict[str, Moved]


LaunchRepeat = AnyRepeat[ProgramRank]  # one start of the program; of one that failed there are no checks


class LaunchRecord(AnyRecord):
    """A program that was launched. ``img_per_s`` is None if no pattern was given."""

    file_name = "launch.json"
    FIGURES = ("img_per_s",)

    schema_: Literal["harness.launch/1"] = Field(alias="schema")
    clock: Literal["the program's own"] = "the program's own"
    img_per_s: statistics.Summary | None
    repeats: list[LaunchRepeat]

    @property
    def outcome(self) -> str:
        return f"{self.img_per_s.mean:.2f} img/s by its own clock" if self.img_per_s else "exit code 0"

    def verify_figures(self) -> None:
        verify_repeats(self.spec, self.repeats, lambda ranks: judge(self.spec, ranks, len(self.plan["processes"])))
        if self.img_per_s != derive(self.spec, self.repeats):
            raise ValueError("img_per_s does not follow from what the workers have printed")


def printed(program: Program, log: Path) -> tuple[float | None, str]:
    """The img/s that a worker has printed into its log: of the last match of the program's pattern, which is in one line.

    None without a pattern, and with a reason, "" otherwise, if there is no finite number above 0, or the number goes on
    beside the group, or the expression takes too long. A log may have gigabytes, of which a line at a time is in memory.
    """
    import regex

    if program.pattern is None:
        return None, ""
    expression, last, with_digits = regex.compile(program.pattern), None, ""
    try:
        most_s = PATIENCE_S + log.stat().st_size / BYTES_PER_S
        until = time.monotonic() + most_s
        for line in elsewhere.lines(log):
            matches = [*expression.finditer(line, timeout=max(1e-3, until - time.monotonic()))]
            last = matches[-1] if matches else last
            if re.search("[0-9]", line):
                with_digits = line
    except TimeoutError:
        return None, f"the expression takes more than {most_s:.0f} s on its output"
    except OSError as error:
        return None, f"{log.name}: {error.strerror}"
    if last is None:
        return None, f"its last line with a number is {elsewhere.shown(with_digits)}" if with_digits else NO_NUMBER
    try:
        return _img_per_s(program, last), ""
    except ValueError as error:
        return None, str(error)


def _img_per_s(program: Program, match: Any) -> float:
    """The img/s in a match. Raises ValueError with the mistake in it."""
    line, text, (begin, end) = match.string, match[1], match.span(1)
    if text is None:
        raise ValueError(f"the group has no part in {elsewhere.shown(match[0])}")
    if elsewhere.is_torn(line, begin, end):
        raise ValueError(f"{text!r} is a part of a number in {elsewhere.shown(line[max(0, begin - 20) : end + 20])}")
    number, unit = elsewhere.quantity(text, UNITS)
    unit = unit or program.unit
    if number <= 0:
        raise ValueError(f"{elsewhere.shown(text)} is not above 0")
    if unit in elsewhere.RATES:
        return number
    if program.images_per_step is None:
        raise ValueError(f"{elsewhere.shown(text)} is of steps; give --unit and --images-per-step")
    return program.images_per_step * (number if unit in elsewhere.STEPS else 1 / (number * elsewhere.PERIODS[unit]))


def judge(spec: RunSpec, ranks: Sequence[ProgramRank], processes: int) -> list[Check]:
    """The checks of a launch: every process ended well, and img/s were printed if they are asked for."""
    wrong = [f"{rank.role} rank {rank.rank}: {rank.code}" for rank in ranks if rank.code and not rank.stopped]
    checks = {
        "all_processes": (len(ranks) == processes, f"{len(ranks)} of {processes} reported"),
        "exit_codes": (not wrong, listed(wrong) if wrong else "0 everywhere"),
    }
    if pattern := program_of(spec).pattern:
        workers = [rank for rank in ranks if rank.role == "worker"]
        without = [rank for rank in workers if rank.printed is None]
        detail = f"{len(workers) - len(without)} of {len(workers)} workers printed a number that matches {pattern!r}"
        if without:
            detail += f"; of worker rank {without[0].rank}: {without[0].unread}"
        checks["pattern"] = (_printed(spec, ranks) is not None, detail)
    return checks_of(checks)


def derive(spec: RunSpec, repeats: Sequence[LaunchRepeat]) -> statistics.Summary | None:
    """The img/s that the program printed in each repeat; None if it was not asked."""
    values = [value for repeat in repeats if (value := _printed(spec, repeat.ranks)) is not None]
    return statistics.summarise(values) if program_of(spec).pattern and values else None


def _printed(spec: RunSpec, ranks: Sequence[ProgramRank]) -> float | None:
    """The number of the first worker that has printed one, or with ``sum_workers`` the sum, if all have."""
    workers = [rank.printed for rank in ranks if rank.role == "worker"]
    numbers = [number for number in workers if number is not None]
    program = program_of(spec)
    if program.sum_workers:
        return sum(numbers) if len(numbers) == len(workers) else None
    return numbers[0] * (spec.workers if program.times_workers else 1) if numbers else None


def moved(ranks: Sequence[ProgramRank]) -> Iterator[tuple[str, str, Moved]]:
    """Host, interface and bytes: of each host those of the process that was there longest."""
    longest = {rank.host: rank for rank in sorted(ranks, key=lambda rank: rank.seconds or 0.0)}
    for host, rank in sorted(longest.items()):
        for interface, counts in sorted(rank.interfaces.items()):
            yield host, interface, counts
