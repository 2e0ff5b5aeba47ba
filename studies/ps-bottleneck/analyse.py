"""What bounds a step with parameter servers: the fullest server's network, or something else?

    .venv/bin/python studies/ps-bottleneck/analyse.py RESULTS [--control DIR] [-o DIR]

RESULTS are records of ``study.toml``, and ``--control`` those of ``control.toml``, the same points on links without a
limit; or RESULTS is one folder with both, as ``limited`` and ``unlimited``. The page is printed, or written with its
figures and data into DIR.

The law that is put to the test is that of ``harness.prediction``, with no parameter but the throughput R of each direction
of a node: docs/experiments.md has it. R is fitted to some points, and predicts the others. ``index.md.j2`` is the page;
``reasons.md.j2`` has the sentence for each answer.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jinja2
import numpy as np
import pandas
from scipy.optimize import minimize_scalar
from scipy.special import stdtrit

from harness import results
from harness.core import backend as backends
from harness.core.exchange import Exchange, ServerExchange, bytes_per_server
from harness.core.spec import RunSpec
from harness.core.text import interval, plural
from harness.errors import HarnessError, InvalidInput
from harness.files import write_atomically
from harness.prediction.law import law, profile
from harness.prediction.parameters import FORWARD_SHARE, Parameters
from harness.report.page import static
from harness.report.page.figures import Axis, Figure, Series, Spot, Style, decade_ticks, measured_ticks

SERVERS = "parameter_server"
CALIBRATION_NODES = (2, 4)  # with servers; without them two nodes say it all
SAME_LOAD = 1.05  # servers whose bytes are closer than this are equally full
MATTERS = 1.1  # a ratio of step times that is called a difference
FLAT = 1.25  # growth from one size to twice that size which is called flat; a ring's is 1.17 from 4 to 8 nodes
PREDICTED = 0.1  # an error of a predicted step that is not called a contradiction
SERIAL = 1.5  # halfway between both directions at once (1) and one after the other (2)

Answer = Literal["yes", "no", "cannot say"]


# --- what was measured ---


def exchange_of(spec: RunSpec) -> Exchange:
    exchange = backends.backend(spec.backend).exchange
    assert exchange is not None
    return exchange(spec)


@dataclass(frozen=True)
class MeasuredPoint:
    """A spec with its step times in seconds, one for each repeat, and what is known of them. ``source`` is its record.

    A step's time is taken from the repeat's throughput: it is the mean over the measured window of the slowest rank.
    ``predicted_s`` is None where nothing predicts the point. ``fitted``: the throughput comes from this point and others.
    ``unlimited_s`` is the same step on links without a limit, None where that was not measured.
    """

    spec: RunSpec
    steps_s: tuple[float, ...]
    source: str = ""
    predicted_s: float | None = None
    interval_s: tuple[float, float] | None = None
    fitted: bool = False
    unlimited_s: float | None = None

    @property
    def step_s(self) -> float:
        return sum(self.steps_s) / len(self.steps_s)

    @property
    def servers(self) -> int:
        return int(self.spec.options.get("ps", 0))

    @property
    def placement(self) -> str:
        return str(self.spec.options.get("placement", ""))

    @cached_property
    def held(self) -> list[int]:
        """Bytes that each parameter server holds, by the real placement; nothing without servers."""
        moved = exchange_of(self.spec)
        return bytes_per_server(moved.pieces, moved.servers) if isinstance(moved, ServerExchange) else []

    @property
    def fullest(self) -> int:
        """Bytes on the server that holds most; 0 without servers."""
        return max(self.held, default=0)

    @cached_property
    def contender(self) -> str:
        """What distributes the training: ``parameter_server``, ``horovod:tensorflow:mpi``, ``pytorch:gloo``."""
        backend = backends.backend(self.spec.backend)
        parts = [backend.name]
        if len(backend.frameworks) > 1:
            parts.append(str(self.spec.framework))
        if len({*backend.transports, *backend.cuda_transports}) > 1:
            parts.append(str(self.spec.transport))
        return ":".join(parts)

    @property
    def label(self) -> str:
        """``distributed_replicated, 8 nodes, 4 ps greedy``."""
        servers = f", {self.servers} ps {self.placement}" if self.servers else ""
        return f"{self.contender}, {plural(self.spec.nodes, 'node')}{servers}"

    @property
    def error(self) -> float | None:
        """Predicted over measured, less one."""
        return None if self.predicted_s is None else self.predicted_s / self.step_s - 1

    def as_dict(self, folder: Path) -> dict[str, Any]:
        """For scripts; the record is named as it lies from ``folder``."""
        return {
            "point": self.label,
            "contender": self.contender,
            "nodes": self.spec.nodes,
            "ps": self.servers,
            "placement": self.placement,
            "repeats": len(self.steps_s),
            "measured_s": self.step_s,
            "interval_s": self.interval_s,
            "predicted_s": self.predicted_s,
            "error": self.error,
            "fitted": self.fitted,
            "fullest_server_bytes": self.fullest,
            "without_limit_s": self.unlimited_s,
            "source": os.path.relpath(self.source, folder),
        }


def measured(frame: pandas.DataFrame) -> list[MeasuredPoint]:
    """The points of a DataFrame of ``results.load``: runs of the same spec are one point."""
    points = []
    for text, runs in frame.explode("values").groupby("spec", sort=False):
        steps_s = runs["workers"] * runs["batch_size"] / runs["values"]
        spec = RunSpec.model_validate_json(str(text))
        points.append(MeasuredPoint(spec, tuple(steps_s), str(runs["source"].iloc[0])))
    return points


class Times(NamedTuple):
    """How many times longer one step takes than another, with its 95 % confidence interval if that is known."""

    value: float
    limits: tuple[float, float] | None = None

    def exceeds(self, limit: float) -> Answer:
        """Whether it is more than ``limit``; "cannot say" if the limit lies within its interval."""
        if self.limits is not None and self.limits[0] <= limit <= self.limits[1]:
            return "cannot say"
        return "yes" if self.value > limit else "no"

    def at_most(self, limit: float) -> Answer:
        opposite: dict[Answer, Answer] = {"yes": "no", "no": "yes", "cannot say": "cannot say"}
        return opposite[self.exceeds(limit)]

    def __str__(self) -> str:
        return f"{self.value:.2f} {interval(self.limits)}".rstrip() + " times"


@dataclass(frozen=True)
class Spread:
    """How much repeats of one point differ: the standard deviation of the logarithms, pooled over all points.

    Two or three repeats of one point alone say next to nothing about their spread; those of all points together do, if
    they were measured alike, in turn on one system. Without any repeats ``freedom`` is 0 and no interval is known.
    """

    deviation: float
    freedom: int

    @classmethod
    def of(cls, points: Iterable[MeasuredPoint]) -> Spread:
        logs = [np.log(point.steps_s) for point in points]
        freedom = sum(len(each) - 1 for each in logs)
        squares = sum(float(((each - each.mean()) ** 2).sum()) for each in logs)
        return cls(math.sqrt(squares / freedom) if freedom else math.nan, freedom)

    def interval(self, point: MeasuredPoint) -> tuple[float, float] | None:
        """The 95 % confidence interval of a point's step (s)."""
        return self._around(point.step_s, 1 / len(point.steps_s))

    def ratio(self, slow: MeasuredPoint, fast: MeasuredPoint) -> Times:
        """How many times longer a step of ``slow`` takes."""
        value = slow.step_s / fast.step_s
        return Times(value, self._around(value, 1 / len(slow.steps_s) + 1 / len(fast.steps_s)))

    def _around(self, value: float, share: float) -> tuple[float, float] | None:
        if not self.freedom:
            return None
        factor = math.exp(float(stdtrit(self.freedom, 0.975)) * self.deviation * math.sqrt(share))
        return float(value / factor), float(value * factor)


def chosen(
    points: Iterable[MeasuredPoint], contender: str, nodes: int | None = None, placement: str | None = None
) -> list[MeasuredPoint]:
    """The points of a contender, by default of any size and placement, by nodes and servers."""
    alike = (
        point
        for point in points
        if point.contender == contender and nodes in (None, point.spec.nodes) and placement in (None, point.placement)
    )
    return sorted(alike, key=lambda point: (point.spec.nodes, point.servers))


def ways_first(point: MeasuredPoint) -> tuple[str, str, int, int]:
    return point.contender, point.placement, point.spec.nodes, point.servers


def largest(points: Sequence[MeasuredPoint]) -> list[MeasuredPoint]:
    """The points of the largest size that has several of them."""
    sizes = [point.spec.nodes for point in points]
    several = max((nodes for nodes in sizes if sizes.count(nodes) > 1), default=0)
    return [point for point in points if point.spec.nodes == several]


# --- the law ---


def by_law(spec: RunSpec, step_s: float, rate: float) -> float:
    """What ``harness.prediction`` says that a step takes: its law, with no parameter but the throughput ``rate``."""
    parameters = Parameters(rate, forward_share=FORWARD_SHARE["cuda" if spec.device == "cuda" else "cpu"])
    of_step = law(exchange_of(spec), profile(spec.model, spec.image_size))
    return float(of_step.seconds(spec.nodes, spec.workers, step_s, parameters))


def fitted_rate(points: Sequence[tuple[MeasuredPoint, float]]) -> float:
    """The throughput (bytes/s) that explains ``points`` best: least squares on the logarithm of the step time.

    With each point comes its step on a single worker, in seconds.
    """

    def misfit(log_rate: float) -> float:
        return sum(
            math.log(by_law(point.spec, single_s, math.exp(log_rate)) / point.step_s) ** 2 for point, single_s in points
        )

    # Where compute hides the network the misfit is flat: the search begins at what the network would have to be at least.
    best = min(np.arange(math.log(1e5), math.log(1e12), 0.25), key=misfit)
    return math.exp(minimize_scalar(misfit, bounds=(best - 0.5, best + 0.5), method="bounded").x)


def single_step(point: MeasuredPoint, points: Sequence[MeasuredPoint]) -> float | None:
    """Seconds of the step of a single worker: of the same contender, or of another one with the same framework."""
    single = [other for other in points if other.spec.nodes == 1 and other.spec.framework == point.spec.framework]
    single.sort(key=lambda other: other.contender != point.contender)
    return single[0].step_s if single else None


def calibration(points: Sequence[MeasuredPoint]) -> dict[str, list[tuple[MeasuredPoint, float]]]:
    """By transport, the points that its throughput is fitted to, with their steps on a single worker (s)."""
    by_transport: dict[str, list[tuple[MeasuredPoint, float]]] = {}
    for point in points:
        nodes = CALIBRATION_NODES if point.contender == SERVERS else CALIBRATION_NODES[:1]
        whole = not point.servers or (point.contender == SERVERS and point.placement == "greedy")
        if point.spec.nodes in nodes and whole and (single_s := single_step(point, points)) is not None:
            by_transport.setdefault(str(point.spec.transport), []).append((point, single_s))
    return dict(sorted(by_transport.items(), key=lambda item: item[0] != "grpc"))


# --- the questions: each answer with the figures that it rests on for scripts, and what its sentence says ---

Points = Sequence[MeasuredPoint]
Rates = dict[str, float]
Answered = tuple[Answer, dict[str, float], dict[str, Any]]


def servers_stop_helping(points: Points, spread: Spread, rates: Rates) -> Answered:
    """Do more parameter servers stop helping once one holds little but the largest tensor?"""
    alike = largest(chosen(points, SERVERS, placement="greedy"))
    if len(alike) < 3:
        return unknown("three counts of servers on the same nodes are needed")
    fewest, last = alike[0], alike[-1]
    enough = next(point for point in alike if point.fullest <= SAME_LOAD * last.fullest)
    if enough is last:
        return unknown("the fullest server's load still falls at the largest count")
    before, after = spread.ratio(fewest, enough), spread.ratio(enough, last)
    halfway = math.sqrt(last.servers / enough.servers)  # on a ratio's scale, between no gain and a gain in proportion
    figures: dict[str, float] = {"from": enough.servers, "to": last.servers}
    figures |= {"speedup_before": before.value, "speedup_after": after.value}
    facts = {"fewest": fewest, "enough": enough, "last": last, "before": before, "after": after}
    return after.at_most(halfway), figures, facts


def partitioning_helps(points: Points, spread: Spread, rates: Rates) -> Answered:
    """Does cutting tensors into slices restore scaling?"""
    pairs = [
        (whole, sliced)
        for whole in chosen(points, SERVERS, placement="greedy")
        for sliced in chosen(points, SERVERS, whole.spec.nodes, "partitioned")
        if whole.servers == sliced.servers == whole.spec.nodes
    ]
    if not pairs:
        return unknown("greedy and partitioned with a server on every node are needed")
    (small_whole, small_sliced), (whole, sliced) = pairs[0], pairs[-1]
    gain = spread.ratio(whole, sliced)
    figures = {"speedup": gain.value, "bytes_ratio": whole.fullest / sliced.fullest}
    if len(pairs) > 1:
        figures["growth_whole"] = whole.step_s / small_whole.step_s
        figures["growth_sliced"] = sliced.step_s / small_sliced.step_s
    facts = {"whole": whole, "gain": gain, "smallest": small_whole.spec.nodes, "figures": figures}
    return gain.exceeds(MATTERS), figures, facts


def parity_matters(points: Points, spread: Spread, rates: Rates) -> Answered:
    """Dealt in turn, are tensors served no faster by an even number of servers than by one server less?"""
    dealt = largest(chosen(points, SERVERS, placement="round_robin"))
    nodes = dealt[0].spec.nodes if dealt else 0
    # A single server holds the same whatever the placement.
    by_count = {point.servers: point for point in [*chosen(points, SERVERS, nodes, "greedy")[:1], *dealt]}
    pairs = [(by_count[even - 1], by_count[even]) for even in sorted(by_count) if not even % 2 and even - 1 in by_count]
    if not pairs:
        return unknown("round_robin with an even number of servers and with one less is needed")
    answer = of_all({spread.ratio(odd, even).at_most(MATTERS) for odd, even in pairs})
    slower = [(odd, even, spread.ratio(even, odd)) for odd, even in pairs]
    figures = {f"{even.servers}_over_{odd.servers}": times.value for odd, even, times in slower}
    return answer, figures, {"nodes": nodes, "slower": slower}


def toolkits_are_flat(points: Points, spread: Spread, rates: Rates) -> Answered:
    """Without servers, does a step take nearly as long on twice as many nodes?"""

    def growth(points: Iterable[MeasuredPoint], most: int) -> Times | None:
        by_nodes = {point.spec.nodes: point for point in points}
        known = most >= 4 and most in by_nodes and most // 2 in by_nodes
        return spread.ratio(by_nodes[most], by_nodes[most // 2]) if known else None

    grown, most = {}, 0
    for contender in sorted({point.contender for point in points if not point.servers}):
        alike = chosen(points, contender)
        if times := growth(alike, alike[-1].spec.nodes):
            most = alike[-1].spec.nodes
            grown[contender] = (times, most)
    if not grown:
        return unknown("a backend without servers on two sizes beyond 2 nodes is needed")
    figures = {contender: times.value for contender, (times, _) in grown.items()}
    single = growth((point for point in chosen(points, SERVERS, placement="greedy") if point.servers == 1), most)
    if single:
        figures["one_server"] = single.value
    return of_all({times.at_most(FLAT) for times, _ in grown.values()}), figures, {"grown": grown, "single": single}


def directions_take_turns(points: Points, spread: Spread, rates: Rates) -> Answered:
    """Do a server's sending (parameters) and receiving (gradients) take turns in parameter_server?"""
    # A step is compared with b / R for the R of toolkits, which send and receive at the same time: 2 if the directions take
    # turns, 1 if they overlap. R of the servers' own transport would be fitted with the answer already in it.
    rate, transport = max(((rate, name) for name, rate in rates.items() if name != "grpc"), default=(0.0, ""))
    single = [point for point in points if point.servers == 1 and point.spec.nodes > 1]
    if not rate or not any(point.contender == SERVERS for point in single):
        return unknown("one server, and a toolkit on the same links, are needed")
    longer = {}
    for point in single:
        shortest_s = (point.spec.nodes - 1) * point.fullest / rate
        limits = spread.interval(point)
        longer[point.label] = Times(
            point.step_s / shortest_s, limits and (limits[0] / shortest_s, limits[1] / shortest_s)
        )
    answers = {longer[point.label].exceeds(SERIAL) for point in single if point.contender == SERVERS}
    figures = {label: times.value for label, times in longer.items()}
    facts = {"rate": rate, "transport": transport, "longer": longer}
    return answers.pop() if len(answers) == 1 else "cannot say", figures, facts


def law_holds(points: Points, spread: Spread, rates: Rates) -> Answered:
    """Does the law predict the points that nothing was fitted to?"""
    tested = [
        (point, point.error) for point in sorted(points, key=ways_first) if point.error is not None and not point.fitted
    ]
    if not tested:
        return unknown("points beyond those that it is fitted to are needed")
    wrong = [point for point, error in tested if abs(error) > PREDICTED]
    worst = max((error for _, error in tested), key=abs)
    figures = {"points": len(tested), "beyond": len(wrong), "worst": worst}
    return "no" if wrong else "yes", figures, {"tested": len(tested), "wrong": wrong, "limit": PREDICTED}


def unknown(lacking: str) -> Answered:
    return "cannot say", {}, {"lacking": lacking}


def of_all(answers: set[Answer]) -> Answer:
    """ "yes" and "cannot say" if all say so, "no" if one does."""
    return answers.pop() if len(answers) == 1 else "no" if "no" in answers else "cannot say"


QUESTIONS = (
    *(servers_stop_helping, partitioning_helps, parity_matters, toolkits_are_flat, directions_take_turns, law_holds),
)

# --- the analysis ---


@dataclass(frozen=True)
class Finding:
    """The answer to a question. ``because`` is for people; ``figures`` are what it rests on, for scripts."""

    name: str
    question: str
    answer: Answer
    because: str
    figures: dict[str, float]

    @classmethod
    def of(cls, asked: Callable[..., Answered], *known: Any) -> Finding:
        answer, figures, facts = asked(*known)
        sentence = getattr(template("reasons.md.j2").module, "unknown" if "lacking" in facts else asked.__name__)
        return cls(asked.__name__, str(asked.__doc__), answer, sentence(**facts), figures)


@dataclass(frozen=True)
class Analysis:
    """All that the page holds. ``rates`` are fitted throughputs in bytes/s, by transport."""

    findings: tuple[Finding, ...]
    rates: dict[str, float]
    points: tuple[MeasuredPoint, ...]


def analysed(frame: pandas.DataFrame, control: pandas.DataFrame | None = None) -> Analysis:
    """The analysis of a DataFrame of ``results.load``. ``control`` holds the same points on links without a limit.

    Raises InvalidInput when there is no run on a single node, from which the compute of all others is known.
    """
    points = measured(frame)
    if not any(point.spec.nodes == 1 for point in points):
        raise InvalidInput("ps-bottleneck: no results on one node; the law needs a step without a network")
    # A single node's step is all compute, which varies in ways of its own: it says nothing about the others' spread.
    spread = Spread.of(point for point in points if point.spec.nodes > 1)
    known = calibration(points)
    rates = {transport: fitted_rate(these) for transport, these in known.items()}
    used = [point for these in known.values() for point, _ in these]
    unlimited = {_measurement(point): point.step_s for point in measured(control)} if control is not None else {}

    def with_prediction(point: MeasuredPoint) -> MeasuredPoint:
        single_s, several = single_step(point, points), point.spec.nodes > 1
        rate = rates.get(str(point.spec.transport))
        return replace(
            point,
            predicted_s=by_law(point.spec, single_s, rate) if several and single_s and rate else None,
            interval_s=spread.interval(point) if several else None,
            fitted=point in used,
            unlimited_s=unlimited.get(_measurement(point)),
        )

    compared = list(map(with_prediction, points))
    findings = tuple(Finding.of(question, compared, spread, rates) for question in QUESTIONS)
    return Analysis(findings, rates, tuple(sorted(compared, key=ways_first)))


def _measurement(point: MeasuredPoint) -> tuple[str, ...]:
    """What points with and without limited links have in common: everything but how long they were measured."""
    left_out = ("warmup_steps", "steps", "repeats", "timeout_s")
    return tuple(str(value) for name, value in point.spec if name not in left_out)


# --- figures ---

BARS = "Hollow markers and dashed lines: predicted by the law. Bars: 95 % confidence intervals."
FITTED = "Hollow markers: the points that the throughputs are fitted to. On the grey line both are equal."


def figures(points: Sequence[MeasuredPoint]) -> list[Figure]:
    """The figures that there are points for: against servers, against nodes, and measured against predicted."""
    most = max((point.spec.nodes for point in points if point.contender == SERVERS), default=0)
    by_placement = {name: chosen(points, SERVERS, most, name) for name in ("greedy", "round_robin", "partitioned")}
    servers = list(measured_and_predicted(by_placement, lambda point: point.servers))
    x, y = Axis("parameter servers", "linear"), Axis("step time [s]", "linear", from_zero=True)
    title = f"A step on {most} nodes against the number of parameter servers"
    drawn = [Figure("servers", title, "servers", x, y, servers, BARS)]

    several = [point for point in points if point.spec.nodes > 1]
    whole, sliced = (chosen(several, SERVERS, placement=placement) for placement in ("greedy", "partitioned"))
    lines = {
        "one server": [point for point in whole if point.servers == 1],
        "a server per node, whole tensors": [point for point in whole if point.servers == point.spec.nodes],
        "a server per node, slices": [point for point in sliced if point.servers == point.spec.nodes],
    }
    toolkits = sorted({point.contender for point in several if not point.servers})
    lines |= {contender: chosen(several, contender) for contender in toolkits}
    nodes = list(measured_and_predicted(lines, lambda point: point.spec.nodes))
    x = Axis("nodes", "log", ticks=measured_ticks(point.spec.nodes for line in lines.values() for point in line))
    y = Axis("step time [s]", "log", ticks=decade_ticks(spot.y for line in nodes for spot in line.spots))
    drawn.append(Figure("nodes", "A step against the number of nodes", "nodes", x, y, nodes, BARS))

    predicted = []
    for colour, contender in enumerate(sorted({point.contender for point in points})):
        for fitted in (True, False):
            alike = [point for point in points if point.contender == contender and point.fitted == fitted]
            if spots := [Spot(point.predicted_s, point.step_s) for point in alike if point.predicted_s is not None]:
                style = Style(f"c{colour}", "circle", hollow=fitted)
                predicted.append(Series(f"{contender}{', fitted' * fitted}", "accent", spots, style))
    if times := [s for point in points if point.predicted_s is not None for s in (point.predicted_s, point.step_s)]:
        ends = [Spot(end, end) for end in (min(times), max(times))]
        predicted.append(Series("equal", "ideal", ends, Style("muted")))
    x, y = (Axis(f"{time} step time [s]", "log", ticks=decade_ticks(times)) for time in ("predicted", "measured"))
    drawn.append(Figure("predicted", "Measured against predicted", "predicted", x, y, predicted, FITTED))
    return [figure for figure in drawn if figure.series]


def measured_and_predicted(
    lines: dict[str, list[MeasuredPoint]], at: Callable[[MeasuredPoint], int]
) -> Iterable[Series]:
    """Two series for each line: measured with intervals, and predicted."""
    for colour, (name, points) in enumerate(lines.items()):
        if points:
            spots = [Spot(at(point), point.step_s, *point.interval_s or (math.nan, math.nan)) for point in points]
            yield Series(name, "curve", spots, Style(f"c{colour}", "circle"))
        if spots := [Spot(at(point), point.predicted_s) for point in points if point.predicted_s is not None]:
            style = Style(f"c{colour}", "square", dash="dash", hollow=True)
            yield Series(f"{name}, predicted", "curve", spots, style)


# --- the page ---


@cache
def template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 — Markdown
    )
    environment.globals.update(plural=plural, interval=interval)
    return environment.get_template(name)


def page(analysis: Analysis, frame: pandas.DataFrame, note: str = "") -> str:
    """The page as Markdown. ``note`` is added to where and when the runs were made."""
    return template("index.md.j2").render(
        analysis=analysis,
        figures=figures(analysis.points),
        runs=len(frame),
        made={name: sorted(set(frame[name])) for name in ("system", "processor", "software")},
        days=sorted({min(frame["started"])[:10], max(frame["ended"])[:10]}),
        note=note,
        errors=sorted(abs(point.error) for point in analysis.points if point.error is not None and not point.fitted),
    )


def write(analysis: Analysis, frame: pandas.DataFrame, folder: Path, note: str = "") -> None:
    """Write the page, its figures and its data into ``folder``. Raises InvalidInput if that cannot be written."""
    static.write(figures(analysis.points), folder, ("png",))
    points = [point.as_dict(folder) for point in analysis.points]
    data = {
        "experiment": "ps-bottleneck",
        "findings": [asdict(finding) for finding in analysis.findings],
        "throughput_bytes_per_s": analysis.rates,
        "points": points,
    }
    ends = {"low_s": 0, "high_s": 1}
    columns = [column for name in points[0] for column in (ends if name == "interval_s" else [name])]
    rows = [point | {end: (point["interval_s"] or (None, None))[at] for end, at in ends.items()} for point in points]
    table = pandas.DataFrame(rows, columns=columns)
    try:
        write_atomically(folder / "index.md", page(analysis, frame, note))
        write_atomically(folder / "points.csv", table.to_csv(index=False))
        write_atomically(folder / "analysis.json", json.dumps(data, indent=1) + "\n")
    except OSError as error:
        raise InvalidInput(f"{folder}: cannot be written: {error.strerror}") from None


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", metavar="RESULTS", help="records, or folders with them")
    parser.add_argument("--control", metavar="DIR", help="records of the same points on links without a limit")
    parser.add_argument("--note", default="", metavar="TEXT", help="for the page, such as what the links' limit was")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="where to write the page  [default: print it]")
    options = parser.parse_args(argv)
    sources, control = options.results, options.control
    kinds = [Path(sources[0]) / name for name in ("limited", "unlimited")]
    if len(sources) == 1 and all(kind.is_dir() for kind in kinds):  # these must not be mixed
        sources, control = [kinds[0]], control or kinds[1]
    frame = results.load(sources)
    if frame.empty:
        raise InvalidInput(f"{', '.join(map(str, sources))}: no completed runs in there")
    analysis = analysed(frame, results.load([control]) if control else None)
    if options.output:
        write(analysis, frame, options.output, options.note)
        print(options.output / "index.md")
    else:
        print(page(analysis, frame, options.note), end="")


if __name__ == "__main__":
    try:
        main()
    except HarnessError as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
