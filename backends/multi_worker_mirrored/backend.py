"""TensorFlow's MultiWorkerMirroredStrategy as the controller sees it."""

from functools import partial
from pathlib import Path

from pydantic import Field

from harness import models
from harness.backends.tensorflow import environment
from harness.core.backend import Backend
from harness.core.exchange import MIB, AllreduceExchange
from harness.core.spec import Options


class MultiWorkerMirroredOptions(Options):
    """Options of the ``multi_worker_mirrored`` backend."""

    # TensorFlow's own default is 0. Packs overlap with backward: 25 MiB gave 9.7 to 10.8 img/s where 0 gave 8.6 to 9.3
    # (ResNet-50, two workers on two cores, in turn).
    pack_mb: float = Field(
        25.0, ge=0, le=1e6, description="gradients reduced at once, in MiB; 0: all, when backward has ended"
    )


BACKEND = Backend(
    name="multi_worker_mirrored",
    family="collectives",
    frameworks=("tensorflow",),
    strategy="TensorFlow's collective allreduce (MultiWorkerMirroredStrategy), no servers",
    folder=Path(__file__).parent,
    transports=("grpc",),
    cuda_transports=("nccl", "grpc"),
    precisions=("fp32", "tf32", "amp"),
    options=MultiWorkerMirroredOptions,
    environment=partial(environment, "multi_worker_mirrored"),
    kernels=("allgather", "allreduce", "cg", "matmul"),
    exchange=lambda spec: AllreduceExchange(
        int(spec.options["pack_mb"] * spec.bytes_scale * MIB)
        or models.specification(spec.model, spec.bytes_scale).bytes
    ),
)
