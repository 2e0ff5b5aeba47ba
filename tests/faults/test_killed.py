"""A process of the run is killed: the run fails, names it, and ends all others."""

import signal

import pytest

from tests.conftest import FEW_STEPS
from tests.faults.conftest import Begin
from tests.faults.matrix import each
from tests.faults.running import LONG, named
from tests.parity.conftest import Way

MANY_WARMUP_STEPS = ["--warmup", LONG, "--steps", "3"]
MANY_STEPS = ["--warmup", "1", "--steps", LONG]
HERE = ("local",)


@each("way, victim", HERE, "joining")
def test_a_process_killed_before_it_joins_fails_the_run_and_is_named(begin: Begin, way: Way, victim: str) -> None:
    run = begin(way, *FEW_STEPS)
    run.send(victim, signal.SIGKILL)
    run.end().failed_saying(f"{named(victim)} was killed by SIGKILL (last phase: started)")


@each("way, fault, victim", HERE, "warmup", "window")
def test_a_process_killed_while_all_take_steps_fails_the_run_and_is_named(
    begin: Begin, way: Way, fault: str, victim: str
) -> None:
    run = begin(way, *(MANY_WARMUP_STEPS if fault == "warmup" else MANY_STEPS))
    for worker in ("worker-0", "worker-1"):
        run.reaches(worker, fault)
    run.send(victim, signal.SIGKILL)
    run.end().failed_saying(f"{named(victim)} was killed by SIGKILL", last_phase(victim, fault))


@each("way, victim", HERE, "closing")
def test_a_process_killed_while_closing_fails_the_run_and_is_named(begin: Begin, way: Way, victim: str) -> None:
    """All times are taken by then, and are not used. A stopped worker keeps the others from leaving before the kill."""
    run = begin(way, *FEW_STEPS)
    stopped = victim if victim.startswith("worker") else "worker-0"
    run.pid(victim)
    run.reaches(stopped, "measured")
    run.send(stopped, signal.SIGSTOP)
    assert "closed" not in run.events(stopped)
    run.send(victim, signal.SIGKILL)
    run.end().failed_saying(f"{named(victim)} was killed by SIGKILL")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["pytorch torch mpi", "caffe2 caffe2 mpi"])
def test_shared_memory_of_mpi_is_gone_with_its_ranks(begin: Begin, backend: str) -> None:
    """Ranks of one node talk through files in /dev/shm, which outlive processes unless somebody removes them."""
    run = begin(backend, *MANY_STEPS, "--nodes", "1", "--devices-per-node", "2").in_the_window()
    shared = run.shared_memory("worker-0") | run.shared_memory("worker-1")
    assert shared
    run.send("worker-1", signal.SIGKILL)
    run.end().failed_saying("worker rank 1 on node0 was killed by SIGKILL")
    assert not [path for path in shared if path.exists()]


def last_phase(process: str, phase: str) -> str:
    """Servers know no phases after ``ready``."""
    return f"(last phase: {'ready' if process.startswith('ps') else phase})"
