"""The last rank sends S bytes, which their holder adds to what it holds: the STREAM of "TensorFlow Doing HPC".

The holder is the first parameter server or, where there is none, the first rank. The other ranks wait.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.kernels.kernel import NUMBER, communication
from harness.kernels.values import difference, message

SPECIFICATION = communication("the last rank's message is added where it arrives", processes=2, steps_of=-1)


class Body:
    """One rank's part in messages of ``size`` bytes from the last rank to the first, which answers when it has added it."""

    def __init__(self, fabric: Any, size: int, seed: int) -> None:
        self._fabric, self._last, self._steps = fabric, fabric.size - 1, 0
        self._sent = message(self._last, size // NUMBER, seed)
        self._mine, self._answer = fabric.array(self._sent), fabric.array(np.zeros(1, np.float32))
        self._arrived, self._sum = (fabric.array(np.zeros_like(self._sent)) for _ in range(2))

    def step(self) -> None:
        if self._fabric.rank == self._last:
            self._fabric.send(self._mine, 0)
        if self._fabric.rank == 0:
            self._arrived = self._fabric.recv(self._arrived, self._last)
            self._sum += self._arrived
            self._fabric.send(self._answer, self._last)
        if self._fabric.rank == self._last:
            self._answer = self._fabric.recv(self._answer, 0)
        self._steps += 1

    def problem(self) -> str:
        """An error in the sum of all steps."""
        if self._fabric.rank != 0:
            return ""
        return difference(self._fabric.values(self._sum), self._steps * self._sent)


class WorkerBody:
    """One worker's part in messages of ``size`` bytes from the last worker to the first server."""

    def __init__(self, fabric: Any, size: int, seed: int) -> None:
        last = fabric.size - 1
        self._is_sender, self._steps = fabric.rank == last, 0
        self._sent = message(last, size // NUMBER, seed)
        self._push, self._sum = fabric.pushing([self._sent])

    def step(self) -> None:
        if self._is_sender:
            self._push()
        self._steps += 1

    def problem(self) -> str:
        """An error in the sum of all steps. The last rank has pushed by then."""
        return difference(self._sum(), self._steps * self._sent)
