"""All-to-all: every rank has S bytes, a slice of S / n for each rank, and gets the slices that are for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.kernels.kernel import NUMBER, communication
from harness.kernels.values import difference, message

# A rank sends all slices but its own.
SPECIFICATION = communication(
    "each rank sends each other one a slice of its own", bus=lambda ranks, servers: (ranks - 1) / ranks, slices=True
)


class Body:
    """One rank's message of ``size`` bytes, cut into a slice for each rank."""

    def __init__(self, fabric: Any, size: int, seed: int) -> None:
        self._fabric, self._count, self._seed = fabric, size // NUMBER, seed
        self._mine = fabric.array(message(fabric.rank, self._count, seed))
        self._theirs = fabric.array(np.zeros(self._count, np.float32))

    def step(self) -> None:
        self._theirs = self._fabric.alltoall(self._mine, self._theirs)

    def problem(self) -> str:
        ranks, here = self._fabric.size, self._fabric.rank
        mine = slice(here * self._count // ranks, (here + 1) * self._count // ranks)
        slices = [message(rank, self._count, self._seed)[mine] for rank in range(ranks)]
        return difference(self._fabric.values(self._theirs), np.concatenate(slices))
