"""The matrices that are multiplied, and how their product is checked."""

from __future__ import annotations

import numpy as np

from harness.kernels.values import difference, drawn


class Matrices:
    """A and B, of ``size`` rows of whole numbers, by blocks of rows: the product is exact, in whatever order."""

    def __init__(self, ranks: int, size: int, seed: int) -> None:
        self._ranks, self._size, self._seed, self.rows = ranks, size, seed, size // ranks

    def a(self, rank: int) -> np.ndarray:
        return drawn(self._seed, rank, self.rows, self._size)

    def b(self, rank: int) -> np.ndarray:
        return drawn(self._seed + 1, rank, self.rows, self._size)

    def problem(self, rank: int, c: np.ndarray) -> str:
        """Freivalds' check: a wrong number in a row of C makes C·v differ from A·(B·v)."""
        v = drawn(self._seed, -1 % 2**32, self._size) + 1
        return difference(c @ v, self.a(rank) @ np.concatenate([self.b(each) @ v for each in range(self._ranks)]))
