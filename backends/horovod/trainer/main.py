"""Horovod, beside the framework: one trainer for each framework it runs on, in the module of its name."""

from __future__ import annotations

import importlib

from harness.worker.job import Job
from harness.worker.trainer import Trainer


def create(job: Job) -> Trainer:
    return importlib.import_module(f"harness.backends.horovod.trainer.{job.spec['framework']}").create(job)
