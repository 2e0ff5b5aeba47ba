"""MPI's operations on arrays of NumPy."""

from __future__ import annotations

from harness.worker.mpi import Mpi

create = Mpi
