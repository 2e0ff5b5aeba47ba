"""Nothing waits for ever: the watchdog ends a repeat that takes too long, and says who was to blame."""

import signal
import time

import psutil
import pytest

from tests.faults.conftest import Begin
from tests.faults.running import LONG, named

# Enough to start, with other tests beside it: TensorFlow's processes, which take the longest, need a third of it.
TIMEOUT_S = "30"
MANY_STEPS = ["--warmup", "1", "--steps", LONG]
# One of each kind: the launcher finds who is stopped, whatever others wait with. TensorFlow's ways with servers wait alike.
STOPPED = [
    ("parameter_server", "worker-0"),
    ("parameter_server", "ps-0"),
    ("pytorch", "worker-1"),
    ("horovod torch gloo", "worker-0"),
    ("torch_parameter_server torch gloo", "ps-0"),
    ("torch_parameter_server torch mpi", "worker-1"),
    ("caffe2 caffe2 mpi", "worker-1"),  # the last, as its other worker keeps a core busy
]


@pytest.mark.slow
def test_processes_that_stop_in_the_window_are_named_after_the_time_limit(
    begin: Begin, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """They wait for their limits together: what is stopped takes nothing but time."""
    runs = []
    for backend, victim in STOPPED:
        folder = tmp_path_factory.mktemp("stopped")
        run = begin(backend, *MANY_STEPS, "--timeout", TIMEOUT_S, folder=folder).in_the_window()
        run.send(victim, signal.SIGSTOP)
        runs.append(run)
    for run, (_, victim) in zip(runs, STOPPED, strict=True):
        run.end().failed_saying(f"{named(victim)} is stopped: no end after {TIMEOUT_S} s (--timeout)")


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["gloo", "mpi"])
def test_servers_and_workers_on_pytorch_sleep_while_they_wait(begin: Begin, transport: str) -> None:
    """Whole machines of them share two cores under emulation; MPI's own ways to wait would keep a core busy each."""
    run = begin(f"torch_parameter_server torch {transport}", *MANY_STEPS).in_the_window()
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
    run = begin("multi_worker_mirrored", *MANY_STEPS, "--timeout", "240").in_the_window()
    run.send("worker-1", signal.SIGSTOP)
    run.end().failed_saying("failed: UnavailableError", "/job:worker/task:1", "stopped sending heartbeats")


def test_a_run_that_is_only_slow_is_ended_by_the_time_limit_too(begin: Begin) -> None:
    run = begin("pytorch", *MANY_STEPS, "--timeout", "1")
    run.end().failed_saying("is the furthest behind: no end after 1 s (--timeout)")
