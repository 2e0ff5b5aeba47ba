"""C = A·B, float64 [N, N]: every rank has N / n rows of A and of B, gets all of B, and has as many rows of C.

Beside parameter servers ranks have tiles instead, whose products are added there, as in "TensorFlow Doing HPC". Each matrix
has n × n tiles: C[i, j] is the sum over k of A[i, k] · B[k, j]. Worker k makes the products with its number and puts each
into the queue of the server that has C[i, j], so that n³ tiles go through queues in a step. Servers add what arrives to
their tiles of C, and tell all workers when those are complete.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, List

import numpy as np

from harness.kernels.kernel import Kernel
from harness.kernels.values import difference, drawn

# A number of C is N products and N - 1 sums. A rank holds all of B, and N / n rows of A, B and C.
SPECIFICATION = Kernel(
    "a product of two matrices that are spread over the ranks",
    size=lambda limit, ranks: max(limit // ranks, 1) * ranks,
    work=lambda size: 2.0 * size**3 - size**2,
    memory=lambda size, ranks: 8.0 * (size**2 + 3 * size**2 / ranks),
    usual=(2048,),
)


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
        return self._matrices.problem(self._fabric.rank, self._fabric.values(self._c))


class Layout:
    """The places of the tiles of C, and the queues by which they get there."""

    def __init__(self, fabric: Any, size: int) -> None:
        self._fabric, self._size, self.rows = fabric, size, size // fabric.size
        self.servers = range(min(fabric.size, fabric.servers))  # those that have tiles

    def columns(self, server: int) -> range:
        """The columns of tiles of C that a server has."""
        return range(server, self._fabric.size, self._fabric.servers)

    def c(self, server: int) -> Any:
        """A server's tiles of C, row after row."""
        shape = (self._fabric.size * len(self.columns(server)), self.rows, self.rows)
        return self._fabric.held(f"c_{self._size}_{server}", shape, server=server)

    def products(self, server: int) -> Any:
        return self._fabric.queue(f"products_{self._size}_{server}", (self.rows, self.rows), server=server)

    def complete(self, server: int, rank: int) -> Any:
        return self._fabric.queue(f"complete_{self._size}_{server}_{rank}", (), server=server)


class WorkerBody:
    """One worker: its columns of tiles of A, and its row of tiles of B."""

    def __init__(self, fabric: Any, size: int, seed: int) -> None:
        self._fabric, self._matrices, self._layout = fabric, Matrices(fabric.size, size, seed), Layout(fabric, size)
        rows, ranks = self._matrices.rows, range(fabric.size)
        mine = slice(fabric.rank * rows, (fabric.rank + 1) * rows)
        self._a = fabric.array(np.stack([self._matrices.a(rank)[:, mine] for rank in ranks]))
        b = self._matrices.b(fabric.rank).reshape(rows, fabric.size, rows)
        self._b = fabric.array(np.ascontiguousarray(b.transpose(1, 0, 2)))
        self._multiply = fabric.program(self._row, np.int64(0))
        complete = [self._layout.complete(server, fabric.rank) for server in self._layout.servers]
        self._wait = fabric.program(lambda: [queue.get()[0] for queue in complete])

    def step(self) -> None:
        for i in range(self._fabric.size):
            self._multiply(i)
        self._wait()

    def problem(self) -> str:
        """An error in the tiles of one row of C. The product is complete by then."""
        rank, layout = self._fabric.rank, self._layout
        tiles: Dict[int, np.ndarray] = {}
        for server in layout.servers:
            columns, held = layout.columns(server), layout.c(server)
            begin = rank * len(columns)
            tiles.update(zip(columns, self._fabric.program(partial(held.part, begin, begin + len(columns)))()))
        return self._matrices.problem(rank, np.hstack([tiles[j] for j in range(self._fabric.size)]))

    def _row(self, i: Any) -> List[Any]:
        """Each product for a tile of C in row ``i`` goes to its server as soon as it is there."""
        puts = []
        for server in self._layout.servers:
            columns, queue = self._layout.columns(server), self._layout.products(server)
            for number, j in enumerate(columns):
                puts.append(queue.put(self._a[i] @ self._b[j], i * len(columns) + number))
        return puts


def reducer(fabric: Any, size: int, seed: int) -> List[Callable[[], None]]:
    """A server's loop, which makes its tiles of C; none for a server without tiles."""
    layout, server = Layout(fabric, size), fabric.rank
    if not (count := fabric.size**2 * len(layout.columns(server))):
        return []
    c, products = layout.c(server), layout.products(server)
    complete = [layout.complete(server, rank) for rank in range(fabric.size)]
    first = fabric.program(lambda: c.add(*products.get(), to_zero=True))
    add = fabric.program(lambda: c.add(*products.get()))
    tell = fabric.program(lambda: [queue.put(np.float64(0)) for queue in complete])

    def loop() -> None:
        first()
        for _ in range(count - 1):
            add()
        tell()

    return [loop]
