"""Parameter servers on PyTorch as the controller sees them: planned as ``parameter_server`` is, carried by Gloo or MPI."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from harness.backends.parameter_server.backend import BACKEND as PARAMETER_SERVER
from harness.backends.parameter_server.backend import SYNC, ServerOptions, one_device_each
from harness.backends.pytorch.backend import BACKEND as PYTORCH
from harness.core.backend import Arrangement
from harness.core.spec import RunSpec, of_training

NAME = "torch_parameter_server"

# Over Gloo only processes that talk to each other connect. Over MPI a node's server and worker talk TCP too, as over Gloo
# and gRPC: the kernel counts their bytes, and they can sleep until some arrive.
MPICH = {"MPIR_CVAR_NOLOCAL": "1"}
ENVIRONS = {
    "gloo": {"TORCH_GLOO_LAZY_INIT": "1"},
    "mpi": MPICH,
    "mpich": MPICH,
    "intel": {"I_MPI_FABRICS": "ofi"},
    "openmpi": {"OMPI_MCA_btl": "tcp,self"},
}


class TorchServerOptions(ServerOptions):
    """Options of the ``torch_parameter_server`` backend."""

    sync: Literal["accumulate", "none"] = SYNC
    order: Literal["none", "forward"] = of_training(
        "forward", "in which order parameters come: none, drawn from --seed, or as layers need them"
    )


def validate(spec: RunSpec) -> None:
    """Raise InvalidInput when servers do not fit, or workers have several devices, whose gradients nobody would add up."""
    PARAMETER_SERVER.validate(spec)
    one_device_each(spec)


def arrange(spec: RunSpec) -> Arrangement:
    assert spec.transport
    env = ENVIRONS[spec.mpi or spec.transport]
    return replace(PARAMETER_SERVER.arrange(spec), mpi=spec.transport == "mpi", env=env)


BACKEND = replace(
    PARAMETER_SERVER,
    name=NAME,
    frameworks=("torch",),
    strategy="tensors on parameter servers; pulls overlap with forward, pushes with backward",
    folder=Path(__file__).parent,
    devices=("cpu",),
    transports=("gloo", "mpi"),
    precisions=("fp32", "amp"),
    options=TorchServerOptions,
    environment=lambda framework, variant: replace(PYTORCH.environment(framework, variant), backend=NAME),
    validate=validate,
    arrange=arrange,
    kernels=("incast", "outcast"),
)
