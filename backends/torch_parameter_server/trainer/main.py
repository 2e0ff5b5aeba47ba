"""PyTorch with parameter servers, beside the framework: pulls overlap with the forward pass, pushes with the backward pass.

A gradient leaves as soon as it exists, unless one for the same server that comes before it in the plan's order of backward
does not exist yet. As a step begins values are asked for, which a server sends once it has all gradients that it waits
for: straight into the parameters, in the order of ``--order``. The forward pass waits for those of a layer when it comes to
it. So a step, as in TensorFlow, is a pull and a push, and no pull of a measured step lies outside the window.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import replace
from functools import partial
from typing import DefaultDict, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import torch

from harness.backends.torch_parameter_server.trainer import server
from harness.backends.torch_parameter_server.trainer.links import Wait, finish, open_link
from harness.models import torch_layers
from harness.worker import traffic
from harness.worker.checkpoint import velocity
from harness.worker.frameworks.torch import TorchTrainer
from harness.worker.notes import ASK, PULL, PUSH, Notes
from harness.worker.trainer import Evaluation, State


class PullAndPush(TorchTrainer):
    """One worker. By tensor, ``_sending`` and ``_coming`` are messages to wait for, ``_gradients`` those of a step."""

    def setup(self) -> None:
        job = self._job
        self._link, self._rate = open_link(job), self._sgd.rate
        self._servers = range(job.world_size, len(job.plan["processes"]))
        self._order = server.pull_order(job)
        self._pieces: DefaultDict[str, List[server.HeldPiece]] = defaultdict(list)
        for piece in self._order:
            self._pieces[piece.tensor].append(piece)
        self._holders = {name: {piece.ps for piece in pieces} for name, pieces in self._pieces.items()}
        self._pushes: DefaultDict[int, List[server.HeldPiece]] = defaultdict(list)
        for piece in server.push_order(job):
            self._pushes[piece.ps].append(piece)
        self._sending: DefaultDict[str, List[Wait]] = defaultdict(list)
        self._coming: DefaultDict[str, List[Wait]] = defaultdict(list)
        self._gradients: Dict[str, torch.Tensor] = {}
        self._notes: Optional[Notes] = None
        self.build()
        trained = torch_layers.trained(self._module, self._specification)
        self._flat = {name: flat(parameter) for name, parameter in trained.items()}
        for name, parameter in trained.items():
            parameter.register_post_accumulate_grad_hook(partial(self._push, name))
        names = {parameter: name for name, parameter in trained.items()}
        for module in self._module.modules():
            if of_module := [names[held] for held in module.parameters(recurse=False) if held in names]:
                module.register_forward_pre_hook(lambda *_, names=of_module: self._wait(names))
        self._write(server.VALUES, self._flat)

    def step(self) -> None:
        for piece, (ps, part) in zip(self._order, self._parts(self._flat)):
            self._coming[piece.tensor].append(self._link.receive(part, ps, server.PULLED))
        self._optimizer.zero_grad(set_to_none=True)
        self._ask(server.STEP, [self._rate])
        self._note(ASK, self._order)
        self._gradients.clear()
        self._unsent = {ps: deque(pieces) for ps, pieces in self._pushes.items()}
        self.loss().backward()

    def barrier(self) -> None:
        """Every server has all gradients of all workers, too."""
        self._world_size = int(self._sum([1], self._servers)[0])

    def set_learning_rate(self, rate: float) -> None:
        self._rate = rate

    def total(self, numbers: Sequence[float]) -> List[float]:
        """Server 0 adds them up, in the order of ranks."""
        sums: List[float] = []
        for begin in range(0, len(numbers), server.MOST_NUMBERS):
            sums += self._sum(numbers[begin : begin + server.MOST_NUMBERS], self._servers[:1])
        return sums

    def evaluate(self) -> Evaluation:
        self._read(server.VALUES, self._flat)
        return super().evaluate()

    def server_bytes(self) -> List[Tuple[int, int]]:
        if self._job.rank != 0:
            return []
        self._ask(server.COUNT)
        return traffic.known(self._hear(ps, 3) for ps in self._servers)

    def values(self) -> Dict[str, np.ndarray]:
        for kind, tensors in self._of_servers():
            self._read(kind, tensors)
        return super().values()

    def restore(self, values: Mapping[str, np.ndarray]) -> None:
        super().restore(values)
        for kind, tensors in self._of_servers():
            first = self._order[0].tensor
            if (first if kind == server.VALUES else velocity(first)) in values:
                self._write(kind, tensors)

    def state(self) -> State:
        self._ask(server.COUNT, to=self._servers[:1])
        updates = int(self._hear(self._servers[0], 3)[2])
        return replace(self._state(self._world_size, self._link.name), updates=updates)

    def trace(self, notes: Notes) -> None:
        self._notes = notes
        self._ask(server.TRACE)
        super().trace(notes)

    def close(self) -> None:
        """All workers wait until the last one has said so: for a server the death of a worker is an error."""
        self._ask(server.LEAVE)
        for ps in self._servers:
            self._hear(ps, 0)
        self._link.close()

    def _push(self, name: str, parameter: torch.Tensor) -> None:
        """The gradient of a tensor exists, and lies in memory as the tensor does (autograd's layout contract)."""
        assert parameter.grad is not None
        self._gradients[name] = flat(parameter.grad)
        for ps in self._holders[name]:
            unsent = self._unsent[ps]
            while unsent and unsent[0].tensor in self._gradients:
                piece = unsent.popleft()
                part = self._gradients[piece.tensor][piece.begin : piece.end]
                self._sending[piece.tensor].append(self._link.send(part, self._servers[ps]))
                self._note(PUSH, [piece])

    def _wait(self, names: Sequence[str]) -> None:
        """Wait for the values of tensors, and for their gradients, which have arrived before that."""
        for name in names:
            finish(self._coming.pop(name, []))
            self._note(PULL, self._pieces[name])
            finish(self._sending.pop(name, []))

    def _note(self, kind: str, pieces: Sequence[server.HeldPiece]) -> None:
        """Note that this worker asks for pieces, sends them (the begin of a transfer), or has them (the end of one)."""
        if self._notes:
            for piece in pieces:
                server.note(self._notes, kind, piece, self._job.name, begins=kind == PUSH)

    def _read(self, kind: int, tensors: Mapping[str, torch.Tensor]) -> None:
        """Flat ``tensors`` become what the servers hold."""
        self._ask(server.READ, [kind])
        finish([self._link.receive(part, ps, server.ANSWER) for ps, part in self._parts(tensors)])

    def _write(self, kind: int, tensors: Mapping[str, torch.Tensor]) -> None:
        """Worker 0's flat ``tensors`` become what the servers hold."""
        if self._job.rank == 0:
            self._ask(server.WRITE, [kind])
            finish([self._link.send(part, ps) for ps, part in self._parts(tensors)])
            for ps in self._servers:
                self._hear(ps, 0)

    def _of_servers(self) -> Iterator[Tuple[int, Dict[str, torch.Tensor]]]:
        """The kinds of values on the servers, and this worker's for each: flat tensors by the parameter's name."""
        yield server.VALUES, self._flat
        if self._sgd.momentum:
            held = self._held()
            yield server.VELOCITIES, {name: flat(held[velocity(name)]) for name in self._flat}

    def _parts(self, tensors: Mapping[str, torch.Tensor]) -> Iterator[Tuple[int, torch.Tensor]]:
        """Each piece's server and its part of the flat ``tensors``, in the order of pulls."""
        return ((self._servers[ps], tensors[name][begin:end]) for name, ps, begin, end in self._order)

    def _ask(self, request: int, arguments: Sequence[float] = (), to: Optional[Sequence[int]] = None) -> None:
        finish(self._sending.pop("", []))  # the requests before
        message = torch.tensor([request, len(arguments), *arguments], dtype=torch.float64)
        self._sending[""] = [self._link.send(message, ps) for ps in to or self._servers]

    def _sum(self, numbers: Sequence[float], servers: Sequence[int]) -> List[float]:
        """All workers' numbers, added up by each of these servers."""
        self._ask(server.SUM, numbers, to=servers)
        sums, *_ = (self._hear(ps, len(numbers)) for ps in servers)
        return sums

    def _hear(self, ps: int, count: int) -> List[float]:
        numbers = torch.empty(count + 1, dtype=torch.float64)
        self._link.receive(numbers, ps, server.ANSWER)()
        return list(numbers[:count].tolist())


create, serve = PullAndPush, server.serve


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a dense tensor as they lie in memory."""
    return tensor.detach().as_strided((tensor.numel(),), (1,))
