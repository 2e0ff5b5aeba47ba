"""The Fourier transform of a vector that is spread over the ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.kernels.fft.vector import Vector


class Body:
    """One rank's part of ``size`` numbers: n² times a power of two, a matrix of R rows and C columns."""

    def __init__(self, fabric: Any, size: int, seed: int) -> None:
        self._fabric, self._vector = fabric, Vector(fabric.size, size, seed)
        power = (size // fabric.size**2).bit_length() - 1
        self._r, self._c = fabric.size << power // 2, fabric.size << power - power // 2
        mine = self._vector.part(fabric.rank)
        self._x = fabric.array(mine)
        self._arrived = fabric.arithmetic.real(fabric.array(np.zeros_like(mine)))
        # By column, which this rank transforms first, what each number is multiplied by in between.
        columns = fabric.rank * (self._c // fabric.size) + np.arange(self._c // fabric.size)
        self._twiddles = fabric.array(np.exp(-2j * np.pi / size * (np.outer(columns, np.arange(self._r)) % size)))

    def step(self) -> None:
        self._transformed = self._transform(self._x)

    def problem(self) -> str:
        """What is wrong with this rank's numbers of the transform, or with all after the way back; called by all ranks."""
        rank, found = self._fabric.rank, self._fabric.values(self._transformed).copy()
        again = self._fabric.values(self._transform(self._fabric.array(found.conj())))
        return self._vector.problem(rank, found) or self._vector.problem_of_way_back(rank, again)

    def _transform(self, x: Any) -> Any:
        """X[k1 + R·k2] is the sum over c of W_N^(c·k1) · W_C^(c·k2) · the sum over r of W_R^(r·k1) · x[r, c]."""
        fft = self._fabric.arithmetic.fft
        columns = fft(self._transposed(x, self._r, self._c)) * self._twiddles
        rows = fft(self._transposed(columns, self._c, self._r))
        return self._fabric.arithmetic.permuted(self._transposed(rows, self._r, self._c), (-1,), (0,))

    def _transposed(self, mine: Any, rows: int, columns: int) -> Any:
        """This rank's columns, one after another, of a matrix of which every rank has some rows."""
        ranks, arithmetic, permuted = self._fabric.size, self._fabric.arithmetic, self._fabric.arithmetic.permuted
        few, narrow = rows // ranks, columns // ranks
        for_each = permuted(mine, (few, ranks, narrow), (1, 2, 0))  # for a rank its columns of these rows
        self._arrived = self._fabric.alltoall(arithmetic.real(permuted(for_each, (-1,), (0,))), self._arrived)
        arrived = permuted(arithmetic.complex(self._arrived), (ranks, narrow, few), (1, 0, 2))
        return permuted(arrived, (narrow, rows), (0, 1))
