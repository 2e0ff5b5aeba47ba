"""What carries PyTorch's gradients, by itself: torch.distributed's operations over Gloo or NCCL, MPI's through mpi4py."""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist

from harness.worker.fabric import Fabric
from harness.worker.frameworks.torch import CudaMarks, carrier, join
from harness.worker.job import Job
from harness.worker.network import check_mpi_world, mpi_version


class Distributed(Fabric):
    """torch.distributed's default group."""

    def __init__(self, job: Job) -> None:
        self._cuda = job.spec["device"] == "cuda"
        if self._cuda:
            self.marks = CudaMarks
        torch.set_num_threads(job.spec["threads"])
        self._interface = join(job, job.spec["transport"], job.processes("worker"))
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def array(self, values: np.ndarray) -> torch.Tensor:
        return torch.tensor(values, device="cuda" if self._cuda else "cpu")

    def values(self, array: torch.Tensor) -> np.ndarray:
        values: np.ndarray = array.cpu().numpy()
        return values

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
        dist.send(array, rank)

    def recv(self, array: torch.Tensor, rank: int) -> torch.Tensor:
        dist.recv(array, rank)
        return array

    def synchronize(self) -> None:
        if self._cuda:
            torch.cuda.synchronize()

    def barrier(self) -> None:
        dist.barrier()

    def transport(self) -> str:
        return carrier(self._interface)

    def close(self) -> None:
        dist.destroy_process_group()


class Mpi(Fabric):
    """MPI's world, with arrays of NumPy: what the hook hands to MPI is one, too."""

    def __init__(self, job: Job) -> None:
        from mpi4py import MPI

        self._mpi, self._world = MPI, MPI.COMM_WORLD
        self.rank, self.size = self._world.Get_rank(), self._world.Get_size()
        check_mpi_world(self.rank, self.size, job.rank, job.world_size)

    def array(self, values: np.ndarray) -> np.ndarray:
        return values.copy()

    def values(self, array: np.ndarray) -> np.ndarray:
        return array

    def allreduce(self, array: np.ndarray) -> np.ndarray:
        self._world.Allreduce(self._mpi.IN_PLACE, array, op=self._mpi.SUM)
        return array

    def allgather(self, mine: np.ndarray, every: np.ndarray) -> np.ndarray:
        self._world.Allgather(mine, every)
        return every

    def alltoall(self, mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        self._world.Alltoall(mine, theirs)
        return theirs

    def send(self, array: np.ndarray, rank: int) -> None:
        self._world.Send(array, rank)

    def recv(self, array: np.ndarray, rank: int) -> np.ndarray:
        self._world.Recv(array, rank)
        return array

    def barrier(self) -> None:
        self._world.Barrier()

    def transport(self) -> str:
        return f"{mpi_version()} through mpi4py"

    def close(self) -> None:
        self._mpi.Finalize()


def create(job: Job) -> Fabric:
    return Mpi(job) if job.spec["transport"] == "mpi" else Distributed(job)
