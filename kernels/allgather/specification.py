"""Every rank has a slice of S / n bytes, and gets the S bytes of all slices."""

from harness.kernels.kernel import Communication

# A rank receives all slices but its own.
SPECIFICATION = Communication(
    "each rank gets the slices of all ranks", bus=lambda ranks, servers: (ranks - 1) / ranks, slices=True
)
