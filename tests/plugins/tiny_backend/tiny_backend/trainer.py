"""The tiny backend beside its framework, which is NumPy: synchronous SGD, gradients averaged by worker 0.

It moves the parameters of the model that was asked for, from the initial values of all backends, and every worker's images
pull at them. But it descends a bowl and not the model's loss: a real backend lets its framework compute loss and gradients
(see harness/worker/frameworks). Everything else is as it has to be.

Workers load this file alone, on the Python of the backend's environment: it imports the standard library, the framework,
and of harness what runs beside a framework (harness.worker, harness.models). Python 3.9.
"""

from __future__ import annotations

import socket
import time

import numpy as np

from harness import models
from harness.models.initial import initial_values
from harness.worker.job import Job
from harness.worker.network import listen
from harness.worker.trainer import State, Trainer


def create(job: Job) -> TinyTrainer:
    """The trainer of one worker."""
    return TinyTrainer(job)


class TinyTrainer(Trainer):
    """One rank: one process, one device. NumPy has finished when it returns, so that there is nothing to synchronize."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._losses: list[float] = []
        self._world_size = 0

    def setup(self) -> None:
        """Join the others, load the initial weights, open the data."""
        job = self._job
        self._specification = models.specification(job.spec["model"])
        values = initial_values(self._specification, job.spec["seed"])
        self._parameters = np.concatenate([values[tensor.name].ravel() for tensor in self._specification.tensors])
        images, _ = job.synthetic_batch()
        self._bottom = np.float32(images.mean())  # every worker's bowl has its own
        self._world = _World(job)

    def step(self) -> None:
        """The gradient on this worker's images, its mean over all workers, SGD."""
        steepness, rate = self._job.spec["options"]["steepness"], self._job.spec["learning_rate"]
        gradient = steepness * (self._parameters - self._bottom)
        self._losses.append(float(gradient @ gradient) / (2 * steepness * gradient.size))
        self._parameters -= rate * self._world.sum(gradient) / self._job.world_size

    def barrier(self) -> None:
        """Wait for all workers; the sum of a one from each says how many there are."""
        self._world_size = int(self._world.sum(np.ones(1, np.float32))[0])

    def state(self) -> State:
        """What was seen, never what was asked for: the world's size, what carried the gradients."""
        ends = np.cumsum([tensor.elements for tensor in self._specification.tensors])[:-1]
        parts = zip(self._specification.tensors, np.split(self._parameters, ends))  # noqa: B905 - Python 3.9
        return State(
            parameters={tensor.name: part.reshape(tensor.shape) for tensor, part in parts},
            losses=self._losses,
            updates=len(self._losses),
            world_size=self._world_size,
            transport=self._world.transport(),
            device="cpu",
            details={"numpy": np.__version__},
        )

    def close(self) -> None:
        """Leave the others."""
        self._world.close()


class _World:
    """All workers, connected to worker 0 at the address that the plan gives it."""

    def __init__(self, job: Job) -> None:
        first = job.processes("worker")[0]
        address, port, deadline = first["address"], first["port"], time.monotonic() + job.spec["timeout_s"]
        if job.rank == 0:
            with listen(address, port) as server:
                self._peers = [server.accept()[0] for _ in range(job.world_size - 1)]
        else:
            self._peers = [_connected(address, port, deadline)]
        self._gathers = job.rank == 0

    def sum(self, vector: np.ndarray) -> np.ndarray:
        """The sum of all workers' vectors, float32."""
        if self._gathers:
            vector = vector + sum(_received(peer, vector.size) for peer in self._peers)
        for peer in self._peers:
            peer.sendall(vector.astype(np.float32).tobytes())
        return vector if self._gathers else _received(self._peers[0], vector.size)

    def transport(self) -> str:
        """The addresses of the other ends."""
        others = [":".join(map(str, peer.getpeername())) for peer in self._peers]
        return "tcp with " + (", ".join(sorted(others)) or "nobody")

    def close(self) -> None:
        for peer in self._peers:
            peer.close()


def _connected(address: str, port: int, deadline: float) -> socket.socket:
    """A connection to worker 0, which may not listen yet."""
    while True:
        try:
            return socket.create_connection((address, port))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _received(peer: socket.socket, elements: int) -> np.ndarray:
    vector = np.empty(elements, np.float32)
    view = memoryview(vector).cast("B")
    while view:
        count = peer.recv_into(view)
        if not count:
            raise ConnectionError("a worker has left")
        view = view[count:]
    return vector
