"""Horovod with PyTorch: its DistributedOptimizer reduces each gradient as soon as backward has made it."""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

import horovod.torch as hvd
import torch

from harness.backends.horovod.trainer import world
from harness.worker.frameworks.torch import Replica
from harness.worker.job import Job
from harness.worker.trainer import ReplicaLearner, State


class HorovodTorchTrainer(ReplicaLearner):
    """One rank: one process, one device."""

    _replica: Replica

    def __init__(self, job: Job) -> None:
        self._job = job

    def setup(self) -> None:
        """Open the data, join Horovod's world, build the model."""
        replica = self._replica = Replica(self._job)
        self.clock = replica.clock
        world.join(self._job, hvd)
        self._module = replica.build()
        self._optimizer = replica.optimizer = hvd.DistributedOptimizer(
            replica.sgd(),
            named_parameters=[(name, held) for name, held in self._module.named_parameters() if held.requires_grad],
            compression=_InMemoryOrder(
                hvd.Compression.fp16 if self._job.spec["options"]["fp16_allreduce"] else hvd.Compression.none
            ),
            op=hvd.Average,
        )

    def step(self) -> None:
        """Forward, backward with the allreduce inside, SGD."""
        scaler = self._replica.scaler
        self._optimizer.zero_grad()
        self._replica.loss(self._module).backward()
        self._optimizer.synchronize()  # before the scaler looks at the gradients
        with self._optimizer.skip_synchronize():
            scaler.step(self._optimizer)
        scaler.update()

    def synchronize(self) -> None:
        """Wait for the device."""
        self._replica.synchronize()

    def barrier(self) -> None:
        """Wait for all ranks."""
        hvd.barrier()

    def total(self, numbers: Sequence[float]) -> List[float]:
        """The sums over all ranks. Of each length by a name of its own: Horovod remembers a name's shape."""
        mine = torch.tensor(numbers, dtype=torch.float64)
        summed: List[float] = hvd.allreduce(mine, op=hvd.Sum, name=f"total_{len(numbers)}").tolist()
        return summed

    def server_bytes(self) -> List[Tuple[int, int]]:
        """There are no servers."""
        return []

    def state(self) -> State:
        """This rank's parameters and what carried the gradients."""
        return self._replica.state(hvd.size(), world.transport(self._job, hvd))

    def close(self) -> None:
        """Leave Horovod's world."""
        hvd.shutdown()


class _InMemoryOrder:
    """Shows Horovod each gradient as it lies in memory, then compresses it.

    Horovod refuses tensors that are not contiguous, and gradients of channels-last weights are not, as PyTorch sees them.
    Seen as NHWC they are: the same bytes, without a copy.
    """

    def __init__(self, compression: Any) -> None:
        self._compression = compression

    def compress(self, gradient: torch.Tensor) -> Tuple[torch.Tensor, Tuple[bool, Any]]:
        """What is sent, and what ``decompress`` has to know."""
        turned = not gradient.is_contiguous() and gradient.dim() == 4
        compressed, context = self._compression.compress(gradient.permute(0, 2, 3, 1) if turned else gradient)
        return compressed, (turned, context)

    def decompress(self, received: torch.Tensor, context: Tuple[bool, Any]) -> torch.Tensor:
        """The averaged gradient as PyTorch sees it."""
        turned, inner = context
        gradient: torch.Tensor = self._compression.decompress(received, inner)
        return gradient.permute(0, 3, 1, 2) if turned else gradient
