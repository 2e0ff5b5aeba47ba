"""The system that is solved: a dense, symmetric, positive definite matrix with a known solution, and its checks."""

from __future__ import annotations

import tempfile
from typing import Dict, List, Sequence

import numpy as np

from harness.kernels.values import difference

DECAY = 0.5  # A[i, j] is this to the power of |i - j|: its condition number is below 9, and 50 iterations are enough
WITHIN = 1e-10  # of what the solution, and the residual, may differ


class System:
    """One rank's rows of A·x = b, of ``size`` equations. The solution's numbers are whole, from 1 to 16."""

    def __init__(self, rank: int, ranks: int, size: int, seed: int) -> None:
        self.size, rows = size, size // ranks
        self.own = slice(rank * rows, (rank + 1) * rows)
        distance = np.abs(np.arange(size)[self.own, None] - np.arange(size))
        self.a = DECAY**distance
        self._exact = np.random.default_rng(seed).integers(1, 17, (size, 1)).astype(np.float64)
        self.b: np.ndarray = self.a @ self._exact

    def problem(self, x: np.ndarray) -> str:
        """Whether the residual is as small as it has to be, and the solution known.

        It is the true residual: the recursive one goes on falling whatever the solution is.
        """
        residual = difference(self.a @ x, self.b, WITHIN * np.abs(self.b).max())
        return residual or difference(x, self._exact, WITHIN * np.abs(self._exact).max())

    def problem_of_restart(self, again: np.ndarray, x: np.ndarray) -> str:
        """Whether what a checkpoint has led to is this rank's part of ``x``, too."""
        problem = difference(again, x[self.own], WITHIN * np.abs(x).max())
        return f"after a restart from a checkpoint {problem}" if problem else ""


def restored(state: Dict[str, np.ndarray]) -> Dict[str, np.ndarray]:
    """What a checkpoint of ``state`` holds."""
    with tempfile.TemporaryFile() as file:
        np.savez(file, **state)  # type: ignore[arg-type]
        file.seek(0)
        with np.load(file) as saved:
            return {name: saved[name] for name in saved.files}


def norms(squares: Sequence[float]) -> List[float]:
    """The residual's norm after each iteration relative to that at the beginning, of their squares."""
    return [float(np.sqrt(each / squares[0])) for each in squares[1:]]
