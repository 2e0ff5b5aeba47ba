"""Training to an accuracy: epochs over all training images, with evaluations on the validation images in between.

The schedule is that of Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour" (arXiv:1706.02677):
the learning rate grows with the global batch, is reached by a gradual warm-up, and falls after certain epochs. Batch norm
is theirs, too: each worker normalises with its own batch, and only the moving averages are shared, before they are used.

Every worker runs this loop and decides everything from numbers that are the same on all workers. Rank 0 reports.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Tuple

import numpy as np

from harness import models
from harness.worker import checkpoint
from harness.worker.checkpoint import Epochs
from harness.worker.events import Events
from harness.worker.inputs import index
from harness.worker.job import Job
from harness.worker.sgd import Sgd
from harness.worker.trainer import Learner

LOOK = 50  # steps between two looks at the losses; each waits for the device


@dataclass(frozen=True)
class Schedule:
    """The learning rate of every step. ``warmup_steps`` and ``decay_steps`` count from the first step of all."""

    start: float
    peak: float
    warmup_steps: float
    decay_steps: Tuple[int, ...]
    decay: float

    @classmethod
    def of(cls, spec: Mapping[str, Any], global_batch: int, steps_per_epoch: int) -> Schedule:
        """The schedule of ``spec`` (the JSON of a run directory, with ``training``); linear scaling happens here."""
        training = spec["training"]
        peak = spec["learning_rate"] * global_batch / training["reference_batch"]
        return cls(
            start=min(spec["learning_rate"], peak),
            peak=peak,
            warmup_steps=training["warmup_epochs"] * steps_per_epoch,
            decay_steps=tuple(epoch * steps_per_epoch for epoch in training["decay_epochs"]),
            decay=training["decay"],
        )

    def rate(self, step: int) -> float:
        """The rate of ``step``, from 0: ``start`` at first, then on a line to ``peak``, and smaller after each decay."""
        warm = min(step / self.warmup_steps, 1.0) if self.warmup_steps else 1.0
        decays = sum(step >= begin for begin in self.decay_steps)
        return (self.start * (1 - warm) + self.peak * warm) * self.decay**decays


@dataclass(frozen=True)
class Trained:
    """How training ended. Only rank 0 has ``epochs``: the reports of all epochs, also those before a resumed checkpoint.

    ``steps`` counts what this process did, in the epochs from ``first_epoch`` on. ``reached`` says whether the wanted
    accuracy was.
    """

    epochs: Epochs
    reached: bool
    steps: int
    steps_per_epoch: int
    first_epoch: int


def train(trainer: Learner, job: Job, events: Events) -> Trained:
    """Train until the last epoch, or until the accuracy that is wanted.

    Raises FloatingPointError for a loss that is not finite, BadCheckpoint for one that cannot be resumed, OSError when
    reports or checkpoints cannot be written.
    """
    training, clock = job.training, trainer.clock
    images = len(index.read(job.image_index))
    global_batch = job.world_size * job.devices * job.spec["batch_size"]
    steps = job.steps_per_epoch(images)
    schedule = Schedule.of(job.spec, global_batch, steps)
    epochs = _resume(trainer, job)
    first_epoch = len(epochs) + 1
    train_s, before_s = (epochs[-1]["train_s"], epochs[-1]["elapsed_s"]) if epochs else (0.0, 0.0)
    journal = Events(job.repeat_dir / "epochs.jsonl") if job.rank == 0 else None
    reached = False

    events.emit("training")
    trainer.barrier()
    began = clock.now()
    for epoch in range(first_epoch, training["epochs"] + 1):
        trainer.barrier()
        opened = clock.now()
        losses = _steps(trainer, job, schedule, epoch, first_epoch, steps)
        trainer.synchronize()
        trainer.barrier()
        epoch_s = clock.now() - opened
        train_s += epoch_s

        last = epoch == training["epochs"]
        evaluates = last or epoch % training["evaluate_every"] == 0
        saves = last or epoch % training["checkpoint_every"] == 0
        loss, count = trainer.total([math.fsum(losses), len(losses)])
        if not math.isfinite(loss):
            raise _diverged(loss, f"on all ranks together in epoch {epoch}")
        if evaluates or saves:
            _share_statistics(trainer, job.world_size)
        accuracy = _accuracy(trainer) if evaluates else _NOT_EVALUATED
        until = training["until"]
        reached = evaluates and until is not None and accuracy[until["metric"]] >= until["value"]
        epochs.append(
            {
                "epoch": epoch,
                "epochs": training["epochs"],
                "steps": steps,
                "loss": loss / count,
                "rate": schedule.rate(epoch * steps - 1),
                **accuracy,
                "train_s": train_s,
                "elapsed_s": before_s + clock.now() - began,
                "img_per_s": steps * global_batch / epoch_s,
            }
        )
        if journal:  # at once, and before what may fail, so that nothing that was measured is lost
            journal.emit("epoch", **epochs[-1])
            events.emit("epoch", **epochs[-1])
            if saves or reached:
                checkpoint.write(job.repeat_dir / "checkpoints", trainer.values(), epochs)
        if reached:
            break
    trainer.barrier()  # until rank 0 has read what it saves
    done = steps * (len(epochs) + 1 - first_epoch)
    return Trained(epochs if job.rank == 0 else [], reached, done, steps, first_epoch)


_NOT_EVALUATED: Dict[str, Any] = {"top1": None, "top5": None, "validation_loss": None, "images": 0}


def _resume(trainer: Learner, job: Job) -> Epochs:
    """Put a checkpoint's values in place, if there is one; the epochs before it."""
    path = job.training["resume"]
    if path is None:
        return []
    values, epochs = checkpoint.read(path, models.specification(job.spec["model"]), Sgd.of(job.spec))
    if len(epochs) >= job.training["epochs"]:
        raise checkpoint.BadCheckpoint(
            f"{path} has seen {len(epochs)} epochs, of {job.training['epochs']}: nothing is left to do; more --epochs?"
        )
    trainer.restore(values)
    return epochs


def _steps(trainer: Learner, job: Job, schedule: Schedule, epoch: int, first_epoch: int, steps: int) -> List[float]:
    """Train for an epoch; this worker's losses. Raises FloatingPointError for one that is not finite."""
    before = (epoch - 1) * steps
    done = (epoch - first_epoch) * steps  # by this process
    losses: List[float] = []
    set_rate = None
    for step in range(steps):
        rate = schedule.rate(before + step)
        if rate != set_rate:
            trainer.set_learning_rate(rate)
            set_rate = rate
        trainer.step()
        if (step + 1) % LOOK == 0 or step + 1 == steps:
            new = trainer.losses(done + len(losses))
            for number, loss in enumerate(new, len(losses) + 1):
                if not math.isfinite(loss):
                    raise _diverged(loss, f"on rank {job.rank} in epoch {epoch}, step {number} of {steps}")
            losses += new
    return losses


def _diverged(loss: float, where: str) -> FloatingPointError:
    return FloatingPointError(
        f"loss is {loss} {where}: training has diverged; give a lower --learning-rate or a longer warm-up"
    )


def _share_statistics(trainer: Learner, workers: int) -> None:
    """Give all workers, and all their devices, the mean of their batch-norm statistics."""
    own = trainer.statistics()
    if not own:
        return
    summed = np.array(trainer.total(np.concatenate([value.ravel() for value in own.values()]).tolist())) / workers
    ends = np.cumsum([value.size for value in own.values()])[:-1]
    parts = np.split(summed.astype(np.float32), ends)
    trainer.restore({name: part.reshape(value.shape) for (name, value), part in zip(own.items(), parts)})


def _accuracy(trainer: Learner) -> Dict[str, Any]:
    """How well the model does on all validation images, the same on all workers: accuracies as fractions, the mean loss."""
    images, top1, top5, loss = trainer.total(trainer.evaluate())
    mean = loss / images
    return {
        "top1": top1 / images,
        "top5": top5 / images,
        "validation_loss": mean if math.isfinite(mean) else None,
        "images": int(images),
    }
