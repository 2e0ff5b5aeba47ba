"""Stream, to a parameter server."""

from __future__ import annotations

from typing import Any

from harness.kernels.kernel import NUMBER
from harness.kernels.values import difference, message


class Body:
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
        """What is wrong with the sum of all steps; called by all ranks, when the last one has pushed."""
        return difference(self._sum(), self._steps * self._sent)
