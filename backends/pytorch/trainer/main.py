"""PyTorch DDP, beside the framework: stock DistributedDataParallel with the fastest honest settings.

Over Gloo or NCCL, DDP's own allreduce averages the gradients. PyTorch's wheels are built without MPI; there a communication
hook hands each bucket to MPI through mpi4py (see ``mpi_hook.py``).
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any, Callable, List, Sequence

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from harness.models import torch_layers
from harness.worker.frameworks.torch import TorchTrainer, carrier, join
from harness.worker.notes import BACKWARD, FORWARD, READY, REDUCE, Notes
from harness.worker.trainer import State

Averaging = torch.futures.Future[torch.Tensor]


class PyTorchTrainer(TorchTrainer):
    """One rank of a DDP job."""

    _hook: Any = None  # over MPI
    _train: Any = None  # with a graph

    def setup(self) -> None:
        job, options = self._job, self._job.spec["options"]
        transport = job.spec["transport"]
        graphs = options["cuda_graphs"]
        if graphs:
            os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
        # Over Gloo the ranks of an MPI world agree on the buckets, once. No gradient passes there.
        self._interface = join(job, "gloo" if transport == "mpi" else transport, job.processes("worker"))
        if transport == "mpi":
            from harness.backends.pytorch.trainer.mpi_hook import MpiHook

            self._hook = MpiHook(job)
        self.build()
        self.synchronize()  # the stream of a graph reads what another one has copied
        aside = torch.cuda.Stream() if graphs else None
        with torch.cuda.stream(aside) if graphs else nullcontext():
            ddp = DistributedDataParallel(
                self._module,
                device_ids=[0] if self._cuda else None,
                bucket_cap_mb=options["bucket_mb"] * job.bytes_scale,
                broadcast_buffers=False,
                gradient_as_bucket_view=True,
            )
        if graphs:
            from harness.backends.pytorch.trainer.graph import GraphedStep

            self._train = GraphedStep(self.train, aside)
        if self._hook:
            self._average: Callable[[dist.GradBucket], Averaging] = lambda bucket: self._hook.average(bucket.buffer())
            ddp.register_comm_hook(None, lambda _, bucket: self._average(bucket))
        self._ddp, self._model = ddp, torch.compile(ddp) if options["compile"] else ddp

    def step(self) -> None:
        self._losses.append((self._train or self.train)(*next(self._batches)))

    def barrier(self) -> None:
        (self._hook or dist).barrier()

    def total(self, numbers: Sequence[float]) -> List[float]:
        summed = torch.tensor(numbers, dtype=torch.float64, device=self._device)
        self._hook.allreduce(summed) if self._hook else dist.all_reduce(summed)
        return list(summed.tolist())

    def state(self) -> State:
        if self._hook:
            return self._state(self._hook.size, self._hook.transport(), mpi={"overlap": self._hook.overlaps})
        return self._state(dist.get_world_size(), carrier(self._interface))

    def trace(self, notes: Notes) -> None:
        """Also when buckets are handed over and averaged. A compiled or recorded step is traced in no other way."""
        if self._train or self._job.spec["options"]["compile"]:
            notes.missing.update(dict.fromkeys((FORWARD, BACKWARD, READY), "the step is compiled as a whole"))
        else:
            super().trace(notes)
        names = {held: name for name, held in torch_layers.trained(self._module, self._specification).items()}

        def average(bucket: dist.GradBucket) -> Averaging:
            buffer, began, step = bucket.buffer(), notes.now(), notes.step
            held = " ".join(names[each] for each in bucket.parameters())

            def averaged(future: Any) -> torch.Tensor:
                notes.note(REDUCE, held, began, notes.now(), size=buffer.nbytes, step=step)
                return buffer

            if self._hook:
                return self._hook.average(buffer).then(averaged)
            summing = dist.all_reduce(buffer.div_(dist.get_world_size()), async_op=True)
            return summing.get_future().then(averaged)

        self._average = average
        if not self._hook:
            self._ddp.register_comm_hook(None, lambda _, bucket: average(bucket))

    def close(self) -> None:
        if self._hook:
            self._hook.close()
        if self._train:
            self._train.close()
        dist.destroy_process_group()


create = PyTorchTrainer
