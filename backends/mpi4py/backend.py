"""NumPy and MPI as the controller sees them: the baseline of the kernels, which trains nothing."""

from pathlib import Path

from harness.core.backend import Backend
from harness.environments import EnvironmentSpec

FOLDER = Path(__file__).parent

BACKEND = Backend(
    name="mpi4py",
    family="toolkit",
    frameworks=("numpy",),
    strategy="NumPy and MPI by themselves: kernels, no training",
    folder=FOLDER,
    transports=("mpi",),
    precisions=("fp32",),
    devices=("cpu",),
    environment=lambda framework, variant: EnvironmentSpec(
        "mpi4py", variant, FOLDER / f"requirements-{variant}.txt", imports=("mpi4py", "numpy")
    ),
    kernels=("allgather", "allreduce", "alltoall", "cg", "fft", "matmul", "pairs", "pingpong", "stream"),
    trains=False,
)
