"""The record of a training: every epoch that was measured, and the time to the target accuracy.

The rules of ``records/measurement.py`` hold here too: the epochs are the result, the derived figures are checked against
them, and a training that is not ``completed`` has no time to accuracy. The file has a name of its own, so that it never
gets into a table of img/s.
"""

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import ClassVar, Literal

from pydantic import Field

from harness.core.spec import Accuracy, Frozen, RunSpec
from harness.core.text import duration, plural
from harness.records.energy import RankEnergy, Read, Used, used
from harness.records.record import AnyRank, AnyRecord, Check, judge_ranks, judged_again

LABELS = {"top1": "top-1", "top5": "top-5"}


class Epoch(Frozen):
    """One epoch of a training, as rank 0 reports it (see ``worker/training.py``).

    ``epoch`` counts from 1 to at most ``epochs``; ``steps`` are this epoch's. ``loss`` is the mean over all workers and
    steps, ``rate`` the learning rate of the last step. The accuracies (fractions) and the mean loss on the validation
    ``images`` are None, and these 0, where the epoch was not evaluated. ``train_s`` and ``elapsed_s`` are seconds since the
    first step of all, resumed or not: of training, and with evaluations and checkpoints. ``img_per_s`` is this epoch's.
    """

    epoch: int = Field(ge=1)
    epochs: int
    steps: int = Field(ge=1)
    loss: float
    rate: float
    top1: float | None = Field(ge=0, le=1)
    top5: float | None = Field(ge=0, le=1)
    validation_loss: float | None
    images: int
    train_s: float = Field(gt=0)
    elapsed_s: float = Field(gt=0)
    img_per_s: float = Field(gt=0)


class TrainedRank(AnyRank):
    """The report of one worker at the end of a training: how many steps it made in this run.

    ``energy`` is that of each epoch of this run, there on a rank that read a node's counters.
    """

    steps: int
    energy: list[RankEnergy] = Field(default_factory=list)


class Reached(Frozen):
    """The moment of the target accuracy: after ``epoch``, ``steps`` and ``time_s`` since the first step of all.

    ``train_s`` is that time without evaluations and checkpoints.
    """

    metric: Literal["top1", "top5"]
    target: float
    epoch: int
    steps: int
    time_s: float
    train_s: float


class Resumed(Frozen):
    """The checkpoint that a training went on from, and how many epochs it has seen."""

    checkpoint: str
    epochs: int


class Figures(Frozen):
    """The figures of all epochs. The accuracies are the best of all epochs, ``img_per_s`` is that of this run alone.

    So is ``energy``, the joules of each epoch's steps. ``joules_to_accuracy`` are those of ``reached.train_s``; None for a
    training that was resumed.
    """

    reached: Reached | None = None
    time_to_accuracy_s: float | None = None
    best_top1: float | None = None
    best_top5: float | None = None
    img_per_s: float | None = None
    energy: Used | None = None
    joules_to_accuracy: float | None = None


class TrainingRecord(AnyRecord, Figures):
    """One training.

    ``epochs`` has those before a resumed checkpoint too. ``training_images`` and ``validation_images`` are counts.
    """

    file_name = "training.json"
    FIGURES = tuple(Figures.model_fields)
    IN_RAW: ClassVar[dict[str, object]] = {"plan": {"processes"}, "ranks": True}

    schema_: Literal["harness.training/1"] = Field(alias="schema")
    training_images: int
    validation_images: int
    ranks: list[TrainedRank] = Field(default_factory=list)
    checks: list[Check]
    epochs: list[Epoch]
    resumed: Resumed | None
    checkpoints: list[str]
    job: str | None = None
    restart: int = 0
    nodes: list[str] = Field(default_factory=list)

    @property
    def outcome(self) -> str:
        if self.reached:
            return f"{LABELS[self.reached.metric]} {self.reached.target:g} after {duration(self.reached.time_s)}"
        if self.best_top1 is not None:
            return f"top-1 {self.best_top1:.4g} after {plural(self.epochs[-1].epoch, 'epoch')}"
        return ""

    @property
    def problem(self) -> str | None:
        """The reason why a target was missed; None if none was."""
        training = self.spec.training
        if self.status != "completed" or not training or not training.until or self.reached:
            return self.reason
        metric = training.until.metric
        best = max(self.epochs, key=lambda epoch: getattr(epoch, metric) or 0.0)
        return (
            f"{LABELS[metric]} reached {getattr(best, metric):.4g} (epoch {best.epoch}), "
            f"not {training.until.value:g} in {plural(training.epochs, 'epoch')}"
        )

    def verify(self) -> None:
        """Raises ValueError if the record claims what does not follow from what it holds."""
        if self.spec.training is None:
            raise ValueError("the spec is that of a measurement")
        for earlier, later in pairwise(self.epochs):
            if later.epoch != earlier.epoch + 1:
                raise ValueError(f"epoch {later.epoch} follows epoch {earlier.epoch}")
            if later.train_s <= earlier.train_s or later.elapsed_s <= earlier.elapsed_s:
                raise ValueError(f"epoch {later.epoch} ends before it begins")
        for epoch in self.epochs:
            if epoch.train_s > epoch.elapsed_s:
                raise ValueError(f"epoch {epoch.epoch}: training took longer than all")
        super().verify()

    def verify_figures(self) -> None:
        training = self.spec.training
        epochs, before_s = own_epochs(self.epochs, self.resumed)
        if training is None or not epochs or self.epochs[0].epoch != 1:
            raise ValueError("a completed training has all its epochs")
        last = self.epochs[-1]
        if last.epoch != training.epochs and not meets(training.until, last):
            raise ValueError(
                f"the training ended after epoch {last.epoch} of {training.epochs} without what it was to reach"
            )
        for epoch in epochs:
            if epoch.steps != math.ceil(self.training_images / self.spec.global_batch):
                raise ValueError(f"epoch {epoch.epoch} has {epoch.steps} steps, which is not every image once")
            if epoch.top1 is not None and epoch.images != self.validation_images:
                raise ValueError(f"epoch {epoch.epoch} was not evaluated on all {self.validation_images} images")
            throughput = epoch.steps * self.spec.global_batch / (epoch.train_s - before_s)
            if not math.isclose(throughput, epoch.img_per_s, rel_tol=1e-6):
                raise ValueError(f"epoch {epoch.epoch}: img/s does not follow from its time")
            before_s = epoch.train_s
        steps = sum(epoch.steps for epoch in epochs)
        # The verdicts that were written down do not count, but the evidence.
        made, world_size = [rank.steps for rank in self.ranks], self.plan["world_size"]
        again = partial(judge_ranks, self.ranks, made, world_size, steps, self.expected_updates)
        judged_again("the training", self.checks, again)
        figures = Figures(**{name: getattr(self, name) for name in self.FIGURES})
        if figures != derive(self.spec, self.epochs, self.resumed, self.ranks):
            raise ValueError("the figures do not follow from the epochs")


def own_epochs(epochs: Sequence[Epoch], resumed: Resumed | None) -> tuple[list[Epoch], float]:
    """The epochs after the checkpoint, and the seconds of training before them."""
    done = resumed.epochs if resumed else 0
    earlier = [epoch for epoch in epochs if epoch.epoch <= done]
    return list(epochs[len(earlier) :]), earlier[-1].train_s if earlier else 0.0


def meets(until: Accuracy | None, epoch: Epoch) -> bool:
    """True for an epoch with the target accuracy; never without a target."""
    accuracy = getattr(epoch, until.metric) if until else None
    return until is not None and accuracy is not None and bool(accuracy >= until.value)


def derive(spec: RunSpec, epochs: Sequence[Epoch], resumed: Resumed | None, ranks: Sequence[TrainedRank]) -> Figures:
    """The figures of a completed training. img/s is images trained on over the time of training, in this run.

    Raises ValueError if a rank has read the energy of other epochs.
    """
    until = spec.training.until if spec.training else None
    trained, before_s = own_epochs(epochs, resumed)
    reached = energy = to_accuracy = None
    first = next((number for number, epoch in enumerate(epochs) if meets(until, epoch)), None)
    if until is not None and first is not None:
        reached = Reached(
            metric=until.metric,
            target=until.value,
            epoch=epochs[first].epoch,
            steps=sum(epoch.steps for epoch in epochs[: first + 1]),
            time_s=epochs[first].elapsed_s,
            train_s=epochs[first].train_s,
        )
    readers = [[(rank.host, read) for read in rank.energy] for rank in ranks if rank.energy]
    if readers:
        ends_s = [before_s, *(epoch.train_s for epoch in trained)]
        lengths_s = [end_s - start_s for start_s, end_s in pairwise(ends_s)]
        energy = used([Read(*window) for window in zip(lengths_s, zip(*readers, strict=True), strict=True)])
    if reached and not resumed and energy and energy.joules:
        to_accuracy = sum(energy.joules.values[: reached.epoch])
    return Figures(
        reached=reached,
        time_to_accuracy_s=reached.time_s if reached else None,
        best_top1=max((epoch.top1 for epoch in epochs if epoch.top1 is not None), default=None),
        best_top5=max((epoch.top5 for epoch in epochs if epoch.top5 is not None), default=None),
        img_per_s=sum(epoch.steps for epoch in trained) * spec.global_batch / (epochs[-1].train_s - before_s),
        energy=energy,
        joules_to_accuracy=to_accuracy,
    )
