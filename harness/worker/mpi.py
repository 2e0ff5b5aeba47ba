"""The MPI library as this process has loaded it, whoever loaded it: seen in the process's memory, not in a request."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Optional

LONGEST_VERSION = 8192  # MPI_MAX_LIBRARY_VERSION_STRING of MPICH; Open MPI's is 256


def library() -> Optional[Path]:
    """The file of the MPI library that is mapped into this process, None if there is none."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.rpartition(" ")[2]
        if path.startswith("/") and Path(path).name.startswith(("libmpi.so", "libmpi_abi.so", "libmpich", "libmpi_")):
            return Path(path)
    return None


def version() -> str:
    """The library's own name and version, for example ``MPICH 5.0.2``; ``no MPI library`` where none is loaded."""
    file = library()
    if file is None:
        return "no MPI library"
    text, length = ctypes.create_string_buffer(LONGEST_VERSION), ctypes.c_int(0)
    ctypes.CDLL(str(file)).MPI_Get_library_version(text, ctypes.byref(length))
    first = text.value.decode(errors="replace").split("\n")[0].split(",")[0]
    return " ".join(first.replace("Version:", "").split())


def check_world(rank: int, size: int, planned_rank: int, planned_size: int) -> None:
    """Raise RuntimeError unless MPI's world is the planned one.

    A library that does not understand its launcher starts as a world of its own, of size 1, without any error.
    """
    if (rank, size) != (planned_rank, planned_size):
        raise RuntimeError(
            f"{version()} sees rank {rank} of {size}, planned is rank {planned_rank} of {planned_size}: the MPI library "
            "and the launcher do not speak the same language (local runs: MPICH's PMI; srun: see its --mpi)"
        )
