"""TensorFlow parameter servers as the controller sees them."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from harness import models
from harness.backends.tensorflow import environment
from harness.core.backend import Arrangement, Backend, Seat, workers_and_servers
from harness.core.exchange import Piece, Pulls, ServerExchange, bytes_per_server, place
from harness.core.spec import MOST_WORKERS, Options, RunSpec, Underscored, of_training
from harness.core.text import parse_size
from harness.errors import InvalidInput

WINDOW = "2MiB"
Placement = Annotated[Literal["greedy", "round_robin", "partitioned"], Underscored]
PLACED = (
    "which server holds a variable: greedy: the one with the fewest bytes so far; round_robin: the next in turn; "
    "partitioned: variables are cut into slices of --slice-size first"
)
# The ways in which the workers' updates meet, in the backends without the barrier of 2017.
SYNC = of_training(
    "accumulate",
    "accumulate: the mean gradient of all workers is applied once per step; none: asynchronous",
    other=["none"],
)


class ServerOptions(Options):
    """Options of every backend that has parameter servers."""

    ps: int = Field(1, ge=1, le=MOST_WORKERS, description="number of parameter servers")
    ps_nodes: Annotated[Literal["shared", "dedicated"], Underscored] = Field(
        "shared", description="servers share the workers' nodes, or get nodes of their own"
    )
    ps_per_node: int = Field(
        1, ge=1, le=1024, description="parameter servers on a node, at most; nodes are filled in order"
    )
    workers_per_node: int = Field(
        1, ge=1, le=1024, description="workers on each node, which share its devices, and exchange gradients each"
    )
    placement: Placement = of_training("greedy", PLACED)
    slice_size: str = of_training("1MiB", "largest slice of a tensor with --placement partitioned")

    @field_validator("slice_size")
    @classmethod
    def _is_size(cls, value: str) -> str:
        if parse_size(value) < 1024:
            raise ValueError("must be at least 1KiB")
        return value


class ParameterServerOptions(ServerOptions):
    """Options of the ``parameter_server`` backend."""

    sync: Literal["accumulate", "barrier", "none"] = of_training(
        "accumulate",
        "accumulate: the mean gradient of all workers is applied once per step; "
        "none: asynchronous; barrier (parameter_server only): each worker applies its own, as in 2017",
        other=["none"],
    )
    order: Literal["none", "forward"] = of_training(
        "forward",
        "in which order parameters come: forward: as layers need them; none: in no order, as TensorFlow asks by itself "
        "(torch_parameter_server: in one drawn from --seed)",
    )
    window: str = of_training(WINDOW, "with --order forward: how much is asked of a server at once")

    @field_validator("window")
    @classmethod
    def _is_for_an_order(cls, value: str, info: ValidationInfo) -> str:
        if info.data.get("order") == "none" and value != WINDOW:
            raise ValueError("is for --order forward")
        return cls._is_size(value)


def asked_after(pieces: Sequence[Piece], window: str, bytes_scale: float = 1.0) -> list[int | None]:
    """The number of the piece after which each piece is requested; None: it is requested at once.

    From each server as many bytes are under way as the ``window`` has room for, or one piece: so a small early layer does
    not share the link with a large late one.
    """
    room = int(parse_size(window) * bytes_scale)
    under_way: dict[int, deque[tuple[int, int]]] = defaultdict(deque)
    taken: Counter[int] = Counter()
    come: dict[int, int] = {}
    after = []
    for number, piece in enumerate(pieces):
        others = under_way[piece.ps]
        taken[piece.ps] += piece.bytes
        while others and taken[piece.ps] > room:
            come[piece.ps], freed = others.popleft()
            taken[piece.ps] -= freed
        others.append((number, piece.bytes))
        after.append(come.get(piece.ps))
    return after


def placed(spec: RunSpec) -> list[Piece]:
    options, tensors = spec.options, models.specification(spec.model, spec.bytes_scale).tensors
    return place(tensors, options["ps"], options["placement"], slice_bytes(spec))


def slice_bytes(spec: RunSpec) -> int:
    return int(parse_size(spec.options["slice_size"]) * spec.bytes_scale)


def one_device_each(spec: RunSpec) -> None:
    """Raise InvalidInput when workers have several devices, whose gradients nobody would add up."""
    if (devices := spec.devices_per_node) > spec.options["workers_per_node"]:
        raise InvalidInput(
            f"--devices-per-node {devices}: a worker of {spec.backend} has one device; "
            f"give --workers-per-node {devices}, too"
        )


def validate(spec: RunSpec, placed: Callable[[RunSpec], list[Piece]] = placed) -> None:
    """Raise InvalidInput when the servers do not fit the nodes or the model, or the optimizer the way of the updates."""
    ps, sync, training = spec.options["ps"], _sync(spec), spec.training
    seats(spec)
    if not spec.kernel and ps > (pieces := len(placed(spec))):
        raise InvalidInput(f"--ps {ps}: {spec.model} has only {pieces} pieces to place; use --ps 1..{pieces}")
    if training and sync != "accumulate" and (training.momentum or training.weight_decay):
        raise InvalidInput(
            f"--sync {sync}: each worker applies its own gradient, so there is no velocity of their mean; "
            "give --momentum 0 --weight-decay 0, or --sync accumulate"
        )


def seats(spec: RunSpec) -> tuple[Seat, ...]:
    dedicated = spec.options["ps_nodes"] == "dedicated"
    return workers_and_servers(
        spec, spec.options["workers_per_node"], spec.options["ps"], spec.options["ps_per_node"], dedicated=dedicated
    )


def arrange(spec: RunSpec, placed: Callable[[RunSpec], list[Piece]] = placed) -> Arrangement:
    if spec.kernel:
        return Arrangement()
    pieces = placed(spec)
    servers = [
        {"ps": ps, "bytes": bytes_, "pieces": sum(piece.ps == ps for piece in pieces)}
        for ps, bytes_ in enumerate(bytes_per_server(pieces, spec.options["ps"]))
    ]
    held = [[piece.tensor, piece.ps, piece.begin, piece.end] for piece in pieces]
    details: dict[str, Any] = {"servers": servers, "pieces": held}
    if "window" in spec.options and spec.options["order"] == "forward":
        details["asked_after"] = asked_after(pieces, spec.options["window"], spec.bytes_scale)
    return Arrangement(details=details)


def exchange(
    spec: RunSpec, pulls: Pulls = "before_forward", placed: Callable[[RunSpec], list[Piece]] = placed
) -> ServerExchange:
    pieces, per_node = placed(spec), spec.options["ps_per_node"]
    if per_node > 1:
        pieces = [replace(piece, ps=piece.ps // per_node) for piece in pieces]
    return ServerExchange(
        pieces=tuple(pieces),
        servers=-(-spec.options["ps"] // per_node),
        ps_per_node=per_node,
        workers_per_node=spec.options["workers_per_node"],
        shared_nodes=spec.options["ps_nodes"] == "shared",
        pulls=pulls,
        tokens="all_to_all" if _sync(spec) == "barrier" else "none",
        ordered={"forward": True, "none": False}.get(spec.options.get("order", "")),
    )


def _sync(spec: RunSpec) -> str:
    """The way in which the workers' updates meet; ``distributed_replicated`` has no option for it."""
    return str(spec.options.get("sync", "accumulate"))


BACKEND = Backend(
    name="parameter_server",
    family="parameter_servers",
    frameworks=("tensorflow",),
    strategy="variables on parameter servers; workers pull them and push gradients",
    folder=Path(__file__).parent,
    transports=("grpc",),
    precisions=("fp32", "tf32", "amp"),
    options=ParameterServerOptions,
    seats=seats,
    arrange=arrange,
    environment=partial(environment, "parameter_server"),
    validate=validate,
    expected_updates=lambda spec: (
        (spec.warmup_steps + spec.steps)
        * (1 if _sync(spec) == "accumulate" else spec.nodes * spec.options["workers_per_node"])
    ),
    exchange=exchange,
    kernels=("cg", "fft", "incast", "matmul", "outcast", "stream"),
)
