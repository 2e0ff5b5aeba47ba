"""Figures of the scaling model: predicted beside measured, what servers hold, a step's timeline, what it is spent on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from harness.core.exchange import ServerExchange
from harness.core.text import plural
from harness.prediction.explain import partitioned, seconds, size
from harness.prediction.forecast import Bound, held
from harness.prediction.law import COMPUTE, WORKER
from harness.prediction.profile import profile
from harness.prediction.timeline import Kind, Span, timeline
from harness.report.page.curve_figures import distinct, throughput_axis, workers_axis
from harness.report.page.figures import Axis, Figure, Series, Spot, Style, slug
from harness.report.page.lines import DASHES
from harness.report.page.modelled import Explained, Modelled, Size
from harness.report.page.provenance import interval, throughput

MB = 1e-6
# What a timeline's lanes hold: its name and its colour.
SPANS: dict[Kind, tuple[str, str]] = {
    "forward": ("forward pass", "c0"),
    "backward": ("backward pass", "c4"),
    "pull": ("parameters pulled", "c1"),
    "push": ("gradients pushed", "c5"),
    "allreduce": ("gradients summed", "c1"),
    "overhead": ("overhead and barrier", "grey"),
}
# What a step is spent on, in its order, with the colours.
SPENT = {
    "forward compute": "c0",
    "waiting for parameters": "c1",
    "backward compute": "c4",
    "waiting for gradients": "c5",
    "overhead": "grey",
    "barrier": "c3",
}


def of(groups: Sequence[Explained]) -> list[Figure]:
    """All figures, group by group."""
    figures: list[Figure] = []
    for group in groups:
        with_servers = [servers(group)] if group.curves[0].largest.what.has_servers else []
        figures += [predicted(group), *with_servers, step(group), spent(group)]
    return distinct(figures)


def _figure(
    group: Explained,
    kind: str,
    title: Sequence[str],
    choice: str,
    x: Axis,
    y: Axis,
    series: Sequence[Series],
    note: str,
) -> Figure:
    """``title`` is what the figure shows, and of what in the group."""
    what, *where = title
    name, title_ = slug("model", kind, *group.fit.group.key), ", ".join(filter(None, (what, group.name, *where)))
    return Figure(name, title_, f"{group.name}: {choice}", x, y, series, note)


def _first(group: Explained) -> str:
    """The first curve's name, if there are others."""
    return _name(group, group.curves[0]) if len(group.curves) > 1 else ""


def _largest(group: Explained) -> tuple[str, ...]:
    """The largest measured size, which some figures are of."""
    largest = group.curves[0].largest.prediction
    return _first(group), plural(largest.workers, "worker"), f"{largest.ps:,} PS" if largest.ps else ""


def _name(group: Explained, curve: Modelled) -> str:
    """A curve's name among those of its group, which may be of several models."""
    several = len({each.line.facets.model for each in group.curves}) > 1
    return f"{curve.line.name}, {curve.line.facets.model[0]}" if several else curve.line.name


# --- predicted and measured -----------------------------------------------------------------------


def predicted(group: Explained) -> Figure:
    """img/s against workers: predicted, with its interval, up to a few times the largest size, and as measured."""
    series: list[Series] = []
    models = list(dict.fromkeys(curve.line.panel[0] for curve in group.curves))
    for curve in group.curves:
        line, name, first, last = curve.line, _name(group, curve), curve.sizes[0], curve.sizes[-1]
        plain = replace(line.style, dash=DASHES[models.index(line.panel[0]) % len(DASHES)], hollow=False)
        law = [
            Spot(each.workers, p.img_per_s, p.low, p.high, (f"{name}, {line.system}", *_size(each)))
            for each in curve.sizes
            for p in [each.prediction]
        ]
        measured = [
            Spot(each.workers, each.point.img_per_s, hover=_measured(name, curve, each))
            for each in curve.sizes
            if each.point
        ]
        single = first.what.batch_size / first.basis.single_s
        ideal = [Spot(each.workers, single * each.workers) for each in (first, last)]
        whose = "published" if line.published else "measured"
        series += [
            Series("90 % interval", "band", [spot._replace(hover=()) for spot in law], plain, line.facets),
            Series(f"{name}, predicted", "line", law, plain, line.facets),
            Series(f"{name}, {whose}", "accent", measured, line.style, line.facets),
            Series("ideal", "ideal", ideal, Style("muted"), line.facets),
        ]
    note = f"{group.said} Ideal is the step of one worker."
    if group.curves[0].largest.what.has_servers:
        note += " Where no number of servers was measured, it is the best of some that are 1.4 times one another."
    x, y = workers_axis(series), throughput_axis(each for each in series if each.kind != "ideal")
    what = "predicted and measured"
    return _figure(group, "predicted", [what.capitalize()], what, x, y, series, note)


def _measured(name: str, curve: Modelled, each: Size) -> tuple[str, ...]:
    """A measured size; the figures of throughputs tell more of it."""
    line, point, prediction = curve.line, each.point, each.prediction
    assert point is not None
    return (
        name,
        f"{plural(point.workers, 'worker')} on {plural(prediction.nodes, 'node')}, {line.system}",
        f"{throughput(point.img_per_s)} img/s{interval(point.interval)}",
        *filter(None, (line.runs.configuration(point.best),)),
        f"predicted {throughput(prediction.img_per_s)} img/s (error {prediction.img_per_s / point.img_per_s - 1:+.1%})",
        point.best.sources[-1],
    )


def _size(each: Size) -> tuple[str, ...]:
    """A predicted size."""
    p, point = each.prediction, each.point
    ps = f", {p.ps:,} PS" if p.ps else ""
    lines = [
        f"{plural(p.workers, 'worker')} on {plural(p.nodes, 'node')}{ps}",
        f"predicted {throughput(p.img_per_s)} img/s "
        f"(90 % interval {throughput(p.low)} to {throughput(p.high)}), efficiency {p.efficiency:.1%}",
    ]
    if point:
        lines.append(f"measured {throughput(point.img_per_s)} img/s (error {p.img_per_s / point.img_per_s - 1:+.1%})")
    return (*lines, f"step {seconds(p.step_s)}", *(f"{bound.which} waits for {_binds(bound)}" for bound in p.bounds))


def _binds(bound: Bound) -> str:
    if bound.server == COMPUTE:
        return "nothing but its compute"
    who = "the network" if bound.server == WORKER else bound.name
    tensor = f"{bound.tensor} ({size(bound.tensor_bytes)})"
    return f"{who} with {tensor}: {size(bound.bytes)} pass, done after {seconds(bound.seconds)}"


# --- what servers hold ----------------------------------------------------------------------------


def servers(group: Explained) -> Figure:
    """Bytes that each server holds at the largest measured size, and if tensors were cut into slices of 1 MiB."""
    largest, facets = group.curves[0].largest, group.curves[0].line.facets
    ps = largest.prediction.ps
    exchange = largest.what.law(ps).exchange
    assert isinstance(exchange, ServerExchange)
    sizes = held(largest.what, ps)
    fullest, mean = int(np.argmax(sizes)), sum(sizes) / ps
    columns, biggest = [], []
    for number in range(ps):
        pieces = [piece for piece in exchange.pieces if piece.ps == number]
        biggest.append(max(pieces, key=lambda piece: piece.bytes, default=None))
        hover: tuple[str, ...] = (f"PS {number}: nothing",)
        if top := biggest[-1]:
            count = "1 tensor or slice" if len(pieces) == 1 else f"{len(pieces):,} tensors or slices"
            hover = (f"PS {number}: {size(sizes[number])}", f"{count}, the largest {top.tensor} ({size(top.bytes)})")
        columns.append(Spot(number, sizes[number] * MB, hover=hover))
    top = biggest[fullest]
    assert top is not None

    def level(name: str, bytes_: float, style: Style) -> Series:
        ends = [Spot(x, bytes_ * MB) for x in (-0.5, ps - 0.5)]
        return Series(f"{name}: {size(bytes_)}", "line", ends, style, facets)

    of_fullest, others = columns.pop(fullest), columns
    series = [
        Series(f"PS {fullest} ({top.tensor}): {size(sizes[fullest])}", "column", [of_fullest], Style("c1"), facets)
    ]
    series += [Series("the others", "column", others, Style("c0"), facets)] if others else []
    series.append(level("mean", mean, Style("grey", dash="dash")))
    if json.loads(largest.what.options).get("placement", "") != "partitioned":
        series.append(level("fullest with slices of 1 MiB", max(held(partitioned(largest.what), ps)), Style("c2")))
    # Some ten of the servers' numbers.
    every = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if ps / step <= 12)
    ticks = tuple((float(number), f"{number:,}") for number in range(0, ps, every))
    x, y = Axis("parameter server", "linear", "count", ticks), Axis("MB", "linear", "MB", from_zero=True)
    note = (
        f"PS {fullest} holds {sizes[fullest] / mean:.3g} times the mean; its largest tensor is {top.tensor} "
        f"({size(top.bytes)}). Every worker exchanges all that a server holds with it in every step, so the fullest "
        f"one is done last. {group.said}"
    )
    title = ["Bytes on each parameter server", *_largest(group)]
    return _figure(group, "servers", title, "bytes on each server", x, y, series, note)


# --- a step's timeline ----------------------------------------------------------------------------


def step(group: Explained) -> Figure:
    """When what is computed and sent in a step of the largest measured size, as the law has it."""
    largest, facets = group.curves[0].largest, group.curves[0].line.facets
    prediction, what, basis = largest.prediction, largest.what, largest.basis
    law, model = what.law(prediction.ps), profile(what.model, what.image_size)
    spans = timeline(law, model, prediction.nodes, prediction.workers, basis.single_s, basis.parameters).spans
    # From top to bottom compute, and some servers, or the network.
    lanes = [("compute", [span for span in spans if span.kind in ("forward", "backward", "overhead")])]
    shown = _shown(largest)
    for server in dict.fromkeys(shown.values()):
        for kind, verb in (("pull", "sends"), ("push", "receives")):
            its = [span for span in spans if span.server == server and span.kind == kind]
            lanes.append((f"PS {server} {verb}", its))
    if not prediction.ps:
        lanes.append(("network", [span for span in spans if span.kind == "allreduce"]))
    lanes.reverse()
    series = []
    for kind, (name, colour) in SPANS.items():
        spots = [
            Spot(span.start, float(height), span.start, span.end, _span(name, span))
            for height, (_, its) in enumerate(lanes)
            for span in its
            if span.kind == kind
        ]
        series += [Series(name, "span", spots, Style(colour), facets)] if spots else []
    x = Axis("seconds", "linear", "s", from_zero=True)
    y = Axis("", "linear", "count", tuple((float(height), name) for height, (name, _) in enumerate(lanes)))
    roles = ", ".join(f"PS {server} {role}" for role, server in shown.items() if role)
    note = (
        f"{group.said} Each bar is a tensor, or a slice or buffer, as it passes for all workers. "
        f"{f'{roles}. ' if roles else ''}The forward pass is drawn in one piece at its end, though it waits in between."
    )
    return _figure(group, "step", ["A step as predicted", *_largest(group)], "a step", x, y, series, note)


def _shown(largest: Size) -> dict[str, int]:
    """The servers that a timeline shows, by what is special of them if there are several."""
    sizes = held(largest.what, largest.prediction.ps)
    if len(sizes) < 2:
        return {"": 0} if sizes else {}
    mean, fullest = sum(sizes) / len(sizes), int(np.argmax(sizes))
    others = [number for number in range(len(sizes)) if number != fullest]
    return {"is the fullest": fullest, "nearest to the mean": min(others, key=lambda number: abs(sizes[number] - mean))}


def _span(name: str, span: Span) -> tuple[str, ...]:
    tensor = [f"{span.tensor} ({size(span.bytes)})"] if span.tensor else []
    return (name, *tensor, f"{seconds(span.start)} to {seconds(span.end)}: {seconds(span.end - span.start)}")


# --- what a step is spent on ----------------------------------------------------------------------


def spent(group: Explained) -> Figure:
    """Seconds of a step against nodes, by what they are spent on."""
    line = group.curves[0].line
    # Of sizes on the same nodes, those that use more of their devices.
    sizes = list({each.prediction.nodes: each for each in group.curves[0].sizes}.values())
    parts = [_parts(each) for each in sizes]
    series, base = [], [0.0] * len(sizes)
    for name, colour in SPENT.items():
        if all(part[name] <= 1e-9 for part in parts):
            continue
        columns = []
        for number, (low, part, each) in enumerate(zip(base, parts, sizes, strict=True)):
            share = f"{name}: {seconds(part[name])} of {seconds(each.prediction.step_s)}"
            columns.append(Spot(number, low + part[name], low, hover=(share, *_size(each))))
        series.append(Series(name, "column", columns, Style(colour), line.facets))
        base = [column.y for column in columns]
    measured = [
        Spot(number, each.workers * each.what.batch_size / each.point.img_per_s, hover=_size(each))
        for number, each in enumerate(sizes)
        if each.point
    ]
    whose = "published" if line.published else "measured"
    style = Style("c7", line.style.marker, hollow=line.published)
    series.append(Series(f"{whose} step", "accent", measured, style, line.facets))
    x = Axis("nodes", "linear", "count", tuple((n, f"{each.prediction.nodes:,}") for n, each in enumerate(sizes)))
    y = Axis("seconds of a step", "linear", "s", from_zero=True)
    note = f"{group.said} Waiting is what the network takes beyond the compute that hides it."
    what = "what a step is spent on"
    return _figure(group, "spent", [what.capitalize(), _first(group)], what, x, y, series, note)


def _parts(each: Size) -> dict[str, float]:
    """Seconds of a step by what they are spent on."""
    p, single_s = each.basis.parameters, each.basis.single_s
    parts = each.what.law(each.prediction.ps).parts(each.prediction.nodes, each.prediction.workers, single_s, p)
    forward_s = float(p.forward_share) * single_s
    return {
        "forward compute": forward_s,
        "waiting for parameters": float(parts.forward) - forward_s,
        "backward compute": single_s - forward_s,
        "waiting for gradients": float(parts.backward) - (single_s - forward_s),
        "overhead": float(parts.overhead),
        "barrier": float(parts.barrier),
    }
