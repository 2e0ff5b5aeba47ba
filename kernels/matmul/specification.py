"""C = A·B, float64 [N, N]: every rank has N / n rows of A and of B, gets all of B, and has as many rows of C.

Beside parameter servers ranks have tiles instead (see ``servers.py``), which need no more memory than this.
"""

from harness.kernels.kernel import Computation

# A number of C is N products and N - 1 sums. A rank holds all of B, and N / n rows of A, B and C.
SPECIFICATION = Computation(
    "a product of two matrices that are spread over the ranks",
    flop=lambda size: 2.0 * size**3 - size**2,
    bytes_per_rank=lambda size, ranks: 8.0 * (size**2 + 3 * size**2 / ranks),
    usual=(2048,),
)
