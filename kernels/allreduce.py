"""Allreduce, in place as gradients are summed: every rank has S bytes, and gets the sums of all ranks' in their place."""

from __future__ import annotations

from typing import Any

from harness.kernels.kernel import NUMBER, communication
from harness.kernels.values import difference, message

# The least that a rank has to send: each of its n parts of S / n once to be summed, and each sum once, but for its own.
SPECIFICATION = communication(
    "each rank's message is replaced by the sum of all ranks'", bus=lambda ranks, servers: 2 * (ranks - 1) / ranks
)


class Body:
    """One rank's message of ``size`` bytes."""

    def __init__(self, fabric: Any, size: int, seed: int) -> None:
        self._fabric, self._count, self._seed = fabric, size // NUMBER, seed
        self._array = self._mine()

    def step(self) -> None:
        """Values grow with every step, up to infinity, which takes as long to add."""
        self._array = self._fabric.allreduce(self._array)

    def problem(self) -> str:
        """An error in one more step from the beginning."""
        arrived = self._fabric.values(self._fabric.allreduce(self._mine()))
        every = (message(rank, self._count, self._seed) for rank in range(self._fabric.size))
        return difference(arrived, sum(every, start=0.0 * arrived))

    def _mine(self) -> Any:
        return self._fabric.array(message(self._fabric.rank, self._count, self._seed))
