"""The controller must not disturb what it measures."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

WATCHED_S = 10.0


def wait_for(condition: Callable[[], bool], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.alone
@pytest.mark.slow
def test_the_controller_uses_less_than_one_percent_of_a_core_while_a_run_is_measured(
    environment: Callable[[str], Path], tmp_path: Path
) -> None:
    environment("pytorch")
    arguments = ["--backend", "pytorch", "--nodes", "2", "--batch-size", "2", "--image-size", "64"]
    controller = subprocess.Popen(
        [sys.executable, "-m", "harness", "run", *arguments, "--steps", "100000", "--output", str(tmp_path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:

        def measuring() -> bool:
            return any('"window"' in events.read_text() for events in tmp_path.glob("*/repeat-1/events/worker-1.jsonl"))

        wait_for(measuring, within_s=120)
        process = psutil.Process(controller.pid)
        before = process.cpu_times()
        time.sleep(WATCHED_S)
        after = process.cpu_times()
    finally:
        controller.terminate()
        controller.wait(timeout=30)
    used_s = after.user + after.system - before.user - before.system
    assert used_s / WATCHED_S < 0.01
