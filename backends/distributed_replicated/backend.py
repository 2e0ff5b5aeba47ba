"""TensorFlow's distributed_replicated mode as the controller sees it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pydantic import Field

from harness.backends.parameter_server.backend import (
    Placement,
    ServerOptions,
    arrange,
    exchange,
    seats,
    validate,
)
from harness.backends.tensorflow.environment import environment
from harness.core.backend import Backend


class DistributedReplicatedOptions(ServerOptions):
    """Options of the ``distributed_replicated`` backend."""

    placement: Placement = Field("round_robin", description="how variables are spread over the servers")


BACKEND = Backend(
    name="distributed_replicated",
    family="parameter_servers",
    frameworks=("tensorflow",),
    strategy="a replica on every worker; gradients to parameter servers, updated variables back",
    folder=Path(__file__).parent,
    transports=("grpc",),
    precisions=("fp32", "tf32", "amp"),
    options=DistributedReplicatedOptions,
    seats=seats,
    arrange=arrange,
    environment=partial(environment, "distributed_replicated"),
    validate=validate,
    exchange=partial(exchange, pulls="after_push"),
)
