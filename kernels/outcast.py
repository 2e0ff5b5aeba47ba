"""Outcast, as parameters are read: every worker reads the S bytes that the servers hold, S / P from each of P servers."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.kernels.kernel import NUMBER, communication
from harness.kernels.values import difference, message

# A server has to send its part to every worker.
SPECIFICATION = communication("each worker reads what the servers hold", bus=lambda ranks, servers: ranks / servers)


class WorkerBody:
    """One worker, which reads a message of ``size`` bytes, of which each server holds a part."""

    def __init__(self, fabric: Any, size: int, seed: int) -> None:
        self._held = message(0, size // NUMBER, seed)
        self._pull, self._arrived = fabric.pulling(np.array_split(self._held, fabric.servers))

    def step(self) -> None:
        self._pull()

    def problem(self) -> str:
        return difference(self._arrived(), self._held)
