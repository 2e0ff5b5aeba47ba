"""Who failed, where and how: the error of a repeat from what its processes have left behind."""

from __future__ import annotations

import signal
from collections.abc import Collection, Mapping

from harness.errors import RunFailed
from harness.launch.watch import PHASES, Followed, Watch


def exit_failure(watch: Watch, exits: Mapping[int, int]) -> RunFailed:
    """Name the culprit: a process that a signal killed, else the one whose error came first, else the first exit.

    ``exits`` has exit codes by the process's index, with signals negative, as ``subprocess`` has them.
    """
    failed = {index: code for index, code in exits.items() if code != 0}
    killed = next((index for index, code in failed.items() if code < 0), None)
    reported = watch.first_error()
    if killed is not None:
        return failure(watch, watch.followed[killed], f"was killed by {signal.Signals(-failed[killed]).name}")
    if reported is not None:
        error = reported.events["error"]
        return failure(watch, reported, f"failed: {error['type']}: {error['message']}")
    index, code = next(iter(failed.items()))
    return failure(watch, watch.followed[index], f"exited with code {code}")


def hang(watch: Watch, waiting: Collection[int], stopped: Collection[int], what: str) -> RunFailed:
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
    exits = {
        followed.process.index: followed.events["exit"] for followed in watch.followed if "exit" in followed.events
    }
    failed = {index: event for index, event in exits.items() if event["code"] != 0 and "asked" not in event}
    timed_out = [index for index, event in failed.items() if event["how"] == "timeout"]
    if timed_out and watch.first_error() is None:
        stopped = [index for index in timed_out if failed[index]["stopped"]]
        return hang(watch, timed_out, stopped, f"no end after {timeout_s:g} s (--timeout)")
    special = {index: event for index, event in failed.items() if event["how"].startswith(("was started", "cannot be"))}
    for index, event in special.items():
        return failure(watch, watch.followed[index], event["how"])
    if failed or watch.first_error():
        by_time = sorted(failed, key=lambda index: failed[index]["time"])
        return exit_failure(watch, {index: failed[index]["code"] for index in by_time})
    return None
