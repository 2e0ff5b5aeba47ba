"""PyTorch DDP as the controller sees it."""

from pathlib import Path

from harness.core.backend import Backend
from harness.core.exchange import MIB, AllreduceExchange
from harness.core.spec import Options, RunSpec, of_training
from harness.environments import EnvironmentSpec
from harness.errors import InvalidInput

FOLDER = Path(__file__).parent


class PyTorchOptions(Options):
    """Options of the ``pytorch`` backend."""

    bucket_mb: float = of_training(25.0, "size of a gradient bucket, in MiB", gt=0, le=1e6)
    compile: bool = of_training(False, "compile the model with torch.compile (needs a C++ compiler)")
    cuda_graphs: bool = of_training(
        False, "replay each step as one CUDA graph; 12 warm-up steps or more, on GPUs over NCCL"
    )


def _validate(spec: RunSpec) -> None:
    """Refuse graphs where there are none. The first 11 steps run without one (see ``trainer/graph.py``)."""
    if not spec.options["cuda_graphs"]:
        return
    if spec.device != "cuda" or spec.transport != "nccl":
        raise InvalidInput(
            f"--cuda-graphs: needs --device cuda and --transport nccl, not {spec.device} and {spec.transport}"
        )
    if spec.options["compile"]:
        raise InvalidInput("--cuda-graphs: give it or --compile, not both")
    if spec.training:
        raise InvalidInput("--cuda-graphs: a graph keeps its learning rate, so it cannot train to an accuracy")
    if spec.warmup_steps < 12:
        raise InvalidInput(
            f"--cuda-graphs: give --warmup 12 or more, not {spec.warmup_steps}: the first steps have no graph"
        )


BACKEND = Backend(
    name="pytorch",
    family="toolkit",
    frameworks=("torch",),
    strategy="DistributedDataParallel: bucketed allreduce, overlapped with backward",
    folder=FOLDER,
    transports=("gloo", "mpi"),
    cuda_transports=("nccl", "gloo"),  # the MPI hook averages in the hosts' memory
    precisions=("fp32", "tf32", "amp", "fp16"),
    options=PyTorchOptions,
    validate=_validate,
    environment=lambda framework, variant: EnvironmentSpec(
        "pytorch", variant, FOLDER / f"requirements-{variant}.txt", imports=("torch", "PIL", "mpi4py")
    ),
    kernels=("allgather", "allreduce", "alltoall", "cg", "fft", "matmul", "pairs", "pingpong", "stream"),
    exchange=lambda spec: AllreduceExchange(buffer_bytes=int(spec.options["bucket_mb"] * spec.bytes_scale * MIB)),
)
