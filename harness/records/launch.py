"""The record of a program that is not ours: how each of its processes ended, and the img/s that it says it has.

The file has a name of its own: these img/s are measured by the program's own clock, and never get into a table of ours.
"""

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from harness.core import statistics
from harness.core.program import program_of
from harness.core.spec import Frozen, RunSpec
from harness.core.text import listed
from harness.records.record import AnyRank, AnyRecord, AnyRepeat, Check, checks_of, verify_repeats


class Moved(Frozen):
    """Bytes that a network interface carried while a process was there, whoever they belonged to."""

    sent: int
    received: int


class ProgramRank(AnyRank):
    """One process, worker or server: its exit code, negative for a signal, None if nobody has seen its end.

    ``stopped``: the launcher ended it, a server because the workers were done. ``printed`` is the img/s in its output.
    ``interfaces`` are those of its whole host. ``evidence`` has the arguments that it was started with.
    """

    role: Literal["worker", "ps"]
    code: int | None
    stopped: bool
    seconds: float | None
    printed: float | None
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


def printed(pattern: str | None, log: Path) -> float | None:
    """The number in the last match of ``pattern`` in a log; None without one, or where it is no finite number above 0.

    A match is within a line, so that of a log, which may have gigabytes, a line at a time is in memory.
    """
    if pattern is None:
        return None
    try:
        last = None
        with log.open(errors="replace") as lines:
            for line in lines:
                for match in re.finditer(pattern, line, re.MULTILINE):
                    last = match
        number = float(last[1].replace(",", "")) if last else math.nan
    except (OSError, ValueError, AttributeError):  # the group has no part in the match, or is no number
        return None
    return number if 0 < number < math.inf else None


def judge(spec: RunSpec, ranks: Sequence[ProgramRank], processes: int) -> list[Check]:
    """What must hold for a launch to count: every process ended well, and img/s were printed if they are asked for."""
    wrong = [f"{rank.role} rank {rank.rank}: {rank.code}" for rank in ranks if rank.code and not rank.stopped]
    checks = {
        "all_processes": (len(ranks) == processes, f"{len(ranks)} of {processes} reported"),
        "exit_codes": (not wrong, listed(wrong) if wrong else "0 everywhere"),
    }
    if pattern := program_of(spec).pattern:
        there = sum(rank.printed is not None for rank in ranks if rank.role == "worker")
        detail = f"{there} workers printed a number above 0 that matches {pattern!r}"
        checks["pattern"] = (_printed(spec, ranks) is not None, detail)
    return checks_of(checks)


def derive(spec: RunSpec, repeats: Sequence[LaunchRepeat]) -> statistics.Summary | None:
    """What the program says of its img/s in each repeat; None if it was not asked."""
    values = [value for repeat in repeats if (value := _printed(spec, repeat.ranks)) is not None]
    return statistics.summarise(values) if program_of(spec).pattern and values else None


def _printed(spec: RunSpec, ranks: Sequence[ProgramRank]) -> float | None:
    """The number of the first worker that has printed one, or with ``sum_workers`` the sum, if all have."""
    numbers = [rank.printed for rank in ranks if rank.role == "worker"]
    there = [number for number in numbers if number is not None]
    if program_of(spec).sum_workers:
        return sum(there) if len(there) == len(numbers) else None
    return there[0] if there else None


def moved(ranks: Sequence[ProgramRank]) -> Iterator[tuple[str, str, Moved]]:
    """Host, interface and bytes: of each host those of the process that was there longest."""
    by_time = sorted(ranks, key=lambda rank: rank.seconds or 0.0)
    longest = {rank.host: rank for rank in by_time}
    for host, rank in sorted(longest.items()):
        for interface, counts in sorted(rank.interfaces.items()):
            yield host, interface, counts
