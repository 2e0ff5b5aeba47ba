"""One training from spec to record: what it needs besides a measurement, and what becomes of its processes' reports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import TypeAdapter, ValidationError

from harness import models
from harness.core.spec import RunSpec, Training
from harness.errors import InvalidInput, RunFailed
from harness.files import write_atomically
from harness.launch.watch import Watch
from harness.records import training as training_record
from harness.records.checks import Check, Epoch, Trained, judge_training
from harness.records.training import Figures, Resumed, TrainingRecord, derive, meets
from harness.running.run import AnyRun, Prepared, cannot_write, reason_of, status_of
from harness.worker.agent.seating import Hosts
from harness.worker.inputs.errors import DataError
from harness.worker.sgd import Sgd

# Imported where it is used, as in harness.run.
if TYPE_CHECKING:
    from harness.worker.inputs import index

REPORTS = {"started", "trained", "evidence", "closed"}
EARLIER = "earlier-epochs.json"  # those before the checkpoint, which may be gone when the record is made
Earlier = TypeAdapter(list[Epoch])


@dataclass
class TrainingRun(AnyRun):
    """A training to an accuracy. It has one repeat."""

    validation: index.Index | None = None
    earlier: list[Epoch] = field(default_factory=list)
    ranks: list[Trained] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    hosts: Hosts | None = None

    @property
    def training(self) -> Training:
        """How it is trained."""
        assert self.spec.training
        return self.spec.training

    @cached_property
    def before(self) -> list[Epoch]:
        """The epochs before the checkpoint that it goes on from, once it has begun."""
        return Earlier.validate_json((self.folder / EARLIER).read_bytes())

    @property
    def unit(self) -> str:
        """What its progress is counted in."""
        return "epochs"

    @property
    def planned(self) -> int:
        """How many of them there are to be, at most."""
        return self.training.epochs

    def done(self) -> int:
        """How many of them have ended."""
        return len(self.before) + len(_reported(self._watch()))

    @property
    def record_file(self) -> Path:
        """Where its record is, or will be."""
        return self.folder / training_record.FILE_NAME

    def read(self) -> TrainingRecord:
        """Its record, verified. Raises InvalidInput."""
        return training_record.read(self.record_file)

    @classmethod
    def checked(cls, prepared: Prepared) -> Self:
        """A run whose environment, images and checkpoint are there. Raises InvalidInput; writes nothing."""
        run = super().checked(prepared)
        assert run.images is not None
        run.validation = validation_images(run.spec, run.images)
        run.earlier = earlier(run.spec)
        return run

    def write_inputs(self) -> None:
        """Write what the workers and ``finish`` need into the run directory. Raises DataError, OSError."""
        from harness.worker.inputs import index

        super().write_inputs()
        assert self.validation is not None
        index.write(self.validation, self.folder / "validation.index")
        write_atomically(self.folder / EARLIER, Earlier.dump_json(self.earlier).decode())

    def forget(self) -> None:
        """Let go of what was taken so far: it is going to be taken again."""
        self.ranks, self.checks, self.hosts = [], [], None

    def take(self, number: int, watch: Watch, started: str, ended: str, hosts: Hosts | None = None) -> None:
        """Judge what the processes have reported, all of which ended with code 0, and keep it.

        Raises RunFailed when a check does not pass.
        """
        self.ranks, self.hosts = _ranks(watch), hosts
        self.software = watch.followed[0].events["software"]
        steps = sum(epoch.steps for epoch in _reported(watch))
        self.checks = judge_training(self.ranks, self.prepared.plan.world_size, steps, self._expected_updates(steps))
        if failed := [f"{check.name}: {check.detail}" for check in self.checks if not check.passed]:
            raise RunFailed(f"the training does not count: {'; '.join(failed)}")

    def finish(self, error: BaseException | None = None) -> TrainingRecord:
        """Write the record, with every epoch that was measured; its figures only when all is there and valid."""
        from harness.worker.inputs import index

        own = _reported(self._watch())
        before, resume = self.before, self.training.resume
        resumed = Resumed(checkpoint=resume, epochs=len(before)) if resume else None
        figures = derive(self.spec, [*before, *own], resumed) if error is None else Figures()
        record = TrainingRecord(
            schema="harness.training/1",
            status=status_of(error),
            reason=reason_of(error),
            training_images=len(index.read(self.folder / "images.index")),
            validation_images=len(index.read(self.folder / "validation.index")),
            expected_updates=self._expected_updates(sum(epoch.steps for epoch in own)),
            ranks=self.ranks,
            checks=self.checks,
            epochs=[*before, *own],
            resumed=resumed,
            checkpoints=[str(path.relative_to(self.folder)) for path in checkpoints(self.folder)],
            job=self.hosts.job if self.hosts else None,
            restart=self.hosts.restart if self.hosts else 0,
            nodes=[name for name, _ in self.hosts.nodes] if self.hosts else [],
            **figures.model_dump(),
            **self.facts(),
        )
        try:
            training_record.write(record, self.folder)
        except OSError as problem:
            raise cannot_write(problem, self.folder, error) from None
        return record

    def _watch(self) -> Watch:
        watch = Watch(self.prepared.plan, self.folder / "repeat-1")
        watch.poll()
        return watch

    def _expected_updates(self, steps: int) -> int:
        done = self.spec.model_copy(update={"warmup_steps": 0, "steps": steps})
        return self.prepared.backend.expected_updates(done)


def _without(event: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in names}


def _reported(watch: Watch) -> list[Epoch]:
    """The epochs that rank 0 has reported so far."""
    rank0 = next(watch.workers())
    return [Epoch(**_without(event, "event", "time")) for event in rank0.epochs]


def _ranks(watch: Watch) -> list[Trained]:
    """What the workers say at the end. Every one has ended with code 0, so what is missing is a defect of the trainer."""
    ranks = []
    for worker in watch.workers():
        if missing := REPORTS - set(worker.events):
            raise RunFailed(f"worker rank {worker.process.rank} ended without reporting {', '.join(sorted(missing))}")
        ranks.append(
            Trained(
                rank=worker.process.rank,
                host=worker.events["started"]["host"],
                steps=worker.events["trained"]["steps"],
                evidence=_without(worker.events["evidence"], "event", "time", "losses"),
            )
        )
    return ranks


# --- what a training needs --------------------------------------------------------------------------------------------


def validation_images(spec: RunSpec, training: index.Index) -> index.Index:
    """The validation images of a data set or in a folder of classes, with the labels that these have in training.

    Raises InvalidInput.
    """
    from harness.worker.inputs import index, shards

    assert spec.training
    path = Path(spec.training.validation)
    classes = models.specification(spec.model).num_classes
    try:
        data_set = (path / "train").is_dir() or shards.there_are(path)
        found = index.find(path, "validation", classes) if data_set else index.scan(path, classes)
    except DataError as error:
        raise InvalidInput(f"--validation: {error}") from None
    except OSError as error:
        raise InvalidInput(f"--validation {path}: {error.strerror}") from None
    if isinstance(found, index.ImageIndex) and isinstance(training, index.ImageIndex):
        return _labelled_as(training, found)
    if type(found) is not type(training):
        raise InvalidInput(
            f"--validation {path}: training and validation images must both be in folders, whose names are those of the "
            "classes, or both in TFRecord shards"
        )
    return found


def _labelled_as(training: index.ImageIndex, found: index.ImageIndex) -> index.ImageIndex:
    """``found`` with its classes' labels in ``training``. Raises InvalidInput for a class that is not there."""
    labels = dict(zip(map(_class, training.paths), training.labels, strict=True))
    if unknown := sorted({name for name in map(_class, found.paths) if name not in labels}):
        raise InvalidInput(f"--validation: {found.root}/{unknown[0]} is a class that {training.root} does not have")
    return replace(found, labels=[labels[_class(name)] for name in found.paths])


def _class(path: str) -> str:
    return path.partition("/")[0]


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
    found = checkpoints(path) or sorted(path.glob("set-aside/*/repeat-*/checkpoints/epoch-*.npz"), key=_epoch)
    if not found:
        raise InvalidInput(f"--resume {path}: there is no checkpoint in it; its first epoch has not ended")
    return found[-1].absolute()


def earlier(spec: RunSpec) -> list[Epoch]:
    """The epochs before the checkpoint that a training shall go on from; none without one.

    Raises InvalidInput for a checkpoint that does not fit the spec, or leaves nothing to do.
    """
    training = spec.training
    assert training
    if training.resume is None:
        return []
    from harness.worker import checkpoint

    try:
        _, history = checkpoint.read(training.resume, models.specification(spec.model), Sgd.of(spec.model_dump()))
        epochs = [Epoch(**one) for one in history]
    except (checkpoint.BadCheckpoint, ValidationError) as error:
        raise InvalidInput(f"--resume: {error}") from None
    if len(epochs) >= training.epochs:
        raise InvalidInput(
            f"--resume {training.resume}: {len(epochs)} epochs are done, of --epochs {training.epochs}; give more"
        )
    if done := next((epoch for epoch in epochs if meets(training.until, epoch)), None):
        raise InvalidInput(f"--resume {training.resume}: --until was reached in epoch {done.epoch} already")
    return epochs
