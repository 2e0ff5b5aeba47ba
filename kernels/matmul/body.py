"""Matrix multiplication, by blocks of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.kernels.matmul.matrices import Matrices


class Body:
    """One rank's rows of two matrices and of their product."""

    def __init__(self, fabric: Any, size: int, seed: int) -> None:
        self._fabric, self._matrices = fabric, Matrices(fabric.size, size, seed)
        self._a, self._b = (fabric.array(block(fabric.rank)) for block in (self._matrices.a, self._matrices.b))
        self._every = fabric.array(np.zeros((size, size)))

    def step(self) -> None:
        self._every = self._fabric.allgather(self._b, self._every)
        self._c = self._a @ self._every

    def problem(self) -> str:
        """What is wrong with this rank's rows of the product; called by all ranks."""
        return self._matrices.problem(self._fabric.rank, self._fabric.values(self._c))
