"""TensorFlow's distributed_replicated mode as the controller sees it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pydantic import Field

from harness.backend import Backend
from harness.backends.parameter_server.backend import (
    Placement,
    ServerOptions,
    arrange,
    environment,
    placed,
    validate,
)
from harness.exchange import ServerExchange
from harness.spec import RunSpec


class DistributedReplicatedOptions(ServerOptions):
    """Options of the ``distributed_replicated`` backend."""

    placement: Placement = Field("round_robin", description="how variables are spread over the servers")


def _exchange(spec: RunSpec) -> ServerExchange:
    return ServerExchange(
        pieces=tuple(placed(spec)),
        servers=spec.options["ps"],
        shared_nodes=spec.options["ps_nodes"] == "shared",
        pulls="after_push",
    )


BACKEND = Backend(
    name="distributed_replicated",
    family="parameter_servers",
    frameworks=("tensorflow",),
    strategy="a replica on every worker; gradients to parameter servers, updated variables back",
    folder=Path(__file__).parent,
    transports=("grpc",),
    precisions=("fp32", "tf32", "amp"),
    options=DistributedReplicatedOptions,
    arrange=arrange,
    environment=partial(environment, "distributed_replicated"),
    validate=validate,
    exchange=_exchange,
)
