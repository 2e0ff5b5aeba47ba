"""The common part of all trainers on PyTorch: data, model, arithmetic. A backend's trainer adds how gradients are averaged.

Channels-last memory (oneDNN's and cuDNN's native layout) unless NCHW was chosen, one fused SGD kernel, and batch-norm
statistics left to each worker, as in every backend of the suite.
"""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from datetime import timedelta
from typing import Any, ContextManager, Dict, Iterator, List, Mapping, Sequence, Tuple

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

from harness.models import torch_layers
from harness.models.initial import initial_values
from harness.worker.checkpoint import velocity
from harness.worker.emulation import definition
from harness.worker.frameworks.base import DeviceTrainer, require_tf32
from harness.worker.job import Job
from harness.worker.network import interface_of, listen, nccl, nccl_meets_on
from harness.worker.notes import BACKWARD, FORWARD, READY, Notes
from harness.worker.trainer import Evaluation, Marks, State, evaluation

Batches = Iterator[Tuple[torch.Tensor, torch.Tensor]]


def join(job: Job, backend: str, processes: Sequence[Mapping[str, Any]]) -> str:
    """Make the default process group of these processes of the plan, of which this is one. Returns its interface's name."""
    first, rank, timeout = processes[0], processes.index(job.process), timedelta(seconds=job.spec["timeout_s"])
    interface = os.environ.setdefault("GLOO_SOCKET_IFNAME", interface_of(job.process["address"]))
    if backend == "nccl":
        nccl_meets_on(job.process["address"], job.repeat_dir / "logs")
    # PyTorch's store would listen on every interface; handing it a bound socket keeps it on the job's own.
    listener = listen(first["address"], first["port"]).detach() if rank == 0 else None
    store = dist.TCPStore(
        first["address"], first["port"], len(processes), rank == 0, timeout, master_listen_fd=listener
    )
    dist.init_process_group(backend, store=store, rank=rank, world_size=len(processes), timeout=timeout)
    return interface


def carrier(interface: str) -> str:
    """The carrier of the default group's messages, as PyTorch names it; ``interface`` is from ``join``."""
    backend = dist.get_backend()
    if backend == "nccl":
        return nccl(".".join(str(part) for part in torch.cuda.nccl.version()))
    return f"{backend} on {interface}"


MIXED = {"amp": torch.bfloat16, "fp16": torch.float16}  # by precision, what autocast computes in
# The scale of float16 losses, as in tf_cnn_benchmarks. PyTorch's own, 65,536, may overflow, which skips steps.
FIRST_SCALE = 128.0


class CudaMarks(Marks):
    """CUDA events on the current stream, as a GPU runs behind the host: to wait for it in every step would slow it down."""

    def __init__(self, count: int) -> None:
        self._events: List[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(count)]

    def take(self, index: int) -> None:
        self._events[index].record()

    def seconds(self) -> List[float]:
        return [self._events[0].elapsed_time(event) / 1000.0 for event in self._events]  # elapsed_time is in ms


def overlapped(batches: Batches, device: torch.device) -> Batches:
    """``batches`` of pinned memory on the GPU. It copies each while it computes the step before."""
    copies = torch.cuda.Stream(device)
    for batch in batches:
        with torch.cuda.stream(copies):
            images, labels = (held.to(device, non_blocking=True) for held in batch)
        computing = torch.cuda.current_stream(device)
        computing.wait_stream(copies)
        for held in (images, labels):
            held.record_stream(computing)  # its memory is not used again before the step has read it
        yield images, labels


def by_cuda_events(notes: Notes) -> None:
    """Have ``notes`` take the time of the GPU, by an event on the stream that is current."""

    def now() -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    torch.cuda.synchronize()
    first, at = now(), time.perf_counter()
    notes.now = now
    notes.seconds = lambda when: (
        when if isinstance(when, float) else at + first.elapsed_time(when) / 1000.0
    )  # it is in ms


def note_layer(module: torch.nn.Module, names: Mapping[torch.Tensor, str], notes: Notes, computes: bool) -> None:
    """Have a module with these parameters note its passes, unless it ``computes`` nothing, and its gradients.

    Its backward pass begins with the gradient of its output, and ends with the last of those of its parameters.
    """
    began: Dict[str, Any] = {}
    layer, missing = next(iter(names.values())), set(names.values())

    def begin(*_: Any) -> None:
        began[FORWARD] = notes.now()

    def end(_: Any, __: Any, output: torch.Tensor) -> None:
        notes.note(FORWARD, layer, began[FORWARD], notes.now())
        missing.update(names.values())
        output.register_hook(lambda _: began.update({BACKWARD: notes.now()}))

    def ready(held: torch.Tensor) -> None:
        notes.at(READY, names[held], size=held.nbytes)
        missing.discard(names[held])
        if computes and not missing:
            notes.note(BACKWARD, layer, began[BACKWARD], notes.now())

    if computes:
        module.register_forward_pre_hook(begin)
        module.register_forward_hook(end)
    for held in names:
        held.register_post_accumulate_grad_hook(ready)


class TorchTrainer(DeviceTrainer):
    """One rank on PyTorch."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        spec = job.spec
        # The launcher makes only this rank's GPU visible, so its number is always 0.
        self._device = torch.device("cuda", 0) if self._cuda else torch.device("cpu")
        self._layout = torch.contiguous_format if job.data_format == "NCHW" else torch.channels_last
        torch.set_num_threads(spec["threads"])
        torch.manual_seed(spec["seed"])
        if self._cuda and not torch.cuda.is_available():
            cuda = torch.version.cuda
            built = f"for CUDA {cuda}: is there an NVIDIA driver for that?" if cuda else "for CPUs"
            raise RuntimeError(f"--device cuda: this environment's PyTorch sees no GPU; it is built {built}")
        if self._cuda:
            self.marks = CudaMarks
            torch.backends.cudnn.benchmark = True
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = spec["precision"] == "tf32"
            if spec["precision"] == "amp" and not torch.cuda.is_bf16_supported(including_emulation=False):
                raise RuntimeError(f"--precision amp: {torch.cuda.get_device_name()} has no bfloat16; fp16 it has")
            if spec["precision"] == "tf32":
                require_tf32(torch.cuda.get_device_name(), torch.cuda.get_device_capability())
        self._batches = self._inputs()

    def build(self) -> None:
        """Make the model and its optimizer; a backend may wrap ``_model``, the forward pass, and ``_optimizer``."""
        spec, sgd = self._job.spec, self._sgd
        module: torch.nn.Module = definition(self._job, "torch")()
        torch_layers.load(module, self._specification, initial_values(self._specification, spec["seed"]))
        self._module = module.to(device=self._device, memory_format=self._layout).train()
        self._model: Any = self._module
        mixed, device_type = MIXED.get(spec["precision"]), self._device.type
        self._autocast: ContextManager[Any] = torch.autocast(device_type, mixed) if mixed else nullcontext()
        self._scaler = torch.amp.GradScaler(device_type, FIRST_SCALE, enabled=mixed is torch.float16)
        trained = torch_layers.trained(self._module, self._specification)
        groups = [
            {"params": [held for name, held in trained.items() if sgd.decay(name) == decay], "weight_decay": decay}
            for decay in sorted({sgd.decay(name) for name in trained})
        ]
        self._optimizer: Any = torch.optim.SGD(groups, lr=sgd.rate, momentum=sgd.momentum, fused=True)
        self._optimizer.zero_grad()  # its first call imports PyTorch's compiler, which takes a second or more

    def step(self) -> None:
        self._losses.append(self.train(*next(self._batches)))

    def train(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Train on a batch; returns its loss. The scaler does nothing but for float16."""
        self._optimizer.zero_grad(set_to_none=True)
        loss = self.loss_of(images, labels)
        self._scaler.scale(loss).backward()
        self._scaler.step(self._optimizer)
        self._scaler.update()
        return loss.detach()

    def loss(self) -> torch.Tensor:
        """The loss of the next batch, scaled for ``backward``."""
        loss = self.loss_of(*next(self._batches))
        self._losses.append(loss.detach())
        return self._scaler.scale(loss)

    def loss_of(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with self._autocast:
            return cross_entropy(self._model(images), labels)

    def synchronize(self) -> None:
        if self._cuda:
            torch.cuda.synchronize()

    def set_learning_rate(self, rate: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = rate

    def losses(self, since: int) -> List[float]:
        """Losses that were read are kept as numbers, which take no room on the device."""
        self._losses[since:] = [float(loss) for loss in self._losses[since:]]
        return self._losses[since:]

    def evaluate(self) -> Evaluation:
        from harness.worker.inputs.torch import batches

        validation = batches(self._job.evaluating())
        self._module.eval()
        with torch.no_grad(), self._autocast:
            classified = evaluation(
                (self._module(images.to(self._device)).cpu().numpy(), labels.numpy()) for images, labels in validation
            )
        self._module.train()
        return classified

    def values(self) -> Dict[str, np.ndarray]:
        return {name: torch_layers.canonical_copy(held) for name, held in self._held().items()}

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        held = self._held()
        for name, value in values.items():
            torch_layers.assign(held[name], value)

    def trace(self, notes: Notes) -> None:
        """Note when layers compute and when gradients are there, on the device's clock."""
        if self._cuda:
            by_cuda_events(notes)
        names = {held: name for name, held in torch_layers.trained(self._module, self._specification).items()}
        for module in self._module.modules():
            if held := [held for held in module.parameters(recurse=False) if held in names]:
                note_layer(module, {each: names[each] for each in held}, notes, computes=not self._job.emulation)

    def _held(self) -> Dict[str, torch.Tensor]:
        """All tensors that training changes, by name. Velocities that the optimizer still lacks are made here: zeros."""
        held = torch_layers.held(self._module, self._specification)
        if self._sgd.momentum:
            for name, parameter in torch_layers.trained(self._module, self._specification).items():
                state = self._optimizer.state[parameter]
                if state.get("momentum_buffer") is None:
                    state["momentum_buffer"] = torch.zeros_like(parameter)  # as the parameter lies in memory
                held[velocity(name)] = state["momentum_buffer"]
        return held

    def _state(self, world_size: int, transport: str, **details: Any) -> State:
        details.update(torch=torch.__version__, threads=torch.get_num_threads())
        if self._cuda:
            details["peak_memory_bytes"] = torch.cuda.max_memory_allocated()
        if self._scaler.is_enabled():
            details["loss_scale"] = self._scaler.get_scale()  # halved by each step that found an overflow and was none
        device = torch.cuda.get_device_name() if self._cuda else "cpu"
        return super()._state(world_size, transport, device=device, **details)

    def _inputs(self) -> Batches:
        if self._job.real_data:
            from harness.worker.inputs.torch import batches

            stream = self._timed(batches(self._job.reading(), pinned=self._cuda))
            stream = overlapped(stream, self._device) if self._cuda else stream
            return ((images.contiguous(memory_format=self._layout), labels) for images, labels in stream)
        images, labels = map(torch.from_numpy, self._job.synthetic_batch())
        # NHWC in memory, seen as NCHW: that is what PyTorch calls channels-last.
        resident = images.permute(0, 3, 1, 2).to(self._device, memory_format=self._layout), labels.to(self._device)
        return iter(lambda: resident, None)
