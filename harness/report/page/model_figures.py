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
from harness.predict.explain import partitioned, seconds, size
from harness.predict.forecast import Bound, held
from harness.predict.law import COMPUTE, WORKER
from harness.predict.profile import profile
from harness.predict.timeline import Kind, Span, Timeline, timeline
from harness.report.page import provenance
from harness.report.page.curve_figures import distinct
from harness.report.page.figures import Axis, Figure, Series, Style, decade_ticks, measured_ticks, slug
from harness.report.page.lines import DASHES, Line
from harness.report.page.modelled import Explained, Modelled, Size
from harness.report.page.provenance import Runs

MB = 1e-6
GREY = Style(None, "square")
# What a timeline's lanes hold, with the colour of each kind.
COLOURS: dict[Kind, int | None] = {
    "forward": 0,
    "backward": 4,
    "pull": 1,
    "push": 5,
    "allreduce": 1,
    "overhead": None,
}
TOLD: dict[Kind, str] = {
    "forward": "forward pass",
    "backward": "backward pass",
    "pull": "parameters pulled",
    "push": "gradients pushed",
    "allreduce": "gradients summed",
    "overhead": "overhead and barrier",
}


def of(found: Sequence[Explained], runs: Runs) -> list[Figure]:
    """All figures, group by group."""
    made: list[Figure] = []
    for one in found:
        made.append(predicted(one, runs))
        if one.curves[0].largest.what.has_servers:
            made.append(servers(one))
        made += [step(one), spent(one)]
    return distinct(made)


def _name(kind: str, one: Explained) -> str:
    return slug("model", kind, *one.fit.group.key)


def _where(one: Explained) -> str:
    """The largest measured size, which the last three figures are of."""
    size_ = one.curves[0].largest
    servers_ = f"{size_.prediction.ps:,} PS" if size_.prediction.ps else ""
    return ", ".join(filter(None, (_first(one), plural(size_.workers, "worker"), servers_)))


def _first(one: Explained) -> str:
    """The first curve's name, if there are others."""
    return _curve(one, one.curves[0]) if len(one.curves) > 1 else ""


def _curve(one: Explained, curve: Modelled) -> str:
    """A curve's name among those of its group, which may be of several models."""
    line = curve.line
    several = len({each.line.facets.model for each in one.curves}) > 1
    return f"{line.name}, {line.facets.model[0]}" if several else line.name


# --- predicted and measured -----------------------------------------------------------------------


def predicted(one: Explained, runs: Runs) -> Figure:
    """img/s against workers: predicted, with its interval, up to a few times the largest size, and as measured."""
    series = []
    models = list(dict.fromkeys(curve.line.panel[0] for curve in one.curves))
    for curve in one.curves:
        line, name = curve.line, _curve(one, curve)
        workers = tuple(each.workers for each in curve.sizes)
        made = [each.prediction for each in curve.sizes]
        plain = replace(line.style, dash=DASHES[models.index(line.panel[0]) % len(DASHES)], hollow=False)
        band = Series(
            *("90 % interval", "band", workers, tuple(each.img_per_s for each in made), plain, line.facets),
            low=tuple(each.low for each in made),
            high=tuple(each.high for each in made),
        )
        drawn = Series(
            *(f"{name}, predicted", "line", workers, tuple(each.img_per_s for each in made), plain, line.facets),
            hover=tuple((f"{name}, {line.system}", *_told(each)) for each in curve.sizes),
        )
        points = [each.point for each in curve.sizes if each.point is not None]
        measured = Series(
            *(f"{name}, {'published' if line.published else 'measured'}", "accent"),
            x=tuple(point.workers for point in points),
            y=tuple(point.img_per_s for point in points),
            style=line.style,
            facets=line.facets,
            hover=tuple(_of_point(name, each, runs, line) for each in curve.sizes if each.point is not None),
        )
        ends = (workers[0], workers[-1])
        single = curve.sizes[0].what.batch_size / curve.sizes[0].basis.single_s
        ideal = Series("ideal", "ideal", ends, (single * ends[0], single * ends[1]), GREY, line.facets)
        series += [band, drawn, measured, ideal]
    drawn_values = [value for each in series if each.kind != "ideal" for value in (*each.y, *each.low, *each.high)]
    sizes = [each.workers for curve in one.curves for each in curve.sizes]
    return Figure(
        name=_name("predicted", one),
        title=f"Predicted and measured, {one.name}",
        choice=f"{one.name}: predicted and measured",
        x=Axis("workers", "log", "count", measured_ticks(sizes)),
        y=Axis("img/s", "log", "img_per_s", decade_ticks(drawn_values)),
        series=tuple(series),
        note=f"{one.said} Ideal is the step of one worker. Where no number of servers was measured, it is the best of "
        "some that are 1.4 times one another."
        if one.curves[0].largest.what.has_servers
        else f"{one.said} Ideal is the step of one worker.",
    )


def _of_point(name: str, each: Size, runs: Runs, line: Line) -> tuple[str, ...]:
    """A measured size; the figures of throughputs tell more of it."""
    point = each.point
    assert point is not None
    return (
        name,
        f"{plural(point.workers, 'worker')} on {plural(each.prediction.nodes, 'node')}, {line.system}",
        f"{provenance.throughput(point.img_per_s)} img/s{provenance.interval(point.interval)}",
        *filter(None, (provenance.configuration(point.best, runs),)),
        f"predicted {provenance.throughput(each.prediction.img_per_s)} img/s ({_error(each)})",
        point.best.sources[-1],
    )


def _told(each: Size) -> tuple[str, ...]:
    """A predicted size."""
    p = each.prediction
    servers_ = f", {p.ps:,} PS" if p.ps else ""
    return (
        f"{plural(p.workers, 'worker')} on {plural(p.nodes, 'node')}{servers_}",
        f"predicted {provenance.throughput(p.img_per_s)} img/s "
        f"(90 % interval {provenance.throughput(p.low)} to {provenance.throughput(p.high)}), efficiency {p.efficiency:.1%}",
        *([f"measured {provenance.throughput(each.point.img_per_s)} img/s ({_error(each)})"] if each.point else []),
        f"step {seconds(p.step_s)}",
        *_bounds(p.bounds),
    )


def _error(each: Size) -> str:
    """Of a measured size: predicted over measured, minus 1."""
    assert each.point is not None
    return f"error {each.prediction.img_per_s / each.point.img_per_s - 1:+.1%}"


def _bounds(bounds: Sequence[Bound]) -> list[str]:
    return [f"{one.which} waits for {_binds(one)}" for one in bounds]


def _binds(one: Bound) -> str:
    if one.server == COMPUTE:
        return "nothing but its compute"
    who = "the network" if one.server == WORKER else one.name
    return (
        f"{who} with {one.tensor} ({size(one.tensor_bytes)}): {size(one.bytes)} pass, done after {seconds(one.seconds)}"
    )


# --- what servers hold ----------------------------------------------------------------------------


def servers(one: Explained) -> Figure:
    """Bytes that each server holds at the largest measured size, and if tensors were cut into slices of 1 MiB."""
    largest = one.curves[0].largest
    line, ps = one.curves[0].line, largest.prediction.ps
    exchange = largest.what.law(ps).exchange
    assert isinstance(exchange, ServerExchange)
    pieces = [[piece for piece in exchange.pieces if piece.ps == number] for number in range(ps)]
    sizes = held(largest.what, ps)
    full, mean = int(np.argmax(sizes)), sum(sizes) / ps
    others = [number for number in range(ps) if number != full]
    biggest = _biggest(pieces[full])
    ends = (-0.5, ps - 0.5)
    placement = json.loads(largest.what.options).get("placement", "")

    def columns(name: str, which: Sequence[int], style: Style) -> Series:
        return Series(
            *(name, "column", tuple(which), tuple(sizes[number] * MB for number in which), style, line.facets),
            hover=tuple(_server(number, pieces[number]) for number in which),
        )

    series = [
        columns(f"PS {full} ({biggest.tensor}): {size(sizes[full])}", [full], Style(1, "square")),
        *([columns("the others", others, Style(0, "square"))] if others else []),
        Series(f"mean: {size(mean)}", "line", ends, (mean * MB,) * 2, Style(None, "circle", "dash"), line.facets),
    ]
    if placement != "partitioned":
        most = max(held(partitioned(largest.what), ps))
        name = f"fullest with slices of 1 MiB: {size(most)}"
        series.append(Series(name, "line", ends, (most * MB,) * 2, Style(2, "circle"), line.facets))
    return Figure(
        name=_name("servers", one),
        title=f"Bytes on each parameter server, {one.name}, {_where(one)}",
        choice=f"{one.name}: bytes on each server",
        x=Axis("parameter server", "linear", "count", _ticks(range(ps))),
        y=Axis("MB", "linear", "MB", from_zero=True),
        series=tuple(series),
        note=f"PS {full} holds {sizes[full] / mean:.3g} times the mean; its largest tensor is {biggest.tensor} "
        f"({size(biggest.bytes)}). Every worker exchanges all that a server holds with it in every step, so the fullest "
        f"one is done last. {one.said}",
    )


def _server(number: int, pieces: Sequence[Piece]) -> tuple[str, ...]:
    if not pieces:
        return (f"PS {number}: nothing",)
    biggest = _biggest(pieces)
    return (
        f"PS {number}: {size(sum(piece.bytes for piece in pieces))}",
        f"{plural(len(pieces), 'tensor or slice') if len(pieces) == 1 else f'{len(pieces):,} tensors or slices'}, "
        f"the largest {biggest.tensor} ({size(biggest.bytes)})",
    )


def _biggest(pieces: Sequence[Piece]) -> Piece:
    return max(pieces, key=lambda piece: piece.bytes)


def _ticks(numbers: Sequence[int]) -> tuple[tuple[float, str], ...]:
    """Some ten of whole numbers."""
    every = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if len(numbers) / step <= 12)
    return tuple((float(number), f"{number:,}") for number in numbers if number % every == 0)


# --- a step's timeline ----------------------------------------------------------------------------


def step(one: Explained) -> Figure:
    """When what is computed and sent in a step of the largest measured size, as the law has it."""
    largest = one.curves[0].largest
    line, prediction, what = one.curves[0].line, largest.prediction, largest.what
    law = what.law(prediction.ps)
    made = timeline(
        law,
        profile(what.model, what.image_size),
        prediction.nodes,
        prediction.workers,
        largest.basis.single_s,
        largest.basis.parameters,
    )
    lanes = _lanes(largest, made)
    roles = ", ".join(f"PS {server} {role}" for role, server in _shown(largest).items())
    which = f"{roles}. " if roles else ""
    series = []
    for kind, name in TOLD.items():
        spans = [(number, span) for number, (_, its) in enumerate(reversed(lanes)) for span in its if span.kind == kind]
        if spans:
            series.append(
                Series(
                    *(
                        name,
                        "span",
                        tuple(span.start for _, span in spans),
                        tuple(float(number) for number, _ in spans),
                    ),
                    Style(COLOURS[kind], "square"),
                    line.facets,
                    low=tuple(span.start for _, span in spans),
                    high=tuple(span.end for _, span in spans),
                    hover=tuple(_span(name, span) for _, span in spans),
                )
            )
    return Figure(
        name=_name("step", one),
        title=f"A step as predicted, {one.name}, {_where(one)}",
        choice=f"{one.name}: a step",
        x=Axis("seconds", "linear", "s", from_zero=True),
        y=Axis("", "linear", "count", tuple((float(n), name) for n, (name, _) in enumerate(reversed(lanes)))),
        series=tuple(series),
        note=f"{one.said} Each bar is a tensor, or a slice or buffer, as it passes for all workers. "
        f"{which}The forward pass is drawn in one piece at its end, though it waits in between.",
    )


def _shown(largest: Size) -> dict[str, int]:
    """The servers that a timeline shows."""
    sizes = held(largest.what, largest.prediction.ps)
    if len(sizes) < 2:
        return {}
    mean = sum(sizes) / len(sizes)
    full = int(np.argmax(sizes))
    others = [number for number in range(len(sizes)) if number != full]
    return {"is the fullest": full, "nearest to the mean": min(others, key=lambda number: abs(sizes[number] - mean))}


def _lanes(largest: Size, made: Timeline) -> list[tuple[str, list[Span]]]:
    """The lanes of a timeline from top to bottom: compute, and servers, or the network."""
    compute = [span for span in made.spans if span.kind in ("forward", "backward", "overhead")]
    lanes = [("compute", compute)]
    if not largest.prediction.ps:
        return [*lanes, ("network", [span for span in made.spans if span.kind == "allreduce"])]
    for server in dict.fromkeys(_shown(largest).values()) or [0]:
        for kind, verb in (("pull", "sends"), ("push", "receives")):
            spans = [span for span in made.spans if span.server == server and span.kind == kind]
            lanes.append((f"PS {server} {verb}", spans))
    return lanes


def _span(name: str, span: Span) -> tuple[str, ...]:
    told = f"{span.tensor} ({size(span.bytes)})" if span.tensor else ""
    return (
        name,
        *([told] if told else []),
        f"{seconds(span.start)} to {seconds(span.end)}: {seconds(span.end - span.start)}",
    )


# --- what a step is spent on ----------------------------------------------------------------------


def spent(one: Explained) -> Figure:
    """Seconds of a step against nodes, by what they are spent on."""
    curve = one.curves[0]
    # Of sizes on the same nodes, those that use more of their devices.
    sizes = [list(same)[-1] for _, same in groupby(curve.sizes, key=lambda each: each.prediction.nodes)]
    parts = [_parts(each) for each in sizes]
    names = [name for name in parts[0] if any(part[name] > 1e-9 for part in parts)]
    base = [0.0] * len(sizes)
    series = []
    for name in names:
        top = [low + part[name] for low, part in zip(base, parts, strict=True)]
        series.append(
            Series(
                *(name, "column", tuple(range(len(sizes))), tuple(top), Style(_SPENT[name], "square")),
                curve.line.facets,
                low=tuple(base),
                hover=tuple(
                    (f"{name}: {seconds(part[name])} of {seconds(each.prediction.step_s)}", *_told(each))
                    for part, each in zip(parts, sizes, strict=True)
                ),
            )
        )
        base = top
    measured = [(number, each, each.point) for number, each in enumerate(sizes) if each.point is not None]
    series.append(
        Series(
            *(f"{'published' if curve.line.published else 'measured'} step", "accent"),
            x=tuple(number for number, _, _ in measured),
            y=tuple(point.workers * each.what.batch_size / point.img_per_s for _, each, point in measured),
            style=Style(7, curve.line.style.marker, hollow=curve.line.published),
            facets=curve.line.facets,
            hover=tuple(_told(each) for _, each, _ in measured),
        )
    )
    return Figure(
        name=_name("spent", one),
        title=", ".join(filter(None, ("What a step is spent on", one.name, _first(one)))),
        choice=f"{one.name}: what a step is spent on",
        x=Axis(*("nodes", "linear", "count"), tuple((n, f"{each.prediction.nodes:,}") for n, each in enumerate(sizes))),
        y=Axis("seconds of a step", "linear", "s", from_zero=True),
        series=tuple(series),
        note=f"{one.said} Waiting is what the network takes beyond the compute that hides it.",
    )


_SPENT: dict[str, int | None] = {
    "forward compute": 0,
    "waiting for parameters": 1,
    "backward compute": 4,
    "waiting for gradients": 5,
    "overhead": None,
    "barrier": 3,
}


def _parts(each: Size) -> dict[str, float]:
    """Seconds of a step by what they are spent on, in the order of the step."""
    p, single_s = each.basis.parameters, each.basis.single_s
    parts = each.what.law(each.prediction.ps).parts(each.prediction.nodes, each.prediction.workers, single_s, p)
    forward_s = float(p.forward_share) * single_s
    seconds_ = {
        "forward compute": forward_s,
        "waiting for parameters": float(parts.forward) - forward_s,
        "backward compute": single_s - forward_s,
        "waiting for gradients": float(parts.backward) - (single_s - forward_s),
        "overhead": float(parts.overhead),
        "barrier": float(parts.barrier),
    }
    return {name: seconds_[name] for name in _SPENT}
