"""The Fourier transform of N numbers, complex128, of which every rank has N / n in order, before and after.

Beside parameter servers a worker has a tile, every n-th number, which the first server merges with the others, as in
"TensorFlow Doing HPC". Worker i of n transforms x[i], x[i + n], … and puts it into a queue of that server. There
X[k + m·N/n] is the sum over i of W_n^(i·m) · W_N^(i·k) · the k-th number of tile i. The transform stays on the server.
"""

from __future__ import annotations

import time
from math import log2
from typing import Any, Callable, List

import numpy as np

from harness.kernels.kernel import Kernel
from harness.kernels.values import difference, drawn

FEW = 1 << 16  # so many numbers NumPy transforms to compare with; of more, random ones are summed up one by one
BINS = 3
WITHIN = 1e-12  # of the numbers' norm, which is the root of their mean square after the transform


def nearest(limit: int, ranks: int) -> int:
    """n² times the largest power of two up to ``limit``: rows and columns of the vector as a matrix are both divided.

    It is at least 2, for a single number needs no operations, and a rate of 0 is none.
    """
    return max(int(ranks**2 * 2 ** int(log2(max(limit // ranks**2, 1)))), 2)


# Three transpositions move all numbers each, transforms along both dimensions lie between them (Bailey 1990, "FFTs in
# external or hierarchical memory"). HPCC counts 5 N log2 N operations, whatever the algorithm needs.
SPECIFICATION = Kernel(
    "a transform of N numbers that are spread over the ranks",
    size=nearest,
    work=lambda size: 5.0 * size * log2(size),
    memory=lambda size, ranks: 16.0 * (4 * size / ranks + 2 * size),  # the check makes all numbers
    usual=(1 << 20,),
)


class Vector:
    """``size`` numbers with whole parts, of which every rank has as many, in order."""

    def __init__(self, ranks: int, size: int, seed: int) -> None:
        self._ranks, self._size, self._seed = ranks, size, seed
        self.count = size // ranks

    def part(self, rank: int) -> np.ndarray:
        parts = drawn(self._seed, rank, 2, self.count)
        return parts[0] + 1j * parts[1]

    def every(self) -> np.ndarray:
        return np.concatenate([self.part(rank) for rank in range(self._ranks)])

    def problem(self, rank: int, transformed: np.ndarray) -> str:
        """An error in a rank's numbers of the transform, compared with NumPy's or, some of them, with sums; "" if none."""
        every, begin = self.every(), rank * self.count
        norm = float(np.linalg.norm(every))
        if self._size <= FEW:
            return difference(transformed, np.fft.fft(every)[begin : begin + self.count], WITHIN * norm)
        bins = np.random.default_rng(self._seed).integers(0, self.count, BINS)
        numbers = np.arange(self._size)
        sums = [every @ np.exp(-2j * np.pi / self._size * ((begin + each) * numbers % self._size)) for each in bins]
        return difference(transformed[bins], np.array(sums), WITHIN * norm)

    def problem_of_way_back(self, rank: int, again: np.ndarray) -> str:
        """An error in a rank's numbers of the transform of the transform's conjugate, "" if none.

        They are N times the conjugate of what they were at first.
        """
        return difference(again.conj() / self._size, self.part(rank), WITHIN * 16)


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
        """An error in this rank's numbers of the transform, or in all after the way back."""
        rank, transformed = self._fabric.rank, self._fabric.values(self._transformed).copy()
        again = self._fabric.values(self._transform(self._fabric.array(transformed.conj())))
        return self._vector.problem(rank, transformed) or self._vector.problem_of_way_back(rank, again)

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


def tiles(fabric: Any, size: int) -> Any:
    return fabric.queue(f"tiles_{size}", (size // fabric.size,), np.complex128)


def news(fabric: Any, event: str, size: int, rank: int) -> Any:
    """The queue that tells a rank that the tiles are ``collected``, by a number of them, or ``merged``."""
    return fabric.queue(f"{event}_{size}_{rank}", ())


def transform(fabric: Any, size: int) -> Any:
    return fabric.held(f"transform_{size}", (size,), np.complex128)


class WorkerBody:
    """One worker's tile. ``collected_s`` has for each step how long it took until the merger had all tiles."""

    def __init__(self, fabric: Any, size: int, seed: int) -> None:
        self._fabric, self._size, self._vector = fabric, size, Vector(fabric.size, size, seed)
        self.collected_s: List[float] = []
        self.step = self._transforming(self._vector.every())

    def problem(self) -> str:
        """An error in some numbers of the transform, or in some after the way back."""
        rank, count = self._fabric.rank, self._vector.count
        held = transform(self._fabric, self._size)
        part = self._fabric.program(lambda: held.part(0, self._size))
        every, mine = part().copy(), slice(rank * count, (rank + 1) * count)
        self._fabric.barrier()  # all have read it
        self._transforming(every.conj())()
        return self._vector.problem(rank, every[mine]) or self._vector.problem_of_way_back(rank, part()[mine])

    def _transforming(self, every: np.ndarray) -> Callable[[], None]:
        """A function that transforms these numbers, each worker its tile."""
        fabric, rank = self._fabric, self._fabric.rank
        tile = fabric.array(every[rank :: fabric.size])
        to_server = tiles(fabric, self._size)
        there, complete = (news(fabric, event, self._size, rank) for event in ("collected", "merged"))
        collect = fabric.program(lambda: there.get(after=[to_server.put(fabric.arithmetic.fft(tile), rank)])[0])
        wait = fabric.program(lambda: complete.get()[0])

        def transform() -> None:
            began = time.perf_counter()
            collect()
            self.collected_s.append(time.perf_counter() - began)
            wait()

        return transform


def reducer(fabric: Any, size: int, seed: int) -> List[Callable[[], None]]:
    """The first server's loop, which merges tiles."""
    if fabric.rank != 0:
        return []
    arithmetic, ranks, count, held = fabric.arithmetic, fabric.size, size // fabric.size, transform(fabric, size)
    twiddles = fabric.array(np.exp(1j * (np.outer(np.arange(count), range(ranks)) * (-2 * np.pi / size))))
    collected = [news(fabric, "collected", size, rank) for rank in range(ranks)]
    merged = [news(fabric, "merged", size, rank) for rank in range(ranks)]

    def merge() -> List[Any]:
        gathered = tiles(fabric, size).gather(ranks)
        number = arithmetic.permuted(arithmetic.real(gathered[:1]), (-1,), (0,))[0]
        sent = [queue.put(number) for queue in collected]
        by_number = arithmetic.permuted(gathered, (ranks, count), (1, 0))
        columns = arithmetic.fft(by_number * twiddles)
        return [*sent, held.set(arithmetic.permuted(arithmetic.permuted(columns, (count, ranks), (1, 0)), (-1,), (0,)))]

    programs = [fabric.program(build) for build in (merge, lambda: [queue.put(np.float64(0)) for queue in merged])]

    def loop() -> None:
        for program in programs:
            program()

    return [loop]
