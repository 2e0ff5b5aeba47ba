"""Messages between two processes of a run, over Gloo or over MPI: straight out of and into the memory of flat tensors.

Processes are numbered as in the plan, workers first. ``send`` and ``receive`` return at once, with a function that waits
for the end and, of a message from anybody, returns who sent it. Messages from one process to another with one tag arrive in
their order. A message may be shorter than the tensor that receives it. Nobody polls: sockets wake who waits.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Deque, Iterable, List, Optional, Tuple, Union

import torch
import torch.distributed as dist

from harness.worker.frameworks.torch import join
from harness.worker.job import Job
from harness.worker.mpi import leave, mpi_version, open_mpi_world

Wait = Callable[[], Any]
ANYBODY: Optional[int] = None


class GlooLink:
    """Gloo moves messages in a thread of its own, in C, once their receiver is ready for them."""

    def __init__(self, job: Job) -> None:
        self.name = f"gloo on {join(job, 'gloo', job.plan['processes'])}"

    def send(self, tensor: torch.Tensor, peer: int, tag: int = 0) -> Wait:
        return dist.isend(tensor, peer, tag=tag).wait

    def receive(self, tensor: torch.Tensor, peer: Optional[int], tag: int = 0) -> Wait:
        work: Any = dist.irecv(tensor, peer, tag=tag)
        return lambda: work.wait() and work._source_rank()

    def close(self) -> None:
        dist.destroy_process_group()


class MpiLink:
    """MPI moves messages while somebody calls it: a thread that sleeps until there is something to move."""

    def __init__(self, job: Job) -> None:
        self._mpi, self._world = open_mpi_world(job)
        if self._mpi.Query_thread() < self._mpi.THREAD_SERIALIZED:
            raise RuntimeError(f"{mpi_version()} allows no second thread to call it; use --transport gloo")
        self.name = f"{mpi_version()} through mpi4py"
        self._new: Deque[Tuple[Callable[[], Any], Future[int]]] = deque()
        self._news, self._closing = News(), False
        self._thread = threading.Thread(target=self._move, name="mpi", daemon=True)
        self._thread.start()

    def send(self, tensor: torch.Tensor, peer: int, tag: int = 0) -> Wait:
        return self._begin(lambda: self._world.Isend([tensor.numpy(), self._mpi.BYTE], peer, tag))

    def receive(self, tensor: torch.Tensor, peer: Optional[int], tag: int = 0) -> Wait:
        source = self._mpi.ANY_SOURCE if peer is ANYBODY else peer
        return self._begin(lambda: self._world.Irecv([tensor.numpy(), self._mpi.BYTE], source, tag))

    def close(self) -> None:
        self._closing = True
        self._news.announce()
        self._thread.join()
        leave(self._mpi)

    def _begin(self, operation: Callable[[], Any]) -> Wait:
        if not self._thread.is_alive():
            raise RuntimeError("MPI has failed before")
        future: Future[int] = Future()
        self._new.append((operation, future))
        self._news.announce()
        return future.result

    def _move(self) -> None:
        requests: List[Any] = []
        futures: List[Future[int]] = []
        try:
            while not self._closing:
                while self._new:
                    operation, future = self._new.popleft()
                    futures.append(future)
                    requests.append(operation())
                statuses: List[Any] = []
                if done := self._mpi.Request.Testsome(requests, statuses):
                    for index, status in zip(done, statuses):
                        futures[index].set_result(status.Get_source())
                    futures = [future for future, request in zip(futures, requests) if request]
                    requests = [request for request in requests if request]
                elif not self._new:
                    self._news.wait()
            for request in requests:  # what a server still waits to hear
                request.Cancel()
            self._mpi.Request.Waitall(requests)
        except BaseException as error:  # who waits has to hear of it
            for future in (*futures, *(future for _, future in self._new)):
                if not future.done():
                    future.set_exception(error)


class News:
    """Sleep until MPI's network has something to say, or somebody here.

    libfabric waits for its TCP sockets with epoll, and so can we: for its epoll. One look may not find all that there is,
    so the next one comes soon, and later ones ever later. Where MPI's network has no sockets, such as InfiniBand, nothing
    can wake a sleeper: there are short naps.
    """

    NAP_S, SOON_S, LATE_S = 1e-4, 2e-3, 0.25

    def __init__(self) -> None:
        self._poll, self._seconds = select.epoll(), self.SOON_S
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        opened = {int(link.name): str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}
        del opened[self._poll.fileno()]
        polls = [number for number, target in opened.items() if target == "anon_inode:[eventpoll]"]
        self._can_sleep = bool(polls)
        for number in polls:
            self._poll.register(number, select.EPOLLIN | select.EPOLLET)
        self._poll.register(self._reader, select.EPOLLIN)

    def announce(self) -> None:
        with suppress(BlockingIOError):  # enough is announced
            os.write(self._writer, b"!")

    def wait(self) -> None:
        if not self._can_sleep:
            time.sleep(self.NAP_S)
        heard = self._poll.poll(self._seconds if self._can_sleep else 0)
        self._seconds = self.SOON_S if heard else min(2 * self._seconds, self.LATE_S)
        if any(number == self._reader for number, _ in heard):
            os.read(self._reader, 4096)


Link = Union[GlooLink, MpiLink]


def finish(waits: Iterable[Wait]) -> None:
    for wait in waits:
        wait()


def open_link(job: Job) -> Link:
    return MpiLink(job) if job.spec["transport"] == "mpi" else GlooLink(job)
