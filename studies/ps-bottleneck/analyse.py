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
import math
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas
from scipy.optimize import minimize_scalar
from scipy.special import stdtrit

from harness import results
from harness.core import backend as backends
from harness.core.exchange import Exchange, ServerExchange, bytes_per_server
from harness.core.spec import RunSpec
from harness.core.text import interval, plural, template
from harness.errors import HarnessError, InvalidInput
from harness.prediction.law import law, profile
from harness.prediction.parameters import FORWARD_SHARE, Parameters
from harness.report.page import static
from harness.report.page.figures import Axis, Figure, Series, Spot, Style, decade_ticks, measured_ticks
from harness.results import experiment
from harness.results.experiment import Answer, Finding

HERE = Path(__file__).parent
SERVERS = "parameter_server"
CALIBRATION_NODES = (2, 4)  # with servers; without them two nodes say it all
SAME_LOAD = 1.05  # servers whose bytes are closer than this are equally full
MATTERS = 1.1  # a ratio of step times that is called a difference
FLAT = 1.25  # growth from one size to twice that size which is called flat; a ring's is 1.17 from 4 to 8 nodes
PREDICTED = 0.1  # an error of a predicted step that is not called a contradiction
SERIAL = 1.5  # halfway between both directions at once (1) and one after the other (2)
WAYS_FIRST = ["contender", "placement", "nodes", "ps"]
PUBLISHED = (
    *("label", "contender", "nodes", "ps", "placement", "repeats", "measured_s", "low_s", "high_s"),
    *("predicted_s", "error", "fitted", "fullest_server_bytes", "without_limit_s", "source"),
)

Rates = dict[str, float]


# --- what was measured: a row for each point ---


def measured(frame: pandas.DataFrame) -> pandas.DataFrame:
    """The points of a DataFrame of ``results.load``: runs of the same spec are one point.

    ``measured_s`` is the mean of the repeats' step times, each taken from the repeat's throughput: the mean over the
    measured window of the slowest rank. ``squares`` is the sum of the squared deviations of their logarithms.
    """
    repeats = frame.explode("values", ignore_index=True)
    repeats["step_s"] = (repeats["workers"] * repeats["batch_size"] / repeats["values"]).astype(float)
    by_spec = repeats.groupby("spec", sort=False)
    points = by_spec.agg(repeats=("step_s", "size"), measured_s=("step_s", "mean"), source=("source", "first"))
    points["squares"] = by_spec["step_s"].agg(lambda steps_s: np.log(steps_s).var(ddof=0)) * points["repeats"]
    specs = [described(RunSpec.model_validate_json(text)) for text in points.index]
    return points.join(pandas.DataFrame(specs, index=points.index))


def described(spec: RunSpec) -> dict[str, Any]:
    """The columns of a point that its spec says. The fullest server's bytes are by the real placement, 0 without servers.

    What distributes the training is the ``contender``: ``parameter_server``, ``horovod:tensorflow:mpi``, ``pytorch:gloo``.
    """
    backend = backends.backend(spec.backend)
    contender = backend.name
    if len(backend.frameworks) > 1:
        contender += f":{spec.framework}"
    if len({*backend.transports, *backend.cuda_transports}) > 1:
        contender += f":{spec.transport}"
    moved = exchange_of(spec)
    held = bytes_per_server(moved.pieces, moved.servers) if isinstance(moved, ServerExchange) else []
    ps, placement = int(spec.options.get("ps", 0)), str(spec.options.get("placement", ""))
    return {
        "spec": spec,
        "label": f"{contender}, {plural(spec.nodes, 'node')}{f', {ps} ps {placement}' if ps else ''}",
        "contender": contender,
        "framework": spec.framework,
        "transport": spec.transport,
        "nodes": spec.nodes,
        "ps": ps,
        "placement": placement,
        "fullest_server_bytes": max(held, default=0),
        # What points with and without limited links have in common: everything but how long they were measured.
        "measurement": spec.model_dump_json(exclude={"warmup_steps", "steps", "repeats", "timeout_s"}),
    }


def exchange_of(spec: RunSpec) -> Exchange:
    exchange = backends.backend(spec.backend).exchange
    assert exchange is not None
    return exchange(spec)


def half_intervals(points: pandas.DataFrame) -> Any:
    """Half of the 95 % confidence interval of the logarithm of each point's step, NaN where there are no repeats.

    Two or three repeats of one point alone say next to nothing about their spread; those of all points together do, if
    they were measured alike, in turn on one system: their squared deviations are pooled.
    """
    freedom = int(points["repeats"].sum()) - len(points)
    deviation = math.sqrt(points["squares"].sum() / (freedom or math.nan))
    return float(stdtrit(freedom, 0.975)) * deviation / np.sqrt(points["repeats"])


class Times(NamedTuple):
    """How many times longer a step takes; ``half_interval`` is that of its logarithm, NaN where it is not known."""

    value: float
    half_interval: float

    @classmethod
    def of(cls, slow: Any, fast: Any) -> Times:
        """By how much the step of one point is longer than that of another one."""
        return cls(slow.measured_s / fast.measured_s, math.hypot(slow.half_interval, fast.half_interval))

    def exceeds(self, limit: float) -> Answer:
        """Whether it is more than ``limit``; "cannot say" if the limit lies within its interval."""
        if abs(math.log(limit / self.value)) <= self.half_interval:
            return "cannot say"
        return "yes" if self.value > limit else "no"

    def at_most(self, limit: float) -> Answer:
        opposite: dict[Answer, Answer] = {"yes": "no", "no": "yes"}
        return opposite.get(self.exceeds(limit), "cannot say")

    def __str__(self) -> str:
        factor = math.exp(self.half_interval)
        limits = None if math.isnan(factor) else (self.value / factor, self.value * factor)
        return f"{self.value:.2f} {interval(limits)}".rstrip() + " times"


def with_servers(points: pandas.DataFrame, placement: str) -> pandas.DataFrame:
    """The points of parameter_server with a placement, by size."""
    return points[(points["contender"] == SERVERS) & (points["placement"] == placement)].sort_values(["nodes", "ps"])


def by_contender(points: pandas.DataFrame) -> dict[str, pandas.DataFrame]:
    return {str(name): alike for name, alike in points.groupby("contender")}


def rows(points: pandas.DataFrame) -> list[Any]:
    """The points with the names of columns as attributes."""
    return list(points.itertuples())


def largest(points: pandas.DataFrame) -> list[Any]:
    """The points of the largest size that has several of them."""
    sizes = points["nodes"].value_counts()
    return rows(points[points["nodes"] == sizes[sizes > 1].index.max()])


def by(column: str, points: pandas.DataFrame) -> dict[int, Any]:
    return {getattr(point, column): point for point in rows(points)}


# --- the law ---


def by_law(spec: RunSpec, step_s: float, rate: float) -> float:
    """What ``harness.prediction`` says that a step takes: its law, with no parameter but the throughput ``rate``."""
    parameters = Parameters(rate, forward_share=FORWARD_SHARE["cuda" if spec.device == "cuda" else "cpu"])
    of_step = law(exchange_of(spec), profile(spec.model, spec.image_size))
    return float(of_step.seconds(spec.nodes, spec.workers, step_s, parameters))


def fitted_rate(points: pandas.DataFrame) -> float:
    """The throughput (bytes/s) that explains ``points`` best: least squares on the logarithm of the step time."""

    def misfit(log_rate: float) -> float:
        rate = math.exp(log_rate)
        ratios = (by_law(point.spec, point.single_s, rate) / point.measured_s for point in rows(points))
        return sum(math.log(ratio) ** 2 for ratio in ratios)

    # Where compute hides the network the misfit is flat: the search begins at what the network would have to be at least.
    best = min(np.arange(math.log(1e5), math.log(1e12), 0.25), key=misfit)
    return math.exp(minimize_scalar(misfit, bounds=(best - 0.5, best + 0.5), method="bounded").x)


# --- the questions: each answer with the figures that it rests on for scripts, and what its sentence says ---

Answered = tuple[Answer, dict[str, float], dict[str, Any]]


def servers_stop_helping(points: pandas.DataFrame, rates: Rates) -> Answered:
    """Do more parameter servers stop helping once one holds little but the largest tensor?"""
    alike = largest(with_servers(points, "greedy"))
    if len(alike) < 3:
        return unknown("three counts of servers on the same nodes are needed")
    fewest, last = alike[0], alike[-1]
    enough = next(point for point in alike if point.fullest_server_bytes <= SAME_LOAD * last.fullest_server_bytes)
    if enough is last:
        return unknown("the fullest server's load still falls at the largest count")
    before, after = Times.of(fewest, enough), Times.of(enough, last)
    halfway = math.sqrt(last.ps / enough.ps)  # on a ratio's scale, between no gain and a gain in proportion
    figures: dict[str, float] = {"from": enough.ps, "to": last.ps}
    figures |= {"speedup_before": before.value, "speedup_after": after.value}
    facts = {"fewest": fewest, "enough": enough, "last": last, "before": before, "after": after}
    return after.at_most(halfway), figures, facts


def partitioning_helps(points: pandas.DataFrame, rates: Rates) -> Answered:
    """Does cutting tensors into slices restore scaling?"""
    on_every_node = points[points["ps"] == points["nodes"]]
    whole, sliced = (by("nodes", with_servers(on_every_node, placement)) for placement in ("greedy", "partitioned"))
    sizes = sorted(whole.keys() & sliced.keys())
    if not sizes:
        return unknown("greedy and partitioned with a server on every node are needed")
    smallest, most = sizes[0], sizes[-1]
    gain = Times.of(whole[most], sliced[most])
    fuller = whole[most].fullest_server_bytes / sliced[most].fullest_server_bytes
    figures = {"speedup": gain.value, "bytes_ratio": fuller}
    if smallest < most:
        figures["growth_whole"] = whole[most].measured_s / whole[smallest].measured_s
        figures["growth_sliced"] = sliced[most].measured_s / sliced[smallest].measured_s
    return gain.exceeds(MATTERS), figures, {"nodes": most, "gain": gain, "smallest": smallest, "figures": figures}


def parity_matters(points: pandas.DataFrame, rates: Rates) -> Answered:
    """Dealt in turn, are tensors served no faster by an even number of servers than by one server less?"""
    dealt = largest(with_servers(points, "round_robin"))
    nodes = dealt[0].nodes if dealt else 0
    whole = with_servers(points, "greedy")
    # A single server holds the same whatever the placement.
    alone = whole[(whole["nodes"] == nodes) & (whole["ps"] == 1)]
    by_count = by("ps", alone) | {point.ps: point for point in dealt}
    pairs = [(by_count[even - 1], by_count[even]) for even in sorted(by_count) if not even % 2 and even - 1 in by_count]
    if not pairs:
        return unknown("round_robin with an even number of servers and with one less is needed")
    answer = of_all({Times.of(odd, even).at_most(MATTERS) for odd, even in pairs})
    slower = [(odd, even, Times.of(even, odd)) for odd, even in pairs]
    figures = {f"{even.ps}_over_{odd.ps}": times.value for odd, even, times in slower}
    return answer, figures, {"nodes": nodes, "slower": slower}


def toolkits_are_flat(points: pandas.DataFrame, rates: Rates) -> Answered:
    """Without servers, does a step take nearly as long on twice as many nodes?"""

    def growth(points: pandas.DataFrame, most: int) -> Times | None:
        by_nodes = by("nodes", points)
        known = most >= 4 and {most, most // 2} <= set(by_nodes)
        return Times.of(by_nodes[most], by_nodes[most // 2]) if known else None

    grown, most = {}, 0
    for contender, alike in by_contender(points[points["ps"] == 0]).items():
        if times := growth(alike, alike["nodes"].max()):
            most = int(alike["nodes"].max())
            grown[contender] = (times, most)
    if not grown:
        return unknown("a backend without servers on two sizes beyond 2 nodes is needed")
    figures = {contender: times.value for contender, (times, _) in grown.items()}
    whole = with_servers(points, "greedy")
    single = growth(whole[whole["ps"] == 1], most)
    if single:
        figures["one_server"] = single.value
    return of_all({times.at_most(FLAT) for times, _ in grown.values()}), figures, {"grown": grown, "single": single}


def directions_take_turns(points: pandas.DataFrame, rates: Rates) -> Answered:
    """Do a server's sending (parameters) and receiving (gradients) take turns in parameter_server?"""
    # A step is compared with b / R for the R of toolkits, which send and receive at the same time: 2 if the directions take
    # turns, 1 if they overlap. R of the servers' own transport would be fitted with the answer already in it.
    rate, transport = max(((rate, name) for name, rate in rates.items() if name != "grpc"), default=(0.0, ""))
    single = points[(points["ps"] == 1) & (points["nodes"] > 1)]
    if not rate or SERVERS not in set(single["contender"]):
        return unknown("one server, and a toolkit on the same links, are needed")
    shortest_s = (single["nodes"] - 1) * single["fullest_server_bytes"] / rate
    times = map(Times, single["measured_s"] / shortest_s, single["half_interval"])
    longer = dict(zip(single["label"], times, strict=True))
    answers = {longer[label].exceeds(SERIAL) for label in single["label"][single["contender"] == SERVERS]}
    figures = {label: times.value for label, times in longer.items()}
    facts = {"rate": rate, "transport": transport, "longer": longer}
    return answers.pop() if len(answers) == 1 else "cannot say", figures, facts


def law_holds(points: pandas.DataFrame, rates: Rates) -> Answered:
    """Does the law predict the points that nothing was fitted to?"""
    errors = unseen_errors(points)
    if errors.empty:
        return unknown("points beyond those that it is fitted to are needed")
    wrong = points.loc[errors.index[errors.abs() > PREDICTED]].sort_values(WAYS_FIRST)
    figures = {"points": len(errors), "beyond": len(wrong), "worst": max(errors, key=abs)}
    facts = {"tested": len(errors), "wrong": rows(wrong), "limit": PREDICTED}
    return "yes" if wrong.empty else "no", figures, facts


def unseen_errors(points: pandas.DataFrame) -> pandas.Series[float]:
    """The errors of the points that are predicted and that nothing was fitted to."""
    return points["error"][~points["fitted"]].dropna()


def unknown(lacking: str) -> Answered:
    return "cannot say", {}, {"lacking": lacking}


def of_all(answers: set[Answer]) -> Answer:
    """ "yes" and "cannot say" if all say so, "no" if one does."""
    return answers.pop() if len(answers) == 1 else "no" if "no" in answers else "cannot say"


QUESTIONS = (
    *(servers_stop_helping, partitioning_helps, parity_matters, toolkits_are_flat, directions_take_turns, law_holds),
)

# --- the analysis ---


class Analysis(NamedTuple):
    """All that the page holds. ``rates`` are fitted throughputs in bytes/s, by transport."""

    findings: list[Finding]
    rates: Rates
    points: pandas.DataFrame


def analysed(frame: pandas.DataFrame, control: pandas.DataFrame | None = None) -> Analysis:
    """The analysis of a DataFrame of ``results.load``. ``control`` holds the same points on links without a limit.

    Raises InvalidInput when there is no run on a single node, from which the compute of all others is known.
    """
    points = measured(frame)
    several, single = points["nodes"] > 1, points[points["nodes"] == 1]
    if single.empty:
        raise InvalidInput("ps-bottleneck: no results on one node; the law needs a step without a network")
    # A single node's step is all compute, which varies in ways of its own: it says nothing about the others' spread.
    points["half_interval"] = half_intervals(points[several])
    points["low_s"] = points["measured_s"] / np.exp(points["half_interval"])
    points["high_s"] = points["measured_s"] * np.exp(points["half_interval"])
    # The step of a single worker is that of the same contender, or of another one with the same framework.
    of_contender, of_framework = (single.groupby(name)["measured_s"].first() for name in ("contender", "framework"))
    points["single_s"] = points["contender"].map(of_contender).fillna(points["framework"].map(of_framework))

    servers = (points["contender"] == SERVERS) & (points["placement"] == "greedy")
    toolkits = (points["ps"] == 0) & (points["nodes"] == CALIBRATION_NODES[0])
    calibration = toolkits | servers & points["nodes"].isin(CALIBRATION_NODES)
    points["fitted"] = calibration & points["single_s"].notna()
    by_transport = points[points["fitted"]].groupby("transport", sort=False)
    rates = {str(name): fitted_rate(known) for name, known in by_transport}
    points["predicted_s"] = [
        by_law(point.spec, point.single_s, rates[point.transport])
        if point.nodes > 1 and point.single_s > 0 and point.transport in rates
        else math.nan
        for point in rows(points)
    ]
    points["error"] = points["predicted_s"] / points["measured_s"] - 1
    unlimited = {} if control is None else measured(control).set_index("measurement")["measured_s"].to_dict()
    points["without_limit_s"] = points["measurement"].map(unlimited).astype(float)

    sentences = template(HERE / "reasons.md.j2").module
    findings = []
    for question in QUESTIONS:
        name = question.__name__
        answer, figures, facts = question(points, rates)
        because = getattr(sentences, "unknown" if "lacking" in facts else name)(**facts)
        findings.append(Finding(name, str(question.__doc__), answer, because, figures))
    return Analysis(findings, rates, points.sort_values(WAYS_FIRST))


# --- figures ---

BARS = "Hollow markers and dashed lines: predicted by the law. Bars: 95 % confidence intervals."
FITTED = "Hollow markers: the points that the throughputs are fitted to. On the grey line both are equal."


def figures(points: pandas.DataFrame) -> list[Figure]:
    """The figures that there are points for: against servers, against nodes, and measured against predicted."""
    most = points["nodes"][points["contender"] == SERVERS].max()
    alike = points[points["nodes"] == most]
    by_placement = {name: with_servers(alike, name) for name in ("greedy", "round_robin", "partitioned")}
    servers = list(measured_and_predicted(by_placement, "ps"))
    x, y = Axis("parameter servers", "linear"), Axis("step time [s]", "linear", from_zero=True)
    title = f"A step on {most} nodes against the number of parameter servers"
    drawn = [Figure("servers", title, "servers", x, y, servers, BARS)]

    several = points[points["nodes"] > 1]
    whole, sliced = (with_servers(several, placement) for placement in ("greedy", "partitioned"))
    lines = {
        "one server": whole[whole["ps"] == 1],
        "a server per node, whole tensors": whole[whole["ps"] == whole["nodes"]],
        "a server per node, slices": sliced[sliced["ps"] == sliced["nodes"]],
        **by_contender(several[several["ps"] == 0]),
    }
    nodes = list(measured_and_predicted(lines, "nodes"))
    x = Axis("nodes", "log", ticks=measured_ticks(size for line in lines.values() for size in line["nodes"]))
    y = Axis("step time [s]", "log", ticks=decade_ticks(spot.y for line in nodes for spot in line.spots))
    drawn.append(Figure("nodes", "A step against the number of nodes", "nodes", x, y, nodes, BARS))

    known = points.dropna(subset="predicted_s")
    predicted = []
    for colour, contender in enumerate(sorted(set(points["contender"]))):
        for fitted in (True, False):
            alike = known[(known["contender"] == contender) & (known["fitted"] == fitted)]
            if spots := spots_of(alike, "predicted_s", "measured_s"):
                style = Style(f"c{colour}", "circle", hollow=fitted)
                predicted.append(Series(f"{contender}{', fitted' * fitted}", "accent", spots, style))
    times = [*known["predicted_s"], *known["measured_s"]]
    if times:
        ends = [Spot(end, end) for end in (min(times), max(times))]
        predicted.append(Series("equal", "ideal", ends, Style("muted")))
    x, y = (Axis(f"{time} step time [s]", "log", ticks=decade_ticks(times)) for time in ("predicted", "measured"))
    drawn.append(Figure("predicted", "Measured against predicted", "predicted", x, y, predicted, FITTED))
    return [figure for figure in drawn if figure.series]


def measured_and_predicted(lines: dict[str, pandas.DataFrame], at: str) -> Iterator[Series]:
    """Two series for each line: measured with intervals, and predicted."""
    for colour, (name, points) in enumerate(lines.items()):
        if spots := spots_of(points, at, "measured_s", "low_s", "high_s"):
            yield Series(name, "curve", spots, Style(f"c{colour}", "circle"))
        if spots := spots_of(points.dropna(subset="predicted_s"), at, "predicted_s"):
            style = Style(f"c{colour}", "square", dash="dash", hollow=True)
            yield Series(f"{name}, predicted", "curve", spots, style)


def spots_of(points: pandas.DataFrame, *columns: str) -> list[Spot]:
    return [Spot(*values) for values in points[list(columns)].itertuples(index=False)]


# --- the page ---


def page(analysis: Analysis, frame: pandas.DataFrame, note: str = "") -> str:
    """The page as Markdown. ``note`` is added to where and when the runs were made."""
    errors = unseen_errors(analysis.points).abs().sort_values()
    return template(HERE / "index.md.j2").render(
        analysis=analysis,
        points=rows(analysis.points),
        figures=figures(analysis.points),
        runs=len(frame),
        made={name: sorted(set(frame[name])) for name in ("system", "processor", "software")},
        days=sorted({min(frame["started"])[:10], max(frame["ended"])[:10]}),
        note=note,
        errors=list(errors),
    )


def write(analysis: Analysis, frame: pandas.DataFrame, folder: Path, note: str = "") -> None:
    """Write the page, its figures and its data into ``folder``. Raises InvalidInput if that cannot be written."""
    static.write(figures(analysis.points), folder, ("png",))
    table = analysis.points[list(PUBLISHED)].rename(columns={"label": "point"})
    table["source"] = [os.path.relpath(source, folder) for source in table["source"]]
    data = {
        "experiment": "ps-bottleneck",
        "findings": [finding._asdict() for finding in analysis.findings],
        "throughput_bytes_per_s": analysis.rates,
        "points": table.astype(object).where(table.notna(), None).to_dict("records"),
    }
    experiment.write(folder, page(analysis, frame, note), table.to_csv(index=False), data)


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
    frame, unlimited = results.load(sources), results.load([control]) if control else None
    for folders, runs in ((sources, frame), ([control], unlimited)):
        if runs is not None and runs.empty:
            raise InvalidInput(f"{', '.join(map(str, folders))}: no completed runs in there")
    analysis = analysed(frame, unlimited)
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
