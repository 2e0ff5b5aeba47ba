"""PyTorch's operations without a training: torch.distributed's over Gloo or NCCL, MPI's through mpi4py."""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist

from harness.worker.fabric import Fabric, of_torch
from harness.worker.frameworks.torch import CudaMarks, carrier, join
from harness.worker.job import Job
from harness.worker.mpi import Mpi


class Distributed(Fabric):
    """torch.distributed's default group."""

    arithmetic = of_torch()

    def __init__(self, job: Job) -> None:
        self.cuda = job.spec["device"] == "cuda"
        if self.cuda:
            self.marks = CudaMarks
        torch.set_num_threads(job.spec["threads"])
        # Gloo's sums take what is on a GPU; its messages are of the host's memory.
        self._through_host = self.cuda and job.spec["transport"] == "gloo"
        self._interface = join(job, job.spec["transport"], job.processes("worker"))
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def array(self, values: np.ndarray) -> torch.Tensor:
        return torch.tensor(values, device="cuda" if self.cuda else "cpu")

    def values(self, array: torch.Tensor) -> np.ndarray:
        return array.cpu().numpy()

    def allreduce(self, array: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(array)
        return array

    def allgather(self, mine: torch.Tensor, every: torch.Tensor) -> torch.Tensor:
        dist.all_gather_into_tensor(every, mine)
        return every

    def alltoall(self, mine: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
        dist.all_to_all_single(theirs, mine)
        return theirs

    def send(self, array: torch.Tensor, rank: int) -> None:
        dist.send(array.cpu() if self._through_host else array, rank)

    def recv(self, array: torch.Tensor, rank: int) -> torch.Tensor:
        arriving = torch.empty_like(array, device="cpu") if self._through_host else array
        dist.recv(arriving, rank)
        return array.copy_(arriving) if self._through_host else array

    def synchronize(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def barrier(self) -> None:
        dist.barrier()

    def transport(self) -> str:
        return carrier(self._interface)

    def close(self) -> None:
        dist.destroy_process_group()


class TorchMpi(Mpi):
    """MPI's world, with the memory of tensors, which the hook hands to MPI, too."""

    arithmetic = of_torch()

    def __init__(self, job: Job) -> None:
        torch.set_num_threads(job.spec["threads"])
        super().__init__(job)

    def array(self, values: np.ndarray) -> torch.Tensor:
        return torch.tensor(values)

    def values(self, array: torch.Tensor) -> np.ndarray:
        return array.numpy()


def create(job: Job) -> Fabric:
    return TorchMpi(job) if job.spec["transport"] == "mpi" else Distributed(job)
