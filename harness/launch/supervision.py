"""A repeat under way: its processes are watched until all have ended, one has failed, or they take too long.

The error of a repeat says who failed, where and how, from what its processes have left behind.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from harness.core.plan import LaunchPlan
from harness.errors import RunFailed
from harness.launch.watch import PHASES, Followed, Progress, Watch

POLL_S = 0.5  # each look costs the machine that is being measured a little
CLOSING_S = 60.0  # for servers and stragglers to leave once the first worker has left


def begun(plan: LaunchPlan, run_dir: Path, repeat: int) -> Watch:
    """The watch over a repeat that is about to start, which gets its folders."""
    repeat_dir = run_dir / f"repeat-{repeat}"
    for folder in ("events", "logs"):
        (repeat_dir / folder).mkdir(parents=True, exist_ok=True)
    return Watch(plan, repeat_dir)


def supervise(
    watch: Watch,
    poll: Callable[[int], int | None],
    failed: Callable[[Mapping[int, int]], RunFailed],
    on_progress: Callable[[Progress], None],
    timeout_s: float,
    late_s: float = 0.0,
    is_stopped: Callable[[int], bool] = lambda index: False,
) -> None:
    """Wait until every process has ended well.

    ``poll`` gives the exit code of a process by its index, None while it runs; ``failed`` makes the error of those that
    have ended with other codes than 0. Raises that error, or RunFailed ``late_s`` seconds after the timeout.
    """
    began = time.monotonic()
    first_left: float | None = None
    waiting = [followed.process.index for followed in watch.followed]
    while True:
        codes = {index: code for index in waiting if (code := poll(index)) is not None}
        if any(codes.values()):
            raise failed(codes)
        waiting = [index for index in waiting if index not in codes]
        now = time.monotonic()
        if codes and first_left is None:
            first_left = now
        on_progress(watch.poll())
        if not waiting:
            return
        what = ""
        if now - began > timeout_s + late_s:
            what = f"no end after {timeout_s:g} s (--timeout)"
        elif first_left is not None and now - first_left > CLOSING_S:
            what = f"still there {CLOSING_S:g} s after the first process had left"
        if what:
            raise _hang(watch, waiting, list(filter(is_stopped, waiting)), what)
        time.sleep(POLL_S)


def exit_failure(watch: Watch, exits: Mapping[int, int]) -> RunFailed:
    """Name the culprit: a process that a signal killed, else the one whose error came first, else the first exit.

    ``exits`` has exit codes by the process's index, with signals negative, as ``subprocess`` has them.
    """
    failed = {index: code for index, code in exits.items() if code != 0}
    for index, code in failed.items():
        if code < 0:
            return failure(watch, watch.followed[index], f"was killed by {signal.Signals(-code).name}")
    if reported := watch.first_error():
        error = reported.events["error"]
        return failure(watch, reported, f"failed: {error['type']}: {error['message']}")
    index, code = next(iter(failed.items()))
    return failure(watch, watch.followed[index], f"exited with code {code}")


def _hang(watch: Watch, waiting: Collection[int], stopped: Collection[int], what: str) -> RunFailed:
    """Name the process that is furthest behind; a stopped process is distinguished from a waiting one."""
    last = min(
        (watch.followed[index] for index in stopped or waiting),
        key=lambda followed: (followed.process.role == "ps", PHASES.index(followed.phase)),
    )
    state = "is stopped" if stopped else "is the furthest behind"
    return failure(watch, last, f"{state}: {what}")


def failure(watch: Watch, culprit: Followed, what: str) -> RunFailed:
    """The error for a failed process: rank, host, phase, reason, and the end of its log."""
    process = culprit.process
    lines = [f"{process.role} rank {process.rank} on {process.host} {what} (last phase: {culprit.phase})"]
    lines += [f"    {line}" for line in watch.log_tail(process)]
    return RunFailed("\n".join(lines))


def from_exit_events(watch: Watch, timeout_s: float) -> RunFailed | None:
    """The error that the ``exit`` events of tasks report (see ``worker/agent/task.py``), None if they report none.

    Tasks that the launcher ended, once another had failed, are no culprits.
    """
    exits = {each.process.index: each.events["exit"] for each in watch.followed if "exit" in each.events}
    failed = {index: event for index, event in exits.items() if event["code"] != 0 and "asked" not in event}
    timed_out = [index for index, event in failed.items() if event["how"] == "timeout"]
    if timed_out and watch.first_error() is None:
        stopped = [index for index in timed_out if failed[index]["stopped"]]
        return _hang(watch, timed_out, stopped, f"no end after {timeout_s:g} s (--timeout)")
    for index, event in failed.items():
        if event["how"].startswith(("was started", "cannot be")):
            return failure(watch, watch.followed[index], event["how"])
    if failed or watch.first_error():
        by_time = sorted(failed, key=lambda index: failed[index]["time"])
        return exit_failure(watch, {index: failed[index]["code"] for index in by_time})
    return None
