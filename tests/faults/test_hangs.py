"""Nothing waits for ever: the watchdog ends a repeat that takes too long, and says who was to blame."""

from __future__ import annotations

import signal
import time

import psutil
import pytest

from tests.faults.conftest import Begin
from tests.faults.running import LONG

# Enough to start, with other tests beside it; TensorFlow's four processes take the longest.
TIMEOUT_S, TENSORFLOW_S = "40", "60"


@pytest.mark.parametrize(
    ("backend", "victim", "message"),
    [
        pytest.param("pytorch", "worker-1", "worker rank 1 on node1 is stopped", marks=pytest.mark.slow),
        pytest.param("parameter_server", "worker-0", "worker rank 0 on node0 is stopped", marks=pytest.mark.slow),
        pytest.param("parameter_server", "ps-0", "ps rank 0 on node0 is stopped", marks=pytest.mark.slow),
        pytest.param("horovod torch gloo", "worker-0", "worker rank 0 on node0 is stopped", marks=pytest.mark.slow),
        pytest.param(
            "torch_parameter_server torch gloo", "ps-0", "ps rank 0 on node0 is stopped", marks=pytest.mark.slow
        ),
        pytest.param(
            "torch_parameter_server torch mpi", "worker-1", "worker rank 1 on node1 is stopped", marks=pytest.mark.slow
        ),
        pytest.param("caffe2 caffe2 mpi", "worker-1", "worker rank 1 on node1 is stopped", marks=pytest.mark.slow),
    ],
)
def test_a_process_that_stops_in_the_window_is_named_after_the_time_limit(
    begin: Begin, backend: str, victim: str, message: str
) -> None:
    """One of each kind: the launcher finds who is stopped, whatever the others wait with.

    TensorFlow's two ways with servers wait alike.
    """
    timeout_s = TENSORFLOW_S if backend == "parameter_server" else TIMEOUT_S
    run = begin(backend, "--warmup", "1", "--steps", LONG, "--timeout", timeout_s)
    for worker in ("worker-0", "worker-1"):
        run.reaches(worker, "window")
    run.send(victim, signal.SIGSTOP)
    run.end().failed_saying(message, f"no end after {timeout_s} s (--timeout)")


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["gloo", "mpi"])
def test_servers_and_workers_on_pytorch_sleep_while_they_wait(begin: Begin, transport: str) -> None:
    """Whole machines of them share two cores under emulation; MPI's own ways to wait would keep a core busy each."""
    run = begin(f"torch_parameter_server torch {transport}", "--warmup", "1", "--steps", LONG)
    for worker in ("worker-0", "worker-1"):
        run.reaches(worker, "window")
    run.send("worker-1", signal.SIGSTOP)
    waiting = [psutil.Process(run.pid(name)) for name in ("worker-0", "ps-0")]
    time.sleep(3)  # until they have come to where they wait
    before = [process.cpu_times() for process in waiting]
    time.sleep(4)
    for process, (user, system, *_) in zip(waiting, before, strict=True):
        now = process.cpu_times()
        assert now.user + now.system - user - system < 0.05 * 4
    run.send("worker-0", signal.SIGKILL)
    run.end().failed_saying("worker rank 0 on node0 was killed by SIGKILL")


@pytest.mark.slow
def test_tensorflows_own_watchdog_is_quicker_and_names_the_worker_too(begin: Begin) -> None:
    """Its coordination service misses the heartbeats and ends the others; what it says of whom reaches the user."""
    run = begin("multi_worker_mirrored", "--warmup", "1", "--steps", LONG, "--timeout", "240")
    for worker in ("worker-0", "worker-1"):
        run.reaches(worker, "window")
    run.send("worker-1", signal.SIGSTOP)
    run.end().failed_saying("failed: UnavailableError", "/job:worker/task:1", "stopped sending heartbeats")


def test_a_run_that_is_only_slow_is_ended_by_the_time_limit_too(begin: Begin) -> None:
    run = begin("pytorch", "--warmup", "1", "--steps", LONG, "--timeout", "1")
    run.end().failed_saying("is the furthest behind: no end after 1 s (--timeout)")
