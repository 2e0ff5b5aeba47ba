"""A·x = b by conjugate gradients, float64: every rank has N / n rows of the dense matrix A, and as much of the vectors."""

from harness.kernels.kernel import Computation

ITERATIONS = 50  # of a step, which solves from the beginning


def nearest(wanted: int, ranks: int) -> int:
    """With fewer equations than iterations the residual becomes 0, by which the next iteration would divide."""
    return max(wanted // ranks, -(-ITERATIONS // ranks)) * ranks


# As in "TensorFlow Doing HPC" (arXiv:1903.04364) only the products of the matrix with vectors count.
SPECIFICATION = Computation(
    f"a solution in {ITERATIONS} iterations, of which each gathers a vector of N numbers and two sums",
    flop=lambda size: ITERATIONS * 2.0 * size**2,
    bytes_per_rank=lambda size, ranks: 2 * 8.0 * size**2 / ranks,  # as it is made there is another one
    nearest=nearest,
    usual=(4096,),
)
