"""PyTorch DDP as the controller sees it."""

from pathlib import Path

from pydantic import Field

from harness.core.backend import Backend
from harness.core.exchange import MIB, AllreduceExchange
from harness.core.spec import Options
from harness.environments import EnvironmentSpec

FOLDER = Path(__file__).parent


class PyTorchOptions(Options):
    """Options of the ``pytorch`` backend."""

    bucket_mb: float = Field(25.0, gt=0, le=1e6, description="size of a gradient bucket, in MiB")
    compile: bool = Field(False, description="compile the model with torch.compile (needs a C++ compiler)")


BACKEND = Backend(
    name="pytorch",
    family="toolkit",
    frameworks=("torch",),
    strategy="DistributedDataParallel: bucketed allreduce, overlapped with backward",
    folder=FOLDER,
    transports=("gloo", "mpi"),
    cuda_transports=("nccl", "gloo"),  # the MPI hook averages in the hosts' memory
    precisions=("fp32", "tf32", "amp"),
    options=PyTorchOptions,
    environment=lambda framework, variant: EnvironmentSpec(
        "pytorch", variant, FOLDER / f"requirements-{variant}.txt", imports=("torch", "PIL", "mpi4py")
    ),
    kernels=("allgather", "allreduce", "alltoall", "pingpong"),
    exchange=lambda spec: AllreduceExchange(buffer_bytes=int(spec.options["bucket_mb"] * spec.bytes_scale * MIB)),
)
