"""Incast, as gradients are added: every worker sends S bytes, S / P to each of P servers, which add them up."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.kernels.kernel import NUMBER, communication
from harness.kernels.values import difference, message

# A server has to receive its part from every worker.
SPECIFICATION = communication(
    "each worker's message is added on the servers", bus=lambda ranks, servers: ranks / servers
)


class WorkerBody:
    """One worker's message of ``size`` bytes, a part for each server. Sums are exact up to 2^24: a million steps of one."""

    def __init__(self, fabric: Any, size: int, seed: int) -> None:
        self._count, self._seed, self._size, self._steps = size // NUMBER, seed, fabric.size, 0
        mine = message(fabric.rank, self._count, seed)
        self._push, self._sums = fabric.pushing(np.array_split(mine, fabric.servers))

    def step(self) -> None:
        self._push()
        self._steps += 1

    def problem(self) -> str:
        """An error in the sums of all steps. All ranks have pushed by then."""
        arrived = self._sums()
        every = (message(rank, self._count, self._seed) for rank in range(self._size))
        return difference(arrived, self._steps * sum(every, start=0.0 * arrived))
