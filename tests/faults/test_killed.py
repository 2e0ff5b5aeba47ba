"""A process of the run is killed: the run fails, names it, and ends all others."""

from __future__ import annotations

import signal

import pytest

from tests.faults.conftest import Begin
from tests.faults.running import LONG

slow = pytest.mark.slow
MANY_WARMUP_STEPS = ["--warmup", LONG, "--steps", "3"]
MANY_STEPS = ["--warmup", "1", "--steps", LONG]
FEW_STEPS = ["--warmup", "1", "--steps", "3"]


@pytest.mark.parametrize(
    ("backend", "victim"),
    [
        ("pytorch", "worker-1"),
        pytest.param("parameter_server", "ps-0", marks=slow),
        pytest.param("multi_worker_mirrored", "worker-0", marks=slow),
        pytest.param("horovod tensorflow mpi", "worker-0", marks=slow),
        pytest.param("horovod torch gloo", "worker-0", marks=slow),
        pytest.param("caffe2 caffe2 mpi", "worker-0", marks=slow),
    ],
)
def test_a_process_killed_in_warm_up_fails_the_run_and_is_named(begin: Begin, backend: str, victim: str) -> None:
    """One of each kind: a step of the warm-up is a step of the window, in which every backend loses every process."""
    run = begin(backend, *MANY_WARMUP_STEPS)
    for worker in ("worker-0", "worker-1"):
        run.reaches(worker, "warmup")
    run.send(victim, signal.SIGKILL)
    run.end().failed_saying(f"{named(victim)} was killed by SIGKILL", last_phase(victim, "warmup"))


@pytest.mark.parametrize(
    ("backend", "victim"),
    [
        ("parameter_server", "ps-0"),
        pytest.param("parameter_server", "worker-0", marks=slow),
        pytest.param("parameter_server", "worker-1", marks=slow),
        pytest.param("pytorch", "worker-0", marks=slow),
        pytest.param("pytorch", "worker-1", marks=slow),
        ("pytorch torch mpi", "worker-1"),
        pytest.param("pytorch torch mpi", "worker-0", marks=slow),
        pytest.param("distributed_replicated", "worker-1", marks=slow),
        ("distributed_replicated", "ps-0"),
        pytest.param("distributed_replicated", "worker-0", marks=slow),
        pytest.param("multi_worker_mirrored", "worker-1", marks=slow),
        pytest.param("multi_worker_mirrored", "worker-0", marks=slow),
        pytest.param("horovod tensorflow mpi", "worker-1", marks=slow),
        pytest.param("horovod tensorflow gloo", "worker-0", marks=slow),
        pytest.param("horovod torch mpi", "worker-0", marks=slow),
        ("horovod torch gloo", "worker-1"),
        pytest.param("horovod torch gloo", "worker-0", marks=slow),
        ("caffe2 caffe2 gloo", "worker-1"),
        pytest.param("caffe2 caffe2 gloo", "worker-0", marks=slow),
        pytest.param("caffe2 caffe2 mpi", "worker-1", marks=slow),
    ],
)
def test_a_process_killed_in_the_window_fails_the_run_and_is_named(begin: Begin, backend: str, victim: str) -> None:
    run = begin(backend, *MANY_STEPS)
    for worker in ("worker-0", "worker-1"):
        run.reaches(worker, "window")
    run.send(victim, signal.SIGKILL)
    run.end().failed_saying(f"{named(victim)} was killed by SIGKILL", last_phase(victim, "window"))


@pytest.mark.parametrize(
    ("backend", "victim"),
    [
        ("pytorch", "worker-0"),
        pytest.param("pytorch", "worker-1", marks=slow),
        pytest.param("parameter_server", "worker-0", marks=slow),
        pytest.param("parameter_server", "worker-1", marks=slow),
        pytest.param("parameter_server", "ps-0", marks=slow),
        pytest.param("pytorch torch mpi", "worker-1", marks=slow),
        pytest.param("distributed_replicated", "ps-0", marks=slow),
        pytest.param("multi_worker_mirrored", "worker-1", marks=slow),
        pytest.param("horovod tensorflow gloo", "worker-1", marks=slow),
        pytest.param("horovod torch mpi", "worker-1", marks=slow),
        pytest.param("caffe2 caffe2 gloo", "worker-0", marks=slow),
        pytest.param("caffe2 caffe2 mpi", "worker-1", marks=slow),
    ],
)
def test_a_process_killed_while_closing_fails_the_run_and_is_named(begin: Begin, backend: str, victim: str) -> None:
    """All times are taken by then, and are not used. A stopped worker keeps the others from leaving before the kill."""
    run = begin(backend, *FEW_STEPS)
    stopped = victim if victim.startswith("worker") else "worker-0"
    run.pid(victim)
    run.reaches(stopped, "measured")
    run.send(stopped, signal.SIGSTOP)
    assert "closed" not in run.events(stopped)
    run.send(victim, signal.SIGKILL)
    run.end().failed_saying(f"{named(victim)} was killed by SIGKILL")


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend",
    [
        "parameter_server",
        "distributed_replicated",
        "multi_worker_mirrored",
        "pytorch torch mpi",
        "horovod tensorflow gloo",
        "horovod torch mpi",
        "caffe2 caffe2 gloo",
        "caffe2 caffe2 mpi",
    ],
)
def test_a_process_killed_before_it_joins_fails_the_run_and_is_named(begin: Begin, backend: str) -> None:
    run = begin(backend, *FEW_STEPS)
    run.send("worker-1", signal.SIGKILL)
    run.end().failed_saying("worker rank 1 on node1 was killed by SIGKILL (last phase: started)")


@slow
@pytest.mark.parametrize("backend", ["pytorch torch mpi", "caffe2 caffe2 mpi"])
def test_shared_memory_of_mpi_is_gone_with_its_ranks(begin: Begin, backend: str) -> None:
    """Ranks of one node talk through files in /dev/shm, which outlive processes unless somebody removes them."""
    run = begin(backend, *MANY_STEPS, "--nodes", "1", "--devices-per-node", "2")
    for worker in ("worker-0", "worker-1"):
        run.reaches(worker, "window")
    shared = run.shared_memory("worker-0") | run.shared_memory("worker-1")
    assert shared
    run.send("worker-1", signal.SIGKILL)
    run.end().failed_saying("worker rank 1 on node0 was killed by SIGKILL")
    assert not [path for path in shared if path.exists()]


def named(process: str) -> str:
    """``worker-1`` as messages call it. Worker i and server i sit on node i."""
    role, rank = process.split("-")
    return f"{role} rank {rank} on node{rank}"


def last_phase(process: str, phase: str) -> str:
    """Servers know no phases after ``ready``."""
    return f"(last phase: {'ready' if process.startswith('ps') else phase})"
