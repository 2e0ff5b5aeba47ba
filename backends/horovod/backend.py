"""Horovod as the controller sees it."""

from pathlib import Path

from pydantic import Field

from harness.backends.horovod import build
from harness.core.backend import Arrangement, Backend
from harness.core.exchange import MIB, AllreduceExchange
from harness.core.spec import Options, RunSpec, of_training
from harness.environments import EnvironmentSpec, Variant, mpi
from harness.errors import InvalidInput

FOLDER = Path(__file__).parent
IMPORTS = {"tensorflow": ("horovod.tensorflow", "tensorflow"), "torch": ("horovod.torch", "torch", "PIL")}


class HorovodOptions(Options):
    """Options of the ``horovod`` backend. The defaults are Horovod's own."""

    fusion_threshold_mb: float = Field(128.0, ge=0, le=65536, description="size of Horovod's fusion buffer, in MiB")
    cycle_time_ms: float = Field(1.0, gt=0, le=60_000, description="time between two looks for gradients to reduce")
    fp16_allreduce: bool = of_training(False, "send gradients as 16 bit floats", other=[True])


def environment(framework: str, variant: Variant) -> EnvironmentSpec:
    return EnvironmentSpec(
        "horovod",
        variant,
        FOLDER / f"requirements-{framework}-{'cuda' if variant == 'cuda' else 'cpu'}.txt",
        imports=IMPORTS[framework],
        post_build=getattr(build, f"{framework}_{variant}"),
        tools=("g++", "make", "nvcc") if (framework, variant) == ("tensorflow", "cuda") else ("g++", "make"),
        framework=framework,
        sources=mpi.sources(variant),
    )


def _fused_bytes(spec: RunSpec) -> int:
    return int(spec.options["fusion_threshold_mb"] * spec.bytes_scale * MIB)


def _validate(spec: RunSpec) -> None:
    if spec.mpi == "openmpi" and spec.device == "cuda":
        raise InvalidInput("--mpi openmpi: for GPUs Horovod is compiled against MPICH only; give mpich or intel")
    if spec.precision == "fp16" and spec.framework != "torch":
        raise InvalidInput("--precision fp16: Horovod has it with --framework torch; tensorflow computes in amp")


def _arrange(spec: RunSpec) -> Arrangement:
    env = {
        "HOROVOD_FUSION_THRESHOLD": str(_fused_bytes(spec)),
        "HOROVOD_CYCLE_TIME": f"{spec.options['cycle_time_ms'] * spec.dilation:g}",
    }
    # Over NCCL too the ranks find each other, and agree on what to reduce next, through MPI.
    return Arrangement(mpi=spec.transport in ("mpi", "nccl"), env=env)


BACKEND = Backend(
    name="horovod",
    family="toolkit",
    frameworks=("tensorflow", "torch"),
    strategy="ring allreduce with tensor fusion, overlapped with backward",
    folder=FOLDER,
    transports=("mpi", "gloo"),
    cuda_transports=("nccl",),  # Horovod that was compiled for it hands no other library what is on a GPU
    brought=("mpi", "gloo"),
    precisions=("fp32", "tf32", "amp", "fp16"),
    options=HorovodOptions,
    validate=_validate,
    arrange=_arrange,
    environment=environment,
    compiled_for=("openmpi",),
    kernels=("allgather", "allreduce", "alltoall", "cg", "fft", "matmul"),
    exchange=lambda spec: AllreduceExchange(_fused_bytes(spec), waits="until_free"),
)
