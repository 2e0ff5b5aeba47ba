"""Every worker sends the servers S bytes, S / P to each of P servers, which add them to what they hold."""

from harness.kernels.kernel import Communication

# A server has to receive its part from every worker.
SPECIFICATION = Communication(
    "each worker's message is added on the servers", bus=lambda ranks, servers: ranks / servers
)
