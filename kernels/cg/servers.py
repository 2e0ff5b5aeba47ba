"""Conjugate gradients beside parameter servers, as in "TensorFlow Doing HPC": the first server reduces what workers have.

In each iteration it gathers p and returns it to all workers, and twice it adds up a number of each, in the order of ranks.
Workers put these into three queues, and have one each for what comes back, so that an iteration is a single program.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, List, Tuple

import numpy as np

from harness.kernels.cg.specification import ITERATIONS
from harness.kernels.cg.system import System, norms, restored

VECTOR, PRODUCT, SQUARE = "p", "pq", "rr"
State = Dict[str, Any]


def queues(fabric: Any, size: int, what: str, rank: int) -> Tuple[Any, Any]:
    """The queue to the first server, and that from it to a rank."""
    part, whole = ((size // fabric.size, 1), (size, 1)) if what == VECTOR else ((1,), (1,))
    return fabric.queue(f"{what}_{size}", part), fabric.queue(f"{what}_{size}_to_{rank}", whole)


class Body:
    """One worker's rows of a system."""

    def __init__(self, fabric: Any, size: int, seed: int) -> None:
        self._fabric, self._system = fabric, System(fabric.rank, fabric.size, size, seed)
        self._a, self._dot = fabric.array(self._system.a), fabric.arithmetic.dot
        vector, number = self._system.b, np.zeros(1)
        self._square = fabric.program(lambda r: self._reduced(SQUARE, self._dot(r, r)), vector)
        self._iterate = fabric.program(self._iteration, vector, vector, vector, number)
        self._gather = fabric.program(partial(self._reduced, VECTOR), vector)

    def step(self) -> None:
        self._solved = self._iterated(self._start(), ITERATIONS)

    def problem(self) -> str:
        """What is wrong with the solution of the last step, or with that after a restart; called by all ranks."""
        x = self._gather(self._solved["x"])
        half = restored(self._iterated(self._start(), ITERATIONS // 2))
        again = self._iterated(half, ITERATIONS - ITERATIONS // 2)["x"]
        return self._system.problem(x) or self._system.problem_of_restart(again, x)

    def history(self) -> List[float]:
        """The residual's norm after each iteration of the last step, relative to that at the beginning."""
        return norms([float(each[0]) for each in self._squares])

    def _start(self) -> State:
        r = self._system.b
        square = self._square(r)
        self._squares = [square]
        return {"x": np.zeros_like(r), "r": r, "p": r, "square": square}

    def _iterated(self, state: State, iterations: int) -> State:
        x, r, p, square = state["x"], state["r"], state["p"], state["square"]
        for _ in range(iterations):
            x, r, p, square = self._iterate(x, r, p, square)
            self._squares.append(square)
        return {"x": x, "r": r, "p": p, "square": square}

    def _iteration(self, x: Any, r: Any, p: Any, square: Any) -> List[Any]:
        q = self._a @ self._reduced(VECTOR, p)
        alpha = square / self._reduced(PRODUCT, self._dot(p, q))
        x, r = x + alpha * p, r - alpha * q
        after = self._reduced(SQUARE, self._dot(r, r))
        return [x, r, r + (after / square) * p, after]

    def _reduced(self, what: str, part: Any) -> Any:
        """What the first server makes of all ranks' parts."""
        there, back = queues(self._fabric, self._system.size, what, self._fabric.rank)
        return back.get(after=[there.put(part, self._fabric.rank)])[0]


class Reducer:
    """The first server's part."""

    def __init__(self, fabric: Any, size: int, seed: int) -> None:
        self._fabric, self._size = fabric, size
        whats = (VECTOR, PRODUCT, SQUARE) if fabric.rank == 0 else ()
        self._programs = [fabric.program(partial(self._reduce, what)) for what in whats]

    def loops(self) -> List[Callable[[], Any]]:
        return self._programs

    def _reduce(self, what: str) -> List[Any]:
        ranks = range(self._fabric.size)
        every = queues(self._fabric, self._size, what, 0)[0].gather(len(ranks))
        whole = every if what == VECTOR else self._fabric.arithmetic.dot(every, np.ones(len(ranks)))
        return [queues(self._fabric, self._size, what, rank)[1].put(whole) for rank in ranks]
