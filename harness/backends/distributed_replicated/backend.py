"""TensorFlow's distributed_replicated mode as the controller sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from harness.backend import Backend
from harness.backends.parameter_server.backend import ServerOptions, arrange, environment, validate
from harness.environments import EnvironmentSpec, Variant
from harness.spec import Underscored


class DistributedReplicatedOptions(ServerOptions):
    """Options of the ``distributed_replicated`` backend."""

    placement: Annotated[Literal["greedy", "round_robin", "partitioned"], Underscored] = Field(
        "round_robin", description="how variables are spread over the servers"
    )


def _environment(framework: str, variant: Variant) -> EnvironmentSpec:
    return environment("distributed_replicated", variant)


BACKEND = Backend(
    name="distributed_replicated",
    frameworks=("tensorflow",),
    strategy="a replica on every worker; gradients to parameter servers, updated variables back",
    folder=Path(__file__).parent,
    transports=("grpc",),
    precisions=("fp32", "tf32", "amp"),
    options=DistributedReplicatedOptions,
    arrange=arrange,
    environment=_environment,
    validate=validate,
)
