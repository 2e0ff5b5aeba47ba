"""The Fourier transform by tiles, which a parameter server merges, as in "TensorFlow Doing HPC".

Worker i of n transforms the tile x[i], x[i + n], … and puts it into a queue of the first server, which merges the tiles:
X[k + m·N/n] is the sum over i of W_n^(i·m) · W_N^(i·k) · the k-th number of tile i. The transform stays on the server.
"""

from __future__ import annotations

import time
from typing import Any, Callable, List

import numpy as np

from harness.kernels.fft.vector import Vector


def tiles(fabric: Any, size: int) -> Any:
    return fabric.queue(f"tiles_{size}", (size // fabric.size,), np.complex128)


def told(fabric: Any, what: str, size: int, rank: int) -> Any:
    """The queue that tells a rank that the tiles are ``collected``, by a number of them, or ``merged``."""
    return fabric.queue(f"{what}_{size}_{rank}", ())


def transform(fabric: Any, size: int) -> Any:
    return fabric.held(f"transform_{size}", (size,), np.complex128)


class Body:
    """One worker's tile. ``collected_s`` has for each step how long it took until the merger had all tiles."""

    def __init__(self, fabric: Any, size: int, seed: int) -> None:
        self._fabric, self._size, self._vector = fabric, size, Vector(fabric.size, size, seed)
        self.collected_s: List[float] = []
        self.step = self._transforming(self._vector.every())

    def problem(self) -> str:
        """What is wrong with some numbers of the transform, or with some after the way back; called by all ranks."""
        rank, count = self._fabric.rank, self._vector.count
        held = transform(self._fabric, self._size)
        part = self._fabric.program(lambda: held.part(0, self._size))
        every, own = part().copy(), slice(rank * count, (rank + 1) * count)
        self._fabric.barrier()  # all have read it
        self._transforming(every.conj())()
        return self._vector.problem(rank, every[own]) or self._vector.problem_of_way_back(rank, part()[own])

    def _transforming(self, every: np.ndarray) -> Callable[[], None]:
        """What transforms these numbers, each worker its tile."""
        fabric, rank = self._fabric, self._fabric.rank
        tile = fabric.array(every[rank :: fabric.size])
        to_server = tiles(fabric, self._size)
        there, complete = (told(fabric, what, self._size, rank) for what in ("collected", "merged"))
        collect = fabric.program(lambda: there.get(after=[to_server.put(fabric.arithmetic.fft(tile), rank)])[0])
        wait = fabric.program(lambda: complete.get()[0])

        def transform() -> None:
            began = time.perf_counter()
            collect()
            self.collected_s.append(time.perf_counter() - began)
            wait()

        return transform


class Reducer:
    """The first server, which merges tiles."""

    def __init__(self, fabric: Any, size: int, seed: int) -> None:
        self._fabric, self._size, self._is_merger = fabric, size, fabric.rank == 0
        if self._is_merger:
            ranks, held = range(fabric.size), transform(fabric, size)
            angles = np.outer(np.arange(size // fabric.size), ranks) * (-2 * np.pi / size)
            self._twiddles = fabric.array(np.exp(1j * angles))
            self._there = [told(fabric, "collected", size, rank) for rank in ranks]
            self._merge = fabric.program(lambda: self._merged(held))
            complete = [told(fabric, "merged", size, rank) for rank in ranks]
            self._tell = fabric.program(lambda: [queue.put(np.float64(0)) for queue in complete])

    def loops(self) -> List[Callable[[], None]]:
        return [self._transform] if self._is_merger else []

    def _transform(self) -> None:
        self._merge()
        self._tell()

    def _merged(self, held: Any) -> Any:
        arithmetic, ranks, count = self._fabric.arithmetic, self._fabric.size, self._size // self._fabric.size
        gathered = tiles(self._fabric, self._size).gather(ranks)
        number = arithmetic.permuted(arithmetic.real(gathered[:1]), (-1,), (0,))[0]
        sent = [queue.put(number) for queue in self._there]
        by_number = arithmetic.permuted(gathered, (ranks, count), (1, 0))
        columns = arithmetic.fft(by_number * self._twiddles)
        return [*sent, held.set(arithmetic.permuted(arithmetic.permuted(columns, (count, ranks), (1, 0)), (-1,), (0,)))]
