"""What bounds a step with parameter servers: the fullest server's network, or something else?

The law that is put to the test: in a step every server sends its parameters to each worker on another node, and receives
as many gradients. With throughput R for each direction of a node, and b the bytes of that on the fullest server,

    step = max(forward, b / R) + max(backward, b / R)

for ``parameter_server``, whose workers first get all parameters and then send all gradients. ``harness.predict`` has the
law in full: it adds what of the compute a transfer has to wait for, and the two machines of ``distributed_replicated``,
which gets a parameter back as soon as its gradient is sent. R is fitted to some points, and predicts the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from harness.errors import InvalidInput
from harness.experiments import STUDIES
from harness.experiments.findings import Analysis, Answer, Compared, Finding, beyond
from harness.experiments.points import Interval, Point, Predictor, Spread, by_law, chosen, fitted_rate, of_frame, ratio
from harness.report.page.figures import Axis, Figure, Series, Style, decade_ticks, measured_ticks

if TYPE_CHECKING:
    import pandas

DESCRIPTION = "what bounds parameter servers: the fullest server's network, odd and even counts, and no servers at all"
STUDY = STUDIES / "ps-bottleneck.toml"
NODES = 8

SERVERS, REPLICAS = "parameter_server", "distributed_replicated"
CALIBRATION_NODES = (2, 4)  # with servers; without them two nodes say it all
SAME_LOAD = 1.05  # servers whose bytes are closer than this are equally full
MATTERS = 1.1  # a ratio of step times that is called a difference
FLAT = 1.25  # growth from one size to twice that size which is called flat; a ring's is 1.17 from 4 to 8 nodes
PREDICTED = 0.1  # an error of a predicted step that is not called a contradiction
SERIAL = 1.5  # halfway between both directions at once (1) and one after the other (2)
LAW = (
    "step = max(forward, b / R) + max(backward, b / R), with b the bytes of other nodes' workers on the fullest server"
)


def analysed(frame: pandas.DataFrame, control: pandas.DataFrame | None = None, predict: Predictor = by_law) -> Analysis:
    """The analysis of a DataFrame of ``results.load``. ``control`` holds the same points on links without a limit.

    Raises InvalidInput when there is no run on a single node, from which the compute of all others is known.
    """
    points = of_frame(frame)
    if not any(one.spec.nodes == 1 for one in points):
        raise InvalidInput("ps-bottleneck: no results on one node; the law needs a step without a network")
    # A single node's step is all compute, which varies in ways of its own: it says nothing about the others' spread.
    spread = Spread.of(one for one in points if one.spec.nodes > 1)
    rates, calibration = _fitted(points, predict)
    unlimited = {_same(one): one.step_s for one in of_frame(control)} if control is not None else {}
    compared = tuple(
        Compared(
            one,
            _predicted(one, points, rates, predict),
            spread.interval(one) if spread and one.spec.nodes > 1 else None,
            one in calibration,
            unlimited.get(_same(one)),
        )
        for one in sorted(points, key=lambda one: (one.contender, one.placement, one.spec.nodes, one.servers))
    )
    found = (
        servers_stop_helping(points, spread),
        partitioning_helps(points, spread),
        parity_matters(points, spread),
        toolkits_are_flat(points, spread),
        directions_take_turns(points, rates, spread),
        law_holds(compared),
    )
    return Analysis(
        name="ps-bottleneck",
        title="What bounds parameter servers",
        law=LAW,
        findings=found,
        rates=rates,
        compared=compared,
        figures=_figures(compared),
    )


# --- the questions ---


def servers_stop_helping(points: Sequence[Point], spread: Spread | None) -> Finding:
    """(a) Whole tensors: once a server holds little but the largest tensor, do more servers change nothing?"""
    question = "Do more parameter servers stop helping once one holds little but the largest tensor?"
    alike = _largest(chosen(points, SERVERS, placement="greedy"))
    if len(alike) < 3:
        return _unknown("servers_stop_helping", question, "three counts of servers on the same nodes are needed")
    last = alike[-1]
    first = next(one for one in alike if one.fullest <= SAME_LOAD * last.fullest)
    if first is last:
        return _unknown("servers_stop_helping", question, "the fullest server's load still falls at the largest count")
    (before, of_before), (after, of_after) = _ratio(alike[0], first, spread), _ratio(first, last, spread)
    because = (
        f"On {last.spec.nodes} nodes, from {alike[0].servers} to {first.servers} servers the fullest server's load falls "
        f"{alike[0].fullest / first.fullest:.2f} times, and a step becomes {_times(before, of_before)} shorter; from "
        f"{first.servers} to {last.servers} servers the load falls {first.fullest / last.fullest:.2f} times, and a step "
        f"becomes {_times(after, of_after)} shorter, where servers that share the load would make it "
        f"{last.servers / first.servers:.2f} times shorter."
    )
    halfway = math.sqrt(last.servers / first.servers)  # on a ratio's scale, between no gain and a gain in proportion
    return Finding(
        "servers_stop_helping",
        question,
        _not(beyond(after, of_after, halfway)),
        because,
        {"from": first.servers, "to": last.servers, "speedup_before": before, "speedup_after": after},
    )


def partitioning_helps(points: Sequence[Point], spread: Spread | None) -> Finding:
    """(b) With as many servers as nodes: are slices faster than whole tensors?"""
    question = "Does cutting tensors into slices restore scaling?"
    pairs = [
        (whole, sliced)
        for whole in chosen(points, SERVERS, placement="greedy")
        for sliced in chosen(points, SERVERS, whole.spec.nodes, "partitioned")
        if whole.servers == sliced.servers == whole.spec.nodes
    ]
    if not pairs:
        return _unknown("partitioning_helps", question, "greedy and partitioned with a server on every node are needed")
    whole, sliced = pairs[-1]
    gain, interval = _ratio(whole, sliced, spread)
    because = (
        f"On {whole.spec.nodes} nodes with {whole.servers} servers a step with slices is {_times(gain, interval)} shorter "
        f"than with whole tensors; the fullest server holds {whole.fullest / sliced.fullest:.2f} times less."
    )
    figures: dict[str, float | None] = {"speedup": gain, "bytes_ratio": whole.fullest / sliced.fullest}
    if len(pairs) > 1:
        smallest = pairs[0]
        figures["growth_whole"], figures["growth_sliced"] = (
            ratio(large, small) for large, small in zip(pairs[-1], smallest, strict=True)
        )
        because += (
            f" From {smallest[0].spec.nodes} to {whole.spec.nodes} nodes a step becomes "
            f"{figures['growth_whole']:.2f} times longer with whole tensors, "
            f"{figures['growth_sliced']:.2f} times with slices."
        )
    return Finding("partitioning_helps", question, beyond(gain, interval, MATTERS), because, figures)


def parity_matters(points: Sequence[Point], spread: Spread | None) -> Finding:
    """(c) Whole tensors dealt in turn: is an even number of servers no better than the odd one below it?"""
    question = "Dealt in turn, are tensors served no faster by an even number of servers than by one server less?"
    # A single server holds the same whatever the placement.
    alike = {one.servers: one for one in _largest(chosen(points, SERVERS, placement="round_robin"))}
    if alike:
        nodes = next(iter(alike.values())).spec.nodes
        alike |= {one.servers: one for one in chosen(points, SERVERS, nodes, "greedy") if one.servers == 1}
    pairs = [(alike[count - 1], alike[count]) for count in sorted(alike) if count % 2 == 0 and count - 1 in alike]
    if not pairs:
        return _unknown(
            "parity_matters", question, "round_robin with an even number of servers and with one less is needed"
        )
    told, answers = [], set()
    figures: dict[str, float | None] = {}
    for odd, even in pairs:
        value, interval = _ratio(even, odd, spread)
        answers.add(_not(beyond(1 / value, (1 / interval[1], 1 / interval[0]) if interval else None, MATTERS)))
        figures[f"{even.servers}_over_{odd.servers}"] = value
        told.append(
            f"{even.servers} servers take {_times(value, interval)} as long as {odd.servers} "
            f"(the fullest holds {even.fullest / odd.fullest:.2f} times as much)"
        )
    answer: Answer = answers.pop() if len(answers) == 1 else "cannot say" if "no" not in answers else "no"
    return Finding("parity_matters", question, answer, f"On {nodes} nodes: {'; '.join(told)}.", figures)


def toolkits_are_flat(points: Sequence[Point], spread: Spread | None) -> Finding:
    """(d) Without servers: does a step take nearly as long on twice as many nodes?"""
    question = "Without servers, does a step take nearly as long on twice as many nodes?"
    told, answers = [], set()
    figures: dict[str, float | None] = {}
    for contender in sorted({one.contender for one in points if not one.servers}):
        by_nodes = {one.spec.nodes: one for one in chosen(points, contender)}
        most = max(by_nodes)
        if most < 4 or most // 2 not in by_nodes:
            continue
        value, interval = _ratio(by_nodes[most], by_nodes[most // 2], spread)
        figures[contender] = value
        answers.add(_not(beyond(value, interval, FLAT)))
        told.append(f"{contender} {_times(value, interval)} as long on {most} as on {most // 2} nodes")
    if not told:
        return _unknown(
            "toolkits_are_flat", question, "a backend without servers on two sizes beyond 2 nodes is needed"
        )
    one_server = {one.spec.nodes: one for one in chosen(points, SERVERS, placement="greedy") if one.servers == 1}
    if most in one_server and most // 2 in one_server:
        value, interval = _ratio(one_server[most], one_server[most // 2], spread)
        figures["one_server"] = value
        told.append(f"with one parameter server {_times(value, interval)}")
    answer: Answer = answers.pop() if len(answers) == 1 else "no" if "no" in answers else "cannot say"
    return Finding("toolkits_are_flat", question, answer, f"A step takes: {'; '.join(told)}.", figures)


def directions_take_turns(points: Sequence[Point], rates: dict[str, float], spread: Spread | None) -> Finding:
    """(e) Does one server send all parameters first and receive all gradients then, or both at once?

    A step is compared with b / R for the R of toolkits, which send and receive at the same time: 2 if the directions take
    turns, 1 if they overlap. R of the servers' own transport would be fitted with the answer already in it.
    """
    question = "Do a server's sending (parameters) and receiving (gradients) take turns in parameter_server?"
    toolkits = {transport: rate for transport, rate in rates.items() if transport != "grpc"}
    single = [one for one in points if one.servers == 1 and one.spec.nodes > 1]
    if not toolkits or not any(one.contender == SERVERS for one in single):
        return _unknown("directions_take_turns", question, "one server, and a toolkit on the same links, are needed")
    transport = max(toolkits, key=lambda name: toolkits[name])
    rate = toolkits[transport]
    told, figures, answers = [], dict[str, float | None](), set()
    for one in single:
        shortest = (one.spec.nodes - 1) * one.fullest / rate
        value = one.step_s / shortest
        seconds = spread.interval(one) if spread else None
        interval = (seconds[0] / shortest, seconds[1] / shortest) if seconds else None
        figures[one.label] = value
        told.append(f"{one.label}: {_times(value, interval)}")
        if one.contender == SERVERS:
            answers.add(beyond(value, interval, SERIAL))
    because = (
        f"In units of b / R, with the {rate / 1e6:.1f} MB/s that {transport} both sends and receives at once: "
        f"{'; '.join(told)}. 1 is both directions at once, 2 is one after the other."
    )
    return Finding(
        "directions_take_turns", question, answers.pop() if len(answers) == 1 else "cannot say", because, figures
    )


def law_holds(compared: Sequence[Compared]) -> Finding:
    """(f) Does the law predict what it was not fitted to? What contradicts it is named, with what processors alone take."""
    question = "Does the law predict the points that nothing was fitted to?"
    tested = [(one, one.error) for one in compared if one.error is not None and not one.fitted]
    if not tested:
        return _unknown("law_holds", question, "points beyond those that it is fitted to are needed")
    wrong = [(one, error) for one, error in tested if abs(error) > PREDICTED]
    because = f"{len(tested) - len(wrong)} of {len(tested)} points are predicted to within {100 * PREDICTED:.0f} %."
    if wrong:
        told = "; ".join(f"{one.point.label} ({100 * error:+.0f} %{_without_limit(one)})" for one, error in wrong)
        because += f" The measurements contradict it here: {told}."
    return Finding(
        "law_holds",
        question,
        "no" if wrong else "yes",
        because,
        {"points": len(tested), "beyond": len(wrong), "worst": max((error for _, error in tested), key=abs)},
    )


def _without_limit(one: Compared) -> str:
    """What the same step takes when the links do not bound it."""
    if one.processor_s is None:
        return ""
    return f"; {one.processor_s:.2f} s of its {one.point.step_s:.2f} s remain without a limit of the links"


# --- the law ---


def _fitted(points: Sequence[Point], predict: Predictor) -> tuple[dict[str, float], list[Point]]:
    """The throughput of each transport (bytes/s), and the points that it is fitted to."""
    usable = [one for one in points if _alone(one, points) is not None]
    servers = [one for nodes in CALIBRATION_NODES for one in chosen(usable, SERVERS, nodes, "greedy")]
    by_transport: dict[str, list[Point]] = {"grpc": servers} if servers else {}
    for one in usable:
        if not one.servers and one.spec.nodes == min(CALIBRATION_NODES):
            by_transport.setdefault(str(one.spec.transport), []).append(one)
    rates = {
        transport: fitted_rate(these, lambda one: _alone(one, points) or 0.0, predict)
        for transport, these in by_transport.items()
    }
    return rates, [one for these in by_transport.values() for one in these]


def _alone(point: Point, points: Sequence[Point]) -> float | None:
    """Seconds of the step of a single worker: of the same backend, or of another one with the same framework."""
    single = [one for one in points if one.spec.nodes == 1 and one.spec.framework == point.spec.framework]
    single.sort(key=lambda one: one.contender != point.contender)
    return single[0].step_s if single else None


def _predicted(point: Point, points: Sequence[Point], rates: dict[str, float], predict: Predictor) -> float | None:
    transport = "grpc" if point.servers else str(point.spec.transport)
    alone = _alone(point, points)
    if point.spec.nodes == 1 or alone is None or transport not in rates:
        return None
    return predict(point.spec, alone, rates[transport])


def _same(point: Point) -> tuple[object, ...]:
    """What points with and without limited links have in common: everything but how long they were measured."""
    return tuple(
        str(value) for name, value in point.spec if name not in ("warmup_steps", "steps", "repeats", "timeout_s")
    )


# --- words and figures ---


def _largest(points: Sequence[Point]) -> list[Point]:
    """The points of the largest size that has several, by the number of servers."""
    sizes = [one.spec.nodes for one in points]
    several = [nodes for nodes in sizes if sizes.count(nodes) > 1]
    return [one for one in points if one.spec.nodes == max(several, default=0)]


def _ratio(slow: Point, fast: Point, spread: Spread | None) -> tuple[float, Interval | None]:
    return ratio(slow, fast), spread.of_ratio(slow, fast) if spread else None


def _unknown(name: str, question: str, lacking: str) -> Finding:
    return Finding(name, question, "cannot say", f"Not measured: {lacking}.", {})


def _not(answer: Answer) -> Answer:
    return {"yes": "no", "no": "yes", "cannot say": "cannot say"}[answer]  # type: ignore[return-value]


def _times(value: float, interval: Interval | None) -> str:
    limits = "" if interval is None else f" [{interval[0]:.2f}, {interval[1]:.2f}]"
    return f"{value:.2f}{limits} times"


def _figures(compared: Sequence[Compared]) -> tuple[Figure, ...]:
    drawn = (_against_servers(compared), _against_nodes(compared), _against_predicted(compared))
    return tuple(figure for figure in drawn if figure is not None)


def _against_servers(compared: Sequence[Compared]) -> Figure | None:
    of_servers = [one for one in compared if one.point.contender == SERVERS]
    nodes = max((one.point.spec.nodes for one in of_servers), default=0)
    series: list[Series] = []
    for colour, placement in enumerate(("greedy", "round_robin", "partitioned")):
        alike = [one for one in of_servers if one.point.spec.nodes == nodes and one.point.placement == placement]
        series += _pair(alike, placement, [one.point.servers for one in alike], colour)
    if not series:
        return None
    return Figure(
        name="servers",
        title=f"A step on {nodes} nodes against the number of parameter servers",
        choice="servers",
        x=Axis("parameter servers", "linear", "count"),
        y=Axis("step time [s]", "linear", "count", from_zero=True),
        series=tuple(series),
        note="Hollow markers and dashed lines: predicted by the law. Bars: 95 % confidence intervals.",
    )


def _against_nodes(compared: Sequence[Compared]) -> Figure | None:
    several = [one for one in compared if one.point.spec.nodes > 1]
    kinds: dict[str, Callable[[Point], bool]] = {
        "one server": lambda one: one.contender == SERVERS and one.servers == 1 and one.placement == "greedy",
        "a server per node, whole tensors": lambda one: (
            one.contender == SERVERS and one.servers == one.spec.nodes and one.placement == "greedy"
        ),
        "a server per node, slices": lambda one: (
            one.contender == SERVERS and one.servers == one.spec.nodes and one.placement == "partitioned"
        ),
    }
    series: list[Series] = []
    for colour, (name, wanted) in enumerate(kinds.items()):
        alike = [one for one in several if wanted(one.point)]
        series += _pair(alike, name, [one.point.spec.nodes for one in alike], colour)
    toolkits = sorted({one.point.contender for one in several if not one.point.servers})
    for colour, contender in enumerate(toolkits, len(kinds)):
        alike = [one for one in several if one.point.contender == contender]
        series += _pair(alike, contender, [one.point.spec.nodes for one in alike], colour)
    if not series:
        return None
    times = [value for one in series for value in one.y]
    return Figure(
        name="nodes",
        title="A step against the number of nodes",
        choice="nodes",
        x=Axis(
            "nodes", "log", "count", ticks=measured_ticks(x for one in series for x in one.x if not isinstance(x, str))
        ),
        y=Axis("step time [s]", "log", "count", ticks=decade_ticks(times)),
        series=tuple(series),
        note="Hollow markers and dashed lines: predicted by the law. Bars: 95 % confidence intervals.",
    )


def _against_predicted(compared: Sequence[Compared]) -> Figure | None:
    series: list[Series] = []
    for colour, contender in enumerate(sorted({one.point.contender for one in compared})):
        for fitted in (True, False):
            alike = [
                one
                for one in compared
                if one.point.contender == contender and one.fitted == fitted and one.predicted_s is not None
            ]
            if alike:
                series.append(
                    Series(
                        name=f"{contender}{', fitted' * fitted}",
                        kind="accent",
                        x=tuple(one.predicted_s or 0.0 for one in alike),
                        y=tuple(one.point.step_s for one in alike),
                        style=Style(colour, "circle", hollow=fitted),
                        facets=None,
                    )
                )
    if not series:
        return None
    times = [value for one in series for value in (*one.x, *one.y) if not isinstance(value, str)]
    ends = (min(times), max(times))
    equal = Series("equal", "ideal", ends, ends, Style(None, "circle"), None)
    ticks = decade_ticks(times)
    return Figure(
        name="predicted",
        title="Measured against predicted",
        choice="predicted",
        x=Axis("predicted step time [s]", "log", "count", ticks=ticks),
        y=Axis("measured step time [s]", "log", "count", ticks=ticks),
        series=(*series, equal),
        note="Hollow markers: the points that the throughputs are fitted to. On the grey line both are equal.",
    )


def _pair(alike: Sequence[Compared], name: str, x: Sequence[int], colour: int) -> list[Series]:
    """What was measured, with its intervals, and what was predicted, where anything was."""
    if not alike:
        return []
    intervals = [one.interval or (one.point.step_s, one.point.step_s) for one in alike]
    measured = Series(
        name=name,
        kind="curve",
        x=tuple(x),
        y=tuple(one.point.step_s for one in alike),
        style=Style(colour, "circle"),
        facets=None,
        low=tuple(low for low, _ in intervals),
        high=tuple(high for _, high in intervals),
    )
    known = [(at, one.predicted_s) for at, one in zip(x, alike, strict=True) if one.predicted_s is not None]
    if not known:
        return [measured]
    predicted = Series(
        name=f"{name}, predicted",
        kind="curve",
        x=tuple(at for at, _ in known),
        y=tuple(seconds for _, seconds in known),
        style=Style(colour, "square", dash="dash", hollow=True),
        facets=None,
    )
    return [measured, predicted]
