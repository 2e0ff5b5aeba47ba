"""TensorFlow's ParameterServerStrategy as the controller sees it: planned as ``parameter_server``, placed otherwise."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from harness import models
from harness.backends.parameter_server.backend import BACKEND as PARAMETER_SERVER
from harness.backends.parameter_server.backend import SYNC, ServerOptions, exchange, one_device_each, slice_bytes
from harness.backends.parameter_server.backend import arrange as arrange_servers
from harness.backends.parameter_server.backend import validate as validate_servers
from harness.backends.tensorflow import environment
from harness.core.backend import Arrangement
from harness.core.exchange import Piece
from harness.core.spec import RunSpec, Underscored, of_training
from harness.errors import InvalidInput

NAME = "parameter_server_strategy"


class StrategyOptions(ServerOptions):
    """Options of the ``parameter_server_strategy`` backend."""

    placement: Annotated[Literal["round_robin", "partitioned"], Underscored] = of_training(
        "round_robin", "how variables are spread over the servers"
    )
    sync: Literal["accumulate", "none"] = SYNC


def placed(spec: RunSpec) -> list[Piece]:
    """The pieces as TensorFlow places them: variables are dealt in turn.

    ``partitioned`` cuts them along their first axis alone, into as few parts of at most ``slice_size`` as there can be
    (MaxSizePartitioner). The first ones are larger by a row if they have to be.
    """
    options = spec.options
    whole = options["placement"] == "round_robin"
    largest = slice_bytes(spec)
    pieces: list[Piece] = []
    for tensor in models.specification(spec.model, spec.bytes_scale).tensors:
        rows = tensor.shape[0]
        count = 1 if whole else -(-rows // max(1, largest * rows // tensor.bytes))
        least, larger = divmod(rows, count)
        bounds = [(number * least + min(number, larger)) * tensor.elements // rows for number in range(count + 1)]
        for number in range(count):
            pieces.append(Piece(tensor.name, len(pieces) % options["ps"], bounds[number], bounds[number + 1]))
    return pieces


def arrange(spec: RunSpec) -> Arrangement:
    planned = arrange_servers(spec, placed)
    return replace(planned, details={**planned.details, "slice_bytes": slice_bytes(spec)})


def validate(spec: RunSpec) -> None:
    """Raise InvalidInput when servers do not fit, workers have several devices, or an epoch would have no end."""
    if spec.training and spec.options["sync"] == "none":
        raise InvalidInput("--sync none: fast workers take more steps, so epochs have no end; give --sync accumulate")
    validate_servers(spec, placed)
    one_device_each(spec)


BACKEND = replace(
    PARAMETER_SERVER,
    name=NAME,
    strategy="TensorFlow's own servers (ParameterServerStrategy); one coordinator schedules what workers do",
    folder=Path(__file__).parent,
    devices=("cpu",),
    precisions=("fp32",),
    options=StrategyOptions,
    environment=partial(environment, NAME),
    validate=validate,
    arrange=arrange,
    exchange=lambda spec: replace(exchange(spec, placed=placed), ordered=False),  # all parameters are asked for at once
    kernels=(),
)
