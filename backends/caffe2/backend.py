"""Caffe2 as the controller sees it."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from harness.backends.caffe2 import build
from harness.core.backend import Backend
from harness.core.exchange import AllreduceExchange
from harness.core.spec import Options
from harness.environments import EnvironmentSpec, Variant, mpi

FOLDER = Path(__file__).parent


class Caffe2Options(Options):
    """Options of the ``caffe2`` backend."""

    net_type: Literal["dag", "simple"] = Field(
        "dag",
        description="how Caffe2 runs a step: dag overlaps allreduces with backward, simple does one thing after another",
    )
    mpi_operators: Literal["auto", "caffe2", "mpi4py"] = Field(
        "auto", description="who calls MPI: Caffe2's operators, if the environment could compile them, or mpi4py"
    )


def environment(framework: str, variant: Variant) -> EnvironmentSpec:
    return EnvironmentSpec(
        "caffe2",
        variant,
        FOLDER / "requirements-cpu.txt",
        imports=("caffe2", "caffe2.python.data_parallel_model", "torch", "PIL", "mpi4py"),
        python="3.9",
        post_build=getattr(build, f"operators_{variant}"),
        sources=(build.SOURCE, *mpi.sources(variant)),
    )


BACKEND = Backend(
    name="caffe2",
    family="toolkit",
    frameworks=("caffe2",),
    strategy="data_parallel_model: an allreduce of every gradient, in the order of backward",
    folder=FOLDER,
    transports=("gloo", "mpi"),
    precisions=("fp32",),
    devices=("cpu",),
    options=Caffe2Options,
    environment=environment,
    compiled_for=("openmpi",),
    # Every gradient by itself; a simple net runs its operators one after the other.
    exchange=lambda spec: AllreduceExchange(buffer_bytes=0, overlapped=spec.options.get("net_type") != "simple"),
)
