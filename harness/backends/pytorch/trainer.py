"""PyTorch DDP, beside the framework: stock DistributedDataParallel with the fastest honest settings.

Channels-last memory (oneDNN's and cuDNN's native layout), gradients kept as views of the allreduce buckets, one fused SGD
kernel, and batch-norm statistics left to each worker, as in every backend of the suite.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from datetime import timedelta
from typing import Any, ContextManager, Iterator, Tuple

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from harness import models
from harness.models import torch_weights
from harness.models.initial import initial_values
from harness.worker.clock import Clock, CudaClock, HostClock
from harness.worker.job import Job
from harness.worker.network import interface_of, listen
from harness.worker.trainer import State


def create(job: Job) -> PyTorchTrainer:
    """The trainer of one worker."""
    return PyTorchTrainer(job)


class PyTorchTrainer:
    """One rank of a DDP job: one process, one device."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._spec = job.spec
        self._cuda = job.spec["device"] == "cuda"
        # The launcher makes only this rank's GPU visible, so its number is always 0.
        self._device = torch.device("cuda", 0) if self._cuda else torch.device("cpu")
        self._specification = models.specification(job.spec["model"])
        self._updates = 0
        self.clock: Clock = CudaClock() if self._cuda else HostClock()

    def setup(self) -> None:
        """Open the data, join the process group, build the model."""
        spec = self._spec
        torch.set_num_threads(spec["threads"])
        torch.manual_seed(spec["seed"])
        if self._cuda and not torch.cuda.is_available():
            raise RuntimeError("--device cuda: this environment's PyTorch sees no GPU")
        if self._cuda:
            torch.backends.cudnn.benchmark = True
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = spec["precision"] == "tf32"
        self._batches = self._inputs()  # forks its decoders, so it comes before the communication threads
        self._interface = _join(self._job)

        module = models.definition(spec["model"], "torch").build()
        torch_weights.load(module, self._specification, initial_values(self._specification, spec["seed"]))
        module.to(device=self._device, memory_format=torch.channels_last).train()
        self._module = module
        self._model: torch.nn.Module = DistributedDataParallel(
            module,
            device_ids=[0] if self._cuda else None,
            bucket_cap_mb=spec["options"]["bucket_mb"],
            broadcast_buffers=False,
            gradient_as_bucket_view=True,
        )
        if spec["options"]["compile"]:
            self._model = torch.compile(self._model)
        self._optimizer = torch.optim.SGD(module.parameters(), lr=spec["learning_rate"], fused=True)
        self._autocast, self._scaler = _mixed_precision(spec["precision"], self._device)

    def step(self) -> None:
        """Forward, backward with the allreduce inside, SGD."""
        images, labels = next(self._batches)
        self._optimizer.zero_grad(set_to_none=True)
        with self._autocast:
            loss = cross_entropy(self._model(images), labels)
        self._scaler.scale(loss).backward()
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._loss = loss.detach()
        self._updates += 1

    def synchronize(self) -> None:
        """Wait for the GPU; a CPU is never behind."""
        if self._cuda:
            torch.cuda.synchronize()

    def barrier(self) -> None:
        """Wait for all ranks."""
        dist.barrier()

    def state(self) -> State:
        """This rank's parameters and what carried the gradients."""
        details = {"torch": torch.__version__, "threads": torch.get_num_threads()}
        if self._cuda:
            details["peak_memory_bytes"] = torch.cuda.max_memory_allocated()
        held = torch_weights.dump(self._module, self._specification)
        return State(
            parameters={tensor.name: held[tensor.name] for tensor in self._specification.tensors},
            loss=float(self._loss),
            updates=self._updates,
            world_size=dist.get_world_size(),
            transport=self._transport(),
            device=torch.cuda.get_device_name() if self._cuda else "cpu",
            details=details,
        )

    def close(self) -> None:
        """Leave the process group."""
        dist.destroy_process_group()

    def _transport(self) -> str:
        backend = dist.get_backend()
        if backend == "nccl":
            return "nccl " + ".".join(str(part) for part in torch.cuda.nccl.version())
        return f"{backend} on {self._interface}"

    def _inputs(self) -> Iterator[Tuple[torch.Tensor, torch.Tensor]]:
        if self._job.real_data:
            from harness.inputs.torch import batches

            stream = batches(**self._job.reading, workers=self._spec["data_threads"])
            return ((images.to(self._device), labels.to(self._device)) for images, labels in stream)
        images, labels = self._job.synthetic_batch()
        # NHWC in memory, seen as NCHW: that is what PyTorch calls channels-last.
        resident = (
            torch.from_numpy(images).permute(0, 3, 1, 2).to(self._device),
            torch.from_numpy(labels).to(self._device),
        )
        return iter(lambda: resident, None)


def _join(job: Job) -> str:
    """Join the process group. Returns the network interface that Gloo uses, the one that owns this rank's address."""
    master = job.processes("worker")[0]
    interface = interface_of(job.process["address"])
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = interface
    timeout = timedelta(seconds=job.spec["timeout_s"])
    # PyTorch's store would listen on every interface; handing it a bound socket keeps it on the job's own.
    listener = listen(master["address"], master["port"]).detach() if job.rank == 0 else None
    store = dist.TCPStore(
        master["address"], master["port"], job.world_size, job.rank == 0, timeout, master_listen_fd=listener
    )
    dist.init_process_group(
        job.spec["transport"], store=store, rank=job.rank, world_size=job.world_size, timeout=timeout
    )
    return interface


def _mixed_precision(precision: str, device: torch.device) -> Tuple[ContextManager[Any], Any]:
    """The autocast context and gradient scaler of ``precision``: bfloat16 where the device has it, else scaled float16."""
    if precision != "amp":
        return nullcontext(), torch.amp.GradScaler(device.type, enabled=False)
    bfloat16 = device.type == "cpu" or torch.cuda.is_bf16_supported(including_emulation=False)
    dtype = torch.bfloat16 if bfloat16 else torch.float16
    return torch.autocast(device.type, dtype), torch.amp.GradScaler(device.type, enabled=not bfloat16)
