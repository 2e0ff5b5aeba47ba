"""Figures of the scaling model: predicted beside measured, what servers hold, and what a step is spent on."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from harness.core.exchange import ServerExchange
from harness.core.text import plural
from harness.prediction.explain import seconds, size
from harness.prediction.law import COMPUTE, WORKER
from harness.report.page.curve_figures import ideal, throughput_axis, workers_axis
from harness.report.page.figures import LOOKS, Axis, Figure, Series, Spot, Style, count_ticks, slug, throughput
from harness.report.page.lines import DASHES
from harness.report.page.modelled import Explained, Size

MB = 1e-6


def of(groups: Sequence[Explained]) -> list[Figure]:
    figures = []
    for number, group in enumerate(groups, start=1):
        curve = group.curves[0]
        largest = curve.largest.prediction
        # All but the predictions is of the first curve, bytes at its largest measured size.
        first = [f"{curve.line.name}, {curve.line.panel[0]}"] if len(group.curves) > 1 else []
        drawn: list[tuple[Figure, list[str]]] = [(predicted(group), []), (spent(group), first)]
        if curve.largest.workload.has_servers:
            there = [*first, plural(largest.workers, "worker"), f"{largest.ps:,} PS"]
            drawn.insert(1, (servers(group), there))
        for figure, where in drawn:
            name = slug("model", figure.name, str(number), *group.fit.group.key)
            title, choice = ", ".join([figure.title, group.name, *where]), f"{figure.choice}: {group.name}"
            figures.append(
                replace(figure, name=name, title=title, choice=choice, note=f"{group.sentence} {figure.note}")
            )
    return figures


def predicted(group: Explained) -> Figure:
    """img/s against workers: predicted, with its interval, up to a few times the largest size, and as measured."""
    series: list[Series] = []
    models = list(dict.fromkeys(curve.line.panel[0] for curve in group.curves))
    for curve in group.curves:
        line, first, last = curve.line, curve.sizes[0], curve.sizes[-1]
        name = f"{line.name}, {line.panel[0]}"
        plain = replace(line.style, dash=DASHES[models.index(line.panel[0]) % len(DASHES)], hollow=False)
        law, measured = [], []
        for each in curve.sizes:
            p = each.prediction
            law.append(Spot(p.workers, p.img_per_s, p.low, p.high, (f"{name}, {line.system}", *_size(each))))
            if each.point:
                of_law = f"predicted {throughput(p.img_per_s)} img/s (error {each.error:+.1%})"
                hover = (*line.hover(each.point), of_law)
                source = each.point.best.sources[-1]
                measured.append(Spot(p.workers, each.point.img_per_s, hover=hover, source=source))
        single = first.workload.batch_size / first.basis.single_s
        ends = [Spot(each.workers, single * each.workers) for each in (first, last)]
        origin = "published" if line.published else "measured"
        series += [
            Series("90 % interval", "band", [spot._replace(hover=()) for spot in law], plain, line.facets),
            Series(f"{name}, predicted", "line", law, plain, line.facets),
            Series(f"{name}, {origin}", "accent", measured, line.style, line.facets),
            ideal(ends, line.facets),
        ]
    note = "Ideal is the step of one worker."
    if group.curves[0].largest.workload.has_servers:
        note += " Where no number of servers was measured, it is the best of some that are 1.4 times one another."
    x, y = workers_axis(series), throughput_axis(each for each in series if each.kind != "ideal")
    return Figure("predicted", "Predicted and measured", "predicted and measured", x, y, series, note, views=True)


def _size(each: Size) -> list[str]:
    p = each.prediction
    ps = f", {p.ps:,} PS" if p.ps else ""
    lines = [
        f"{plural(p.workers, 'worker')} on {plural(p.nodes, 'node')}{ps}",
        f"predicted {throughput(p.img_per_s)} img/s "
        f"(90 % interval {throughput(p.low)} to {throughput(p.high)}), efficiency {p.efficiency:.1%}",
    ]
    if each.point:
        lines.append(f"measured {throughput(each.point.img_per_s)} img/s (error {each.error:+.1%})")
    lines.append(f"step {seconds(p.step_s)}; by two lines {seconds(p.two_lines_s)}")
    for bound in p.bounds:
        if bound.server == COMPUTE:
            lines.append(f"{bound.phase} waits for nothing but its compute")
            continue
        name = "the network" if bound.server == WORKER else bound.name
        largest = f"{bound.tensor} ({size(bound.tensor_bytes)})"
        passes = f"{size(bound.bytes)} pass, done after {seconds(bound.seconds)}"
        lines.append(f"{bound.phase} waits for {name} with {largest}: {passes}")
    return lines


def servers(group: Explained) -> Figure:
    """Bytes that each server holds at the largest measured size, and if tensors were cut into slices of 1 MiB."""
    largest, facets = group.curves[0].largest, group.curves[0].line.facets
    workload, ps = largest.workload, largest.prediction.ps
    exchange = workload.law(ps).exchange
    assert isinstance(exchange, ServerExchange)
    sizes = workload.held(ps)
    fullest, mean = int(np.argmax(sizes)), sum(sizes) / len(sizes)
    texts = [f"{exchange.name(number)}: {size(held_bytes)}" for number, held_bytes in enumerate(sizes)]
    columns = [Spot(number, sizes[number] * MB, hover=[text]) for number, text in enumerate(texts)]

    def level(name: str, bytes_: float, style: Style) -> Series:
        ends = [Spot(x, bytes_ * MB) for x in (-0.5, len(sizes) - 0.5)]
        return Series(f"{name}: {size(bytes_)}", "line", ends, style, facets)

    top = max((piece for piece in exchange.pieces if piece.ps == fullest), key=lambda piece: piece.bytes)
    name = f"{exchange.name(fullest)} ({top.tensor}): {size(sizes[fullest])}"
    series = [Series(name, "column", [columns.pop(fullest)], Style("c1"), facets)]
    series += [Series("the others", "column", columns, Style("c0"), facets)] if columns else []
    series.append(level("mean", mean, Style("grey", dash="dash")))
    if workload.can_be_sliced:
        series.append(level("fullest with slices of 1 MiB", max(workload.sliced().held(ps)), Style("c2")))
    note = (
        f"{exchange.name(fullest)} holds {sizes[fullest] / mean:.3g} times the mean; its largest tensor is {top.tensor} "
        f"({size(top.bytes)}). Every worker exchanges all that a server holds with it in every step, so where the network "
        "bounds the step, the fullest one is done last."
    )
    x, y = Axis("parameter server", "linear", count_ticks(range(len(sizes)))), Axis("MB", "linear", from_zero=True)
    return Figure("servers", "Bytes on each parameter server", "bytes on each server", x, y, series, note)


def spent(group: Explained) -> Figure:
    line = group.curves[0].line
    # Of sizes on the same nodes, those that use more of their devices.
    sizes = list({each.prediction.nodes: each for each in group.curves[0].sizes}.values())
    rows = []
    for each in sizes:
        p, single_s = each.basis.parameters, each.basis.single_s
        times = each.workload.law(each.prediction.ps).parts(each.prediction.nodes, each.prediction.workers, single_s, p)
        forward_s = float(p.forward_share) * single_s
        backward_s = single_s - forward_s
        waits = forward_s, float(times.forward) - forward_s, backward_s, float(times.backward) - backward_s
        rows.append((*waits, float(times.overhead), float(times.barrier)))
    series, lows_s = [], [0.0] * len(sizes)
    for (part, colour), parts_s in zip(LOOKS["parts"].items(), zip(*rows, strict=True), strict=True):
        if max(parts_s) <= 1e-9:
            continue
        columns: list[Spot] = []
        for each, part_s, low_s in zip(sizes, parts_s, lows_s, strict=True):
            share = f"{part}: {seconds(part_s)} of {seconds(each.prediction.step_s)}"
            columns.append(Spot(len(columns), low_s + part_s, low_s, hover=(share, *_size(each))))
        lows_s = [column.y for column in columns]
        series.append(Series(part, "column", columns, Style(colour), line.facets))
    measured = []
    for number, each in enumerate(sizes):
        if each.point:
            step_s = each.workers * each.workload.batch_size / each.point.img_per_s
            measured.append(Spot(number, step_s, hover=_size(each), source=each.point.best.sources[-1]))
    origin = "published" if line.published else "measured"
    style = Style("c7", line.style.marker, hollow=line.published)
    series.append(Series(f"{origin} step", "accent", measured, style, line.facets))
    x = Axis("nodes", "linear", tuple((n, f"{each.prediction.nodes:,}") for n, each in enumerate(sizes)))
    y = Axis("seconds of a step", "linear", from_zero=True)
    note = "Waiting is what the network takes beyond the compute that hides it."
    return Figure("spent", "What a step is spent on", "what a step is spent on", x, y, series, note)
