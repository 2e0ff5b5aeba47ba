"""Ping-pong: the first rank sends the last one S bytes, which sends them back; the others wait."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.kernels.kernel import NUMBER, communication
from harness.kernels.values import difference, message

SPECIFICATION = communication("the first rank's message goes to the last rank and back", messages=2, processes=2)


class Body:
    """One rank's part in a message of ``size`` bytes to the last rank and back."""

    def __init__(self, fabric: Any, size: int, seed: int) -> None:
        self._fabric, self._last = fabric, fabric.size - 1
        self._sent = message(0, size // NUMBER, seed)
        self._mine, self._arrived = fabric.array(self._sent), fabric.array(np.zeros_like(self._sent))

    def step(self) -> None:
        if self._fabric.rank == 0:
            self._fabric.send(self._mine, self._last)
            self._arrived = self._fabric.recv(self._arrived, self._last)
        elif self._fabric.rank == self._last:
            self._arrived = self._fabric.recv(self._arrived, 0)
            self._fabric.send(self._arrived, 0)

    def problem(self) -> str:
        if self._fabric.rank not in (0, self._last):
            return ""
        return difference(self._fabric.values(self._arrived), self._sent)
