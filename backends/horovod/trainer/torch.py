"""Horovod with PyTorch: its DistributedOptimizer reduces each gradient as soon as backward has made it."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any, Dict, List, Sequence, Tuple

import horovod.torch as hvd
import torch

from harness.backends.horovod.trainer import world
from harness.models import torch_layers
from harness.worker.frameworks.torch import TorchTrainer
from harness.worker.notes import REDUCE, Notes
from harness.worker.trainer import State

LOOK_S = 0.5e-3


class HorovodTorchTrainer(TorchTrainer):
    """Horovod averages the gradients before its optimizer takes a step."""

    def setup(self) -> None:
        world.join(self._job, hvd)
        self.build()
        self._optimizer = hvd.DistributedOptimizer(
            self._optimizer,
            named_parameters=[(name, held) for name, held in self._module.named_parameters() if held.requires_grad],
            compression=_InMemoryOrder(
                hvd.Compression.fp16 if self._job.spec["options"]["fp16_allreduce"] else hvd.Compression.none
            ),
            op=hvd.Average,
        )
        # Horovod makes the optimizer anew without this mark of a fused one, to which the scaler leaves what it would
        # otherwise do beside it, waiting for the GPU in every step.
        self._optimizer._step_supports_amp_scaling = True

    def step(self) -> None:
        self._optimizer.zero_grad()
        self.loss().backward()
        self._optimizer.synchronize()  # before the scaler looks at the gradients
        with self._optimizer.skip_synchronize():
            self._scaler.step(self._optimizer)
        self._scaler.update()

    def barrier(self) -> None:
        hvd.barrier()

    def total(self, numbers: Sequence[float]) -> List[float]:
        """Numbers of each length have a name of their own: Horovod remembers a name's shape."""
        mine = torch.tensor(numbers, dtype=torch.float64)
        return hvd.allreduce(mine, op=hvd.Sum, name=f"total_{len(numbers)}").tolist()

    def trace(self, notes: Notes) -> None:
        """Also when gradients are handed to Horovod, and when it has averaged them, to within ``LOOK_S``."""
        super().trace(notes)
        names = {held: name for name, held in torch_layers.trained(self._module, self._specification).items()}
        under_way: Dict[int, Tuple[Any, ...]] = {}
        hand_over = self._optimizer._allreduce_grad_async

        def reduce(held: torch.Tensor) -> Tuple[int, Any]:
            began = time.perf_counter()
            handle, context = hand_over(held)
            under_way[handle] = names[held], began, held.nbytes, notes.step
            return handle, context

        def look() -> None:
            while True:
                for handle, (name, began, size, step) in list(under_way.items()):
                    with suppress(ValueError):  # the main thread has waited for it just now
                        if not hvd.poll(handle):
                            continue
                    notes.note(REDUCE, name, began, time.perf_counter(), size=size, step=step)
                    del under_way[handle]
                time.sleep(LOOK_S)

        self._optimizer._allreduce_grad_async = reduce
        threading.Thread(target=look, name="trace", daemon=True).start()

    def state(self) -> State:
        return self._state(hvd.size(), world.transport(self._job, hvd))

    def close(self) -> None:
        hvd.shutdown()


class _InMemoryOrder:
    """Shows Horovod each gradient as it lies in memory, then compresses it.

    Horovod refuses tensors that are not contiguous, and gradients of channels-last weights are not, as PyTorch sees them.
    Seen as NHWC they are: the same bytes, without a copy.
    """

    def __init__(self, compression: Any) -> None:
        self._compression = compression

    def compress(self, gradient: torch.Tensor) -> Tuple[torch.Tensor, Tuple[bool, Any]]:
        turned = not gradient.is_contiguous() and gradient.dim() == 4
        compressed, context = self._compression.compress(gradient.permute(0, 2, 3, 1) if turned else gradient)
        return compressed, (turned, context)

    def decompress(self, received: torch.Tensor, context: Tuple[bool, Any]) -> torch.Tensor:
        turned, inner = context
        gradient: torch.Tensor = self._compression.decompress(received, inner)
        return gradient.permute(0, 3, 1, 2) if turned else gradient


create = HorovodTorchTrainer
