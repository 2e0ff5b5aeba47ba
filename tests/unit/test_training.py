"""Trainings to an accuracy: what is asked for, and what a record of one has to hold."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from harness import models
from harness.core.spec import RunSpec, Training, usual_decays
from harness.core.validation import checked
from harness.errors import InvalidInput
from harness.records.record import judge_ranks
from harness.records.training import Epoch, Resumed, TrainedRank, TrainingRecord, derive
from harness.report.text import outcomes
from harness.running.kinds import earlier, find_checkpoint, validation_images
from harness.running.study import StudyPoint
from harness.worker import checkpoint
from harness.worker.inputs import index
from tests.conftest import Harness
from tests.made import edited, read, save, store
from tests.made import record as measured
from tests.wording import Case, Wording, cases

IMAGES, VALIDATION, BATCH, WORKERS = 100, 40, 16, 2
STEPS = 4  # ceil(100 / 32)


def spec(**training: Any) -> RunSpec:
    fields = {"epochs": 3, "validation": "/data/val"} | training
    return RunSpec(
        backend="pytorch",
        model="mnist_cnn",
        nodes=WORKERS,
        batch_size=BATCH,
        image_size=28,
        data="/data",
        repeats=1,
        training=checked(Training, fields),
    )


def epoch(number: int, top1: float, epochs: int = 3) -> Epoch:
    return Epoch(
        epoch=number,
        epochs=epochs,
        steps=STEPS,
        loss=1 / number,
        rate=0.1,
        top1=top1,
        top5=min(1.0, top1 + 0.1),
        validation_loss=1.0,
        images=VALIDATION,
        train_s=2.0 * number,
        elapsed_s=3.0 * number,
        img_per_s=STEPS * BATCH * WORKERS / 2.0,
    )


def record(
    wanted: RunSpec, epochs: list[Epoch], resumed: Resumed | None = None, joules: Sequence[float] = ()
) -> TrainingRecord:
    """A completed training; its own epochs are those after the checkpoint. The first rank reads their ``joules``."""
    steps = STEPS * (len(epochs) - (resumed.epochs if resumed else 0))
    evidence = {"digest": "d", "finite": True, "changed": True, "loss": 0.5, "updates": steps, "world_size": WORKERS}
    ranks = [TrainedRank(rank=rank, host=f"nid{rank}", steps=steps, evidence=evidence) for rank in range(WORKERS)]
    ranks[0] = ranks[0].model_copy(update={"energy": [read(used, 2.0) for used in joules]})
    workers = [{"role": "worker", "devices": 1, "rank": rank} for rank in range(WORKERS)]
    return TrainingRecord(
        schema="harness.training/1",
        id="20260101-000000-pytorch-mnist_cnn-n2-00000000",
        status="completed",
        reason=None,
        spec=wanted,
        plan={"world_size": WORKERS, "processes": workers},
        training_images=IMAGES,
        validation_images=VALIDATION,
        expected_updates=steps,
        ranks=ranks,
        checks=judge_ranks(ranks, [steps] * WORKERS, WORKERS, steps, steps),
        epochs=epochs,
        resumed=resumed,
        checkpoints=["repeat-1/checkpoints/epoch-0003.npz"],
        machine={},
        software={},
        variables={},
        harness={},
        started="2026-01-01T00:00:00.000+00:00",
        ended="2026-01-01T00:01:00.000+00:00",
        **derive(wanted, epochs, resumed, ranks).model_dump(),
    )


UNTIL = {"metric": "top1", "value": 0.7}


# --- what is asked for ------------------------------------------------------------------------------------------------


def test_fewer_epochs_shorten_the_schedule_alike() -> None:
    assert (spec(epochs=90).training.warmup_epochs, spec(epochs=90).training.decay_epochs) == (5.0, (30, 60, 80))
    assert (spec(epochs=9).training.warmup_epochs, spec(epochs=9).training.decay_epochs) == (0.9, (3, 6, 8))
    assert [usual_decays(epochs) for epochs in (1, 2, 3, 5)] == [(), (1,), (1, 2), (2, 3, 4)]
    assert spec(epochs=9, decay_epochs=[5]).training.decay_epochs == (5,)


def test_the_spec_of_a_measurement_says_nothing_of_training_so_that_its_keys_stay_the_same() -> None:
    measurement = RunSpec(backend="pytorch", nodes=2)
    assert "training" not in measurement.model_dump()
    assert "training" not in json.loads(measurement.model_dump_json())
    assert StudyPoint(measurement, "").id != StudyPoint(spec(), "").id
    assert RunSpec.model_validate_json(spec().model_dump_json()) == spec()


@cases
def test_a_training_that_cannot_be_is_refused_in_one_line(refused: Harness, data: Path, case: Case) -> None:
    case.refused(refused(*case.words(DATA=data)), DATA=data)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three classes to train, of which the validation images have the last two."""
    for part, classes in (("train", "abc"), ("val", "bc")):
        for name in classes:
            folder = tmp_path / "data" / part / name
            folder.mkdir(parents=True)
            Image.new("RGB", (32, 32)).save(folder / "1.JPEG")
    return tmp_path / "data"


def test_validation_images_are_found_beside_the_others_and_have_the_labels_of_training(
    data: Path, wording: Wording
) -> None:
    training = index.find(data, "train")
    for path in (data, data / "val"):
        found = validation_images(spec(validation=str(path)), training)
        assert isinstance(found, index.ImageIndex)
        assert list(zip(found.paths, found.labels, strict=True)) == [("b/1.JPEG", 2), ("c/1.JPEG", 3)]
    with wording("--validation").raises(InvalidInput, DATA=data):
        (data / "val").rename(data / "held-out")
        validation_images(spec(validation=str(data)), training)
    (data / "held-out" / "c").rename(data / "held-out" / "d")
    with wording("held-out").raises(InvalidInput, DATA=data):
        validation_images(spec(validation=str(data / "held-out")), training)


# --- going on from a checkpoint ---------------------------------------------------------------------------------------


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """What a training of two epochs has left."""
    model = models.specification("mnist_cnn")
    values = {tensor.name: np.zeros(tensor.shape, np.float32) for tensor in (*model.tensors, *model.statistics)}
    values |= {f"velocity/{tensor.name}": values[tensor.name] for tensor in model.tensors}
    folder = tmp_path / "run" / "repeat-1"
    folder.mkdir(parents=True)
    done = [epoch(1, 0.5), epoch(2, 0.6)]
    for last in (1, 2):
        checkpoint.write(folder / "checkpoints", values, [one.model_dump() for one in done[:last]])
    return tmp_path / "run"


def test_the_last_checkpoint_of_a_run_directory_is_gone_on_from(run_dir: Path) -> None:
    newest = find_checkpoint(run_dir)
    assert newest == run_dir / "repeat-1/checkpoints/epoch-0002.npz"
    assert find_checkpoint(newest) == newest
    assert [one.epoch for one in earlier(spec(resume=str(newest), until=UNTIL))] == [1, 2]


@cases
def test_a_checkpoint_that_does_not_fit_is_refused(run_dir: Path, case: Case) -> None:
    change = eval(f"dict({case.request})")
    wanted = spec(resume=str(find_checkpoint(run_dir)), **change.pop("training", {})).model_copy(update=change)
    with case.raises(InvalidInput, HERE=run_dir):
        earlier(wanted)


def test_a_file_that_is_no_checkpoint_is_refused(run_dir: Path, wording: Wording) -> None:
    newest = find_checkpoint(run_dir)
    np.save(one_array := run_dir / "one.npy", np.zeros(3))
    for content in (newest.read_bytes()[:-100], b"", one_array.read_bytes()):
        newest.write_bytes(content)
        with wording("--resume").raises(InvalidInput, RUN=run_dir):
            earlier(spec(resume=str(newest)))


# --- the record -------------------------------------------------------------------------------------------------------


def test_time_to_accuracy_is_that_of_the_first_epoch_with_the_accuracy(tmp_path: Path) -> None:
    made = record(spec(until=UNTIL), [epoch(1, 0.5), epoch(2, 0.75)])
    assert made.reached and made.problem is None
    assert (made.reached.epoch, made.reached.steps, made.reached.time_s, made.reached.train_s) == (2, 8, 6.0, 4.0)
    assert (made.time_to_accuracy_s, made.best_top1, made.img_per_s) == (6.0, 0.75, 64.0)
    made.write(tmp_path)
    assert TrainingRecord.read(tmp_path) == made


def test_trainings_to_an_accuracy_have_a_table_of_their_own(tmp_path: Path, harness: Harness, wording: Wording) -> None:
    (folder := tmp_path / "runs" / "reached").mkdir(parents=True)
    record(spec(until=UNTIL), [epoch(1, 0.5), epoch(2, 0.75)]).write(folder)
    save(tmp_path / "runs", [measured("pytorch")])
    table = harness("table", "runs").succeeded().stdout
    throughput, accuracy = table.split("Trainings to an accuracy; img/s are those while they trained:")
    assert "mnist_cnn" not in throughput
    (row,) = re.findall(r"^pytorch .*$", accuracy, re.MULTILINE)
    assert row.split()[1:8] == ["mnist_cnn", "2", "2", "3", "top-1", "0.7", "6.0"] and "0.75" in row and "64.00" in row
    *_, point = json.loads(harness("table", "runs", "--json").succeeded().stdout)
    assert (point["target"], point["top1"]) == ("top-1 0.7", 0.75)
    assert (point["time_to_accuracy_s"], point["rate"]) == (6.0, 64.0)
    assert "mnist_cnn" not in harness("best", "runs", "--details").succeeded().stdout
    wording("best").refused(harness("best", str(folder)), FOLDER=folder)


def test_a_training_that_stays_below_says_how_far_it_came() -> None:
    made = record(spec(until=UNTIL), [epoch(1, 0.5), epoch(2, 0.65), epoch(3, 0.6)])
    assert made.status == "completed" and made.time_to_accuracy_s is None
    assert made.problem == "top-1 reached 0.65 (epoch 2), not 0.7 in 3 epochs"
    nearly = spec(until={"metric": "top1", "value": 0.99999})
    assert (record(nearly, made.epochs).problem or "").endswith("not 0.99999 in 3 epochs")


def test_joules_to_the_accuracy_are_those_of_the_steps_until_then(tmp_path: Path) -> None:
    trained = record(spec(until=UNTIL), [epoch(1, 0.5), epoch(2, 0.75)], joules=[100.0, 156.0])
    assert trained.energy and trained.energy.joules and trained.energy.joules.values == (100.0, 156.0)
    assert trained.joules_to_accuracy == 256.0
    shown = outcomes.training(trained, tmp_path)
    assert "1 J/img while training, 256 J to top-1 0.7 of package (powercap)" in shown
    whole = record(spec(), [epoch(number, 0.6) for number in (1, 2, 3)], joules=[128.0] * 3)
    assert "1 J/img while training, 384 J in 3 epochs of package" in outcomes.training(whole, tmp_path)
    assert "energy" not in outcomes.training(record(spec(until=UNTIL), trained.epochs), tmp_path)


def test_joules_of_a_resumed_training_are_its_own_and_reach_no_accuracy(tmp_path: Path) -> None:
    resumed = Resumed(checkpoint="/elsewhere/epoch-0001.npz", epochs=1)
    went_on = record(spec(until=UNTIL), [epoch(1, 0.5), epoch(2, 0.75)], resumed, joules=[128.0])
    assert went_on.reached and went_on.joules_to_accuracy is None
    assert "1 J/img while training, 128 J in 1 epoch of package" in outcomes.training(went_on, tmp_path)


def test_a_rank_has_to_have_read_every_epoch(wording: Wording) -> None:
    with wording("joules").raises(ValueError):
        record(spec(until=UNTIL), [epoch(1, 0.5), epoch(2, 0.75)], joules=[128.0])


def test_a_resumed_training_counts_from_the_first_step_of_all_and_its_own_img_per_s() -> None:
    resumed = Resumed(checkpoint="/elsewhere/epoch-0001.npz", epochs=1)
    slower = epoch(1, 0.5).model_copy(update={"train_s": 1.0, "img_per_s": 1.0, "steps": 99})  # on another machine
    made = record(spec(until=UNTIL), [slower, epoch(2, 0.75).model_copy(update={"train_s": 3.0})], resumed)
    assert made.reached and (made.reached.steps, made.reached.time_s) == (99 + STEPS, 6.0)
    assert made.img_per_s == 64.0


@cases
def test_a_record_that_was_tampered_with_is_refused(tmp_path: Path, case: Case) -> None:
    document = json.loads(record(spec(until=UNTIL), [epoch(1, 0.5), epoch(2, 0.75)]).to_json())
    changed = edited(document, case.request)
    assert changed != document
    file = tmp_path / TrainingRecord.file_name
    store(file, changed)
    with case.raises(InvalidInput, FILE=file):
        TrainingRecord.read(file)
