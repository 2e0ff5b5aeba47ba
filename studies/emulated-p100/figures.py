"""The figures of the emulated study."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from points import REPLICATED, Point, as_2017, chosen, fastest, systems, the_map

from harness.core.text import plural
from harness.records.measurement import Record
from harness.report.page.figures import Axis, Figure, Series, Spot, Style, measured_ticks


def waits(frame: Any) -> dict[str, list[float]]:
    """Of InceptionV3 with servers on 8 nodes, as many as in 2017, and links of 2.5 GB/s: how long devices have waited for
    parameters in a step when each layer begins, in seconds of the device, the mean of nodes and repeats. Older records do
    not have it. What the first layer waits for in the first step is not known.
    """
    found = {}
    of_one_model = frame[frame["model"] == "inception3"]
    for row in of_one_model[(of_one_model["nodes"] == 8) & (of_one_model["ps"] == 2)].itertuples():
        record = Record.read(Path(row.source).parent)
        ranks = [rank.kept.stalls_s for repeat in record.repeats for rank in repeat.ranks if rank.kept]
        options = record.spec.options
        usual = "round_robin" if row.backend == REPLICATED else "greedy"
        plain = options.get("placement") == usual and (record.spec.dilation, record.spec.bytes_scale) == (16, 1)
        if plain and " 2.5 GB/s" in row.system and all(ranks):
            way = f"{row.backend} over {row.transport}" + (", in no order" if options.get("order") == "none" else "")
            counted = np.full(len(ranks[0]), record.spec.steps)
            counted[0] -= 1
            found[way] = list(np.cumsum(np.mean(ranks, axis=0) / counted / record.spec.dilation))
    return dict(sorted(found.items()))


def waits_figure(found: dict[str, list[float]]) -> Figure:
    series = [
        Series(way, "line", [Spot(*spot) for spot in enumerate(waited, start=1)], Style(f"c{number}"))
        for number, (way, waited) in enumerate(found.items())
    ]
    x = Axis("layer", "linear")
    y = Axis("waited for parameters before it and earlier ones [s]", "linear", from_zero=True)
    note = "Inception3 on 8 nodes with 2 servers, a step."
    return Figure("waits", "When parameters come", "waits", x, y, series, note)


def figures(points: list[Point], waited: dict[str, list[float]]) -> list[Figure]:
    """Scaling at one rate of links, the map, when parameters come (see ``waits``), and measured against predicted."""
    drawn = []
    for model in sorted({point.model for point in points}):
        here = as_2017(chosen(points, model=model, links=2.5))
        ways = {way: [point for point in here if point.way == way] for way in sorted({point.way for point in here})}
        alone = {way: min((p.step_s for p in chosen(found, nodes=1)), default=0.0) for way, found in ways.items()}
        series = []
        for colour, (way, found) in enumerate(ways.items()):
            sizes = {point.nodes for point in found}
            own = alone[way] or alone.get(way.removesuffix(", in no order"), 0.0)
            bests = ((nodes, fastest(chosen(found, nodes=nodes))) for nodes in sorted(sizes))
            spots = [Spot(nodes, own / best.step_s) for nodes, best in bests if best]
            if own and len(spots) > 1:
                style = Style(f"c{colour % 8}", ("circle", "square")[colour // 8 % 2], hollow="no order" in way)
                series.append(Series(way, "curve", spots, style))
        x = Axis("nodes", "log", ticks=measured_ticks(point.nodes for point in here))
        y = Axis("efficiency", "linear", percent=True, from_zero=True)
        title = f"{model} on links of 2.5 GB/s: scaling efficiency"
        few = sorted({(point.nodes, point.bytes_scale, point.way) for point in here if point.bytes_scale < 1})
        carried = (f"On {nodes} nodes {way} carries {scale:g} of the bytes." for nodes, scale, way in few)
        note = " ".join(["Relative to one node.", *carried])
        drawn.append(Figure(f"efficiency-{model}", title, f"efficiency-{model}", x, y, series, note))
    drawn += [*map_figures(points), waits_figure(waited)]
    times = [(point.queues_s, point.step_s) for point in points if point.nodes > 1]
    ends = [end(value for pair in times for value in pair) for end in (min, max)] if times else []
    series = [
        Series("steps", "accent", [Spot(*pair) for pair in times], Style("c0", "circle")),
        Series("equal", "ideal", [Spot(end, end) for end in ends], Style("muted")),
    ]
    ticks = tuple((seconds, f"{seconds:g}") for seconds in (0.2, 0.3, 0.4, 0.5, 0.7, 1, 1.5, 2, 3))
    x, y = (Axis(f"{name} step time [s]", "log", ticks=ticks) for name in ("predicted", "measured"))
    note = "On the grey line both are equal."
    drawn.append(Figure("predicted", "Measured against predicted", "predicted", x, y, series, note))
    return [figure for figure in drawn if figure.series]


def map_figures(points: list[Point]) -> Iterator[Figure]:
    """How many times longer steps with servers take, over the rate of links, by nodes; systems are bands."""
    cells = [cell for cell in the_map(points) if cell.nodes >= 8]
    for model in sorted({cell.model for cell in cells}):
        series = []
        sizes = sorted({cell.nodes for cell in cells if cell.model == model})
        for (number, nodes), (name, hollow) in product(enumerate(sizes), (("in no order", False), ("in order", True))):
            here = [cell for cell in cells if (cell.model, cell.nodes) == (model, nodes)]
            times = ((cell.links, cell.in_order if hollow else cell.as_2017) for cell in here)
            if spots := [Spot(links, found.value, *(found.interval or ())) for links, found in times if found]:
                style = Style(f"c{number}", "circle", hollow=hollow)
                series.append(Series(f"{plural(nodes, 'node')}, servers {name}", "curve", spots, style))
        heights = [spot.y for one in series for spot in one.spots] + [1.0]
        for number, system in enumerate(systems()):
            ends = [Spot(rate, max(heights), min(heights), max(heights)) for rate in system.links]
            series.append(Series(system.name, "band", ends, Style(f"c{7 - number}")))
        ticks = tuple((rate, f"{rate:g}") for rate in (0.5, 1, 2.5, 5, 10))
        x = Axis("links [GB/s in the time of a P100]", "log", ticks=ticks)
        y = Axis("step with servers / with the fastest toolkit", "linear")
        note = (
            "As many servers as in 2017. Above 1 toolkits are faster. Bands: real systems, by independent measurements."
        )
        yield Figure(f"map-{model}", f"{model}: servers against toolkits", f"map-{model}", x, y, series, note)
