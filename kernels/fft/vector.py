"""The vector that is transformed, and how its transform is checked."""

from __future__ import annotations

import numpy as np

from harness.kernels.values import difference, drawn

FEW = 1 << 16  # so many numbers NumPy transforms to compare with; of more, random ones are summed up one by one
BINS = 3
WITHIN = 1e-12  # of the numbers' norm, which is the root of their mean square after the transform


class Vector:
    """``size`` numbers with whole parts, of which every rank has as many, in order."""

    def __init__(self, ranks: int, size: int, seed: int) -> None:
        self._ranks, self._size, self._seed = ranks, size, seed
        self.count = size // ranks

    def part(self, rank: int) -> np.ndarray:
        parts: np.ndarray = drawn(self._seed, rank, 2, self.count)
        values: np.ndarray = parts[0] + 1j * parts[1]
        return values

    def every(self) -> np.ndarray:
        return np.concatenate([self.part(rank) for rank in range(self._ranks)])

    def problem(self, rank: int, found: np.ndarray) -> str:
        """Whether a rank's numbers of the transform are those of NumPy's or, some of them, what sums say."""
        every, begin = self.every(), rank * self.count
        norm = float(np.linalg.norm(every))
        if self._size <= FEW:
            return difference(found, np.fft.fft(every)[begin : begin + self.count], WITHIN * norm)
        bins = np.random.default_rng(self._seed).integers(0, self.count, BINS)
        numbers = np.arange(self._size)
        sums = [every @ np.exp(-2j * np.pi / self._size * ((begin + each) * numbers % self._size)) for each in bins]
        return difference(found[bins], np.array(sums), WITHIN * norm)

    def problem_of_way_back(self, rank: int, again: np.ndarray) -> str:
        """Whether a rank's numbers are there again in the transform of the transform's conjugate.

        That is N times the conjugate of what it was at first.
        """
        return difference(again.conj() / self._size, self.part(rank), WITHIN * 16)
