"""The operations of PyTorch's parameter servers without a training: sums or values that they hold, over Gloo or MPI."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import DefaultDict, Generator, List, Sequence

import numpy as np
import torch

from harness import kernels
from harness.backends.torch_parameter_server.trainer.links import Link, Wait, finish, open_link
from harness.backends.torch_parameter_server.trainer.server import ANSWER, buffers, hold
from harness.kernels.kernel import NUMBER
from harness.worker.fabric import Fabric, Transfer
from harness.worker.job import Job

# A worker's requests, with a count of numbers: that a server holds those that follow, adds them to those that it holds, or
# sends these; that all workers meet, or leave. Each has an answer.
HOLD, ADD, READ, MEET, LEAVE = range(5)
MOST = 16  # messages that a server listens to at once
Parts = Sequence[np.ndarray]


class Servers(Fabric):
    """One worker. Each server that has a part is sent a request, then the part."""

    def __init__(self, job: Job) -> None:
        torch.set_num_threads(job.spec["threads"])
        self._link, self.rank, self.size = open_link(job), job.rank, job.world_size
        self.servers = len(job.processes("ps"))

    def pushing(self, parts: Parts) -> Transfer:
        pull, arrived = self.pulling([np.zeros_like(part) for part in parts])

        def sums() -> np.ndarray:
            pull()
            return arrived()

        return partial(self._ask, ADD, [torch.tensor(part) for part in parts if len(part)]), sums

    def pulling(self, parts: Parts) -> Transfer:
        held = [torch.tensor(part) for part in parts if len(part)]  # a message is never empty
        mine = [torch.zeros_like(part) for part in held]
        self.barrier()  # nobody reads any more what was held before
        if self.rank == 0:
            self._ask(HOLD, held)
        self.barrier()
        return partial(self._ask, READ, mine), lambda: torch.cat(mine).numpy()

    def barrier(self) -> None:
        self._ask(MEET, [torch.empty(1)])

    def transport(self) -> str:
        return self._link.name

    def close(self) -> None:
        self._ask(LEAVE, [torch.empty(1)] * self.servers)
        self._link.close()

    def _ask(self, request: int, parts: Sequence[torch.Tensor]) -> None:
        """Send a request to each of the first servers, with its part, and wait for the answers."""
        waits: List[Wait] = []
        for server, part in enumerate(parts, start=self.size):
            waits.append(self._link.receive(part if request == READ else torch.empty(1), server, ANSWER))
            waits.append(self._link.send(torch.tensor([request, part.numel()], dtype=torch.float64), server))
            if request in (HOLD, ADD):
                waits.append(self._link.send(part, server))
        finish(waits)


class Holder:
    """One server. Messages of several workers may be under way at once."""

    def __init__(self, job: Job, link: Link) -> None:
        self._job, self._link, self.is_done, self.notes = job, link, False, None
        self._held, self._met = torch.zeros(0), 0
        self.sending: DefaultDict[int, List[Wait]] = defaultdict(list)

    def buffers(self) -> List[torch.Tensor]:
        """One for the longest part of each worker's message, up to ``MOST``."""
        kernel, workers = kernels.specification(self._job.kernel["name"]), self._job.world_size
        numbers = kernel.sizes(self._job.kernel["sizes"], workers)[-1] // NUMBER
        return buffers(max(-(-numbers // len(self._job.processes("ps"))), 4), min(workers, MOST))

    def conversation(self, worker: int) -> Generator[None, torch.Tensor, None]:
        """Handle the messages of a worker. The generator is sent each of them, in a buffer that is longer."""
        answer = torch.zeros(1)
        while True:
            request, count = (int(number) for number in (yield).view(torch.float64)[:2])
            finish(self.sending.pop(worker, []))  # which this worker has had before it could ask again
            if request in (MEET, LEAVE):
                self._met = (self._met + 1) % self._job.world_size
                self._answer(() if self._met else range(self._job.world_size), answer)
                self.is_done = request == LEAVE and not self._met
                continue
            if request == HOLD:
                self._held = (yield)[:count].clone()
            elif request == ADD:
                self._held.add_((yield)[:count])
            self._answer([worker], self._held if request == READ else answer)

    def _answer(self, workers: Sequence[int], tensor: torch.Tensor) -> None:
        for worker in workers:
            self.sending[worker].append(self._link.send(tensor, worker, ANSWER))


create, serve = Servers, partial(hold, Holder)
