"""A repeat under way: its processes are watched until all have ended, one has failed, or they take too long."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from harness.core.plan import LaunchPlan
from harness.errors import RunFailed
from harness.launch import failure
from harness.launch.watch import Progress, Watch

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
    while waiting:
        codes = {index: code for index in waiting if (code := poll(index)) is not None}
        if any(codes.values()):
            raise failed(codes)
        waiting = [index for index in waiting if index not in codes]
        now = time.monotonic()
        if codes and first_left is None:
            first_left = now
        on_progress(watch.poll())
        what = ""
        if now - began > timeout_s + late_s:
            what = f"no end after {timeout_s:g} s (--timeout)"
        elif first_left is not None and now - first_left > CLOSING_S:
            what = f"still there {CLOSING_S:g} s after the first process had left"
        if waiting and what:
            raise failure.hang(watch, waiting, list(filter(is_stopped, waiting)), what)
        if waiting:
            time.sleep(POLL_S)
