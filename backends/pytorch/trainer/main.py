"""PyTorch DDP, beside the framework: stock DistributedDataParallel with the fastest honest settings.

Over Gloo, NCCL, or an MPI that PyTorch was built with, DDP's own allreduce averages the gradients. PyTorch's wheels are
built without MPI; there a communication hook hands each bucket to MPI through mpi4py (see ``mpi_hook.py``).
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, List, Optional, Sequence

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from harness.worker import mpi
from harness.worker.frameworks.torch import TorchTrainer
from harness.worker.job import Job
from harness.worker.network import interface_of, listen
from harness.worker.trainer import State


class PyTorchTrainer(TorchTrainer):
    """One rank of a DDP job."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._hook: Any = None

    def setup(self) -> None:
        options = self._job.spec["options"]
        self._join()
        self.build()
        ddp = DistributedDataParallel(
            self._module,
            device_ids=[0] if self._cuda else None,
            bucket_cap_mb=options["bucket_mb"],
            broadcast_buffers=False,
            gradient_as_bucket_view=True,
        )
        if self._hook:
            ddp.register_comm_hook(None, lambda _, bucket: self._hook.average(bucket.buffer()))
        self._model = torch.compile(ddp) if options["compile"] else ddp

    def barrier(self) -> None:
        if self._hook:
            self._hook.barrier()
        else:
            dist.barrier()

    def total(self, numbers: Sequence[float]) -> List[float]:
        if self._hook:
            return list(self._hook.total(numbers))
        summed = torch.tensor(numbers, dtype=torch.float64, device=self._device)
        dist.all_reduce(summed)
        return list(summed.tolist())

    def state(self) -> State:
        if self._hook:
            return self._state(self._hook.size, self._transport(), mpi=self._hook.details())
        return self._state(dist.get_world_size(), self._transport())

    def close(self) -> None:
        if self._hook:
            self._hook.close()
        dist.destroy_process_group()

    def _join(self) -> None:
        job = self._job
        if job.spec["transport"] != "mpi":
            self._interface = _rendezvous(job, job.spec["transport"])
        elif dist.is_mpi_available():
            dist.init_process_group("mpi")
            mpi.check_world(dist.get_rank(), dist.get_world_size(), job.rank, job.world_size)
        else:
            from harness.backends.pytorch.trainer.mpi_hook import MpiHook

            # Over Gloo the ranks agree on the buckets, once. No gradient passes there.
            _rendezvous(job, "gloo")
            self._hook = MpiHook()
            mpi.check_world(self._hook.rank, self._hook.size, job.rank, job.world_size)

    def _transport(self) -> str:
        if self._hook:
            return f"{mpi.version()} through mpi4py"
        backend = dist.get_backend()
        if backend == "nccl":
            return "nccl " + ".".join(str(part) for part in torch.cuda.nccl.version())
        if backend == "mpi":
            return f"{mpi.version()} in PyTorch"
        return f"{backend} on {self._interface}"


def _rendezvous(job: Job, backend: str) -> str:
    """Join the process group. Returns the network interface that Gloo uses, the one that owns this rank's address."""
    master = job.processes("worker")[0]
    interface: str = interface_of(job.process["address"])
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = interface
    timeout = timedelta(seconds=job.spec["timeout_s"])
    # PyTorch's store would listen on every interface; handing it a bound socket keeps it on the job's own.
    listener: Optional[int] = listen(master["address"], master["port"]).detach() if job.rank == 0 else None
    store = dist.TCPStore(
        master["address"], master["port"], job.world_size, job.rank == 0, timeout, master_listen_fd=listener
    )
    dist.init_process_group(backend, store=store, rank=job.rank, world_size=job.world_size, timeout=timeout)
    return interface


create = PyTorchTrainer
