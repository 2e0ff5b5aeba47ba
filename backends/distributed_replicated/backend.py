"""TensorFlow's distributed_replicated mode as the controller sees it."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from pydantic import Field

from harness.backends.parameter_server.backend import BACKEND as PARAMETER_SERVER
from harness.backends.parameter_server.backend import PLACED, Placement, ServerOptions, exchange
from harness.backends.tensorflow import environment


class DistributedReplicatedOptions(ServerOptions):
    """Options of the ``distributed_replicated`` backend."""

    placement: Placement = Field("round_robin", description=PLACED)


BACKEND = replace(
    PARAMETER_SERVER,
    name="distributed_replicated",
    strategy="a replica on every worker; gradients to parameter servers, updated variables back",
    folder=Path(__file__).parent,
    options=DistributedReplicatedOptions,
    environment=partial(environment, "distributed_replicated"),
    exchange=partial(exchange, pulls="after_push"),
    kernels=(),
)
