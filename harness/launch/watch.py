"""Following a repeat from its events files: which processes are where, and what each has reported. No processes here."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.core.plan import LaunchPlan, Process

# Of a measurement and of a training.
PHASES = (
    *("launched", "started", "ready"),
    *("warmup", "window", "measured"),
    *("training", "trained"),
    *("evidence", "closed"),
)
LOG_LINES = 12


@dataclass
class Followed:
    """The events of one process so far: the last one of each kind, and every ``epoch``."""

    process: Process
    path: Path
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    epochs: list[dict[str, Any]] = field(default_factory=list)
    offset: int = 0

    @property
    def phase(self) -> str:
        """The last phase that this process has reported."""
        return next((phase for phase in reversed(PHASES) if phase in self.events), PHASES[0])

    def read(self) -> None:
        """Take in what was appended since the last call; a line still being written is left for the next."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                new = file.read()
        except FileNotFoundError:
            return
        complete = new[: new.rfind(b"\n") + 1]
        self.offset += len(complete)
        for line in complete.splitlines():
            try:
                event = json.loads(line)
            except json.JSONDecodeError:
                continue  # cut off by a full disk; the process that wrote it has failed and says so by its exit
            self.events[event["event"]] = event
            if event["event"] == "epoch":
                self.epochs.append(event)


@dataclass(frozen=True)
class Progress:
    """How far a repeat is, for display.

    ``step_s`` is the slowest worker's warm-up step in seconds (0: not known yet), ``epochs`` are those of a training as
    rank 0 reports them (see ``harness.records``).
    """

    phases: Counter[str]
    processes: int
    step_s: float
    epochs: Sequence[dict[str, Any]] = ()

    @property
    def phase(self) -> str:
        """The phase of the process that is furthest behind."""
        return next((phase for phase in PHASES if self.phases[phase]), PHASES[-1])


class Watch:
    """The events of all processes of one repeat."""

    def __init__(self, plan: LaunchPlan, repeat_dir: Path) -> None:
        self.repeat_dir = repeat_dir
        self.followed = [
            Followed(process, repeat_dir / "events" / f"{process.name}.jsonl") for process in plan.processes
        ]

    def poll(self) -> Progress:
        """Read all files once."""
        for followed in self.followed:
            followed.read()
        workers = list(self.workers())
        step_s = max((worker.events.get("window", {}).get("step_s", 0.0) for worker in workers), default=0.0)
        return Progress(Counter(worker.phase for worker in workers), len(workers), step_s, workers[0].epochs)

    def workers(self) -> Iterator[Followed]:
        """The workers, by rank."""
        return (followed for followed in self.followed if followed.process.role == "worker")

    def first_error(self) -> Followed | None:
        """The process that reported an error first (by wall clock; later ones are usually its consequence)."""
        failed = [followed for followed in self.followed if "error" in followed.events]
        return min(failed, key=lambda followed: followed.events["error"]["time"], default=None)

    def log_tail(self, process: Process) -> list[str]:
        """The last lines of a process's log."""
        try:
            text = (self.repeat_dir / "logs" / f"{process.name}.log").read_text(errors="replace")
        except FileNotFoundError:
            return []
        return text.rstrip().splitlines()[-LOG_LINES:]
