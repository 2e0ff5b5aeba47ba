"""A repeat under way, followed through its events files until all processes have ended, one has failed, or time is up.

The error of a repeat says who failed, where and how, from what its processes have left behind.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.core.elsewhere import plain
from harness.core.plan import LaunchPlan, Process
from harness.errors import RunFailed, signal_name
from harness.files import end_of
from harness.worker.agent.seating import Hosts, folder_of, seated

PHASES = ("launched", "started", "ready", "warmup", "window", "measured", "training", "trained", "evidence", "closed")
LOG_LINES, LINE = 12, 500  # lines, and characters of one, that a message has
POLL_S = 0.5  # each look costs the machine that is being measured a little
CLOSING_S = 60.0  # for servers and stragglers to leave once the first worker has left


@dataclass
class Followed:
    """The events of one process so far: the last one of each kind, every ``epoch``, and every ``size`` of a kernel."""

    process: Process
    path: Path
    log: Path
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    epochs: list[dict[str, object]] = field(default_factory=list)
    sizes: list[dict[str, object]] = field(default_factory=list)
    offset: int = 0

    @property
    def phase(self) -> str:
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
            elif event["event"] == "size":
                self.sizes.append(event)


@dataclass(frozen=True)
class Progress:
    """Progress of the workers of a repeat."""

    phases: Counter[str]
    processes: int
    step_s: float  # the slowest worker's warm-up step in seconds, 0 if unknown
    epochs: Sequence[dict[str, Any]] = ()  # of rank 0
    sizes: int = 0  # the number of a kernel's sizes that rank 0 has measured

    @property
    def phase(self) -> str:
        """The phase of the process that is furthest behind."""
        return next((phase for phase in PHASES if self.phases[phase]), PHASES[-1])


class Watch:
    """The processes of one repeat of a run and their events; in a batch job they run on its ``hosts``."""

    def __init__(
        self, plan: LaunchPlan, run_dir: Path, repeat: int, timeout_s: float, hosts: Hosts | None = None
    ) -> None:
        self.plan = LaunchPlan.from_dict(seated(plan.as_dict(), hosts)) if hosts else plan
        self.run_dir, self.repeat, self.timeout_s, self.hosts = run_dir, repeat, timeout_s, hosts
        self.repeat_dir = folder_of(run_dir, repeat)
        events, logs = self.repeat_dir / "events", self.repeat_dir / "logs"
        self.followed = [
            Followed(process, events / f"{process.name}.jsonl", logs / f"{process.name}.log")
            for process in self.plan.processes
        ]

    def make_folders(self) -> None:
        """Make the folders for the events and logs of a repeat that is about to start. Raises OSError."""
        for name in ("events", "logs"):
            (self.repeat_dir / name).mkdir(parents=True, exist_ok=True)

    def poll(self) -> Progress:
        for followed in self.followed:
            followed.read()
        workers = list(self.workers())
        step_s = max(worker.events.get("window", {}).get("step_s", 0.0) for worker in workers)
        phases, first = Counter(worker.phase for worker in workers), workers[0]
        return Progress(phases, len(workers), step_s, first.epochs, len(first.sizes))

    def workers(self) -> Iterator[Followed]:
        return (followed for followed in self.followed if followed.process.role == "worker")

    def first_error(self) -> Followed | None:
        """The process that reported an error first (by wall clock; later ones are usually its consequence)."""
        failed = [followed for followed in self.followed if "error" in followed.events]
        return min(failed, key=lambda followed: followed.events["error"]["time"], default=None)


def supervise(
    watch: Watch,
    poll: Callable[[int], int | None],
    failed: Callable[[Mapping[int, int]], RunFailed],
    on_progress: Callable[[Progress], None],
    late_s: float = 0.0,
    is_stopped: Callable[[int], bool] = lambda index: False,
) -> None:
    """Wait until every process has ended well.

    ``poll`` gives the exit code of a process by its index, None while it runs; ``failed`` makes the error of those that
    have ended with other codes than 0. Raises that error, or RunFailed ``late_s`` seconds after the repeat's timeout.
    """
    began = time.monotonic()
    first_left: float | None = None
    waiting = [followed.process.index for followed in watch.followed]
    while True:
        codes = {index: code for index in waiting if (code := poll(index)) is not None}
        if any(codes.values()):
            watch.poll()
            raise failed(codes)
        waiting = [index for index in waiting if index not in codes]
        now = time.monotonic()
        if codes and first_left is None:
            first_left = now
        on_progress(watch.poll())
        if not waiting:
            return
        reason = ""
        if now - began > watch.timeout_s + late_s:
            reason = f"no end after {watch.timeout_s:g} s (--timeout)"
        elif first_left is not None and now - first_left > CLOSING_S:
            reason = f"still there {CLOSING_S:g} s after the first process had left"
        if reason:
            raise _hang(watch, waiting, list(filter(is_stopped, waiting)), reason)
        time.sleep(POLL_S)


def exit_failure(watch: Watch, exits: Mapping[int, int]) -> RunFailed:
    """Name the culprit of ``exits``, codes by index: one killed by a signal (< 0), else the first error or exit."""
    failed = {index: code for index, code in exits.items() if code != 0}
    for index, code in failed.items():
        if code < 0:
            return failure(watch.followed[index], f"was killed by {signal_name(-code)}")
    if reported := watch.first_error():
        error = reported.events["error"]
        alone = len(failed) == 1 and reported.phase == "started" and "closed by peer" in error["message"]
        hint = "; no other rank had ended, so a process of somebody else may have taken its place (docs/safety.md)"
        return failure(reported, f"failed: {error['type']}: {error['message']}{hint * alone}")
    index, code = next(iter(failed.items()))
    return failure(watch.followed[index], f"exited with code {code}")


def _hang(watch: Watch, waiting: Collection[int], stopped: Collection[int], reason: str) -> RunFailed:
    """Name the process that is furthest behind; a stopped process is distinguished from a waiting one."""
    last = min(
        (watch.followed[index] for index in stopped or waiting),
        key=lambda followed: (followed.process.role == "ps", PHASES.index(followed.phase)),
    )
    state = "is stopped" if stopped else "is the furthest behind"
    return failure(last, f"{state}: {reason}")


def failure(culprit: Followed, reason: str) -> RunFailed:
    """The error for a failed process: rank, host, phase, reason, and the end of its log."""
    process = culprit.process
    last = last_lines(culprit.log) if culprit.log.exists() else []
    first = f"{process.role} rank {process.rank} on {process.host} {reason} (last phase: {culprit.phase})"
    return RunFailed("\n    ".join([first, *last]))


def last_lines(log: Path) -> list[str]:
    return [plain(line)[:LINE] for line in end_of(log).rstrip().splitlines()[-LOG_LINES:]]


def from_exit_events(watch: Watch) -> RunFailed | None:
    """The error in the ``exit`` events of tasks, None if there is none. Tasks that the launcher ended are no culprits."""
    exits = {each.process.index: each.events["exit"] for each in watch.followed if "exit" in each.events}
    failed = {index: event for index, event in exits.items() if event["code"] != 0 and "asked" not in event}
    timed_out = [index for index, event in failed.items() if event["how"] == "timeout"]
    stopped = [index for index in timed_out if failed[index]["stopped"]]
    if stopped or (timed_out and watch.first_error() is None):
        return _hang(watch, timed_out, stopped, f"no end after {watch.timeout_s:g} s (--timeout)")
    for index, event in failed.items():
        if event["how"].startswith(("was started", "cannot be")):
            return failure(watch.followed[index], event["how"])
    if failed or watch.first_error():
        by_time = sorted(failed, key=lambda index: failed[index]["time"])
        return exit_failure(watch, {index: failed[index]["code"] for index in by_time})
    return None
