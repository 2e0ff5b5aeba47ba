"""Training to an accuracy: epochs over all training images, with evaluations on the validation images in between.

The schedule is that of Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour" (arXiv:1706.02677):
the learning rate grows with the global batch, is reached by a gradual warm-up, and falls after certain epochs. Batch norm
is theirs, too: each worker normalises with its own batch, and only the moving averages are shared, before they are used.

Every worker runs this loop and decides everything from numbers that are the same on all workers. Rank 0 reports.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional

import numpy as np

from harness.worker import checkpoint
from harness.worker.checkpoint import Epochs
from harness.worker.energy import Meter
from harness.worker.job import Job
from harness.worker.process import Events
from harness.worker.trainer import Learner, State, Trainer

LOOK = 50  # steps between two looks at the losses; each waits for the device


def learning_rate(spec: Mapping[str, Any], global_batch: int, steps_per_epoch: int, step: int) -> float:
    """The rate of ``step``, from 0 for the first of all, for a ``spec`` (the JSON of a run directory, with ``training``).

    It grows on a line to a peak that is proportional to the global batch, and is smaller after each decay.
    """
    training = spec["training"]
    peak: float = spec["learning_rate"] * global_batch / training["reference_batch"]
    start = min(spec["learning_rate"], peak)
    warmup_steps = training["warmup_epochs"] * steps_per_epoch
    warm = min(step / warmup_steps, 1.0) if warmup_steps else 1.0
    decays = sum(step >= epoch * steps_per_epoch for epoch in training["decay_epochs"])
    return (start * (1 - warm) + peak * warm) * training["decay"] ** decays


def train(trainer: Trainer, job: Job, events: Events, meter: Optional[Meter] = None) -> State:
    """Train until the last epoch, or until the accuracy that is wanted. Returns the state, with the last epoch's losses.

    The ``meter`` is read around the steps of each epoch.
    """
    if not isinstance(trainer, Learner):
        raise TypeError(f"{job.spec['backend']} cannot train to an accuracy: its trainer is no Learner")
    training, steps = job.training, job.steps_per_epoch
    global_batch = job.world_size * job.devices * job.spec["batch_size"]
    epochs: Epochs = []
    energy: List[Dict[str, Any]] = []
    if job.resumed:
        values, earlier = job.resumed
        trainer.restore(values)
        epochs += earlier
    before = len(epochs)
    train_s, before_s = (epochs[-1]["train_s"], epochs[-1]["elapsed_s"]) if epochs else (0.0, 0.0)

    events.emit("training")
    trainer.barrier()
    began = time.perf_counter()
    for epoch in range(before + 1, training["epochs"] + 1):
        first_step = (epoch - 1) * steps
        rates = [learning_rate(job.spec, global_batch, steps, step) for step in range(first_step, first_step + steps)]
        trainer.barrier()
        reading = meter.read() if meter else None
        trainer.barrier()  # nobody begins while counters are read
        opened = time.perf_counter()
        losses = _steps(trainer, rates, (epoch - 1 - before) * steps, f"on rank {job.rank} in epoch {epoch}")
        trainer.synchronize()
        trainer.barrier()
        epoch_s = time.perf_counter() - opened
        if meter and reading:
            energy.append(meter.between(reading, meter.read()))
        train_s += epoch_s

        last = epoch == training["epochs"]
        evaluates = last or epoch % training["evaluate_every"] == 0
        saves = last or epoch % training["checkpoint_every"] == 0
        loss, count = trainer.total([math.fsum(losses), len(losses)])
        _check_finite(loss, f"on all ranks together in epoch {epoch}")
        if evaluates or saves:
            _share_statistics(trainer, job.world_size)
        accuracy: Dict[str, Any] = {"top1": None, "top5": None, "validation_loss": None, "images": 0}
        if evaluates:
            accuracy = _accuracy(trainer)
        until = training["until"]
        reached = evaluates and until is not None and accuracy[until["metric"]] >= until["value"]
        epochs.append(
            {
                "epoch": epoch,
                "epochs": training["epochs"],
                "steps": steps,
                "loss": loss / count,
                "rate": rates[-1],
                **accuracy,
                "train_s": train_s,
                "elapsed_s": before_s + time.perf_counter() - began,
                "img_per_s": steps * global_batch / epoch_s,
            }
        )
        if job.rank == 0:  # at once, and before what may fail, so that nothing that was measured is lost
            events.emit("epoch", **epochs[-1])
            if saves or reached:
                checkpoint.write(job.repeat_dir / "checkpoints", trainer.values(), epochs)
        if reached:
            break
    trainer.barrier()  # until rank 0 has read what it saves
    events.emit("trained", steps=steps * (len(epochs) - before), energy=energy)
    state = trainer.state()
    return replace(state, losses=state.losses[-steps:])


def _steps(trainer: Learner, rates: List[float], done: int, where: str) -> List[float]:
    """One step at each of the ``rates``, after those that this process has ``done``. Returns this worker's losses."""
    losses: List[float] = []
    set_rate = None
    for step, rate in enumerate(rates, 1):
        if rate != set_rate:
            trainer.set_learning_rate(rate)
            set_rate = rate
        trainer.step()
        if step % LOOK == 0 or step == len(rates):
            new = trainer.losses(done + len(losses))
            for number, loss in enumerate(new, len(losses) + 1):
                _check_finite(loss, f"{where}, step {number} of {len(rates)}")
            losses += new
    return losses


def _check_finite(loss: float, where: str) -> None:
    if not math.isfinite(loss):
        raise FloatingPointError(
            f"loss is {loss} {where}: training has diverged; give a lower --learning-rate or a longer warm-up"
        )


def _share_statistics(trainer: Learner, workers: int) -> None:
    """Give all workers, and all their devices, the mean of their batch-norm statistics."""
    statistics = trainer.statistics()
    if not statistics:
        return
    values = list(statistics.values())
    summed = np.array(trainer.total(np.concatenate([value.ravel() for value in values]).tolist())) / workers
    ends = np.cumsum([value.size for value in values])[:-1]
    parts = np.split(summed.astype(np.float32), ends)
    trainer.restore({name: part.reshape(value.shape) for (name, value), part in zip(statistics.items(), parts)})


def _accuracy(trainer: Learner) -> Dict[str, Any]:
    """The model's results on all validation images, the same on all workers: accuracies as fractions, the mean loss."""
    images, top1, top5, loss = trainer.total(trainer.evaluate())
    mean = loss / images
    return {
        "top1": top1 / images,
        "top5": top5 / images,
        "validation_loss": mean if math.isfinite(mean) else None,
        "images": int(images),
    }
