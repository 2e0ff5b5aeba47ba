"""Push, as gradients are added on parameter servers."""

from __future__ import annotations

from typing import Any

from harness.kernels.kernel import NUMBER
from harness.kernels.values import difference, message


class Body:
    """One worker's message of ``size`` bytes. Sums are exact up to 2^24: a million pushes of one worker."""

    def __init__(self, fabric: Any, size: int, seed: int) -> None:
        self._count, self._seed, self._size, self._pushes = size // NUMBER, seed, fabric.size, 0
        self._push, self._sums = fabric.pushing(message(fabric.rank, self._count, seed))

    def step(self) -> None:
        self._push()
        self._pushes += 1

    def problem(self) -> str:
        """What is wrong with the sums of all pushes; called by all ranks, when all have pushed."""
        arrived = self._sums()
        every = (message(rank, self._count, self._seed) for rank in range(self._size))
        return difference(arrived, self._pushes * sum(every, start=0.0 * arrived))
