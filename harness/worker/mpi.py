"""MPI's world and library, and its operations by themselves, on arrays of NumPy or what shares its memory with one."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path
from typing import Any, Tuple

import numpy as np

from harness.worker.fabric import Fabric
from harness.worker.job import Job

# The first words of each library that --mpi names about itself.
OWN_NAMES = {"mpich": "MPICH", "openmpi": "Open MPI", "intel": "Intel(R) MPI"}
LONGEST_VERSION = 8192  # MPI_MAX_LIBRARY_VERSION_STRING of MPICH; Open MPI's is 256


class Mpi(Fabric):
    """MPI's world, through mpi4py."""

    def __init__(self, job: Job) -> None:
        self._mpi, self._world = open_mpi_world(job)
        self.rank, self.size = self._world.Get_rank(), self._world.Get_size()

    def array(self, values: np.ndarray) -> Any:
        return values.copy()

    def values(self, array: Any) -> np.ndarray:
        """The array itself, or its memory as one of NumPy, which MPI is given, too."""
        return array

    def allreduce(self, array: Any) -> Any:
        self._world.Allreduce(self._mpi.IN_PLACE, self.values(array), op=self._mpi.SUM)
        return array

    def allgather(self, mine: Any, every: Any) -> Any:
        self._world.Allgather(self.values(mine), self.values(every))
        return every

    def alltoall(self, mine: Any, theirs: Any) -> Any:
        self._world.Alltoall(self.values(mine), self.values(theirs))
        return theirs

    def send(self, array: Any, rank: int) -> None:
        self._world.Send(self.values(array), rank)

    def recv(self, array: Any, rank: int) -> Any:
        self._world.Recv(self.values(array), rank)
        return array

    def barrier(self) -> None:
        self._world.Barrier()

    def transport(self) -> str:
        return f"{mpi_version()} through mpi4py"

    def close(self) -> None:
        leave(self._mpi)


def open_mpi_world(job: Job) -> Tuple[Any, Any]:
    """Start MPI through mpi4py. Returns its module, and its world after ``check_mpi_world``."""
    from mpi4py import MPI

    check_mpi_world(MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size(), job)
    return MPI, MPI.COMM_WORLD


def check_mpi_world(rank: int, size: int, job: Job) -> None:
    """Raise RuntimeError unless MPI's world is all processes of the plan, and its library the one that --mpi has named."""
    library, planned_rank, planned_size = job.spec.get("mpi"), job.process["index"], len(job.plan["processes"])
    if library and not mpi_version().startswith(OWN_NAMES[library]):
        raise RuntimeError(f"--mpi {library}: the library that was loaded calls itself {mpi_version()}")
    # A library that does not understand its launcher starts as a world of its own, of size 1, without any error.
    if (rank, size) != (planned_rank, planned_size):
        raise RuntimeError(
            f"{mpi_version()} sees rank {rank} of {size}, planned is rank {planned_rank} of {planned_size}: the MPI "
            "library and the launcher do not speak the same language (local runs: MPICH's PMI; srun: see its --mpi)"
        )


def mpi_version() -> str:
    """The name of the MPI library that is loaded, whoever loaded it: ``MPICH 5.0.2``, or ``no MPI library``."""
    names = ("libmpi.so", "libmpi_abi.so", "libmpich", "libmpi_")
    paths = (line.rpartition(" ")[2] for line in Path("/proc/self/maps").read_text().splitlines())
    file = next((path for path in paths if path.startswith("/") and Path(path).name.startswith(names)), None)
    if file is None:
        return "no MPI library"
    text, length = ctypes.create_string_buffer(LONGEST_VERSION), ctypes.c_int(0)
    ctypes.CDLL(file).MPI_Get_library_version(text, ctypes.byref(length))
    first = text.value.decode(errors="replace").split("\n")[0].split(",")[0]
    return " ".join(first.replace("Version:", "").replace(" for Linux* OS", "").split())


def leave(mpi: Any) -> None:
    """Finalize MPI just before this process ends; not where that may never return.

    MPICH before 4.2 over UCX: the first rank waits there for all the others, and no longer gives those the answers that UCX
    over TCP needs to disconnect (MPICH's pull request 6596). PMI lets a process end without it. PMIx, which has no PMI_FD,
    would take that for a crash.
    """
    affected = re.match(r"MPICH Version:\s+(3|4\.[01])\.(?s:.*)ch4:ucx", mpi.Get_library_version())
    if not affected or "PMI_FD" not in os.environ:
        mpi.Finalize()
