"""Every rank has S bytes, and gets the sums of all ranks' in their place."""

from harness.kernels.kernel import Communication

# The least that a rank has to send: each of its n parts of S / n once to be summed, and each sum once, but for its own.
SPECIFICATION = Communication(
    "each rank's message is replaced by the sum of all ranks'", bus=lambda ranks, servers: 2 * (ranks - 1) / ranks
)
