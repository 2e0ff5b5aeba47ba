"""Backends learn: the same accuracy from the same global batch, also after a training was stopped in the middle."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.records import training
from tests.conftest import Harness
from tests.faults.running import Run

from .conftest import Train

# Of 360 images 9 in 10 are right, so an accuracy has a standard deviation of 1.6 % for that alone; 5 runs differ by more
# than four times that once in a thousand.
TOLERANCE = 0.07


@pytest.mark.slow
@pytest.mark.exhaustive  # minutes; the next one reaches an accuracy in two backends, too
def test_two_backends_reach_the_same_accuracy_with_one_worker_and_with_two(
    harness: Harness, train: Train, environment: Callable[..., Path]
) -> None:
    reached: dict[tuple[str, int], float] = {}
    for backend in ("pytorch", "parameter_server"):
        environment(backend)
        for workers in (1, 2):
            record = harness(*train(backend, workers, "--json")).succeeded().json
            assert [epoch["epoch"] for epoch in record["epochs"]] == [1, 2, 3]
            assert all(check["passed"] for check in record["checks"])
            reached[backend, workers] = record["epochs"][-1]["top1"]
    assert min(reached.values()) > 0.8, reached
    assert max(reached.values()) - min(reached.values()) < TOLERANCE, reached


@pytest.mark.slow
def test_a_training_that_is_killed_and_interrupted_goes_on_in_another_backend_and_reaches_its_accuracy(
    tmp_path: Path, harness: Harness, train: Train, environment: Callable[..., Path]
) -> None:
    for backend in ("pytorch", "parameter_server"):
        environment(backend)
    wanted = ["--until", "top1=0.92", "--decay-epochs", "8", "--epochs", "30"]
    high = ["--until", "top1=0.999", "--epochs", "1000", "--decay-epochs", "none"]

    killed = begun(tmp_path / "killed", train("pytorch", 2, *high))
    reaches_epoch(killed, 1)
    killed.send("worker-1", signal.SIGKILL)
    assert killed.end().code == 1
    assert "worker rank 1" in killed.stderr and "was killed by SIGKILL (last phase: training)" in killed.stderr
    assert f"--resume {killed.folder}" in killed.stderr
    first = record_of(killed)
    assert (first["status"], first["reached"], first["time_to_accuracy_s"]) == ("failed", None, None)
    done = len(first["epochs"])
    assert done >= 1

    # One worker with twice the batch goes on where two have stopped.
    interrupted = begun(tmp_path / "interrupted", train("pytorch", 1, *high, "--resume", str(killed.folder)))
    reaches_epoch(interrupted, done + 1)
    interrupted.process.send_signal(signal.SIGINT)
    assert (interrupted.end().code, record_of(interrupted)["status"]) == (130, "interrupted")
    assert f"--resume {interrupted.folder}" in interrupted.stderr

    resumed = ["--resume", str(interrupted.folder), "--json", "--output", "last"]
    last = harness(*train("parameter_server", 2, *wanted, *resumed)).succeeded().json
    before = record_of(interrupted)["epochs"]
    assert last["resumed"]["epochs"] == len(before)
    assert last["epochs"][: len(before)] == before
    assert last["reached"]["epoch"] == last["epochs"][-1]["epoch"] > len(before)
    assert last["time_to_accuracy_s"] == last["epochs"][-1]["elapsed_s"] > before[-1]["elapsed_s"]


def begun(folder: Path, command: list[str]) -> Run:
    folder.mkdir()
    return Run(folder, command=command)


def reaches_epoch(run: Run, epoch: int) -> None:
    """Wait until the checkpoint of an epoch is there."""
    run.eventually(lambda: (run.folder / "repeat-1" / "checkpoints" / f"epoch-{epoch:04}.npz").stat())


def record_of(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run.folder / training.TrainingRecord.file_name).read_text())
    return found


@pytest.mark.slow
def test_an_accuracy_that_is_not_reached_is_told_with_exit_code_1_and_a_complete_record(
    tmp_path: Path, harness: Harness, train: Train, environment: Callable[..., Path]
) -> None:
    environment("pytorch")
    done = harness(*train("pytorch", 1, "--epochs", "1", "--until", "top1=0.999"))
    (folder,) = (tmp_path / "runs").iterdir()
    record = training.TrainingRecord.read(folder)
    assert done.code == 1
    assert f"pytorch: {record.problem}" in done.stderr and "not 0.999 in 1 epoch" in done.stderr
    assert (record.status, record.reached, len(record.epochs)) == ("completed", None, 1)
