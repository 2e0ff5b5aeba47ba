"""Horovod, beside the framework: one trainer for each framework it runs on."""

from __future__ import annotations

from harness.worker.job import Job
from harness.worker.trainer import Trainer


def create(job: Job) -> Trainer:
    """The trainer of one worker."""
    if job.spec["framework"] == "torch":
        from harness.backends.horovod.trainer.torch import HorovodTorchTrainer

        return HorovodTorchTrainer(job)
    from harness.backends.horovod.trainer.tensorflow import HorovodTensorFlowTrainer

    return HorovodTensorFlowTrainer(job)
