"""The kinds of work: a measurement of img/s or of a kernel, a training, and a program that is not ours, watched alike."""

from __future__ import annotations

import shutil
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from harness import models
from harness.core.program import program_of
from harness.core.spec import SYNTHETIC, RunSpec, Training
from harness.errors import InvalidInput
from harness.files import write_atomically
from harness.launch.watch import Watch
from harness.records import kernel, launch, measurement
from harness.records.kernel import KernelRank, KernelRecord, KernelRepeat, SizeFigures, SizeTimes
from harness.records.launch import LaunchRecord, LaunchRepeat, Moved, ProgramRank
from harness.records.measurement import Rank, Record, Repeat
from harness.records.record import Check, judge_ranks, seen_by
from harness.records.training import Epoch, Figures, Resumed, TrainedRank, TrainingRecord, derive, meets
from harness.running import preflight
from harness.running.run import Facts, Run, content, reported
from harness.worker.agent.seating import SPEC
from harness.worker.inputs.errors import DataError

# harness.worker.inputs.index is imported where it is used: NumPy takes a quarter of the time that --dry-run may take.
if TYPE_CHECKING:
    from harness.worker.inputs import index

EARLIER = "earlier-epochs.json"  # those before the checkpoint, which may be gone when the record is made
Epochs = TypeAdapter(list[Epoch])


class Measurement(Run):
    """A measurement of img/s. Its ``inputs`` are the images to train on, None for synthetic ones."""

    RECORD = Record

    def find_inputs(self) -> index.Index | None:
        return training_images(self.spec)

    def write_inputs(self) -> None:
        if self.inputs is not None:
            from harness.worker.inputs import index

            index.write(self.inputs, self.folder / "images.index")

    def judge_ranks(self, watch: Watch) -> tuple[list[Rank], list[Check]]:
        ranks = []
        for worker in watch.workers():
            started, measured, evidence, _ = reported(worker, "started", "measured", "evidence", "closed")
            measured |= {"input_wait_s": evidence.pop("input_wait_s", []), "evidence": evidence}
            if not self.spec.warmup_auto:  # the spec has them
                measured.pop("warmup_steps", None)
            ranks.append(Rank(rank=worker.process.rank, host=started["host"], **measured))
        updates = self.backend.expected_updates(self.spec)
        return ranks, measurement.judge(self.spec, self.plan.as_dict(), ranks, updates)

    def result(self) -> str:
        return f"{measurement.img_per_s(self.spec, self.judged[-1]['ranks']):.2f} img/s"

    def record(self, complete: bool, facts: Facts) -> Record:
        repeats = [Repeat(**judged) for judged in self.judged]
        return Record(
            schema="harness.record/1",
            expected_updates=self.backend.expected_updates(self.spec),
            repeats=repeats,
            seen=measurement.window_seen_by(self.spec, repeats),
            derived=measurement.derive(self.spec, repeats) if complete else None,
            preflight=preflight.outcome(self.folder),
            **facts,
        )


class KernelRun(Run):
    """A measurement of a kernel. It needs nothing."""

    RECORD = KernelRecord

    def judge_ranks(self, watch: Watch) -> tuple[list[KernelRank], list[Check]]:
        ranks = []
        for worker in watch.workers():
            started, _, evidence, _ = reported(worker, "started", "measured", "evidence", "closed")
            sizes = [SizeTimes(**content(event)) for event in worker.sizes]
            ranks.append(KernelRank(rank=worker.process.rank, host=started["host"], sizes=sizes, evidence=evidence))
        return ranks, kernel.judge(self.spec, ranks, self.plan.world_size)

    def result(self) -> str:
        return kernel.outcome(kernel.kernel_of(self.spec), self._derive([KernelRepeat(**self.judged[-1])]))

    def record(self, complete: bool, facts: Facts) -> KernelRecord:
        repeats = [KernelRepeat(**judged) for judged in self.judged]
        derived = self._derive(repeats) if complete else None
        seen = seen_by([rank for repeat in repeats for rank in repeat.ranks])
        return KernelRecord(
            schema="harness.kernel/1", expected_updates=0, repeats=repeats, seen=seen, derived=derived, **facts
        )

    def _derive(self, repeats: list[KernelRepeat]) -> list[SizeFigures]:
        return kernel.derive(self.spec, repeats, len(self.plan.processes) - self.plan.world_size)


class LaunchRun(Run):
    """A program that is not ours. Nothing is known of it but its output and its exit codes."""

    RECORD = LaunchRecord

    def find_inputs(self) -> None:
        """Raises InvalidInput if this machine is to start it and does not have it."""
        command, folder = self.plan.details["command"][0], self.plan.details["folder"]
        if self.site_name is None and not shutil.which(Path(folder, command) if "/" in command else command):
            raise InvalidInput(f"{command}: no such program here, or it is not executable")

    def judge_ranks(self, watch: Watch) -> tuple[list[ProgramRank], list[Check]]:
        ranks = self._ranks(watch)
        return ranks, launch.judge(self.spec, ranks, len(self.plan.processes))

    def result(self) -> str:
        figures = launch.derive(self.spec, [LaunchRepeat(**self.judged[-1])])
        return f"{figures.mean:.2f} img/s by its own clock" if figures else "ended well"

    def record(self, complete: bool, facts: Facts) -> LaunchRecord:
        repeats = [LaunchRepeat(**judged) for judged in self.judged]
        if not complete and (folders := sorted(self.folder.glob("repeat-*"))) and len(folders) > len(repeats):
            watch = self.watch(len(repeats) + 1)
            watch.poll()
            times = {"started": facts["started"], "ended": facts["ended"]}
            repeats.append(LaunchRepeat(number=len(repeats) + 1, ranks=self._ranks(watch), checks=[], **times))
        img_per_s = launch.derive(self.spec, repeats) if complete else None
        return LaunchRecord(
            schema="harness.launch/1", expected_updates=0, repeats=repeats, img_per_s=img_per_s, **facts
        )

    def _ranks(self, watch: Watch) -> list[ProgramRank]:
        """Every process that was started; of one whose end nobody has seen there is no exit code."""
        program, ranks = program_of(self.spec), []
        for followed in watch.followed:
            process, events = followed.process, followed.events
            if "started" not in events:
                continue
            ended = events.get("ended", {})
            number, unread = launch.printed(program, followed.log)
            ranks.append(
                ProgramRank(
                    rank=process.rank,
                    role=process.role,
                    host=events["started"]["host"],
                    code=ended.get("code"),
                    stopped=ended.get("stopped", False),
                    seconds=ended.get("seconds"),
                    printed=number,
                    unread=unread,
                    interfaces={
                        name: Moved(sent=sent, received=received)
                        for name, (sent, received) in ended.get("bytes", {}).items()
                    },
                    evidence={"argv": ended["argv"]} if ended else {},
                )
            )
        return ranks


class TrainingRun(Run):
    """A training to an accuracy. Its ``inputs``: images of training, of validation, the epochs before the checkpoint."""

    RECORD, UNIT = TrainingRecord, "epochs"

    def planned(self) -> int:
        return training_of(self.spec).epochs

    def done(self) -> int:
        return len(epochs_before(self.folder)) + len(self._own_epochs())

    def find_inputs(self) -> tuple[index.Index, index.Index, list[Epoch]]:
        images = training_images(self.spec)
        assert images is not None
        return images, validation_images(self.spec, images), earlier(self.spec)

    def write_inputs(self) -> None:
        from harness.worker.inputs import index

        images, validation, epochs = self.inputs
        index.write(images, self.folder / "images.index")
        index.write(validation, self.folder / "validation.index")
        write_atomically(self.folder / EARLIER, Epochs.dump_json(epochs).decode())

    def judge_ranks(self, watch: Watch) -> tuple[list[TrainedRank], list[Check]]:
        ranks = []
        for worker in watch.workers():
            started, trained, evidence, _ = reported(worker, "started", "trained", "evidence", "closed")
            evidence.pop("losses", None)
            ranks.append(TrainedRank(rank=worker.process.rank, host=started["host"], evidence=evidence, **trained))
        steps = sum(epoch.steps for epoch in _epochs(watch))
        made = [rank.steps for rank in ranks]
        return ranks, judge_ranks(ranks, made, self.plan.world_size, steps, self._expected_updates(steps))

    def record(self, complete: bool, facts: Facts) -> TrainingRecord:
        from harness.worker.inputs import index

        before, since = epochs_before(self.folder), self._own_epochs()
        epochs, checkpoint = [*before, *since], training_of(self.spec).resume
        resumed = Resumed(checkpoint=checkpoint, epochs=len(before)) if checkpoint else None
        ended = self.judged[0] if self.judged else {"ranks": [], "checks": []}
        figures = derive(self.spec, epochs, resumed, ended["ranks"]) if complete else Figures()
        return TrainingRecord(
            schema="harness.training/1",
            training_images=len(index.read(self.folder / "images.index")),
            validation_images=len(index.read(self.folder / "validation.index")),
            expected_updates=self._expected_updates(sum(epoch.steps for epoch in since)),
            epochs=epochs,
            resumed=resumed,
            checkpoints=[str(path.relative_to(self.folder)) for path in checkpoints(self.folder)],
            **{name: ended[name] for name in ("ranks", "checks", "job", "restart", "nodes") if name in ended},
            **figures.model_dump(),
            **facts,
        )

    def continuation(self) -> str:
        return f"go on with the same command and --resume {self.folder}" if checkpoints(self.folder) else ""

    def _own_epochs(self) -> list[Epoch]:
        watch = self.watch(1)
        watch.poll()
        return _epochs(watch)

    def _expected_updates(self, steps: int) -> int:
        return self.backend.expected_updates(self.spec.model_copy(update={"warmup_steps": 0, "steps": steps}))


KINDS: tuple[type[Run], ...] = (Measurement, KernelRun, TrainingRun, LaunchRun)


def kind_of(spec: RunSpec) -> type[Run]:
    if spec.program:
        return LaunchRun
    return TrainingRun if spec.training else KernelRun if spec.kernel else Measurement


def training_images(spec: RunSpec) -> index.Index | None:
    """The images to train on, if they are real ones. Raises InvalidInput."""
    if spec.data == SYNTHETIC:
        return None
    from harness.worker.inputs.order import check_world

    try:
        images = _scanned(spec.data, models.specification(spec.model).num_classes)
        check_world(len(images), spec.workers)
    except DataError as error:
        raise InvalidInput(f"--data: {error}") from None
    except OSError as error:
        raise InvalidInput(f"--data {spec.data}: {error.strerror}") from None
    return images


@lru_cache(maxsize=4)
def _scanned(data: str, num_classes: int) -> index.Index:
    """The images to train on. The runs of one command look only once: a million files take minutes."""
    from harness.worker.inputs import index

    return index.find(data, "train", num_classes)


def _epochs(watch: Watch) -> list[Epoch]:
    return [Epoch(**content(event)) for event in next(watch.workers()).epochs]


def training_of(spec: RunSpec) -> Training:
    assert spec.training
    return spec.training


@cache
def epochs_before(folder: Path) -> list[Epoch]:
    """The epochs before the checkpoint that the training of a run directory goes on from. Raises InvalidInput."""
    try:
        return Epochs.validate_json((folder / EARLIER).read_bytes())
    except (OSError, ValidationError):
        raise InvalidInput(f"{folder / EARLIER}: cannot be read, or is not what harness writes") from None


def validation_images(spec: RunSpec, training: index.Index) -> index.Index:
    """The validation images, with the labels that their classes have in training. Raises InvalidInput."""
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
        right = "must both be in folders, whose names are those of the classes, or both in TFRecord shards"
        raise InvalidInput(f"--validation {path}: training and validation images {right}")
    return images


def checkpoints(folder: Path, below: str = "") -> list[Path]:
    return sorted(folder.glob(f"{below}repeat-*/checkpoints/epoch-*.npz"), key=lambda path: (len(path.name), path.name))


def find_checkpoint(path: Path) -> Path:
    """A checkpoint file, or the last one of a run directory, as an absolute path. Raises InvalidInput."""
    if not path.is_dir():
        if not path.exists():
            raise InvalidInput(f"--resume {path}: no such file or folder")
        return path.absolute()
    # The files of a requeued job are below set-aside/.
    if not (files := checkpoints(path) or checkpoints(path, "set-aside/*/")):
        begun = "there is no checkpoint in it; its first epoch has not ended"
        other = "is no run directory of a training; name one, or a file of its checkpoints"
        raise InvalidInput(f"--resume {path}: {begun if (path / SPEC).exists() else other}")
    return files[-1].absolute()


def earlier(spec: RunSpec) -> list[Epoch]:
    """The epochs before the checkpoint to go on from. Raises InvalidInput if it does not fit, or leaves nothing to do."""
    training = training_of(spec)
    if training.resume is None:
        return []
    from harness.worker import checkpoint

    try:
        _, history = checkpoint.read(training.resume, models.specification(spec.model), training.momentum)
        epochs = [Epoch(**reported) for reported in history]
    except (checkpoint.BadCheckpoint, ValidationError) as error:
        raise InvalidInput(f"--resume: {error}") from None
    if len(epochs) >= training.epochs:
        done = f"{len(epochs)} epochs are done, of --epochs {training.epochs}"
        raise InvalidInput(f"--resume {training.resume}: {done}; give more")
    if met := next((epoch for epoch in epochs if meets(training.until, epoch)), None):
        raise InvalidInput(f"--resume {training.resume}: --until was reached in epoch {met.epoch} already")
    return epochs
