"""Gradients averaged by MPI: a DDP communication hook that hands every bucket to one thread, which calls MPI_Allreduce.

DDP calls the hook as soon as a bucket's gradients are complete, while backward goes on. The thread reduces the buckets in
that order, which is the same on all ranks, and releases Python's lock meanwhile: so communication overlaps with backward
wherever MPI allows a second thread (MPI_THREAD_SERIALIZED or more). Where it does not, the hook itself calls MPI.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch

from harness.backends.pytorch.trainer.fabric import TorchMpi
from harness.worker.job import Job


class MpiHook(TorchMpi):
    """The hook of one rank. Call it from one thread only, as DDP does."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self.overlaps = self._mpi.Query_thread() >= self._mpi.THREAD_SERIALIZED
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="allreduce")

    def average(self, gradients: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        """Start to average a bucket's gradients (float32, flat) over all ranks, in place."""
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        if self.overlaps:
            self._thread.submit(self._average, gradients, future)
        else:
            self._average(gradients, future)
        return future

    def close(self) -> None:
        self._thread.shutdown()
        super().close()

    def _average(self, gradients: torch.Tensor, future: torch.futures.Future[torch.Tensor]) -> None:
        try:
            self.allreduce(gradients)
            future.set_result(gradients.div_(self.size))
        except BaseException as error:  # backward is waiting, and has to hear of it
            future.set_exception(error)
