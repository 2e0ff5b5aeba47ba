"""PyTorch's share of every backend that trains with it: data, model, arithmetic. The allreduce is theirs.

Channels-last memory (oneDNN's and cuDNN's native layout), one fused SGD kernel, and batch-norm statistics left to each
worker, as in every backend of the suite.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, ContextManager, Iterator, List, Tuple

import torch
from torch.nn.functional import cross_entropy

from harness import models
from harness.models import torch_weights
from harness.models.initial import initial_values
from harness.worker.clock import Clock, CudaClock, HostClock
from harness.worker.job import Job
from harness.worker.trainer import State


class Replica:
    """One rank's model on one device.

    Opening the data forks its decoders, so make a Replica before any communication thread is started, and ``build`` the
    model after the process has joined the others.
    """

    def __init__(self, job: Job) -> None:
        spec = job.spec
        self.cuda = spec["device"] == "cuda"
        # The launcher makes only this rank's GPU visible, so its number is always 0.
        self.device = torch.device("cuda", 0) if self.cuda else torch.device("cpu")
        self.clock: Clock = CudaClock() if self.cuda else HostClock()
        self._job = job
        self._losses: List[torch.Tensor] = []
        self._specification = models.specification(spec["model"])
        torch.set_num_threads(spec["threads"])
        torch.manual_seed(spec["seed"])
        if self.cuda and not torch.cuda.is_available():
            raise RuntimeError("--device cuda: this environment's PyTorch sees no GPU")
        if self.cuda:
            torch.backends.cudnn.benchmark = True
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = spec["precision"] == "tf32"
        self._batches = self._inputs()

    def build(self) -> torch.nn.Module:
        """The model with its initial weights, on the device."""
        spec = self._job.spec
        module: torch.nn.Module = models.definition(spec["model"], "torch").build()
        torch_weights.load(module, self._specification, initial_values(self._specification, spec["seed"]))
        self.module = module.to(device=self.device, memory_format=torch.channels_last).train()
        self._autocast, self.scaler = _mixed_precision(spec["precision"], self.device)
        return self.module

    def sgd(self) -> torch.optim.Optimizer:
        """The optimizer of all backends, over what is trained: Horovod refuses parameters that it will never see."""
        trained = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        return torch.optim.SGD(trained, lr=self._job.spec["learning_rate"], fused=True)

    def loss(self, model: torch.nn.Module) -> torch.Tensor:
        """The loss of the next batch, scaled for ``backward``. ``model`` is ``module``, wrapped as the backend needs it."""
        images, labels = next(self._batches)
        with self._autocast:
            loss = cross_entropy(model(images), labels)
        self._losses.append(loss.detach())
        return self.scaler.scale(loss)

    def synchronize(self) -> None:
        """Wait for the GPU; a CPU is never behind."""
        if self.cuda:
            torch.cuda.synchronize()

    def state(self, world_size: int, transport: str, **details: Any) -> State:
        """This rank's state, with what the backend knows of its world; ``details`` go into the record."""
        held = torch_weights.dump(self.module, self._specification)
        details.update(torch=torch.__version__, threads=torch.get_num_threads())
        if self.cuda:
            details["peak_memory_bytes"] = torch.cuda.max_memory_allocated()
        return State(
            parameters={tensor.name: held[tensor.name] for tensor in self._specification.tensors},
            losses=[float(loss) for loss in self._losses],
            updates=len(self._losses),
            world_size=world_size,
            transport=transport,
            device=torch.cuda.get_device_name() if self.cuda else "cpu",
            details=details,
        )

    def _inputs(self) -> Iterator[Tuple[torch.Tensor, torch.Tensor]]:
        if self._job.real_data:
            from harness.inputs.torch import batches

            stream = batches(**self._job.reading(), workers=self._job.spec["data_threads"])
            return ((images.to(self.device), labels.to(self.device)) for images, labels in stream)
        images, labels = self._job.synthetic_batch()
        # NHWC in memory, seen as NCHW: that is what PyTorch calls channels-last.
        resident = (
            torch.from_numpy(images).permute(0, 3, 1, 2).to(self.device),
            torch.from_numpy(labels).to(self.device),
        )
        return iter(lambda: resident, None)


def _mixed_precision(precision: str, device: torch.device) -> Tuple[ContextManager[Any], Any]:
    """The autocast context and gradient scaler of ``precision``: bfloat16 where the device has it, else scaled float16."""
    if precision != "amp":
        return nullcontext(), torch.amp.GradScaler(device.type, enabled=False)
    bfloat16 = device.type == "cpu" or torch.cuda.is_bf16_supported(including_emulation=False)
    dtype = torch.bfloat16 if bfloat16 else torch.float16
    return torch.autocast(device.type, dtype), torch.amp.GradScaler(device.type, enabled=not bfloat16)
