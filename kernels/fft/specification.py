"""The Fourier transform of N numbers, complex128, of which every rank has N / n in order, before and after.

Beside parameter servers it has every n-th number before, and a server has all of them after (see ``servers.py``).
"""

from math import log2

from harness.kernels.kernel import Computation


def nearest(wanted: int, ranks: int) -> int:
    """n² times the largest power of two up to ``wanted``: rows and columns of the vector as a matrix are both divided.

    It is at least 2, for a single number needs no operations, and a rate of 0 is none.
    """
    return max(int(ranks**2 * 2 ** int(log2(max(wanted // ranks**2, 1)))), 2)


# Three transpositions move all numbers each, transforms along both dimensions lie between them (Bailey 1990, "FFTs in
# external or hierarchical memory"). HPCC counts 5 N log2 N operations, whatever the algorithm needs.
SPECIFICATION = Computation(
    "a transform of N numbers that are spread over the ranks",
    flop=lambda size: 5.0 * size * log2(size),
    bytes_per_rank=lambda size, ranks: 16.0 * (4 * size / ranks + 2 * size),  # the check makes all numbers
    nearest=nearest,
    usual=(1 << 20,),
)
