"""A parameter server: one loop over the messages of all workers, in which it holds a conversation with each of them.

A worker's request is a few float64 numbers, after which it may send pieces; both sides know their order from the plan.
Everything else waits for the workers, so that a server needs neither a thread nor a lock for any of them.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict, deque
from functools import partial
from typing import Any, Callable, DefaultDict, Dict, Generator, List, NamedTuple, Optional, Sequence, Set, Tuple

import numpy as np
import torch

from harness.backends.torch_parameter_server.trainer.links import ANYBODY, Link, Wait, finish, open_link
from harness.worker import traffic
from harness.worker.frameworks.base import Sgd
from harness.worker.job import Job
from harness.worker.notes import APPLY, ASK, PULL, PUSH, Notes

# A worker's requests, with their arguments. A step: the learning rate; it gets values, and its gradients follow. A sum:
# numbers. Pieces to be read or written: VALUES or VELOCITIES. A server says that its update is COMPLETE, or that all are.
STEP, SUM, COUNT, READ, WRITE, LEAVE, COMPLETE, TRACE = range(8)
VALUES, VELOCITIES = range(2)
MOST_NUMBERS = 1024  # in one message
PULLED, ANSWER = range(2)  # tags of what a server sends
LARGEST = 2**18  # elements of a message with values or gradients: 1 MiB
ROOM = 2**28  # bytes of the gradients that a server listens to at once


class HeldPiece(NamedTuple):
    """Elements ``begin`` to ``end`` of a tensor, as it lies in the workers' memory, which server ``ps`` holds."""

    tensor: str
    ps: int
    begin: int
    end: int


def push_order(job: Job) -> List[HeldPiece]:
    """The order in which the pieces of a server are pushed: that of backward, the reverse of creation."""
    return _messages(job.plan["details"]["pieces"][::-1])


def pull_order(job: Job) -> List[HeldPiece]:
    order = list(job.plan["details"]["pieces"])
    if job.spec["options"]["order"] == "none":
        random.Random(job.spec["seed"]).shuffle(order)  # noqa: S311 - the same everywhere
    return _messages(order)


def _messages(pieces: Sequence[Tuple[str, int, int, int]]) -> List[HeldPiece]:
    """The messages for pieces of the plan, in their order: parts of no more than ``LARGEST`` elements."""
    return [
        HeldPiece(tensor, ps, at, min(at + LARGEST, end))
        for tensor, ps, begin, end in pieces
        for at in range(begin, end, LARGEST)
    ]


def note(notes: Notes, kind: str, piece: HeldPiece, worker: str, begins: bool, step: Optional[int] = None) -> None:
    """Note that a piece begins to move between a worker and its server, or that it has come."""
    ends, now = (f"ps-{piece.ps}", worker), notes.now()
    source, target = ends if kind == PULL else ends[::-1]
    begin, end = (now, now) if kind == ASK else (now, None) if begins else (None, now)
    size = 4 * (piece.end - piece.begin)
    notes.note(kind, label(piece), begin, end, size=size, source=source, target=target, step=step)


def label(piece: HeldPiece) -> str:
    return f"{piece.tensor}:{piece.begin}"


def hold(make: Callable[[Job, Link], Any], job: Job, ready: Callable[[], None]) -> Optional[Notes]:
    """Be the server that ``make`` makes, until it is done: it holds a conversation with each worker. Returns its notes."""
    torch.set_num_threads(job.spec["threads"])
    link = open_link(job)
    server = make(job, link)
    conversations = [server.conversation(rank) for rank in range(len(job.plan["processes"]))]
    for conversation in conversations:
        next(conversation)
    ready()
    # As many messages are under way at once as there are buffers. They are heard in the order of their announcements.
    waiting = deque((buffer, link.receive(buffer, ANYBODY)) for buffer in server.buffers())
    while True:
        buffer, wait = waiting.popleft()
        conversations[wait()].send(buffer)
        if server.is_done:
            break
        waiting.append((buffer, link.receive(buffer, ANYBODY)))
    finish(wait for waits in server.sending.values() for wait in waits)
    link.close()
    notes: Optional[Notes] = server.notes
    return notes


def buffers(elements: int, count: int) -> List[torch.Tensor]:
    """Room for ``count`` messages of so many elements, for two in any case."""
    elements += elements % 2  # they may hold numbers of 8 bytes
    return [torch.empty(elements) for _ in range(max(count, 2))]


class Server:
    """Updates the parameters. ``_awaited`` workers' gradients make an update: all of them or, with ``--sync none``, one.

    Who has pushed to one gets values when it is complete. Every piece has values, a sum if several workers are awaited, and
    with momentum a velocity.

    If all workers are awaited, no server sends values before every server's update is complete, as TensorFlow's do not.
    A server that goes on alone gains nothing, as the forward pass needs all servers' values, but shares its node's link
    with the gradients that others still wait for. Servers then drift apart: InceptionV3 on 8 nodes with two servers and
    0.5 GB/s took 1.4 s in the second step, and 2.1 s in the sixth.
    """

    def __init__(self, job: Job, link: Link) -> None:
        self._link, self._sgd, self._workers = link, Sgd.of(job.spec), job.world_size
        self._awaited = job.world_size if job.spec["options"]["sync"] == "accumulate" else 1
        self._pushed = [piece for piece in push_order(job) if piece.ps == job.rank]
        self._pulled = [piece for piece in pull_order(job) if piece.ps == job.rank]
        self._held = {VALUES: self._zeros(), VELOCITIES: self._zeros() if self._sgd.momentum else {}}
        self._sums = self._zeros() if self._awaited > 1 else {}
        self._pushes: DefaultDict[HeldPiece, int] = defaultdict(int)
        self._applied = 0  # pieces
        self._pushers: Set[int] = set()  # who has pushed all to the update under way
        self._asking: List[int] = []  # who of them has begun the next step
        self._numbers: Dict[int, List[float]] = {}
        self.sending: DefaultDict[int, List[Wait]] = defaultdict(list)
        self._number, processes = job.world_size + job.rank, len(job.plan["processes"])
        self._together: Sequence[int] = range(job.world_size, processes) if self._awaited > 1 else [self._number]
        self._complete = 0  # updates under way, of the servers that go on together, as the first of these counts them
        self._waiting = self._left = False
        self.notes: Optional[Notes] = None
        self._name = job.name
        self._steps: Dict[int, int] = {}  # of traced ones, that under way by worker

    @property
    def is_done(self) -> bool:
        return self._left and not self._waiting

    def buffers(self) -> List[torch.Tensor]:
        """Buffers for as many messages as have ``ROOM``, of those that all workers can send in a step.

        A server hears messages in the order of their announcements. With room for few, all may be of the worker that is
        ahead. Its link is shared by all servers, so that each of their links is half idle or more: InceptionV3 on 4 nodes
        with two servers and 0.125 GB/s took 2.8 s with room for 16 tensors, 2.5 s with room for 256.
        """
        largest = max(*(piece.end - piece.begin for piece in self._pulled), 2 * (MOST_NUMBERS + 2))
        return buffers(largest, min(ROOM // (4 * largest), self._workers * (len(self._pushed) + 1)))

    def conversation(self, worker: int) -> Generator[None, torch.Tensor, None]:
        """Handle the messages of a worker. The generator is sent each of them, in a buffer that is longer."""
        while True:
            numbers = (yield).view(torch.float64)
            request, count = int(numbers[0]), int(numbers[1])
            arguments = numbers[2 : 2 + count].tolist()
            if request == STEP:
                if self.notes:
                    self._steps[worker] += 1
                if worker in self._pushers:
                    self._asking.append(worker)
                else:
                    self._serve([worker])
                for piece in self._pushed:
                    gradient = (yield)[: piece.end - piece.begin]
                    self._note(PUSH, piece, worker)
                    began = time.perf_counter()
                    self._add(piece, gradient, rate=arguments[0])
                    if self.notes:
                        self.notes.note(APPLY, label(piece), began, self.notes.now(), step=self._steps[worker])
                # It had all values before it could push: nothing is waited for.
                finish(self.sending.pop(worker, []))
                self._pushers.add(worker)
                if len(self._pushers) == self._awaited:
                    self._waiting = True
                    if self._number == self._together[0]:
                        self._another_is_complete()
                    else:
                        self._say_complete(self._together[:1])
            elif request == COMPLETE:
                self._another_is_complete()
            elif request == TRACE:
                self.notes = self.notes or Notes(self._name)
                self._steps[worker] = -1
            elif request == COUNT:
                self._answer([worker], [*traffic.total(), self._applied // len(self._pulled)])
            elif request == READ:
                for piece in self._pulled:
                    self._send(worker, self._held[int(arguments[0])][piece], ANSWER)
            elif request == WRITE:
                for piece in self._pulled:
                    self._held[int(arguments[0])][piece].copy_((yield)[: piece.end - piece.begin])
                self._answer([worker], [])
            else:  # SUM or LEAVE, which is all workers' sum of nothing
                self._numbers[worker] = arguments
                if len(self._numbers) == self._workers:
                    ranks = range(self._workers)
                    self._answer(ranks, np.sum([self._numbers.pop(rank) for rank in ranks], axis=0).tolist())
                    if request == LEAVE:
                        self._left = True

    def _zeros(self) -> Dict[HeldPiece, torch.Tensor]:
        return {piece: torch.zeros(piece.end - piece.begin) for piece in self._pulled}

    def _add(self, piece: HeldPiece, gradient: torch.Tensor, rate: float) -> None:
        """Add a worker's gradient to the sum, and apply it once it is complete."""
        self._pushes[piece] += 1
        if self._awaited > 1:
            pushed, gradient = gradient, self._sums[piece]
            of_step = self._pushes[piece] % self._awaited
            gradient.copy_(pushed) if of_step == 1 else gradient.add_(pushed)
            if of_step:
                return
        self._applied += 1
        values, decay, share = self._held[VALUES][piece], self._sgd.decay(piece.tensor), 1 / self._workers
        if self._sgd.momentum:
            velocity = self._held[VELOCITIES][piece].mul_(self._sgd.momentum)
            values.sub_(velocity.add_(values, alpha=decay).add_(gradient, alpha=share), alpha=rate)
        else:
            if decay:
                values.mul_(1 - rate * decay)
            values.sub_(gradient, alpha=rate * share)

    def _another_is_complete(self) -> None:
        """The first of the servers that go on together has heard of one more update, or another one of all."""
        self._complete += 1
        if self._number == self._together[0]:
            if self._complete < len(self._together):
                return
            self._say_complete(self._together[1:])
        self._complete, self._waiting = 0, False
        self._pushers.clear()
        self._serve(self._asking)
        self._asking.clear()

    def _say_complete(self, servers: Sequence[int]) -> None:
        for rank in servers:
            finish(self.sending.pop(rank, []))  # what it was told an update ago
            self._send(rank, torch.tensor([COMPLETE, 0.0], dtype=torch.float64), 0)

    def _serve(self, workers: Sequence[int]) -> None:
        for piece in self._pulled:
            for worker in workers:
                self._send(worker, self._held[VALUES][piece], PULLED)
                self._note(PULL, piece, worker)

    def _note(self, kind: str, piece: HeldPiece, worker: int) -> None:
        if self.notes:
            note(self.notes, kind, piece, f"worker-{worker}", begins=kind == PULL, step=self._steps[worker])

    def _answer(self, workers: Sequence[int], numbers: List[float]) -> None:
        answer = torch.tensor([*numbers, 0.0], dtype=torch.float64)  # a message is never empty
        for worker in workers:
            self._send(worker, answer, ANSWER)

    def _send(self, worker: int, tensor: torch.Tensor, tag: int) -> None:
        self.sending[worker].append(self._link.send(tensor, worker, tag))


serve = partial(hold, Server)
