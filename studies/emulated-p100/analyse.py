"""What the emulated study says: who wins on which links, why, and where the scaling model was right.

    .venv/bin/python studies/emulated-p100/analyse.py RESULTS [-o DIR]

RESULTS are records of the studies in this folder. The page is printed, or written with its figures and data into DIR.
docs/experiments.md has the questions, and what hangs on the answers; ``index.md.j2`` is the page. What the scaling model
predicted (``predictions.csv``) is computed anew for each record.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from predictions import completed, predicted

from harness import results
from harness.analysis.scaling import Ratio, Sample, ratio
from harness.analysis.verdict import MARGIN
from harness.core.emulation import profile
from harness.core.spec import RunSpec
from harness.core.text import plural, template
from harness.errors import HarnessError, InvalidInput
from harness.report.page import static
from harness.report.page.figures import Axis, Figure, Series, Spot, Style, measured_ticks
from harness.report.text.verdict import ratio as shown
from harness.results import experiment
from harness.results.experiment import Answer, Finding

HERE = Path(__file__).parent
TENSORFLOW, TORCH, REPLICATED = "parameter_server", "torch_parameter_server", "distributed_replicated"
GOOD = 0.03  # a mean error up to which the law is right
MATTERS = 1 + MARGIN  # a ratio of steps that is called a difference
CONFIGURATION = 9  # so many fields of a point are what was asked for
TRANSPORTS = ("grpc", "gloo", "mpi")
# Strategy × transport, as far as frameworks are the same: servers and allreduce over each.
SERVERS = {"grpc": TENSORFLOW, "gloo": TORCH, "mpi": TORCH}
ALLREDUCE = {"grpc": "multi_worker_mirrored", "gloo": "pytorch", "mpi": "pytorch"}


class Point(NamedTuple):
    """One configuration: all its repeats. Times are in seconds of the device, ``links`` are GB/s.

    ``dilation`` and ``bytes_scale`` are how it was emulated.
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
        return f"{name} over {self.transport}" + (", in no order" if self.order == "none" else "")

    @property
    def label(self) -> str:
        servers = f", {self.ps} ps" + (", slices" if self.placement == "partitioned" else "") if self.ps else ""
        return f"{self.model}, {plural(self.nodes, 'node')}, {self.links:g} GB/s: {self.way}{servers}"

    def times(self, slower: Point) -> Ratio:
        """How many times longer a step of ``slower``, on as many nodes, takes."""
        return ratio([(self.img_per_s,)], [(slower.img_per_s,)])


def measured(frame: Any) -> list[Point]:
    """The points of a DataFrame of ``results.load``."""
    points = []
    for row in frame.itertuples():
        spec = RunSpec.model_validate({**json.loads(row.spec), "dilation": row.dilation, "device": row.device})
        links = re.search(r"links of ([\d.]+) GB/s", row.system)
        if not links:
            raise InvalidInput(f"{row.source}: its links have no rate")
        rate = float(links[1])
        queues_s, contention_s = predicted(spec, rate)
        points.append(
            Point(
                *(spec.model, rate, spec.nodes, spec.backend, str(spec.framework), str(spec.transport), row.ps),
                order=str(spec.options.get("order", "")),
                placement=str(spec.options.get("placement", "")),
                repeats=len(row.values),
                step_s=spec.workers * spec.batch_size / row.img_per_s,
                queues_s=queues_s,
                contention_s=contention_s,
                img_per_s=Sample(row.img_per_s, tuple(row.values)),
                dilation=spec.dilation,
                bytes_scale=spec.bytes_scale,
            )
        )
    return sorted(
        points, key=lambda point: (point.model, point.links, point.nodes, point.way, point.ps, point.placement)
    )


def once(points: Iterable[Point]) -> list[Point]:
    """Of each configuration the point with the most bytes and the least dilation: the others are there to be compared."""
    best: dict[Any, Point] = {}
    for point in sorted(points, key=lambda point: (-point.bytes_scale, point.dilation)):
        best.setdefault(point[:CONFIGURATION], point)
    return list(best.values())


# --- the questions: each answer, what it rests on as a sentence, and the same figures for scripts ---

Answered = tuple[Answer, str, dict[str, float]]


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


def fastest(points: Iterable[Point]) -> Point | None:
    return min(points, key=lambda point: point.step_s, default=None)


def above(found: Ratio, limit: float) -> bool:
    """Whether a ratio is certainly above a limit: its interval is, or it is where there are no repeats."""
    return (found.interval[0] if found.interval else found.value) > limit


def errors(points: Iterable[Point], law: str = "queues_s") -> list[float]:
    """Predicted over measured steps of several nodes, minus 1."""
    return [getattr(point, law) / point.step_s - 1 for point in points if point.nodes > 1]


def mean_error(found: Sequence[float]) -> float:
    return fmean(map(abs, found))


def lacking(what: str) -> Answered:
    return "cannot say", f"Not measured: {what}.", {}


def law_is_right(points: Iterable[Point], what: str) -> Answered:
    found = errors(points)
    if not found:
        return lacking(what)
    mean, most = mean_error(found), max(found, key=abs)
    because = f"The predictions of {plural(len(found), 'step')} are off by {mean:.1%} on average, {most:+.1%} at most."
    return "yes" if mean < GOOD else "no", because, {"points": len(found), "mean_error": mean, "worst": most}


def no_order_costs_all_pulls(points: list[Point]) -> Answered:
    """Do TensorFlow's servers as they are, without an order, take the time of compute and of all pulls, T1 + b / R?"""
    return law_is_right(chosen(points, backend=TENSORFLOW, order="none"), "parameter_server --order none")


def order_helps(points: list[Point]) -> Answered:
    """Are they faster if they are asked for parameters in the order of their use, and never slower?"""
    pairs = beside(points, {"backend": TENSORFLOW, "order": "forward"}, order="none")
    several = {one: one.times(other) for one, other in pairs if one.nodes > 1}
    if not several:
        return lacking("parameter_server with both orders")
    best, worst = (end(several, key=lambda one: several[one].value) for end in (max, min))
    said = [f"{shown(gain)} as fast ({one.label})" for one, gain in ((best, several[best]), (worst, several[worst]))]
    lost = [gain for gain in several.values() if gain.interval and gain.interval[1] < 1 / MATTERS]
    yes = above(several[best], MATTERS) and not lost
    figures = {"most": several[best].value, "least": several[worst].value, "points": len(several)}
    return "yes" if yes else "no", f"Of {plural(len(several), 'pair')}, at most {said[0]}, at least {said[1]}.", figures


def order_restores_the_law(points: list[Point]) -> Answered:
    """Is a step with an order as short as the law says, with compute hiding what it can?"""
    return law_is_right(whole(chosen(points, order="forward")), "servers in order")


def drop_is_of_one_rate(points: list[Point]) -> Answered:
    """Is Piz Daint's drop from 64 to 128 nodes a matter of links of one rate?"""
    rows = [row for row in beside_2017(points) if 8 <= row.nodes <= 32]
    tried = {
        rate: [row.emulated_s[rate] / row.published_s - 1 for row in rows if rate in row.emulated_s]
        for rate in {point.links for point in points}
    }
    tried = {rate: errors for rate, errors in tried.items() if errors}
    if not tried:
        return lacking("servers of 2017 in no order")
    rate = min(tried, key=lambda rate: max(map(abs, tried[rate])))
    worst = max(tried[rate], key=abs)
    before, after = (
        predicted(completed(backend=TENSORFLOW, order="none", nodes=nodes, ps=ps), rate)[0]
        for nodes, ps in ((64, 40), (128, 116))
    )
    published = {row.nodes: row.published_s for row in published_2017()}
    then = published[128] / published[64]
    because = (
        f"Of the measured rates {rate:g} GB/s is closest to 2017 on {plural(len(tried[rate]), 'size')} from 8 to 32 nodes: "
        f"a step is {worst:+.1%} off at most. On such links a step becomes, by the law, {after / before:.2f} times as long "
        f"from 64 to 128 nodes; in 2017 it was {then:.2f} times."
    )
    figures = {"links": rate, "worst": worst, "predicted": after / before, "published": then}
    alike = abs(worst) < MARGIN and abs(after / before / then - 1) < MARGIN
    return "yes" if alike else "no", because, figures


def everybody_with_everybody(points: list[Point]) -> Answered:
    """Does traffic of everybody with everybody cost more than its bytes on links with deep queues?"""
    crowded = [point for point in points if point.ps == point.nodes > 1 and point.placement == "partitioned"]
    if not crowded:
        return lacking("slices with a server on every node")
    means = [mean_error(errors(crowded, law)) for law in ("queues_s", "contention_s")]
    because = (
        f"On {plural(len(crowded), 'point')} with slices on every node the law errs by {means[0]:.1%}, and by "
        f"{means[1]:.1%} with what many-to-many traffic is said to cost in addition."
    )
    return "yes" if means[1] < means[0] else "no", because, {"queues": means[0], "contention": means[1]}


def toolkits_beat_servers(points: list[Point]) -> Answered:
    """Do MPI-based toolkits train faster than the servers of 2017, on all links that were measured?"""
    won = [(cell.as_2017, cell) for cell in the_map(points) if cell.nodes >= 8 and cell.as_2017]
    if not won:
        return lacking("both on 8 nodes or more")
    ends = [end(won, key=lambda one: one[0].value) for end in (min, max)]
    said = [f"{shown(gain)} on {cell.nodes} nodes with {cell.links:g} GB/s ({cell.model})" for gain, cell in ends]
    answer: Answer = "yes" if all(above(gain, 1) for gain, _ in won) else "no"
    return answer, f"Between {said[0]} and {said[1]}.", {"least": ends[0][0].value, "most": ends[1][0].value}


def strategy_and_transport(points: list[Point]) -> Answered:
    """Is it the strategy rather than the transport?"""
    for table in reversed(list(strategies(points))):
        by_strategy = [table.servers[name].step_s / table.allreduce[name].step_s for name in table.both]
        spreads = [
            max(point.step_s for point in side.values()) / min(point.step_s for point in side.values())
            for side in (table.servers, table.allreduce)
        ]
        if len(table.both) > 1:
            because = (
                f"On {table.nodes} nodes, {table.links:g} GB/s, servers in order take {min(by_strategy):.2f} to "
                f"{max(by_strategy):.2f} times as long as an allreduce over the same transport. Over the slowest transport "
                f"servers take {spreads[0]:.2f}, an allreduce {spreads[1]:.2f} times as long as over the fastest."
            )
            figures = {
                "strategy": fmean(by_strategy),
                "transport_servers": spreads[0],
                "transport_allreduce": spreads[1],
            }
            return "yes" if min(by_strategy) > max(spreads) else "no", because, figures
    return lacking("servers and allreduce over the same transports")


def the_number_of_servers(points: list[Point]) -> Answered:
    """Does the number of servers matter as the bytes of the fullest one say?"""
    searched = chosen(points, nodes=8, backend=TENSORFLOW, order="forward", placement="greedy", links=2.5)
    if len(searched) < 4:
        return lacking("several numbers of servers on 8 nodes")
    found, best = errors(searched), fastest(searched)
    assert best
    as_good = [str(point.ps) for point in searched if point.step_s < best.step_s * MATTERS]
    by_count = ", ".join(f"{point.step_s:.3f} s with {point.ps}" for point in searched)
    because = (
        f"On 8 nodes a step takes {by_count}: within 5 % of the best are {', '.join(as_good)}. "
        f"The law errs by {mean_error(found):.1%}."
    )
    return "yes" if mean_error(found) < GOOD else "no", because, {"best": best.ps, "mean_error": mean_error(found)}


def replicas_keep_up(points: list[Point]) -> Answered:
    """Do replicas that are updated while the backward pass goes on (distributed_replicated) keep up with the toolkits?"""
    toolkits = {(cell.model, cell.links, cell.nodes): cell.toolkit for cell in the_map(points) if cell.nodes >= 8}
    pairs = [
        (one, toolkits[one[:3]].times(one)) for one in whole(chosen(points, backend=REPLICATED)) if one[:3] in toolkits
    ]
    if not pairs:
        return lacking("distributed_replicated beside toolkits on 8 nodes or more")
    worst, longer = max(pairs, key=lambda pair: pair[1].value)
    said = f"the worst takes {shown(longer)} as long as the fastest toolkit's ({worst.label})"
    because = f"Of {plural(len(pairs), 'step')}, {said}."
    return "no" if above(longer, MATTERS) else "yes", because, {"worst": longer.value, "points": len(pairs)}


def slices_help(points: list[Point]) -> Answered:
    """Does cutting tensors into slices help?"""
    pairs = [(one, one.times(other)) for one, other in beside(points, {"placement": "partitioned"}, placement="greedy")]
    if not pairs:
        return lacking("slices beside whole tensors")
    said = "; ".join(f"{shown(gain)} as fast ({sliced.label})" for sliced, gain in pairs)
    return "yes" if all(above(gain, MATTERS) for _, gain in pairs) else "no", f"{said}.", {"points": len(pairs)}


def caffe2_keeps_up(points: list[Point]) -> Answered:
    """Does Caffe2 keep up with the toolkits of today?"""
    others = {
        one: fastest(
            point for point in whole(points) if not point.ps and point[:3] == one[:3] and point.backend != "caffe2"
        )
        for one in chosen(points, backend="caffe2")
        if one.nodes > 1
    }
    pairs = [(one, other.times(one)) for one, other in others.items() if other]
    if not pairs:
        return lacking("Caffe2 beside others")
    worst, ratio_ = max(pairs, key=lambda pair: pair[1].value)
    because = f"At worst its step takes {shown(ratio_)} that of the fastest ({worst.label})."
    return "no" if above(ratio_, MATTERS) else "yes", because, {"worst": ratio_.value}


QUESTIONS: tuple[Callable[[list[Point]], Answered], ...] = (
    *(toolkits_beat_servers, strategy_and_transport, no_order_costs_all_pulls, order_helps, order_restores_the_law),
    *(
        replicas_keep_up,
        the_number_of_servers,
        slices_help,
        everybody_with_everybody,
        drop_is_of_one_rate,
        caffe2_keeps_up,
    ),
)


def emulated_otherwise(every: list[Point]) -> Answered:
    """Is a step the same with twice the dilation, and with a quarter of the bytes?"""
    first = {point[:CONFIGURATION]: point for point in once(every)}
    again = [point for point in every if point is not first[point[:CONFIGURATION]]]
    if not again:
        return lacking("a point emulated in two ways")
    said, figures = [], {}
    for what, those in (
        ("longer dilation", [point for point in again if point.bytes_scale == 1]),
        ("fewer bytes", [point for point in again if point.bytes_scale < 1]),
    ):
        if those:
            off = {point: point.step_s / first[point[:CONFIGURATION]].step_s - 1 for point in those}
            worst = max(those, key=lambda point: abs(off[point]))
            figures[what] = off[worst]
            said.append(f"with {what} {plural(len(those), 'step')} differ by {off[worst]:+.1%} at most ({worst.label})")
    same = all(abs(found) < GOOD for found in figures.values())
    return "yes" if same else "no", f"{'; '.join(said).capitalize()}.", figures


# --- tables ---


class Cell(NamedTuple):
    """Toolkits (the fastest one) against TensorFlow's servers, as many as in 2017: how many times longer a step takes."""

    model: str
    links: float
    nodes: int
    toolkit: Point
    as_2017: Ratio | None
    in_order: Ratio | None


def the_map(points: list[Point]) -> Iterator[Cell]:
    """Who wins by how much, over links and nodes."""
    for model, links, nodes in sorted({point[:3] for point in points if point.nodes > 1}):
        here = whole(chosen(points, model=model, links=links, nodes=nodes))
        toolkit = fastest(point for point in here if not point.ps and point.backend != "multi_worker_mirrored")
        if toolkit:
            orders = [fastest(chosen(here, backend=TENSORFLOW, order=order)) for order in ("none", "forward")]
            yield Cell(model, links, nodes, toolkit, *(toolkit.times(one) if one else None for one in orders))


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
    for model, links, nodes in sorted({point[:3] for point in points if point.nodes > 1}):
        here = [
            point for point in whole(chosen(points, model=model, links=links, nodes=nodes)) if point.order != "none"
        ]
        sides = [
            {name: found for name in TRANSPORTS if (found := fastest(chosen(here, backend=of[name], transport=name)))}
            for of in (SERVERS, ALLREDUCE)
        ]
        if all(sides):
            yield Strategies(model, links, nodes, *sides)


class Beside(NamedTuple):
    """A step that was published in 2017 for Piz Daint, and emulated ones with as many servers, by links, in no order."""

    model: str
    nodes: int
    ps: int
    published_s: float
    emulated_s: dict[float, float]


def published_2017() -> list[Beside]:
    every: Any = results.load(["reference:daint"])
    published = every[(every["software"] == "TensorFlow 1.1.0") & (every["data"] == "synthetic")]
    return [
        Beside(run.model, run.nodes, run.ps, run.workers * run.batch_size / run.img_per_s, {})
        for run in published.itertuples()
    ]


def beside_2017(points: list[Point]) -> list[Beside]:
    rows = []
    for row in published_2017():
        as_then = [point for point in points if point.order == "none" or point.nodes == 1]
        alike = chosen(as_then, model=row.model, nodes=row.nodes, ps=row.ps, backend=TENSORFLOW, placement="greedy")
        rows.append(row._replace(emulated_s={point.links: point.step_s for point in alike}))
    return [row for row in rows if row.emulated_s]


class System(NamedTuple):
    """A real system: from which to which rate its links are, and what links of an emulated P100 that makes them, GB/s."""

    name: str
    gb_per_s: tuple[float, float]
    links: tuple[float, float]
    source: str


def systems() -> list[System]:
    """Those of ``systems.toml``. What counts is how much a link carries while a device computes a step."""
    found = []
    for entry in tomllib.loads((HERE / "systems.toml").read_text())["system"]:
        ours = profile("p100").steps[entry["model"]].img_per_s
        low, high = (end(entry["gb_per_s"]) for end in (min, max))
        links = (low * ours / max(entry["img_per_s"]), high * ours / min(entry["img_per_s"]))
        found.append(System(entry["name"], (low, high), links, entry["source"]))
    return found


# --- figures ---


def figures(points: list[Point]) -> list[Figure]:
    """Scaling at one rate of links, the map, and measured against predicted."""
    drawn = []
    for model in sorted({point.model for point in points}):
        here = whole(chosen(points, model=model, links=2.5))
        ways = {way: [point for point in here if point.way == way] for way in sorted({point.way for point in here})}
        alone = {way: min((p.step_s for p in chosen(found, nodes=1)), default=0.0) for way, found in ways.items()}
        series = []
        for colour, (way, found) in enumerate(ways.items()):
            sizes = {point.nodes for point in found}
            own = alone[way] or alone.get(way.removesuffix(", in no order"), 0.0)
            spots = [
                Spot(nodes, own / best.step_s)
                for nodes in sorted(sizes)
                if (best := fastest(chosen(found, nodes=nodes)))
            ]
            if own and len(spots) > 1:
                series.append(
                    Series(
                        way,
                        "curve",
                        spots,
                        Style(f"c{colour % 8}", ("circle", "square")[colour // 8 % 2], hollow="no order" in way),
                    )
                )
        x = Axis("nodes", "log", ticks=measured_ticks(point.nodes for point in here))
        y = Axis("efficiency", "linear", percent=True, from_zero=True)
        title = f"{model} on links of 2.5 GB/s: scaling efficiency"
        drawn.append(Figure(f"efficiency-{model}", title, f"efficiency-{model}", x, y, series, "Relative to one node."))
    drawn += map_figures(points)
    times = [(point.queues_s, point.step_s) for point in points if point.nodes > 1]
    ends = [end(value for pair in times for value in pair) for end in (min, max)] if times else []
    series = [
        Series("steps", "accent", [Spot(*pair) for pair in times], Style("c0", "circle")),
        Series("equal", "ideal", [Spot(end, end) for end in ends], Style("muted")),
    ]
    x, y = (Axis(f"{name} step time [s]", "linear") for name in ("predicted", "measured"))
    note = "On the grey line both are equal."
    drawn.append(Figure("predicted", "Measured against predicted", "predicted", x, y, series, note))
    return [figure for figure in drawn if figure.series]


def map_figures(points: list[Point]) -> Iterator[Figure]:
    """How many times longer steps with servers take, over the rate of links, by nodes; systems are bands."""
    cells = [cell for cell in the_map(points) if cell.nodes >= 8]
    for model in sorted({cell.model for cell in cells}):
        series = []
        sizes = sorted({cell.nodes for cell in cells if cell.model == model})
        for (number, nodes), (name, hollow) in product(enumerate(sizes), (("as in 2017", False), ("in order", True))):
            here = [cell for cell in cells if (cell.model, cell.nodes) == (model, nodes)]
            spots = [
                Spot(cell.links, found.value, *(found.interval or ()))
                for cell in here
                if (found := cell.in_order if hollow else cell.as_2017)
            ]
            series.append(
                Series(
                    f"{plural(nodes, 'node')}, servers {name}",
                    "curve",
                    spots,
                    Style(f"c{number}", "circle", hollow=hollow),
                )
            )
        heights = [spot.y for one in series for spot in one.spots] + [1.0]
        for number, system in enumerate(systems()):
            ends = [Spot(rate, max(heights), min(heights), max(heights)) for rate in system.links]
            series.append(Series(system.name, "band", ends, Style(f"c{7 - number}")))
        x = Axis(
            "links [GB/s in the time of a P100]",
            "log",
            ticks=((0.5, "0.5"), (1, "1"), (2.5, "2.5"), (5, "5"), (10, "10")),
        )
        y = Axis("step with servers / with the fastest toolkit", "linear")
        note = "Above 1 toolkits are faster. Bands are where real systems are, by independent measurements."
        yield Figure(f"map-{model}", f"{model}: servers against toolkits", f"map-{model}", x, y, series, note)


# --- the page ---


def findings(every: list[Point]) -> list[Finding]:
    points = once(every)
    asked = [(question, question(points)) for question in QUESTIONS] + [(emulated_otherwise, emulated_otherwise(every))]
    return [Finding(question.__name__, str(question.__doc__), *answered) for question, answered in asked]


def page(every: list[Point], frame: Any) -> str:
    """The page as Markdown."""
    points = once(every)
    return template(HERE / "index.md.j2").render(
        findings=findings(every),
        every=every,
        systems=systems(),
        cells=list(the_map(points)),
        strategies=list(strategies(points)),
        beside=beside_2017(points),
        rates=sorted({point.links for point in points}),
        transports=TRANSPORTS,
        figures=figures(points),
        shown=shown,
        runs=len(frame),
        days=sorted({min(frame["started"])[:10], max(frame["ended"])[:10]}),
        software=sorted(set(frame["software"])),
    )


def write(every: list[Point], frame: Any, folder: Path) -> None:
    """Write the page, its figures and its data into ``folder``. Raises InvalidInput if that cannot be written."""
    static.write(figures(once(every)), folder, ("png",))
    table = io.StringIO()
    columns = [name for name in Point._fields if name != "img_per_s"]
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(columns)
    rows.writerows([getattr(point, name) for name in columns] for point in every)
    data = {
        "experiment": "emulated-p100",
        "findings": [finding._asdict() for finding in findings(every)],
        "beside_2017": [row._asdict() for row in beside_2017(once(every))],
    }
    experiment.write(folder, page(every, frame), table.getvalue(), data)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", metavar="RESULTS", help="records, or folders with them")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="where to write the page  [default: print it]")
    options = parser.parse_args(argv)
    frame = results.load(options.results)
    if frame.empty:
        raise InvalidInput(f"{', '.join(options.results)}: no completed runs in there")
    points = measured(frame)
    if options.output:
        write(points, frame, options.output)
        print(options.output / "index.md")
    else:
        print(page(points, frame), end="")


if __name__ == "__main__":
    try:
        main()
    except HarnessError as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
