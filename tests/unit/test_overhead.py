"""The controller must not disturb what it measures."""

import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.faults.running import LONG, Run

WATCHED_S = 10.0


@pytest.mark.alone
@pytest.mark.slow
def test_the_controller_uses_less_than_one_percent_of_a_core_while_a_run_is_measured(
    environment: Callable[[str], Path], tmp_path: Path
) -> None:
    environment("pytorch")
    run = Run(tmp_path, "--backend", "pytorch", "--nodes", "2", "--warmup", "1", "--steps", LONG)
    try:
        run.in_the_window()
        controller = psutil.Process(run.process.pid)
        before = controller.cpu_times()
        time.sleep(WATCHED_S)
        after = controller.cpu_times()
    finally:
        run.process.terminate()
        run.end()
    used_s = after.user + after.system - before.user - before.system
    assert used_s / WATCHED_S < 0.01
