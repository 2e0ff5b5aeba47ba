"""Every worker reads the S bytes that the servers hold, S / P from each of P servers."""

from harness.kernels.kernel import Communication

# A server has to send its part to every worker.
SPECIFICATION = Communication("each worker reads what the servers hold", bus=lambda ranks, servers: ranks / servers)
