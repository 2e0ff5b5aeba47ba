"""The record of a training: every epoch that was measured, and the time to the accuracy that was wanted.

What ``records/measurement.py`` says holds here too: the epochs are the result, what is derived from them is checked against
them, and a training that is not ``completed`` has no time to accuracy. The file has a name of its own, so that it never
gets into a table of img/s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import ClassVar, Literal

from pydantic import Field

from harness.core.spec import Accuracy, RunSpec, Training
from harness.core.text import plural
from harness.records.checks import Check, Epoch, Frozen, TrainedRank, judge_training
from harness.records.record import AnyRecord, judged_again

FILE_NAME = "training.json"
LABELS = {"top1": "top-1", "top5": "top-5"}


class Reached(Frozen):
    """When the accuracy that was wanted was reached: after ``epoch``, ``steps`` and ``time_s`` since the first step of all.

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
    """What follows from the epochs. The accuracies are the best of all epochs, ``img_per_s`` is that of this run alone."""

    reached: Reached | None = None
    time_to_accuracy_s: float | None = None
    best_top1: float | None = None
    best_top5: float | None = None
    img_per_s: float | None = None


class TrainingRecord(AnyRecord, Figures):
    """One training.

    ``epochs`` has those before a resumed checkpoint too. ``training_images`` and ``validation_images`` are counts.
    """

    file_name: ClassVar[str] = FILE_NAME

    schema_: Literal["harness.training/1"] = Field(alias="schema")
    training_images: int
    validation_images: int
    ranks: list[TrainedRank]
    checks: list[Check]
    epochs: list[Epoch]
    resumed: Resumed | None
    checkpoints: list[str]
    job: str | None = None
    restart: int = 0
    nodes: list[str] = Field(default_factory=list)

    @property
    def problem(self) -> str | None:
        """Why this is not what was wanted; None if it is."""
        training = self.spec.training
        if self.status != "completed" or not training or not training.until or self.reached:
            return self.reason
        metric = training.until.metric
        best = max(self.epochs, key=lambda epoch: getattr(epoch, metric) or 0.0)
        return (
            f"{LABELS[metric]} reached {getattr(best, metric):.4g} (epoch {best.epoch}), "
            f"not {training.until.value:.4g} in {plural(training.epochs, 'epoch')}"
        )

    @property
    def own_epochs(self) -> list[Epoch]:
        """Those that this run has trained."""
        return own_epochs(self.epochs, self.resumed)

    @property
    def figures(self) -> Figures:
        return Figures(**{name: getattr(self, name) for name in Figures.model_fields})

    def verify(self) -> None:
        """Raises ValueError if the record claims what does not follow from what it holds."""
        if self.spec.training is None:
            raise ValueError("the spec is that of a measurement")
        _check_order(self.epochs)
        super().verify()

    def has_figures(self) -> bool:
        return self.figures != Figures()

    def verify_figures(self) -> None:
        assert self.spec.training
        self._check_epochs(self.spec.training)
        steps = sum(epoch.steps for epoch in self.own_epochs)
        # Not the verdicts that were written down, but what the evidence says.
        again = partial(judge_training, self.ranks, self.plan["world_size"], steps, self.expected_updates)
        judged_again("the training", self.checks, again)
        if derive(self.spec, self.epochs, self.resumed) != self.figures:
            raise ValueError("the figures do not follow from the epochs")

    def _check_epochs(self, training: Training) -> None:
        """That the epochs are all that a training of this spec has, and of its size."""
        if not self.own_epochs or self.epochs[0].epoch != 1:
            raise ValueError("a completed training has all its epochs")
        last = self.epochs[-1]
        if last.epoch != training.epochs and not meets(training.until, last):
            raise ValueError(
                f"the training ended after epoch {last.epoch} of {training.epochs} without what it was to reach"
            )
        before_s = self.epochs[-len(self.own_epochs) - 1].train_s if self.resumed else 0.0
        for epoch in self.own_epochs:
            if epoch.steps != math.ceil(self.training_images / self.spec.global_batch):
                raise ValueError(f"epoch {epoch.epoch} has {epoch.steps} steps, which is not every image once")
            if epoch.top1 is not None and epoch.images != self.validation_images:
                raise ValueError(f"epoch {epoch.epoch} was not evaluated on all {self.validation_images} images")
            throughput = epoch.steps * self.spec.global_batch / (epoch.train_s - before_s)
            if not math.isclose(throughput, epoch.img_per_s, rel_tol=1e-6):
                raise ValueError(f"epoch {epoch.epoch}: img/s does not follow from its time")
            before_s = epoch.train_s


def own_epochs(epochs: Sequence[Epoch], resumed: Resumed | None) -> list[Epoch]:
    """Those of ``epochs`` that come after the checkpoint."""
    return [epoch for epoch in epochs if epoch.epoch > (resumed.epochs if resumed else 0)]


def _check_order(epochs: Sequence[Epoch]) -> None:
    for earlier, later in pairwise(epochs):
        if later.epoch != earlier.epoch + 1:
            raise ValueError(f"epoch {later.epoch} follows epoch {earlier.epoch}")
        if later.train_s <= earlier.train_s or later.elapsed_s <= earlier.elapsed_s:
            raise ValueError(f"epoch {later.epoch} ends before it begins")
    for epoch in epochs:
        if epoch.train_s > epoch.elapsed_s:
            raise ValueError(f"epoch {epoch.epoch}: training took longer than all")


def meets(until: Accuracy | None, epoch: Epoch) -> bool:
    """Whether an epoch has the accuracy that was wanted; never if none was."""
    accuracy = getattr(epoch, until.metric) if until else None
    return until is not None and accuracy is not None and bool(accuracy >= until.value)


def derive(spec: RunSpec, epochs: Sequence[Epoch], resumed: Resumed | None) -> Figures:
    """The figures of a completed training. img/s is images trained on over the time of training, in this run."""
    until = spec.training.until if spec.training else None
    own = own_epochs(epochs, resumed)
    before_s = epochs[-len(own) - 1].train_s if len(own) < len(epochs) else 0.0
    reached = None
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
    return Figures(
        reached=reached,
        time_to_accuracy_s=reached.time_s if reached else None,
        best_top1=max((epoch.top1 for epoch in epochs if epoch.top1 is not None), default=None),
        best_top5=max((epoch.top5 for epoch in epochs if epoch.top5 is not None), default=None),
        img_per_s=sum(epoch.steps for epoch in own) * spec.global_batch / (epochs[-1].train_s - before_s),
    )
