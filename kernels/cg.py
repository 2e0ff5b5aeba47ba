"""A·x = b by conjugate gradients, float64: every rank has N / n rows of the dense matrix A, and as much of the vectors.

Among ranks, two sums and a vector are gathered in each iteration. Beside parameter servers the first one reduces what
workers have, as in "TensorFlow Doing HPC": in each iteration it gathers p and returns it to all workers, and twice it adds
up a number of each, in the order of ranks. Workers put these into three queues, and have one each for what comes back, so
that an iteration is a single program.
"""

from __future__ import annotations

import tempfile
from functools import partial
from typing import Any, Callable, Dict, List, Sequence, Tuple

import numpy as np

from harness.kernels.kernel import Kernel
from harness.kernels.values import difference

ITERATIONS = 50  # of a step, which solves from the beginning
DECAY = 0.5  # A[i, j] is this to the power of |i - j|: its condition number is below 9, and 50 iterations are enough
WITHIN = 1e-10  # of what the solution, and the residual, may differ
VECTOR, PRODUCT, SQUARE = "p", "pq", "rr"  # what the first server reduces
State = Dict[str, Any]


def nearest(limit: int, ranks: int) -> int:
    """The largest size up to ``limit``, with as many equations as iterations at least.

    With fewer the residual becomes 0, by which the next iteration would divide.
    """
    return max(limit // ranks, -(-ITERATIONS // ranks)) * ranks


# As in "TensorFlow Doing HPC" (arXiv:1903.04364) only the products of the matrix with vectors count.
SPECIFICATION = Kernel(
    f"a solution in {ITERATIONS} iterations, of which each gathers a vector of N numbers and two sums",
    size=nearest,
    work=lambda size: ITERATIONS * 2.0 * size**2,
    memory=lambda size, ranks: 2 * 8.0 * size**2 / ranks,  # as it is made there is another one
    usual=(4096,),
)


class System:
    """One rank's rows of A·x = b, of ``size`` equations: dense, symmetric, positive definite.

    The solution is known. Its numbers are whole, from 1 to 16.
    """

    def __init__(self, rank: int, ranks: int, size: int, seed: int) -> None:
        self.size, rows = size, size // ranks
        self.rows = slice(rank * rows, (rank + 1) * rows)
        distance = np.abs(np.arange(size)[self.rows, None] - np.arange(size))
        self.a = DECAY**distance
        self._exact = np.random.default_rng(seed).integers(1, 17, (size, 1)).astype(np.float64)
        self.b: np.ndarray = self.a @ self._exact

    def problem(self, x: np.ndarray) -> str:
        """An error in the solution ``x``, "" if its residual is small enough and it is the known one.

        It is the true residual: the recursive one goes on falling whatever the solution is.
        """
        residual = difference(self.a @ x, self.b, WITHIN * np.abs(self.b).max())
        return residual or difference(x, self._exact, WITHIN * np.abs(self._exact).max())

    def problem_of_restart(self, again: np.ndarray, x: np.ndarray) -> str:
        """An error in the solution that a checkpoint has led to, "" if it is this rank's part of ``x``, too."""
        problem = difference(again, x[self.rows], WITHIN * np.abs(x).max())
        return f"after a restart from a checkpoint {problem}" if problem else ""


def restored(state: Dict[str, np.ndarray]) -> Dict[str, np.ndarray]:
    """The contents of a checkpoint of ``state``."""
    with tempfile.TemporaryFile() as file:
        np.savez(file, **state)  # type: ignore[arg-type]
        file.seek(0)
        with np.load(file) as saved:
            return {name: saved[name] for name in saved.files}


class Solver:
    """One rank's rows of a system. A subclass says how ranks put vectors together and add up numbers.

    ``_array`` makes of NumPy's values what iterations take, ``_values`` the reverse. ``_square`` is the product with itself
    of a vector of which every rank has a part, ``_gathered`` all of such a vector, and ``_iterate`` carries out
    ``_iteration``. Within it ``_whole`` is all of such a vector, and ``_sum`` the product of two: PRODUCT or SQUARE.
    """

    _array: Callable[[np.ndarray], Any]
    _values: Callable[[Any], np.ndarray]
    _square: Callable[[Any], Any]
    _gathered: Callable[[Any], np.ndarray]
    _iterate: Callable[..., Sequence[Any]]
    _whole: Callable[[Any], Any]
    _sum: Callable[[str, Any, Any], Any]

    def __init__(self, fabric: Any, size: int, seed: int) -> None:
        self._fabric, self._system = fabric, System(fabric.rank, fabric.size, size, seed)
        self._a, self._dot = fabric.array(self._system.a), fabric.arithmetic.dot

    def step(self) -> None:
        self._solved = self._iterated(self._start(), ITERATIONS)

    def problem(self) -> str:
        """An error in the solution of the last step, or in that after a restart."""
        x, half = self._gathered(self._solved["x"]), self._iterated(self._start(), ITERATIONS // 2)
        saved = restored({name: self._values(array) for name, array in half.items()})
        state = {name: self._array(values) for name, values in saved.items()}
        again = self._values(self._iterated(state, ITERATIONS - ITERATIONS // 2)["x"])
        return self._system.problem(x) or self._system.problem_of_restart(again, x)

    def history(self) -> List[float]:
        """The residual's norm after each iteration of the last step, relative to that at the beginning."""
        first, *others = (float(self._values(square)[0]) for square in self._squares)
        return [float(np.sqrt(square / first)) for square in others]

    def _start(self) -> State:
        r = self._array(self._system.b)
        square = self._square(r)
        self._squares = [square]
        return {"x": self._array(np.zeros_like(self._system.b)), "r": r, "p": r, "square": square}

    def _iterated(self, state: State, iterations: int) -> State:
        x, r, p, square = state["x"], state["r"], state["p"], state["square"]
        for _ in range(iterations):
            x, r, p, square = self._iterate(x, r, p, square)
            self._squares.append(square)
        return {"x": x, "r": r, "p": p, "square": square}

    def _iteration(self, x: Any, r: Any, p: Any, square: Any) -> List[Any]:
        q = self._a @ self._whole(p)
        alpha = square / self._sum(PRODUCT, p, q)
        x, r = x + alpha * p, r - alpha * q
        after = self._sum(SQUARE, r, r)
        return [x, r, r + (after / square) * p, after]


class Body(Solver):
    """A rank among others. All gather and add up sums in the same way, so that they go on with the same numbers."""

    def __init__(self, fabric: Any, size: int, seed: int) -> None:
        super().__init__(fabric, size, seed)
        self._array, self._values, self._iterate = fabric.array, fabric.values, self._iteration
        self._square = lambda r: self._sum(SQUARE, r, r)
        self._gathered = lambda part: fabric.values(self._whole(part)).copy()
        self._every, self._sums = fabric.array(np.zeros((size, 1))), fabric.array(np.zeros(fabric.size))
        self._ones = fabric.array(np.ones(fabric.size))

    def _whole(self, part: Any) -> Any:
        self._every = self._fabric.allgather(part, self._every)
        return self._every

    def _sum(self, quantity: str, left: Any, right: Any) -> Any:
        self._sums = self._fabric.allgather(self._dot(left, right), self._sums)
        return self._dot(self._sums, self._ones)


def queues(fabric: Any, size: int, quantity: str, rank: int) -> Tuple[Any, Any]:
    """The queue to the first server, and that from it to a rank."""
    part, whole = ((size // fabric.size, 1), (size, 1)) if quantity == VECTOR else ((1,), (1,))
    return fabric.queue(f"{quantity}_{size}", part), fabric.queue(f"{quantity}_{size}_to_{rank}", whole)


class WorkerBody(Solver):
    """A worker beside parameter servers. Between its programs vectors are NumPy's."""

    def __init__(self, fabric: Any, size: int, seed: int) -> None:
        super().__init__(fabric, size, seed)
        self._array = self._values = np.asarray
        vector, number = self._system.b, np.zeros(1)
        self._square = fabric.program(lambda r: self._sum(SQUARE, r, r), vector)
        self._iterate = fabric.program(self._iteration, vector, vector, vector, number)
        self._gathered = fabric.program(self._whole, vector)

    def _whole(self, part: Any) -> Any:
        return self._reduced(VECTOR, part)

    def _sum(self, quantity: str, left: Any, right: Any) -> Any:
        return self._reduced(quantity, self._dot(left, right))

    def _reduced(self, quantity: str, part: Any) -> Any:
        """All ranks' parts as the first server reduces them."""
        there, back = queues(self._fabric, self._system.size, quantity, self._fabric.rank)
        return back.get(after=[there.put(part, self._fabric.rank)])[0]


def reducer(fabric: Any, size: int, seed: int) -> List[Callable[[], Any]]:
    """The first server's part."""
    quantities = (VECTOR, PRODUCT, SQUARE) if fabric.rank == 0 else ()
    return [fabric.program(partial(_reduce, fabric, size, quantity)) for quantity in quantities]


def _reduce(fabric: Any, size: int, quantity: str) -> List[Any]:
    ranks = range(fabric.size)
    parts = queues(fabric, size, quantity, 0)[0].gather(len(ranks))
    whole = parts if quantity == VECTOR else fabric.arithmetic.dot(parts, np.ones(len(ranks)))
    return [queues(fabric, size, quantity, rank)[1].put(whole) for rank in ranks]
