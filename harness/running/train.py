"""A training to an accuracy: the kind of work (see ``kinds``) with one repeat, whose progress is epochs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from harness import models
from harness.core.spec import RunSpec, Training
from harness.core.text import duration, plural
from harness.errors import InvalidInput
from harness.files import write_atomically
from harness.launch.watch import Followed, Watch
from harness.records.checks import Check, Epoch, TrainedRank, judge_training
from harness.records.training import LABELS, Figures, Resumed, TrainingRecord, derive, meets
from harness.running import measure
from harness.running.evidence import allotted, content, reported
from harness.running.prepare import Prepared
from harness.worker.agent.seating import Hosts
from harness.worker.inputs.errors import DataError
from harness.worker.sgd import Sgd

# Imported where it is used, as in ``measure``.
if TYPE_CHECKING:
    from harness.worker.inputs import index

RECORD = TrainingRecord
UNIT = "epochs"
EARLIER = "earlier-epochs.json"  # those before the checkpoint, which may be gone when the record is made
Epochs = TypeAdapter(list[Epoch])


class Inputs(NamedTuple):
    """What a training needs besides the plan: both sets of images, and the epochs before the checkpoint."""

    images: index.Index
    validation: index.Index
    earlier: list[Epoch]


@dataclass(frozen=True)
class Judged:
    """What the workers of a training say at its end."""

    ranks: list[TrainedRank]
    checks: list[Check]
    hosts: Hosts | None


def wanted(spec: RunSpec) -> bool:
    return spec.training is not None


def training_of(spec: RunSpec) -> Training:
    """How ``spec`` wants to train."""
    assert spec.training
    return spec.training


def planned(spec: RunSpec) -> int:
    return training_of(spec).epochs


def done(prepared: Prepared) -> int:
    return len(epochs_before(prepared.run_dir)) + len(_own_epochs(prepared))


@cache
def epochs_before(folder: Path) -> list[Epoch]:
    """The epochs before the checkpoint that the training of a run directory goes on from."""
    return Epochs.validate_json((folder / EARLIER).read_bytes())


def inputs(prepared: Prepared) -> Inputs:
    images = measure.inputs(prepared)
    assert images is not None
    return Inputs(images, validation_images(prepared.spec, images), earlier(prepared.spec))


def write_inputs(inputs: Inputs, folder: Path) -> None:
    from harness.worker.inputs import index

    index.write(inputs.images, folder / "images.index")
    index.write(inputs.validation, folder / "validation.index")
    write_atomically(folder / EARLIER, Epochs.dump_json(inputs.earlier).decode())


def named(number: int) -> str:
    return "the training"


def judge(prepared: Prepared, number: int, watch: Watch, started: str, ended: str, hosts: Hosts | None) -> Judged:
    ranks = [_trained(worker) for worker in watch.workers()]
    steps = sum(epoch.steps for epoch in _epochs(watch))
    updates = _expected_updates(prepared, steps)
    return Judged(ranks, judge_training(ranks, prepared.plan.world_size, steps, updates), hosts)


def _trained(worker: Followed) -> TrainedRank:
    started, trained, evidence, _ = reported(worker, "started", "trained", "evidence", "closed")
    evidence.pop("losses", None)
    return TrainedRank(rank=worker.process.rank, host=started["host"], steps=trained["steps"], evidence=evidence)


def record(prepared: Prepared, judged: list[Judged], complete: bool, facts: dict[str, Any]) -> TrainingRecord:
    from harness.worker.inputs import index

    folder, spec = prepared.run_dir, prepared.spec
    own, before = _own_epochs(prepared), epochs_before(folder)
    checkpoint = training_of(spec).resume
    resumed = Resumed(checkpoint=checkpoint, epochs=len(before)) if checkpoint else None
    figures = derive(spec, [*before, *own], resumed) if complete else Figures()
    ended = judged[0] if judged else Judged([], [], None)
    return TrainingRecord(
        schema="harness.training/1",
        training_images=len(index.read(folder / "images.index")),
        validation_images=len(index.read(folder / "validation.index")),
        expected_updates=_expected_updates(prepared, sum(epoch.steps for epoch in own)),
        ranks=ended.ranks,
        checks=ended.checks,
        epochs=[*before, *own],
        resumed=resumed,
        checkpoints=[str(path.relative_to(folder)) for path in checkpoints(folder)],
        **allotted(ended.hosts),
        **figures.model_dump(),
        **facts,
    )


def _own_epochs(prepared: Prepared) -> list[Epoch]:
    """The epochs of this run that have ended so far."""
    watch = Watch(prepared.plan, prepared.run_dir / "repeat-1")
    watch.poll()
    return _epochs(watch)


def _epochs(watch: Watch) -> list[Epoch]:
    """The epochs that rank 0 has reported."""
    return [Epoch(**content(event)) for event in next(watch.workers()).epochs]


def _expected_updates(prepared: Prepared, steps: int) -> int:
    return prepared.backend.expected_updates(prepared.spec.model_copy(update={"warmup_steps": 0, "steps": steps}))


def outcome(record: TrainingRecord) -> str:
    if record.reached:
        reached = record.reached
        return f"{LABELS[reached.metric]} {reached.target:.4g} after {duration(reached.time_s)}"
    if record.best_top1 is not None:
        return f"top-1 {record.best_top1:.4g} after {plural(record.epochs[-1].epoch, 'epoch')}"
    return ""


def continuation(folder: Path) -> str:
    return f"go on with the same command and --resume {folder}" if checkpoints(folder) else ""


# --- what a training needs --------------------------------------------------------------------------------------------


def validation_images(spec: RunSpec, training: index.Index) -> index.Index:
    """The validation images of a data set or in a folder of classes, with the labels that these have in training.

    Raises InvalidInput.
    """
    from harness.worker.inputs import index

    path = Path(training_of(spec).validation)
    classes = models.specification(spec.model).num_classes
    try:
        data_set = (path / "train").is_dir() or index.holds_shards(path)
        images = index.find(path, "validation", classes) if data_set else index.scan(path, classes)
        if isinstance(images, index.ImageIndex) and isinstance(training, index.ImageIndex):
            return index.labelled_as(training, images)
    except DataError as error:
        raise InvalidInput(f"--validation: {error}") from None
    except OSError as error:
        raise InvalidInput(f"--validation {path}: {error.strerror}") from None
    if type(images) is not type(training):
        raise InvalidInput(
            f"--validation {path}: training and validation images must both be in folders, whose names are those of the "
            "classes, or both in TFRecord shards"
        )
    return images


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run directory, by epoch."""
    return sorted(folder.glob("repeat-*/checkpoints/epoch-*.npz"), key=_epoch)


def _epoch(path: Path) -> int:
    return int(re.sub(r"\D", "", path.stem) or 0)


def find_checkpoint(path: Path) -> Path:
    """A checkpoint file, or the last one of a run directory, as an absolute path. Raises InvalidInput."""
    if not path.is_dir():
        if not path.exists():
            raise InvalidInput(f"--resume {path}: no such file or folder")
        return path.absolute()
    # What a requeued job has left is below set-aside/.
    there = checkpoints(path) or sorted(path.glob("set-aside/*/repeat-*/checkpoints/epoch-*.npz"), key=_epoch)
    if not there:
        raise InvalidInput(f"--resume {path}: there is no checkpoint in it; its first epoch has not ended")
    return there[-1].absolute()


def earlier(spec: RunSpec) -> list[Epoch]:
    """The epochs before the checkpoint that a training goes on from; none without a checkpoint.

    Raises InvalidInput for a checkpoint that does not fit the spec, or leaves nothing to do.
    """
    training = training_of(spec)
    if training.resume is None:
        return []
    from harness.worker import checkpoint

    try:
        _, history = checkpoint.read(training.resume, models.specification(spec.model), Sgd.of(spec.model_dump()))
        epochs = [Epoch(**reported) for reported in history]
    except (checkpoint.BadCheckpoint, ValidationError) as error:
        raise InvalidInput(f"--resume: {error}") from None
    if len(epochs) >= training.epochs:
        raise InvalidInput(
            f"--resume {training.resume}: {len(epochs)} epochs are done, of --epochs {training.epochs}; give more"
        )
    if done := next((epoch for epoch in epochs if meets(training.until, epoch)), None):
        raise InvalidInput(f"--resume {training.resume}: --until was reached in epoch {done.epoch} already")
    return epochs
