"""The timeline of a traced step: lanes for what each process computes and for what comes to it, and the critical path."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from harness.prediction.explain import seconds, size
from harness.report.page.figures import Axis, Facets, Figure, Series, Spot, Style, slug
from harness.tracing.path import Segment, critical_path
from harness.tracing.trace import Event, Trace
from harness.worker.notes import APPLY, BACKWARD, FORWARD, PULL, PUSH, REDUCE

LANES = 8  # processes that are shown: those that the critical path passes most
LOOKS = {FORWARD: "c0", BACKWARD: "c1", PULL: "c2", PUSH: "c4", REDUCE: "c4", APPLY: "c5"}
NAMES = {
    FORWARD: "forward pass",
    BACKWARD: "backward pass",
    PULL: "parameters come",
    PUSH: "gradients come",
    REDUCE: "gradients are averaged",
    APPLY: "gradients are applied",
}
PATH = "c3"
GAP = Spot(math.nan, math.nan)


def of(trace: Trace, subject: str, name: str, facets: Facets | None = None) -> Figure:
    """The first traced step, in seconds from its begin."""
    step = trace.steps[0]
    path = critical_path(trace, step)
    begin_s, end_s = path[0].begin_s, path[-1].end_s
    passed: dict[str, float] = defaultdict(float)
    for segment in path:
        if segment.event:
            passed[_at(segment.event)] += segment.seconds
    processes = sorted(sorted(passed, key=lambda process: -passed[process])[:LANES], key=_order)
    lanes = {process: 2 * number for number, process in enumerate(reversed(processes))}
    shown = defaultdict[str, list[Event]](list)
    for event in trace.events:
        if event.kind in LOOKS and _at(event) in lanes and event.end_s > begin_s and event.begin_s < end_s:
            shown[event.kind].append(event)
    series = [
        Series(NAMES[kind], "span", _spots(shown[kind], lanes, begin_s, end_s), Style(colour), facets)
        for kind, colour in LOOKS.items()
        if shown[kind]
    ]
    series.append(Series("critical path", "line", _path(path, lanes, begin_s), Style(PATH), facets))
    ticks = tuple((float(lane), process) for process, lane in lanes.items())
    title, note = (
        f"A traced step, {subject}",
        f"{trace.longer:+.0%} beside measured steps; clocks agree within {seconds(trace.error_s)}.",
    )
    return Figure(slug("timeline", name), title, subject, Axis("s", "linear"), Axis("", "linear", ticks), series, note)


def _at(event: Event) -> str:
    """The process at which an event is shown: that which receives."""
    return event.target or event.source


def _spots(events: Iterable[Event], lanes: dict[str, int], begin_s: float, end_s: float) -> list[Spot]:
    """The two ends of each event, then a gap. What comes lies below what its process computes."""
    spots = []
    for event in events:
        y = lanes[_at(event)] - (0.7 if event.target else 0.35 if event.kind in (REDUCE, APPLY) else 0.0)
        moved = f" ({size(event.size)})" if event.size else ""
        hover = (
            f"{event.kind} {event.name}{moved}",
            f"{event.source}{f' to {event.target}' if event.target else ''}",
            seconds(event.end_s - event.begin_s),
        )
        ends = max(event.begin_s, begin_s), min(event.end_s, end_s)
        spots += [*(Spot(at - begin_s, y, hover=hover) for at in ends), GAP]
    return spots


def _path(path: Sequence[Segment], lanes: dict[str, int], begin_s: float) -> list[Spot]:
    spots = []
    for segment in path:
        if segment.event and _at(segment.event) in lanes:
            y = lanes[_at(segment.event)] + 0.35
            spots += [Spot(at - begin_s, y) for at in (segment.begin_s, segment.end_s)]
        else:
            spots.append(GAP)
    return spots


def _order(process: str) -> tuple[str, int]:
    role, _, rank = process.partition("-")
    return role, int(rank)
