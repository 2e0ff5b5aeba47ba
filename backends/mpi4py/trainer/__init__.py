"""Beside NumPy and MPI."""
