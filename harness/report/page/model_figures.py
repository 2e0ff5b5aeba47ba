"""Figures of the scaling model: predicted beside measured, what servers hold, a step's timeline, what it is spent on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from harness.core.exchange import ServerExchange
from harness.core.placement import Piece
from harness.core.text import plural
from harness.prediction.explain import partitioned, seconds, size
from harness.prediction.forecast import Bound, held
from harness.prediction.law import COMPUTE, WORKER
from harness.prediction.profile import profile
from harness.prediction.timeline import Kind, Span, Timeline, timeline
from harness.report.page import provenance
from harness.report.page.curve_figures import distinct, workers_axis
from harness.report.page.figures import Axis, Figure, Series, Spot, Style, decade_ticks, slug
from harness.report.page.lines import DASHES, Line
from harness.report.page.modelled import Explained, Modelled, Size
from harness.report.page.provenance import Runs

MB = 1e-6
GREY = Style(None, "square")
# What a timeline's lanes hold: its name and its colour.
SPANS: dict[Kind, tuple[str, int | None]] = {
    "forward": ("forward pass", 0),
    "backward": ("backward pass", 4),
    "pull": ("parameters pulled", 1),
    "push": ("gradients pushed", 5),
    "allreduce": ("gradients summed", 1),
    "overhead": ("overhead and barrier", None),
}
# What a step is spent on, in its order, with the colours.
SPENT: dict[str, int | None] = {
    "forward compute": 0,
    "waiting for parameters": 1,
    "backward compute": 4,
    "waiting for gradients": 5,
    "overhead": None,
    "barrier": 3,
}


def of(groups: Sequence[Explained], runs: Runs) -> list[Figure]:
    """All figures, group by group."""
    made: list[Figure] = []
    for group in groups:
        made.append(predicted(group, runs))
        if group.curves[0].largest.what.has_servers:
            made.append(servers(group))
        made += [step(group), spent(group)]
    return distinct(made)


def _name(kind: str, group: Explained) -> str:
    return slug("model", kind, *group.fit.group.key)


def _where(group: Explained) -> str:
    """The largest measured size, which the last three figures are of."""
    largest = group.curves[0].largest
    ps = f"{largest.prediction.ps:,} PS" if largest.prediction.ps else ""
    return ", ".join(filter(None, (_first(group), plural(largest.workers, "worker"), ps)))


def _first(group: Explained) -> str:
    """The first curve's name, if there are others."""
    return _curve(group, group.curves[0]) if len(group.curves) > 1 else ""


def _curve(group: Explained, curve: Modelled) -> str:
    """A curve's name among those of its group, which may be of several models."""
    several = len({each.line.facets.model for each in group.curves}) > 1
    return f"{curve.line.name}, {curve.line.facets.model[0]}" if several else curve.line.name


# --- predicted and measured -----------------------------------------------------------------------


def predicted(group: Explained, runs: Runs) -> Figure:
    """img/s against workers: predicted, with its interval, up to a few times the largest size, and as measured."""
    series: list[Series] = []
    models = list(dict.fromkeys(curve.line.panel[0] for curve in group.curves))
    for curve in group.curves:
        line, name = curve.line, _curve(group, curve)
        plain = replace(line.style, dash=DASHES[models.index(line.panel[0]) % len(DASHES)], hollow=False)
        made = [(each, each.prediction) for each in curve.sizes]
        band = [Spot(p.workers, p.img_per_s, p.low, p.high) for _, p in made]
        law = [Spot(p.workers, p.img_per_s, hover=(f"{name}, {line.system}", *_size(each))) for each, p in made]
        measured = [
            Spot(each.point.workers, each.point.img_per_s, hover=_measured(name, each, runs, line))
            for each in curve.sizes
            if each.point is not None
        ]
        single = curve.sizes[0].what.batch_size / curve.sizes[0].basis.single_s
        ideal = [Spot(each.workers, single * each.workers) for each in (curve.sizes[0], curve.sizes[-1])]
        whose = "published" if line.published else "measured"
        series += [
            Series.of("90 % interval", "band", band, plain, line.facets),
            Series.of(f"{name}, predicted", "line", law, plain, line.facets),
            Series.of(f"{name}, {whose}", "accent", measured, line.style, line.facets),
            Series.of("ideal", "ideal", ideal, GREY, line.facets),
        ]
    drawn = [value for one in series if one.kind != "ideal" for value in (*one.y, *one.low, *one.high)]
    tried = " Where no number of servers was measured, it is the best of some that are 1.4 times one another."
    return Figure(
        name=_name("predicted", group),
        title=f"Predicted and measured, {group.name}",
        choice=f"{group.name}: predicted and measured",
        x=workers_axis([each.workers for curve in group.curves for each in curve.sizes]),
        y=Axis("img/s", "log", "img_per_s", decade_ticks(drawn)),
        series=tuple(series),
        note=f"{group.said} Ideal is the step of one worker."
        + (tried if group.curves[0].largest.what.has_servers else ""),
    )


def _measured(name: str, each: Size, runs: Runs, line: Line) -> tuple[str, ...]:
    """A measured size; the figures of throughputs tell more of it."""
    point = each.point
    assert point is not None
    return (
        name,
        f"{plural(point.workers, 'worker')} on {plural(each.prediction.nodes, 'node')}, {line.system}",
        f"{provenance.throughput(point.img_per_s)} img/s{provenance.interval(point.interval)}",
        *filter(None, (provenance.configuration(point.best, runs),)),
        f"predicted {provenance.throughput(each.prediction.img_per_s)} img/s (error {each.error:+.1%})",
        point.best.sources[-1],
    )


def _size(each: Size) -> tuple[str, ...]:
    """A predicted size."""
    p, rate = each.prediction, provenance.throughput
    ps = f", {p.ps:,} PS" if p.ps else ""
    lines = [
        f"{plural(p.workers, 'worker')} on {plural(p.nodes, 'node')}{ps}",
        f"predicted {rate(p.img_per_s)} img/s "
        f"(90 % interval {rate(p.low)} to {rate(p.high)}), efficiency {p.efficiency:.1%}",
    ]
    if each.point:
        lines.append(f"measured {rate(each.point.img_per_s)} img/s (error {each.error:+.1%})")
    return (*lines, f"step {seconds(p.step_s)}", *(f"{one.which} waits for {_binds(one)}" for one in p.bounds))


def _binds(one: Bound) -> str:
    if one.server == COMPUTE:
        return "nothing but its compute"
    who = "the network" if one.server == WORKER else one.name
    return (
        f"{who} with {one.tensor} ({size(one.tensor_bytes)}): {size(one.bytes)} pass, done after {seconds(one.seconds)}"
    )


# --- what servers hold ----------------------------------------------------------------------------


def servers(group: Explained) -> Figure:
    """Bytes that each server holds at the largest measured size, and if tensors were cut into slices of 1 MiB."""
    largest, facets = group.curves[0].largest, group.curves[0].line.facets
    ps = largest.prediction.ps
    exchange = largest.what.law(ps).exchange
    assert isinstance(exchange, ServerExchange)
    pieces = [[piece for piece in exchange.pieces if piece.ps == number] for number in range(ps)]
    sizes = held(largest.what, ps)
    fullest, mean = int(np.argmax(sizes)), sum(sizes) / ps
    biggest = _biggest(pieces[fullest])
    columns = [Spot(number, sizes[number] * MB, hover=_server(number, pieces[number])) for number in range(ps)]
    others = columns[:fullest] + columns[fullest + 1 :]

    def level(name: str, bytes_: float, style: Style) -> Series:
        ends = [Spot(x, bytes_ * MB) for x in (-0.5, ps - 0.5)]
        return Series.of(f"{name}: {size(bytes_)}", "line", ends, style, facets)

    of_fullest = f"PS {fullest} ({biggest.tensor}): {size(sizes[fullest])}"
    series = [Series.of(of_fullest, "column", [columns[fullest]], Style(1, "square"), facets)]
    series += [Series.of("the others", "column", others, Style(0, "square"), facets)] if others else []
    series.append(level("mean", mean, Style(None, "circle", "dash")))
    if json.loads(largest.what.options).get("placement", "") != "partitioned":
        sliced = max(held(partitioned(largest.what), ps))
        series.append(level("fullest with slices of 1 MiB", sliced, Style(2, "circle")))
    # Some ten of the servers' numbers.
    every = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if ps / step <= 12)
    ticks = tuple((float(number), f"{number:,}") for number in range(0, ps, every))
    return Figure(
        name=_name("servers", group),
        title=f"Bytes on each parameter server, {group.name}, {_where(group)}",
        choice=f"{group.name}: bytes on each server",
        x=Axis("parameter server", "linear", "count", ticks),
        y=Axis("MB", "linear", "MB", from_zero=True),
        series=tuple(series),
        note=f"PS {fullest} holds {sizes[fullest] / mean:.3g} times the mean; its largest tensor is {biggest.tensor} "
        f"({size(biggest.bytes)}). Every worker exchanges all that a server holds with it in every step, so the fullest "
        f"one is done last. {group.said}",
    )


def _server(number: int, pieces: Sequence[Piece]) -> tuple[str, ...]:
    if not pieces:
        return (f"PS {number}: nothing",)
    biggest = _biggest(pieces)
    count = "1 tensor or slice" if len(pieces) == 1 else f"{len(pieces):,} tensors or slices"
    return (
        f"PS {number}: {size(sum(piece.bytes for piece in pieces))}",
        f"{count}, the largest {biggest.tensor} ({size(biggest.bytes)})",
    )


def _biggest(pieces: Sequence[Piece]) -> Piece:
    return max(pieces, key=lambda piece: piece.bytes)


# --- a step's timeline ----------------------------------------------------------------------------


def step(group: Explained) -> Figure:
    """When what is computed and sent in a step of the largest measured size, as the law has it."""
    largest, facets = group.curves[0].largest, group.curves[0].line.facets
    prediction, what, basis = largest.prediction, largest.what, largest.basis
    law, model = what.law(prediction.ps), profile(what.model, what.image_size)
    made = timeline(law, model, prediction.nodes, prediction.workers, basis.single_s, basis.parameters)
    lanes = _lanes(largest, made)[::-1]
    series = []
    for kind, (name, colour) in SPANS.items():
        spots = [
            Spot(span.start, float(height), span.start, span.end, _span(name, span))
            for height, (_, spans) in enumerate(lanes)
            for span in spans
            if span.kind == kind
        ]
        series += [Series.of(name, "span", spots, Style(colour, "square"), facets)] if spots else []
    roles = ", ".join(f"PS {server} {role}" for role, server in _shown(largest).items())
    return Figure(
        name=_name("step", group),
        title=f"A step as predicted, {group.name}, {_where(group)}",
        choice=f"{group.name}: a step",
        x=Axis("seconds", "linear", "s", from_zero=True),
        y=Axis("", "linear", "count", tuple((float(height), name) for height, (name, _) in enumerate(lanes))),
        series=tuple(series),
        note=f"{group.said} Each bar is a tensor, or a slice or buffer, as it passes for all workers. "
        f"{f'{roles}. ' if roles else ''}The forward pass is drawn in one piece at its end, though it waits in between.",
    )


def _shown(largest: Size) -> dict[str, int]:
    """The servers that a timeline shows."""
    sizes = held(largest.what, largest.prediction.ps)
    if len(sizes) < 2:
        return {}
    mean, fullest = sum(sizes) / len(sizes), int(np.argmax(sizes))
    others = [number for number in range(len(sizes)) if number != fullest]
    return {"is the fullest": fullest, "nearest to the mean": min(others, key=lambda number: abs(sizes[number] - mean))}


def _lanes(largest: Size, made: Timeline) -> list[tuple[str, list[Span]]]:
    """The lanes of a timeline from top to bottom: compute, and servers, or the network."""
    lanes = [("compute", [span for span in made.spans if span.kind in ("forward", "backward", "overhead")])]
    if not largest.prediction.ps:
        return [*lanes, ("network", [span for span in made.spans if span.kind == "allreduce"])]
    for server in dict.fromkeys(_shown(largest).values()) or [0]:
        for kind, verb in (("pull", "sends"), ("push", "receives")):
            spans = [span for span in made.spans if span.server == server and span.kind == kind]
            lanes.append((f"PS {server} {verb}", spans))
    return lanes


def _span(name: str, span: Span) -> tuple[str, ...]:
    tensor = [f"{span.tensor} ({size(span.bytes)})"] if span.tensor else []
    return (name, *tensor, f"{seconds(span.start)} to {seconds(span.end)}: {seconds(span.end - span.start)}")


# --- what a step is spent on ----------------------------------------------------------------------


def spent(group: Explained) -> Figure:
    """Seconds of a step against nodes, by what they are spent on."""
    curve = group.curves[0]
    line = curve.line
    # Of sizes on the same nodes, those that use more of their devices.
    sizes = [list(same)[-1] for _, same in groupby(curve.sizes, key=lambda each: each.prediction.nodes)]
    parts = [_parts(each) for each in sizes]
    series, base = [], [0.0] * len(sizes)
    for name, colour in SPENT.items():
        if all(part[name] <= 1e-9 for part in parts):
            continue
        columns = [
            Spot(number, low + part[name], low, hover=(f"{name}: {_share(part[name], each)}", *_size(each)))
            for number, (low, part, each) in enumerate(zip(base, parts, sizes, strict=True))
        ]
        series.append(Series.of(name, "column", columns, Style(colour, "square"), line.facets))
        base = [column.y for column in columns]
    measured = [
        Spot(number, each.point.workers * each.what.batch_size / each.point.img_per_s, hover=_size(each))
        for number, each in enumerate(sizes)
        if each.point is not None
    ]
    whose = "published" if line.published else "measured"
    style = Style(7, line.style.marker, hollow=line.published)
    series.append(Series.of(f"{whose} step", "accent", measured, style, line.facets))
    return Figure(
        name=_name("spent", group),
        title=", ".join(filter(None, ("What a step is spent on", group.name, _first(group)))),
        choice=f"{group.name}: what a step is spent on",
        x=Axis("nodes", "linear", "count", tuple((n, f"{each.prediction.nodes:,}") for n, each in enumerate(sizes))),
        y=Axis("seconds of a step", "linear", "s", from_zero=True),
        series=tuple(series),
        note=f"{group.said} Waiting is what the network takes beyond the compute that hides it.",
    )


def _share(part_s: float, each: Size) -> str:
    return f"{seconds(part_s)} of {seconds(each.prediction.step_s)}"


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
