"""NumPy and MPI: what kernels take without a framework."""
