"""Predictions: throughput at any size and number of parameter servers, with an interval and the bounds of the step."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from harness.core import backend as backends
from harness.core.spec import MOST_WORKERS, RunSpec
from harness.core.text import listed, plural
from harness.core.validation import checked
from harness.errors import InvalidInput
from harness.prediction.fitting import Draws, middle
from harness.prediction.law import COMPUTE, WORKER, Phase, profile
from harness.prediction.parameters import Floats, Number, Parameters
from harness.prediction.sampling import SEED
from harness.prediction.workload import Workload
from harness.results.result import other_training

Pass = Literal["forward", "backward"]
ReadBy = Literal["node", "shared"]
FAR = 4  # times what was measured: beyond that a prediction extrapolates


@dataclass(frozen=True)
class Reader:
    """The rates at which images are read, decoded, and ready for a device, in img/s of its time.

    ``node`` is that of each node, ``shared`` that of all together, where they share a file system. Infinite: no limit.
    """

    node: float = math.inf
    shared: float = math.inf

    def seconds(self, images: float, nodes: Number) -> Floats:
        """The time (s) until each of ``nodes`` has read so many images. [nodes]"""
        return np.maximum(images / self.node, images * np.asarray(nodes) / self.shared)

    def binding(self, nodes: int) -> ReadBy:
        """The slower of the two rates for so many nodes."""
        return "node" if self.node * nodes <= self.shared else "shared"


UNLIMITED = Reader()


def reader(written: object) -> Reader:
    """``180img/s`` or a number is a node's rate, ``shared:9000img/s`` that of all; or both. Raises ValueError."""
    if written is None or isinstance(written, Reader):
        return written or UNLIMITED
    rates: dict[str, float] = {}
    for text in str(written).split(","):
        match = re.fullmatch(r"\s*(?:(shared):)?\s*(\d+(?:\.\d+)?)\s*(?:img/s)?\s*", text)
        name = (match and match[1]) or "node"
        if not match or not float(match[2]) or name in rates:
            raise ValueError("must be a rate such as 180img/s a node, shared:9000img/s, or 180img/s,shared:9000img/s")
        rates[name] = float(match[2])
    return Reader(**rates)


@dataclass(frozen=True)
class Basis:
    """The start of predictions: the most probable parameters and a single worker's step, and draws of both.

    ``single_draws`` is an array [draws], or one number where it is known. Without ``draws`` predictions are those of the
    law alone, and have no intervals. ``made_from`` has the origin of all of it, line by line; a ``warning`` says that those
    measurements contradict the law. ``rate`` is the link's (bytes/s) by two lines, None for the throughput. The ``reader``
    is that of real images. The most ``nodes`` and all ``batches`` (per device) are those that were measured, if known.
    """

    parameters: Parameters
    single_s: float
    draws: Draws | None = None
    single_draws: Number | None = None
    made_from: tuple[str, ...] = ()
    warning: str = ""
    rate: float | None = None
    nodes: int = 0
    batches: tuple[int, ...] = ()
    reader: Reader = UNLIMITED


def described(spec: RunSpec) -> Workload:
    """The workload of a run of ``spec``, at any size. Raises InvalidInput for one that the law is not about."""
    backend = backends.backend(spec.backend)
    if backend.exchange is None:
        raise InvalidInput(f"--backend {backend.name}: does not say what it exchanges, so nothing can be predicted")
    options = checked(backend.options, spec.options).model_dump()
    if other := other_training(backend, options):
        raise InvalidInput(
            f"--backend {backend.name} with {other}: the law is about synchronous steps of 32 bit gradients"
        )
    backend.seats(spec.model_copy(update={"options": options}))  # refuses workers that cannot share a node's devices
    if spec.device not in ("auto", *backend.devices):
        raise InvalidInput(f"--device {spec.device}: {backend.name} supports {', '.join(backend.devices)}")
    if spec.transport not in (None, *backend.transports, *backend.cuda_transports):
        raise InvalidInput(f"--transport {spec.transport}: {backend.name} has {', '.join(backend.transports)}")
    options.pop("ps", None)
    tuned = tuple(sorted(options.items()))
    return Workload(backend.name, spec.model, spec.batch_size, spec.image_size, spec.devices_per_node, tuned)


@dataclass(frozen=True)
class Bound:
    """The cause that a pass waits for: its compute, a server, or the workers' endpoints (``law.COMPUTE``, ``law.WORKER``).

    ``name`` is ``compute``, ``network`` or that of the server (``ServerExchange.name``). ``bytes`` go through that endpoint
    during the pass, in ``seconds``; ``tensor`` is the largest piece among them.
    """

    phase: Pass
    server: int
    name: str
    tensor: str
    tensor_bytes: float
    bytes: float
    seconds: float


@dataclass(frozen=True)
class Prediction:
    """The median of a measurement of one size. ``low`` and ``high`` (img/s) are the ends of the interval, NaN if unknown.

    ``efficiency`` is relative to a single worker. ``law_s`` is the step by the law alone, with the most probable
    parameters, and ``bounds`` are its passes: forward, where parameters are pulled before it, and backward.
    ``two_lines_s`` is the step by the law that a prediction has to beat (``Law.two_lines_s``). A step waits for images for
    ``read_wait_s``, and ``read_by`` is the rate that makes it wait, a node's or that of all. ``extrapolates`` names the
    sizes that are far beyond the measurements; "" if none is.
    """

    nodes: int
    workers: int
    ps: int
    step_s: float
    law_s: float
    img_per_s: float
    low: float
    high: float
    efficiency: float
    bounds: tuple[Bound, ...]
    two_lines_s: float
    read_wait_s: float = 0.0
    read_by: ReadBy | None = None
    extrapolates: str = ""


def check_sizes(workload: Workload, nodes: Sequence[int], ps: int | None = None) -> None:
    """Raise InvalidInput unless these sizes are possible, and ``ps`` servers have a place on the largest, and pieces."""
    if min(nodes) < 1:
        raise InvalidInput(f"--nodes {min(nodes)}: must be 1 or more")
    largest = max(nodes)
    if largest * workload.devices_per_node > MOST_WORKERS:
        raise InvalidInput(f"--nodes {largest}: at most {MOST_WORKERS} workers")
    if ps is None:
        return
    if not workload.has_servers:
        raise InvalidInput(f"--ps {ps}: {workload.backend} has no parameter servers")
    if ps < 1:
        raise InvalidInput(f"--ps {ps}: must be 1 or more")
    if reasons := without_place(workload, [largest], [ps]):
        raise InvalidInput(reasons[0])


def without_place(workload: Workload, nodes: Sequence[int], counts: Sequence[int] | None) -> list[str]:
    """The ``counts`` of servers that have no place on some of so many ``nodes``, or no pieces: a line for each size."""
    reasons = []
    for size in nodes if counts else ():
        most = workload.most_servers(size)
        if beyond := [ps for ps in counts or () if ps > most]:
            named = listed(beyond if len(beyond) < 6 else [*beyond[:3], "…", beyond[-1]])
            where = f"the places on {plural(size, 'node')} and the pieces of {workload.model}"
            reasons.append(f"--ps {named}: at most {most}, by {where}")
    return reasons


def predictions(
    workload: Workload, basis: Basis, nodes: Sequence[int], counts: Sequence[int] | None = None
) -> list[Prediction]:
    """Each size with each of ``counts`` servers that have a place on it; by default with the best number of them.

    ``without_place`` names the others. Raises InvalidInput where ``check_sizes`` does.
    """
    check_sizes(workload, nodes, min(counts) if counts else None)
    if not counts:
        return best(workload, basis, nodes)
    return [at(workload, basis, size, ps) for size in nodes for ps in counts if ps <= workload.most_servers(size)]


def steps(workload: Workload, basis: Basis, nodes: Sequence[int], ps: int) -> Floats:
    """Steps (s) by the law alone with ``ps`` servers on so many nodes [nodes]; infinite where that many have no place."""
    sizes = np.asarray(nodes, float)
    seconds = workload.law(ps).seconds(sizes, sizes * workload.devices_per_node, basis.single_s, basis.parameters)
    seconds = np.maximum(seconds, basis.reader.seconds(workload.batch_size * workload.devices_per_node, sizes))
    exchange = workload.servers(ps)
    if exchange and exchange.shared_nodes:
        return np.where(sizes * exchange.ps_per_node >= ps, seconds, math.inf)
    return seconds


def sweep(
    workload: Workload, basis: Basis, nodes: Sequence[int], counts: Sequence[int] | None = None
) -> tuple[Sequence[int], Floats]:
    """Numbers of servers (by default all possible ones; 0 without servers), and predicted steps (s) [servers, nodes]."""
    if not workload.has_servers:
        counts = [0]
    elif counts is None:
        counts = range(1, workload.most_servers(max(nodes)) + 1)
    return list(counts), np.stack([steps(workload, basis, nodes, ps) for ps in counts])


def best(
    workload: Workload, basis: Basis, nodes: Sequence[int], counts: Sequence[int] | None = None
) -> list[Prediction]:
    """At each size the fastest of ``counts`` servers, by default all possible ones; the smallest of equally fast ones."""
    counts, seconds = sweep(workload, basis, nodes, counts)
    # Equal to a thousandth is equal: nobody would see the difference, and a smaller number says more.
    chosen = [int(np.argmax(column <= column.min() * 1.001)) for column in seconds.T]
    return [at(workload, basis, size, counts[row]) for size, row in zip(nodes, chosen, strict=True)]


def at(workload: Workload, basis: Basis, nodes: int, ps: int) -> Prediction:
    workers = nodes * workload.devices_per_node
    images, law, p = workers * workload.batch_size, workload.law(ps), basis.parameters
    law_s = float(law.seconds(nodes, workers, basis.single_s, p))
    read_s = float(basis.reader.seconds(images / nodes, nodes))
    drawn = _drawn(workload, basis, nodes, ps) if basis.draws else np.array([law_s])
    step_s, low, high = middle(drawn) if basis.draws else (law_s, math.nan, math.nan)
    two_lines_s = law.two_lines_s(nodes, basis.single_s, float(p.forward_share), basis.rate or float(p.throughput))
    read_wait_s = max(0.0, read_s - step_s)
    law_s, step_s, low, high, two_lines_s = (max(time_s, read_s) for time_s in (law_s, step_s, low, high, two_lines_s))
    # Where a single worker's step is drawn, too, what it has in common with the step drops out.
    single = basis.single_draws if isinstance(basis.single_draws, np.ndarray) else None
    return Prediction(
        nodes=nodes,
        workers=workers,
        ps=ps,
        step_s=step_s,
        law_s=law_s,
        img_per_s=images / step_s,
        low=images / high,
        high=images / low,
        efficiency=basis.single_s / step_s if single is None else float(np.median(single / np.maximum(drawn, read_s))),
        bounds=tuple(bounds(workload, basis, nodes, ps)),
        two_lines_s=two_lines_s,
        read_wait_s=read_wait_s,
        read_by=basis.reader.binding(nodes) if read_wait_s else None,
        extrapolates=extrapolates(workload, basis, nodes),
    )


def extrapolates(workload: Workload, basis: Basis, nodes: int) -> str:
    """The sizes of a prediction that are over ``FAR`` times the measured ones, or below a ``FAR``-th, beside these."""
    beyond = []
    if basis.nodes and nodes > FAR * basis.nodes:
        beyond.append(f"from {plural(basis.nodes, 'node')} to {nodes:,}")
    if basis.batches and not min(basis.batches) / FAR <= workload.batch_size <= max(basis.batches) * FAR:
        nearest = min(basis.batches, key=lambda batch: abs(batch - workload.batch_size))
        beyond.append(f"from {plural(nearest, 'image')} per device to {workload.batch_size:,}")
    return " and ".join(beyond)


def gain(old: tuple[Workload, Basis, int], new: tuple[Workload, Basis, int], nodes: int) -> tuple[float, float, float]:
    """The ratio of the img/s of ``new`` to those of ``old``, each with its servers: the median, and the interval's ends.

    Both start from the same draws of the parameters; their discrepancies are taken to be independent.
    """
    before, after = (_drawn(workload, basis, nodes, ps, seed) for seed, (workload, basis, ps) in enumerate((old, new)))
    return middle(before / after)


def _drawn(workload: Workload, basis: Basis, nodes: int, ps: int, seed: int = SEED) -> Floats:
    """Draws of the mean step that would be measured (s)."""
    assert basis.draws is not None
    law = workload.law(ps)
    return basis.draws.steps(law, nodes, nodes * workload.devices_per_node, basis.single_draws, workload.way(law), seed)


def bounds(workload: Workload, basis: Basis, nodes: int, ps: int) -> Iterator[Bound]:
    """The cause that each pass of a step waits for."""
    law, p = workload.law(ps), basis.parameters
    factors, exchange = law.factors(nodes, p, workload.devices_per_node), workload.servers(ps)
    forward_s = float(p.forward_share) * basis.single_s
    passes: tuple[tuple[Pass, Phase | None, float, Number, Number], ...] = (
        ("forward", law.forward, forward_s, law.ordered(p), 0.0),
        ("backward", law.backward, basis.single_s - forward_s, 1.0, p.serial),
    )
    for name, phase, pass_s, ordered, serial in passes:
        if phase is None:
            continue
        bound = Bound(name, COMPUTE, "compute", "", 0.0, 0.0, pass_s)
        for queue, factor in zip(phase, factors, strict=True):
            if queue is None:
                continue
            ends = queue.seconds(pass_s, factor / p.throughput, factor * p.message, ordered, serial)
            line = int(np.argmax(ends))
            # What ends with compute, to a hundredth, is hidden by it.
            if ends[line] > max(bound.seconds, pass_s * 1.01):
                server, last = int(queue.server[line]), int(queue.piece[line])
                if exchange:
                    pieces = exchange.pieces[: last + 1]
                    queued = [(piece.tensor, piece.bytes) for piece in pieces if server in (WORKER, piece.ps)]
                else:  # the buffer that ends with this tensor, and those after it
                    model = profile(workload.model, workload.image_size)
                    until = next(buffer[0] for buffer in law.buffers if buffer[-1] == last) + 1
                    queued = list(zip(model.names[:until], model.bytes.tolist(), strict=False))
                tensor, size = max(queued, key=lambda piece: piece[1])
                passed = float(queue.lines[1, line] * factor)
                # The workers themselves bind where gradients are summed without servers.
                endpoint = exchange.name(server) if exchange and server != WORKER else "network"
                bound = Bound(name, server, endpoint, tensor, float(size), passed, float(ends[line]))
        yield bound
