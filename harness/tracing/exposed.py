"""Exposed time: the seconds of a step that nothing hides, by phase, process and tensors, from critical paths."""

from collections import defaultdict
from dataclasses import dataclass

from harness.tracing.path import Causes, critical_path
from harness.tracing.trace import Event, Trace
from harness.worker.notes import APPLY, PULL, PUSH, REDUCE

OTHER = "other"  # the phase of which no event tells
Key = tuple[str, str, tuple[str, ...]]


@dataclass(frozen=True)
class Exposed:
    """Seconds of a mean step on critical paths, of a phase: a kind of event, or ``other``.

    ``process`` is the server of a transfer or an update, ``tensors`` are those that are in it, and ``link`` is the one that
    it shared most. ``times`` is how often a step moves or applies them, ``size`` the bytes of one time. A pass of the
    model has none of these.
    """

    phase: str
    process: str
    tensors: tuple[str, ...]
    link: str
    seconds: float
    times: float
    size: float


def exposed(trace: Trace) -> list[Exposed]:
    """The exposed times of a trace, the longest first. They add up to the mean of the traced steps."""
    causes, steps = Causes(trace), len(trace.steps)
    taken: dict[Key, dict[str, float]] = defaultdict(lambda: defaultdict(float))  # seconds by link
    for step in trace.steps:
        for segment in critical_path(trace, step, causes):
            taken[_key(segment.event)][segment.link] += segment.seconds / steps
    moved: dict[Key, list[Event]] = defaultdict(list)
    for event in trace.events:
        if event.step in trace.steps and event.kind in (PUSH, PULL, APPLY, REDUCE):
            moved[_key(event)].append(event)
    rows = []
    for key, links in taken.items():
        peers = {(event.source, event.target) for event in moved[key]}
        size = sum(event.size for event in moved[key]) / steps / max(len(peers), 1)
        link = max(links, key=lambda name: links[name])
        rows.append(Exposed(*key, link, sum(links.values()), len(peers), size))
    return sorted(rows, key=lambda row: -row.seconds)


def _key(event: Event | None) -> Key:
    if event is None:
        return OTHER, "", ()
    if event.kind in (PUSH, PULL, APPLY):
        return event.kind, event.target if event.kind == PUSH else event.source, event.tensors
    return event.kind, "", event.tensors if event.kind == REDUCE else ()
