"""An emulated model in PyTorch: the tensors of the specification, in a module, and layers that wait."""

from __future__ import annotations

import time
from typing import Any, List, Tuple

import torch
import torch._dynamo  # optimizers import it as they are made: here it is there before processes are forked
from torch import nn

from harness.models.initial import stored_shape
from harness.models.torch_layers import torch_name
from harness.worker.emulation import Stream, TimedUnit, units
from harness.worker.job import Job

WAITED_S = 1e-3  # parameters that took longer to come than calling the hooks of a module were waited for


class Leaf(nn.Module):
    """Holds the tensors of a part of a layer. Hooks that wait for them run when it is called."""

    def forward(self) -> List[torch.Tensor]:
        return list(self.parameters(recurse=False))


class EmulatedModel(nn.Module):
    """N images of any size -> logits [N, classes] of zeros. Parameters have the names and shapes of ``torch_layers``."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        specification = job.specification
        for tensor in specification.tensors:
            leaf, name = self._leaf(tensor.name)
            leaf.register_parameter(name, nn.Parameter(torch.zeros(stored_shape(tensor.shape))))
        for tensor in specification.statistics:
            leaf, name = self._leaf(tensor.name)
            leaf.register_buffer(name, torch.zeros(stored_shape(tensor.shape)))
        self._classes = specification.num_classes
        self._stream = Stream(job)
        # Each unit with the modules that hold its tensors.
        self._layers = [(unit, [*dict.fromkeys(self._leaf(name)[0] for name in unit.tensors)]) for unit in units(job)]

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        passed = torch.zeros(1, self._classes, requires_grad=True)
        ready = self._stream.clock()  # the host begins a step when it has all that it waits for
        for unit, leaves in self._layers:
            began = time.monotonic()
            weights = [held for leaf in leaves for held in leaf()]
            if time.monotonic() - began > WAITED_S:
                ready = self._stream.clock()
            passed = Passes.apply(passed, self._stream, unit, ready, *weights)
            ready = 0.0
        return passed.expand(len(images), -1)

    def _leaf(self, name: str) -> Tuple[Any, str]:
        *folders, last = torch_name(name).split(".")
        parent: nn.Module = self
        for number, folder in enumerate(folders):
            if not hasattr(parent, folder):
                parent.add_module(folder, Leaf() if number == len(folders) - 1 else nn.Module())
            parent = getattr(parent, folder)
        return parent, last


class Passes(torch.autograd.Function):
    """One layer's forward and backward pass: each takes its time. Its input is its output."""

    @staticmethod
    def forward(
        ctx: Any, passed: torch.Tensor, stream: Stream, unit: TimedUnit, ready: float, *weights: torch.Tensor
    ) -> torch.Tensor:
        ctx.stream, ctx.seconds = stream, unit.backward_s
        ctx.save_for_backward(*weights)
        stream.run(ready, unit.forward_s)
        return passed.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> Any:
        ctx.stream.run(0.0, ctx.seconds)
        factor = ctx.stream.gradient_factor
        constant = torch.tensor(factor)
        gradients = [torch.add(constant, weight, alpha=factor) for weight in ctx.saved_tensors]
        return (upstream[0], None, None, None, *gradients)


build = EmulatedModel
