"""A run that others disturb still has its number, and says what disturbed it."""

import os
import signal
import subprocess
import sys
import time

import psutil

from tests.faults.conftest import Begin

STOPPED_S = 3.0
CORES = len(os.sched_getaffinity(0))


def test_a_busy_machine_and_a_rank_that_stops_for_seconds_are_noted(begin: Begin) -> None:
    slower = ["--model", "hep_cnn", "--image-size", "96"]  # steps of a tenth of a second
    run = begin("pytorch", *slower, "--warmup", "1", "--steps", "40").in_the_window()
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(CORES)]
    try:
        time.sleep(0.5)  # the window is open by now
        assert "measured" not in run.events("worker-1")
        run.send("worker-1", signal.SIGSTOP)
        time.sleep(STOPPED_S)
        took_s = sum(sum(psutil.Process(loop.pid).cpu_times()[:2]) for loop in loops)
        run.send("worker-1", signal.SIGCONT)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    run.end()
    assert run.code == 0, run.stderr
    (repeat,), disturbance = run.record["repeats"], run.record["derived"]["disturbance"]
    read = [rank["cores"] for rank in repeat["ranks"]]
    assert all(each["others_core_s"] > 0.8 * took_s for each in read)
    assert all(0 < each["own_core_s"] < each["interval_s"] * each["cores"] - 0.8 * took_s for each in read)
    step = disturbance["long_step"]
    assert STOPPED_S * 0.9 < step["step_s"] < STOPPED_S * 3
    assert f"step {step['step']} of repeat 1 took" in run.stdout
    assert disturbance["others"]["share"] > 0.05
    assert "others took" in run.stdout
