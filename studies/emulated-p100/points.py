"""The points of the emulated study, and the tables that are made of them."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from measure import FILES, parts
from predictions import complete, of_row, predicted
from predictions import points as study_points

from harness import results
from harness.analysis.ratios import Ratio, Sample, best_interval, ratio
from harness.core.emulation import profile
from harness.core.spec import RunSpec
from harness.core.text import plural

TENSORFLOW, TORCH, REPLICATED = "parameter_server", "torch_parameter_server", "distributed_replicated"
ITS_OWN = "parameter_server_strategy"  # TensorFlow's
CONFIGURATION = 9  # so many fields of a point are what was asked for
TRANSPORTS = ("grpc", "gloo", "mpi")
PIECES = "forward, 8 pieces at once"  # an order with a window that has no bytes
# Strategy × transport, as far as frameworks are the same: servers and allreduce over each.
SERVERS = {"grpc": TENSORFLOW, "gloo": TORCH, "mpi": TORCH}
ALLREDUCE = {"grpc": "multi_worker_mirrored", "gloo": "pytorch", "mpi": "pytorch"}
# Servers beside those of 2017, which were TensorFlow's. Of 64 and 128 nodes two cores and 24 GB carry PyTorch's only.
BESIDE_2017: dict[str, dict[str, Any]] = {
    "no order": {"backend": TENSORFLOW, "order": "none"},
    "in order": {"backend": TENSORFLOW, "order": "forward"},
    "PyTorch's in order": {"backend": TORCH, "order": "forward"},
}
SYSTEMS = Path(__file__).parent / "systems.toml"


class Point(NamedTuple):
    """One configuration: all its repeats. Times are in seconds of the device, ``links`` are GB/s.

    ``steps`` are those of each repeat, ``dilation`` and ``bytes_scale`` are how it was emulated.
    """

    model: str
    links: float
    nodes: int
    backend: str
    framework: str
    transport: str
    ps: int
    order: str
    placement: str
    repeats: int
    steps: int
    step_s: float
    queues_s: float
    contention_s: float
    img_per_s: Sample
    dilation: float
    bytes_scale: float

    @property
    def way(self) -> str:
        """What distributes the training."""
        name = f"{self.backend}:{self.framework}" if self.backend == "horovod" else self.backend
        how = {"none": ", in no order", PIECES: ", 8 pieces at once"}.get(self.order, "")
        return f"{name} over {self.transport}{how}"

    @property
    def emulated(self) -> tuple[object, ...]:
        """The configuration, and how it was emulated."""
        return (*self[:CONFIGURATION], self.dilation, self.bytes_scale)

    @property
    def servers(self) -> str:
        """The way, and how many servers of what kind it has."""
        placed = {"partitioned": ", slices", "round_robin": ", dealt in turn"}.get(self.placement, "")
        return self.way + (f", {self.ps} ps{placed}" if self.ps else "")

    @property
    def label(self) -> str:
        return f"{self.model}, {plural(self.nodes, 'node')}, {self.links:g} GB/s: {self.servers}"

    @property
    def per_node(self) -> Sample:
        """img/s of a node, which are as its steps on any number of nodes."""
        return Sample(self.img_per_s.mean / self.nodes, tuple(value / self.nodes for value in self.img_per_s.values))

    def times(self, slower: Point) -> Ratio:
        """How many times longer a step of ``slower`` takes."""
        return times_longer([self], [slower])

    def times_of(self, seconds: float) -> Ratio:
        """How many times as long a step takes as one of so many seconds, of which no spread is known."""
        limits = best_interval([self.per_node])
        its_img_per_s = self.per_node.mean * self.step_s / seconds
        return Ratio(self.step_s / seconds, limits and (its_img_per_s / limits[1], its_img_per_s / limits[0]))


def times_longer(fast: Iterable[Point], slow: Iterable[Point]) -> Ratio:
    """How many times longer the shortest step of some points is than that of others, each the best of a choice."""
    return ratio([[point.per_node for point in fast]], [[point.per_node for point in slow]])


def computed_s(model: str) -> float:
    """How long the device computes in a step, which is what one alone takes."""
    step = profile("p100").steps[model]
    return step.batch_size / step.img_per_s


def measured(frame: Any) -> list[Point]:
    """The points of a DataFrame of ``results.load``."""
    return sorted(
        (_point(*of_row(row), row.ps, Sample(row.img_per_s, tuple(row.values))) for row in frame.itertuples()),
        key=lambda point: (point.model, point.links, point.nodes, point.way, point.ps, point.placement),
    )


def without_number(points: Iterable[Point]) -> list[Point]:
    """What the studies in this folder ask for, and ``points`` do not have."""
    asked = [
        _point(complete(each.spec), part.links.rate, each.spec.options.get("ps") or 0, Sample(math.nan, ()))
        for part in (part for file in FILES for part in parts(file))
        for each in study_points(part.name, part.tables)
    ]
    there = {point.emulated for point in points}
    return [point for point in asked if point.emulated not in there]


def _point(spec: RunSpec, links: float, ps: int, img_per_s: Sample) -> Point:
    queues_s, contention_s = predicted(spec, links)
    return Point(
        *(spec.model, links, spec.nodes, spec.backend, str(spec.framework), str(spec.transport), ps),
        order=_order(spec.options),
        placement=str(spec.options.get("placement", "")),
        repeats=len(img_per_s.values),
        steps=spec.steps,
        step_s=spec.workers * spec.batch_size / img_per_s.mean,
        queues_s=queues_s,
        contention_s=contention_s,
        img_per_s=img_per_s,
        dilation=spec.dilation,
        bytes_scale=spec.bytes_scale,
    )


def _order(options: Mapping[str, Any]) -> str:
    """The order of a backend's options, which with a window of pieces is one of its own."""
    order = str(options.get("order", ""))
    return PIECES if order == "forward" and options.get("window") == 8 else order


def once(points: Iterable[Point]) -> list[Point]:
    """Of each configuration the point with the most bytes and the longest dilation: the others are there to be compared.

    What the machine needs for itself counts the less, the longer a second of the device takes.
    """
    every = list(points)
    best: dict[Any, Point] = {}
    for point in sorted(every, key=lambda point: (-point.bytes_scale, -point.dilation)):
        best.setdefault(point[:CONFIGURATION], point)
    return [point for point in every if best[point[:CONFIGURATION]] is point]


def chosen(points: Iterable[Point], **wanted: Any) -> list[Point]:
    """The points whose fields have these values."""
    return [point for point in points if all(getattr(point, name) == value for name, value in wanted.items())]


def beside(points: list[Point], wanted: dict[str, Any], **changed: Any) -> Iterator[tuple[Point, Point]]:
    """The points that are ``wanted``, each with the one of the same configuration but for what is ``changed``."""
    for one, other in product(chosen(points, **wanted), points):
        if one._replace(**changed)[:CONFIGURATION] == other[:CONFIGURATION]:
            yield one, other


def whole(points: Iterable[Point]) -> list[Point]:
    """Those with whole tensors on fewer servers than nodes, or without servers: what was run in 2017."""
    return [point for point in points if point.placement != "partitioned" and point.ps < max(point.nodes, 2)]


def as_2017(points: Iterable[Point]) -> list[Point]:
    """Those of ``whole`` that have as many servers as were published to be best, but for replicas; or none.

    Tensors that are dealt in turn are for the replicas, and to be compared with TensorFlow's own servers.
    """
    counts = {row.nodes: row.ps for row in published_2017()}
    return [
        point
        for point in whole(points)
        if point.backend == REPLICATED or (point.placement != "round_robin" and point.ps in (0, counts[point.nodes]))
    ]


def fastest(points: Iterable[Point]) -> Point | None:
    return min(points, key=lambda point: point.step_s, default=None)


class Cell(NamedTuple):
    """Toolkits (the fastest one) against servers: how many times longer a step takes.

    Against TensorFlow's, as many as in 2017, without and with an order, and against the best of all that were measured.
    """

    model: str
    links: float
    nodes: int
    toolkit: Point
    as_2017: Ratio | None
    in_order: Ratio | None
    at_best: Ratio | None
    best: Point | None


def places(points: list[Point]) -> Iterator[tuple[tuple[str, float, int], list[Point]]]:
    """Each model, links and several nodes, with the points there."""
    for model, links, nodes in sorted({point[:3] for point in points if point.nodes > 1}):
        yield (model, links, nodes), chosen(points, model=model, links=links, nodes=nodes)


def the_map(points: list[Point]) -> Iterator[Cell]:
    """Who wins by how much, over links and nodes."""
    for place, here in places(points):
        then, servers = as_2017(here), [point for point in here if point.ps]
        toolkits = [point for point in then if not point.ps and point.backend != "multi_worker_mirrored"]
        if toolkit := fastest(toolkits):
            orders = [chosen(then, backend=TENSORFLOW, order=order) for order in ("none", "forward")]
            as_then, in_order, at_best = (
                times_longer(toolkits, those) if those else None for those in (*orders, servers)
            )
            yield Cell(*place, toolkit, as_then, in_order, at_best, fastest(servers))


class Strategies(NamedTuple):
    """Points by transport: {servers, allreduce} × {gRPC, Gloo, MPI}."""

    model: str
    links: float
    nodes: int
    servers: dict[str, Point]
    allreduce: dict[str, Point]

    @property
    def both(self) -> list[str]:
        return [name for name in TRANSPORTS if name in self.servers and name in self.allreduce]


def strategies(points: list[Point]) -> Iterator[Strategies]:
    for place, here in places(points):
        best = [point for point in as_2017(here) if point.order not in ("none", PIECES)]
        sides = [
            {name: found for name in TRANSPORTS if (found := fastest(chosen(best, backend=of[name], transport=name)))}
            for of in (SERVERS, ALLREDUCE)
        ]
        if all(sides):
            yield Strategies(*place, *sides)


class Beside(NamedTuple):
    """A step that was published in 2017 for Piz Daint, and emulated ones with as many servers, by ``columns``."""

    model: str
    nodes: int
    ps: int
    published_s: float
    emulated_s: dict[str, float]


class Column(NamedTuple):
    """Servers with whole tensors on links of one rate (GB/s): what was measured beside what was published."""

    name: str
    wanted: dict[str, Any]
    links: float


@cache
def published_2017() -> list[Beside]:
    every: Any = results.load(["reference:daint"])
    published = every[(every["software"] == "TensorFlow 1.1.0") & (every["data"] == "synthetic")]
    return [
        Beside(run.model, run.nodes, run.ps, run.workers * run.batch_size / run.img_per_s, {})
        for run in published.itertuples()
    ]


def columns(points: list[Point]) -> list[Column]:
    """Those of which there are 8 nodes or more with as many servers as in 2017."""
    counts = {row.nodes: row.ps for row in published_2017() if row.nodes >= 8}
    there = [point for point in points if point.model == "inception3" and point.ps == counts.get(point.nodes)]
    every = [
        Column(f"{rate:g} GB/s, {way}", {**wanted, "placement": "greedy"}, rate)
        for way, wanted in BESIDE_2017.items()
        for rate in sorted({point.links for point in there})
    ]
    return [column for column in every if chosen(there, links=column.links, **column.wanted)]


def beside_2017(points: list[Point]) -> list[Beside]:
    every = {column.name: emulated_2017(points, column) for column in columns(points)}
    rows = [
        row._replace(emulated_s={name: found[row.nodes].step_s for name, found in every.items() if row.nodes in found})
        for row in published_2017()
    ]
    return [row for row in rows if row.emulated_s]


def emulated_2017(points: list[Point], column: Column) -> dict[int, Point]:
    """The points of a column that have as many servers as in 2017, by nodes. One node has no order."""
    found = {}
    for row in published_2017():
        wanted = {name: value for name, value in column.wanted.items() if row.nodes > 1 or name != "order"}
        alike = chosen(points, model=row.model, nodes=row.nodes, ps=row.ps, links=column.links, **wanted)
        if best := fastest(alike):
            found[row.nodes] = best
    return found


class System(NamedTuple):
    """A real system: from which to which rate its links are, and what links of an emulated P100 that makes them, GB/s."""

    name: str
    gb_per_s: tuple[float, float]
    links: tuple[float, float]
    source: str


def systems() -> list[System]:
    """Those of ``systems.toml``. What counts is how much a link carries while a device computes a step."""
    found = []
    for entry in tomllib.loads(SYSTEMS.read_text())["system"]:
        ours = profile("p100").steps[entry["model"]].img_per_s
        low, high = (end(entry["gb_per_s"]) for end in (min, max))
        links = (low * ours / max(entry["img_per_s"]), high * ours / min(entry["img_per_s"]))
        found.append(System(entry["name"], (low, high), links, entry["source"]))
    return found
