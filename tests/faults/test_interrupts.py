"""Ctrl-C and its relatives: everything ends, the record says so, and there is no number."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.faults.conftest import Begin
from tests.faults.running import LONG, Run

MANY_STEPS = ["--warmup", "1", "--steps", LONG]


def in_the_window(run: Run) -> Run:
    for worker in ("worker-0", "worker-1"):
        run.pid(worker)
        run.reaches(worker, "window")
    return run


@pytest.mark.parametrize(
    ("backend", "sent"),
    [
        ("pytorch", signal.SIGINT),
        pytest.param("parameter_server", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("pytorch", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("pytorch", signal.SIGHUP, marks=pytest.mark.slow),
        pytest.param("pytorch torch mpi", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("distributed_replicated", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("multi_worker_mirrored", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("horovod tensorflow gloo", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("horovod torch mpi", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("horovod torch gloo", signal.SIGHUP, marks=pytest.mark.slow),
        pytest.param("caffe2 caffe2 gloo", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("caffe2 caffe2 mpi", signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_run_is_recorded_as_interrupted(begin: Begin, backend: str, sent: signal.Signals) -> None:
    run = in_the_window(begin(backend, *MANY_STEPS))
    run.process.send_signal(sent)
    run.end().was_interrupted_by(sent.name)


def test_ctrl_c_before_any_rank_is_ready_leaves_nothing(begin: Begin) -> None:
    run = begin("pytorch", *MANY_STEPS)
    run.pid("worker-0"), run.pid("worker-1")
    run.process.send_signal(signal.SIGINT)
    run.end().was_interrupted_by("SIGINT")


def test_impatient_ctrl_c_does_not_cut_the_cleaning_up_short(begin: Begin) -> None:
    """A stopped rank makes the cleaning up take its full three seconds."""
    run = in_the_window(begin("pytorch", *MANY_STEPS))
    run.send("worker-1", signal.SIGSTOP)
    for _ in range(5):
        run.process.send_signal(signal.SIGINT)
        run.process.send_signal(signal.SIGTERM)
    code = run.end().code
    assert code == 130
    assert run.record["status"] == "interrupted"


@pytest.mark.parametrize("backend", ["pytorch", pytest.param("caffe2", marks=pytest.mark.slow)])
def test_ranks_and_their_decoders_die_with_a_controller_that_is_killed(
    begin: Begin, images: Path, backend: str
) -> None:
    run = in_the_window(begin(backend, *MANY_STEPS, "--data", str(images), "--data-threads", "2"))
    run.process.kill()
    assert run.end().code == -signal.SIGKILL
    assert not (run.folder / "record.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "backend", ["multi_worker_mirrored", "pytorch torch mpi", "horovod tensorflow mpi", "caffe2 caffe2 mpi"]
)
def test_ranks_die_with_a_controller_that_is_killed(begin: Begin, backend: str) -> None:
    run = in_the_window(begin(backend, *MANY_STEPS))
    shared = run.shared_memory("worker-0") | run.shared_memory("worker-1")
    run.process.kill()
    assert run.end().code == -signal.SIGKILL
    for left in shared:  # MPICH's; the launcher would have removed it
        left.unlink(missing_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["parameter_server", "distributed_replicated", "torch_parameter_server torch gloo"])
def test_servers_die_with_a_controller_that_is_killed(begin: Begin, backend: str) -> None:
    run = in_the_window(begin(backend, *MANY_STEPS))
    run.pid("ps-0")
    run.process.kill()
    assert run.end().code == -signal.SIGKILL
