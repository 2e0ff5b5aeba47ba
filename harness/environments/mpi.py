"""MPI libraries from wheels, for ``--mpi``: each in an environment of its own, where processes find it by its path.

MPICH is in every backend's own environment. Intel's library takes its place there, as the two have one binary interface
(the MPICH ABI Compatibility Initiative). Open MPI has another one, which mpi4py knows as well; compiled packages have an
environment for each of the two.
"""

import os
from pathlib import Path

from harness.environments import EnvironmentSpec, Variant, path

LIBRARIES = ("intel", "openmpi")  # those that have an environment
FOLDER = Path(__file__).parent
FILES = {"intel": "lib/libmpi.so.12", "openmpi": "lib/libmpi.so.40"}


def environment(library: str) -> EnvironmentSpec:
    return EnvironmentSpec(library, "cpu", FOLDER / f"mpi-{library}.txt", imports=())


def open_mpi() -> Path:
    """The folder of Open MPI's environment, to compile with; built if need be. Raises as ``building.build`` does."""
    from harness.environments import building  # here, as only builds need it

    return building.build(environment("openmpi"), lambda line: None)


def sources(variant: Variant) -> tuple[Path, ...]:
    """The file that decides which Open MPI an environment of that ``variant`` is compiled with."""
    return (environment("openmpi").requirements,) if variant == "openmpi" else ()


def variables(library: str) -> dict[str, str]:
    """The environment variables of a process that is to load ``library``, in the environment of any backend."""
    if library not in LIBRARIES:
        return {}
    file = path(environment(library)) / FILES[library]
    environ = {"MPI4PY_LIBMPI": str(file)}  # without it mpi4py takes the library of its own environment
    if library == "intel":
        # Compiled code, such as Horovod, follows the library path. Harness gives threads their number and pins nothing.
        before = os.environ.get("LD_LIBRARY_PATH")
        environ |= {"LD_LIBRARY_PATH": f"{file.parent}:{before}" if before else str(file.parent), "I_MPI_PIN": "off"}
    return environ
