"""Allgather: every rank has a slice of S / n bytes, and gets the S bytes of all slices."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.kernels.kernel import NUMBER, communication
from harness.kernels.values import difference, message

# A rank receives all slices but its own.
SPECIFICATION = communication(
    "each rank gets the slices of all ranks", bus=lambda ranks, servers: (ranks - 1) / ranks, slices=True
)


class Body:
    """One rank's slice of a message of ``size`` bytes."""

    def __init__(self, fabric: Any, size: int, seed: int) -> None:
        self._fabric, self._seed = fabric, seed
        self._count = size // NUMBER // fabric.size
        self._mine = fabric.array(message(fabric.rank, self._count, seed))
        self._every = fabric.array(np.zeros(self._count * fabric.size, np.float32))

    def step(self) -> None:
        self._every = self._fabric.allgather(self._mine, self._every)

    def problem(self) -> str:
        slices = [message(rank, self._count, self._seed) for rank in range(self._fabric.size)]
        return difference(self._fabric.values(self._every), np.concatenate(slices))
