"""Every rank has S bytes, a slice of S / n for each rank, and gets the slices that are for it."""

from harness.kernels.kernel import Communication

# A rank sends all slices but its own.
SPECIFICATION = Communication(
    "each rank sends each other one a slice of its own", bus=lambda ranks, servers: (ranks - 1) / ranks, slices=True
)
