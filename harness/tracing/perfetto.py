"""A trace in the format of Chrome's trace viewer, which ui.perfetto.dev opens.

A process has a lane for what it computes and others for what it sends, in which transfers that overlap lie side by side. An
arrow leads from each transfer's begin to its end at the process that it goes to. The critical path has lanes of its own.

Source of the format: "Trace Event Format", docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from harness.tracing.path import Causes, critical_path
from harness.tracing.trace import Event, Trace
from harness.worker.notes import APPLY, BACKWARD, FORWARD, PULL, PUSH

COMPUTES = (FORWARD, BACKWARD, APPLY)
Entry = dict[str, Any]


def perfetto(trace: Trace) -> Entry:
    """The traced steps as JSON. Times are in microseconds, as the format has them."""
    names = sorted({each for event in trace.events for each in (event.source, event.target) if each}, key=_order)
    numbers = {name: number for number, name in enumerate(names, 1)}
    entries = [_name("process_name", 0, 0, "critical path")]
    entries += [_name("process_name", number, 0, name) for name, number in numbers.items()]
    entries += [_name("thread_name", number, 0, "computes") for number in numbers.values()]
    free: dict[tuple[str, str], list[float]] = defaultdict(list)  # by process and kind: when each lane is free again
    for flow, event in enumerate(trace.events):
        lane = 0
        if event.kind not in COMPUTES:
            lanes = free[event.source, event.kind]
            lane = next((each for each, until_s in enumerate(lanes) if until_s <= event.begin_s), len(lanes))
            lanes[lane : lane + 1] = [event.end_s]
            lane = 1 + 2 * lane + (event.kind == PULL)
        entries += _entries(event, flow, numbers, lane)
    causes = Causes(trace)
    for step in trace.steps:
        for segment in critical_path(trace, step, causes):
            name = f"{segment.event.kind} {segment.event.name}" if segment.event else "other"
            where = numbers[segment.event.source] if segment.event else 0
            entries.append(_slice(name, 0, where, segment.begin_s, segment.seconds, {"link": segment.link}))
    entries += [_name("thread_name", 0, number, name) for name, number in numbers.items()]
    return {"displayTimeUnit": "ms", "traceEvents": entries}


def _entries(event: Event, flow: int, numbers: dict[str, int], lane: int) -> Iterator[Entry]:
    about = {"step": event.step, "bytes": event.size} | ({"to": event.target} if event.target else {})
    name, process = f"{event.kind} {event.name}", numbers[event.source]
    yield _slice(name, process, lane, event.begin_s, event.end_s - event.begin_s, about)
    if event.kind in (PUSH, PULL):
        arrow = {"name": event.kind, "cat": "transfer", "id": flow, "tid": lane}
        yield arrow | {"ph": "s", "pid": process, "ts": event.begin_s * 1e6}
        yield arrow | {"ph": "f", "bp": "e", "pid": numbers[event.target], "tid": 0, "ts": event.end_s * 1e6}


def _slice(name: str, process: int, lane: int, begin_s: float, seconds: float, about: Entry) -> Entry:
    return {
        "ph": "X",
        "name": name,
        "pid": process,
        "tid": lane,
        "ts": begin_s * 1e6,
        "dur": seconds * 1e6,
        "args": about,
    }


def _name(kind: str, process: int, lane: int, name: str) -> Entry:
    return {"ph": "M", "name": kind, "pid": process, "tid": lane, "args": {"name": name}}


def _order(name: str) -> tuple[str, int]:
    """Servers before workers, each by rank."""
    role, _, rank = name.partition("-")
    return role, int(rank)
