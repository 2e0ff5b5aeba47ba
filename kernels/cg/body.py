"""Conjugate gradients among ranks, with two sums and a vector that are gathered in each iteration."""

from __future__ import annotations

from typing import Any, Dict, List

import numpy as np

from harness.kernels.cg.specification import ITERATIONS
from harness.kernels.cg.system import System, norms, restored

State = Dict[str, Any]


class Body:
    """One rank's rows of a system.

    Sums over ranks are gathered and added up in the same way everywhere, so that all ranks go on with the same numbers.
    """

    def __init__(self, fabric: Any, size: int, seed: int) -> None:
        self._fabric, self._system = fabric, System(fabric.rank, fabric.size, size, seed)
        self._a = fabric.array(self._system.a)
        self._every, self._sums = fabric.array(np.zeros((size, 1))), fabric.array(np.zeros(fabric.size))
        self._ones = fabric.array(np.ones(fabric.size))

    def step(self) -> None:
        self._solved = self._iterated(self._start(), ITERATIONS)

    def problem(self) -> str:
        """What is wrong with the solution of the last step, or with that after a restart; called by all ranks."""
        every = self._fabric.allgather(self._solved["x"], self._fabric.array(np.zeros((self._system.size, 1))))
        x, again = self._fabric.values(every), self._restarted()  # all ranks try that, whatever they think of x
        return self._system.problem(x) or self._system.problem_of_restart(again, x)

    def history(self) -> List[float]:
        """The residual's norm after each iteration of the last step, relative to that at the beginning."""
        return norms([float(self._fabric.values(each)[0]) for each in self._squares])

    def _start(self) -> State:
        r = self._fabric.array(self._system.b)
        square = self._sum(r, r)
        self._squares = [square]
        return {"x": self._fabric.array(np.zeros_like(self._system.b)), "r": r, "p": r, "square": square}

    def _iterated(self, state: State, iterations: int) -> State:
        x, r, p, square = state["x"], state["r"], state["p"], state["square"]
        for _ in range(iterations):
            self._every = self._fabric.allgather(p, self._every)
            q = self._a @ self._every
            alpha = square / self._sum(p, q)
            x, r = x + alpha * p, r - alpha * q
            before, square = square, self._sum(r, r)
            p = r + (square / before) * p
            self._squares.append(square)
        return {"x": x, "r": r, "p": p, "square": square}

    def _sum(self, left: Any, right: Any) -> Any:
        """The product of two vectors of which every rank has a part."""
        dot = self._fabric.arithmetic.dot
        self._sums = self._fabric.allgather(dot(left, right), self._sums)
        return dot(self._sums, self._ones)

    def _restarted(self) -> np.ndarray:
        """This rank's part of x after half of the iterations, a checkpoint, and the other half."""
        half = self._iterated(self._start(), ITERATIONS // 2)
        saved = restored({name: self._fabric.values(array) for name, array in half.items()})
        again = {name: self._fabric.array(array) for name, array in saved.items()}
        x: np.ndarray = self._fabric.values(self._iterated(again, ITERATIONS - ITERATIONS // 2)["x"])
        return x
