"""Run inside PyTorch's environment: a rank of two that train as the backend does, again and again, a bit flipped each time.

    python flipped_bits.py RUN_DIR RANK FLIPS OUT

RUN_DIR holds the ``spec.json`` and ``plan.json`` of two workers. FLIPS is a JSON list: each flip has a ``step`` (the first
is 0), a ``bit`` of float32 (0 is the last one of the mantissa; null: nothing is flipped), the ``tensor`` and ``element`` of
the gradient in which it is, in the order of memory, a ``rank``, and ``exchanged``: whether the bit flips before gradients
are averaged, or after that on this rank alone. OUT gets the evidence that each training leaves, as a run's workers report
it.

A training begins with the flip's step, at the parameters that all trainings have there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from harness.backends.pytorch.trainer.main import PyTorchTrainer
from harness.models import torch_layers
from harness.worker.job import Job


@contextmanager
def flipped(trainer: PyTorchTrainer, parameter: torch.Tensor, flip: dict[str, Any]) -> Iterator[None]:
    """While this lasts, the bit flips in every gradient of the parameter."""

    def change(gradient: torch.Tensor) -> None:
        values = gradient.as_strided((gradient.numel(),), (1,)).view(torch.int32)
        values[flip["element"]] ^= 1 << flip["bit"]

    def before(gradient: torch.Tensor) -> torch.Tensor:
        changed = gradient.clone()
        change(changed)
        return changed

    def after(*_: Any) -> None:
        assert parameter.grad is not None
        change(parameter.grad)

    handle: Any = (
        trainer._optimizer.register_step_pre_hook(after) if flip["exchanged"] else parameter.register_hook(before)
    )
    try:
        yield
    finally:
        handle.remove()


def main(run_dir: Path, rank: int, flips: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    job = Job.load(run_dir, 1, rank)
    trainer = PyTorchTrainer(job)
    trainer.setup()
    steps = job.spec["warmup_steps"] + job.spec["steps"]
    parameters = torch_layers.trained(trainer._module, job.specification)
    starts = []  # the parameters before each step
    for _ in range(steps):
        starts.append({name: parameter.detach().clone() for name, parameter in parameters.items()})
        trainer.step()
    usual = trainer.losses(0)
    for flip in flips:
        with torch.no_grad():
            for name, value in starts[flip["step"]].items():
                parameters[name].copy_(value)
        trainer._losses = usual[: flip["step"]]
        if flip["bit"] is not None and flip["rank"] == rank:
            with flipped(trainer, parameters[flip["tensor"]], flip):
                trainer.step()
        while len(trainer._losses) < steps:
            trainer.step()
        yield replace(trainer.state(), details={}).evidence(job)
    trainer.barrier()
    trainer.close()


if __name__ == "__main__":
    run_dir, rank, given, out = sys.argv[1:]
    left = list(main(Path(run_dir), int(rank), json.loads(Path(given).read_text())))
    Path(out).write_text(json.dumps(left))
