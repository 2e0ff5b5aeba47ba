"""JAX as the controller sees it."""

from pathlib import Path

from harness import models
from harness.core.backend import Backend
from harness.core.exchange import AllreduceExchange
from harness.environments import EnvironmentSpec

FOLDER = Path(__file__).parent

BACKEND = Backend(
    name="jax",
    family="collectives",
    frameworks=("jax",),
    strategy="jit of a shard_map over all processes: XLA's own allreduce, one of all gradients",
    folder=FOLDER,
    transports=("gloo",),
    cuda_transports=("nccl",),
    precisions=("fp32", "tf32"),
    environment=lambda framework, variant: EnvironmentSpec(
        "jax", variant, FOLDER / f"requirements-{variant}.txt", imports=("jax", "torch", "PIL")
    ),
    # One allreduce of all gradients is what the compiled step has.
    exchange=lambda spec: AllreduceExchange(models.specification(spec.model, spec.bytes_scale).bytes),
)
