"""Run inside Caffe2's environment: what a step of the backend makes of every parameter, with and without its remedy.

    python caffe2_updates.py RUN_DIR ours|naive STEPS OUT

RUN_DIR holds the ``spec.json`` and ``plan.json`` of one worker. ``ours`` trains as the backend does. ``naive`` is the same
backend without what ``harness.models.caffe2_layers`` does: parameters on IDEEP, updated by IDEEP's ``MomentumSGDUpdate``
without momentum, which is SGD too. OUT gets, as JSON, the parameters that the first step has set ``wrong`` (by name, how
far, in units of the change that was due, both as norms) and the loss of every step.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from caffe2.python import core, workspace

from harness.backends.caffe2.trainer import main as data_parallel
from harness.models import caffe2_layers
from harness.models.caffe2_layers import HOST, IDEEP
from harness.worker.job import Job

FACTOR = core.BlobReference("factor")  # what a gradient is multiplied by before it is taken off
EPSILON = np.finfo(np.float32).eps
Arrays = "dict[str, np.ndarray]"


def wrong(before: Arrays, gradients: Arrays, after: Arrays, rate: float) -> dict[str, float]:
    """The parameters that are not ``before − rate·gradient``, but for the rounding of a product and of a sum."""
    found = {}
    for name, value in before.items():
        change = np.float64(np.float32(rate)) * gradients[name]
        error = np.abs(value - change - after[name])
        if not (error <= EPSILON * (np.abs(value) + np.abs(change))).all():
            found[name] = float(np.linalg.norm(error) / np.linalg.norm(change))
    return found


class Naive(data_parallel.DataParallelTrainer):
    """The parameters on IDEEP, and updated there. A copy of each gradient is kept, which the update overwrites."""

    def add_model(self, model: Any, loss_scale: float) -> list[Any]:
        with mock.patch.object(caffe2_layers, "on_ideep", lambda net, name: core.ScopedBlobReference(name)):
            return super().add_model(model, loss_scale)

    def add_updates(self, model: Any) -> None:
        for held in model.GetParams():
            gradient = model.param_to_grad[held]
            kept, momentum = (core.BlobReference(f"{held}_{name}") for name in ("kept", "momentum"))
            keep = core.CreateOperator("CopyIDEEPToCPU", [gradient], [kept], device_option=IDEEP)
            model.net.Proto().op.extend([keep])
            model.net.MomentumSGDUpdate([gradient, momentum, FACTOR, held], [gradient, momentum, held], momentum=0.0)

    def load(self) -> None:
        with mock.patch.object(caffe2_layers, "HOST", IDEEP):
            super().load()
        workspace.FeedBlob(FACTOR, np.array([self._job.spec["learning_rate"]], np.float32), HOST)
        for tensor in self._specification.tensors:
            name = f"{self._scope}{tensor.name}"
            workspace.FeedBlob(f"{name}_momentum", np.zeros_like(workspace.FetchBlob(name)), IDEEP)


def main(run_dir: str, how: str, steps: int, out: str) -> None:
    job = Job.load(Path(run_dir), 1, 0)
    (job.repeat_dir / "events").mkdir(parents=True)
    (job.repeat_dir / "events" / "worker-0.jsonl").touch()
    naive = how == "naive"
    trainer = Naive(job) if naive else data_parallel.create(job)
    trainer.setup()
    names = [tensor.name for tensor in trainer._specification.tensors]

    def fetched(suffix: str = "") -> Arrays:
        return {name: workspace.FetchBlob(f"{trainer._scope}{name}{suffix}") for name in names}

    for name in names:  # at one, so that what comes before a residual branch's last gamma has a gradient from the start
        if name.endswith("gamma"):
            blob = f"{trainer._scope}{name}"
            workspace.FeedBlob(blob, np.ones_like(workspace.FetchBlob(blob)), IDEEP if naive else HOST)
    before = fetched()
    trainer.step()
    found = wrong(before, fetched("_kept" if naive else "_grad"), fetched(), job.spec["learning_rate"])
    for _ in range(steps - 1):
        trainer.step()
    Path(out).write_text(json.dumps({"wrong": found, "losses": trainer._losses}))


if __name__ == "__main__":
    run_dir, how, steps, out = sys.argv[1:]
    main(run_dir, how, int(steps), out)
