"""MPI's operations on arrays of NumPy."""

from harness.worker.mpi import Mpi

create = Mpi
