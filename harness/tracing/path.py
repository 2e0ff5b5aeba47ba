"""The critical path through a traced step: the chain of events that its end waited for, over all processes.

From the end of a step backwards, each event has waited for that of its causes which ended last: a layer for the one before
it and for its parameters, a transfer for its tensor and for the transfers before it on the same link, an update for the
gradients of all workers, an allreduce for the last rank. Time between an event and its cause belongs to no event.

The segments of a path follow each other without a gap, so they add up to the step. What is on it is hidden by nothing.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from harness.tracing.trace import Event, Trace
from harness.worker.notes import APPLY, ASK, BACKWARD, FORWARD, PULL, PUSH, REDUCE

Key = tuple[object, ...]


class Segment(NamedTuple):
    """A part of a critical path: an event's share of it or, without one, what passes before the next event begins.

    ``link`` is the link that a transfer had to share, as the process and ``in`` or ``out``; "" if it shared none.
    """

    begin_s: float
    end_s: float
    event: Event | None
    link: str = ""

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s


class Causes:
    """The cause of each event, by its number in the order of ends. A cause has a smaller number."""

    def __init__(self, trace: Trace) -> None:
        self.events = sorted(trace.events, key=lambda event: event.end_s)
        self._layers = trace.layers
        self._numbers: dict[Key, list[int]] = defaultdict(list)
        for number, event in enumerate(self.events):
            for key in _keys(event):
                self._numbers[key].append(number)

    def of_end(self, worker: str, end_s: float) -> int | None:
        """The event that the end of a worker's step waited for: its own, or an update."""
        return self._latest(self._last(len(self.events), end_s, worker), self._last(len(self.events), end_s, APPLY))

    def of(self, number: int) -> tuple[int | None, str]:
        """The event that another one waited for, and the link that it had to share with that."""
        event = self.events[number]
        step, kind, name, source, target, begin_s, end_s, _ = event
        if kind in (PUSH, PULL, REDUCE):
            ahead = [(self._last(number, end_s, *key), link) for key, link in _queues(event)]
            before, link = max(ahead, key=lambda each: -1 if each[0] is None else each[0])
            if before is not None and self.events[before].end_s > begin_s:
                return before, link
        if kind == FORWARD:
            pulls = [self._last(number, begin_s, PULL, step, each, source) for each in self._layers.get(name, ())]
            return self._latest(self._last(number, begin_s, source), *pulls), ""
        if kind == APPLY:
            return self._latest(
                self._last(number, begin_s, PUSH, step, name, source), self._last(number, begin_s, kind, source)
            ), ""
        if kind == PULL:
            return self._latest(
                self._last(number, begin_s, APPLY), self._last(number, begin_s, ASK, step, name, target)
            ), ""
        if kind == REDUCE:  # begins with the last rank
            last = max((self.events[each] for each in self._numbers[REDUCE, step, name]), key=lambda each: each.begin_s)
            return self._last(number, last.begin_s, "computes", last.source), ""
        return self._last(number, begin_s, "computes" if kind == PUSH else source, *[source] * (kind == PUSH)), ""

    def _last(self, number: int, until_s: float, *key: object) -> int | None:
        """The last event of this key that has ended by then, of those before a number."""
        numbers = self._numbers.get(key, [])
        at = bisect_right(numbers, until_s, key=lambda each: self.events[each].end_s)
        while at and numbers[at - 1] >= number:
            at -= 1
        return numbers[at - 1] if at else None

    @staticmethod
    def _latest(*numbers: int | None) -> int | None:
        return max((number for number in numbers if number is not None), default=None)


def _keys(event: Event) -> Iterator[Key]:
    """The lists to look for a cause in that an event is in."""
    step, kind, name, source, target, *_ = event
    if kind in (FORWARD, BACKWARD):
        yield "computes", source
    if kind in (FORWARD, BACKWARD, REDUCE):
        yield (source,)
    if kind == PULL:
        yield (target,)
        yield from ((kind, step, tensor, target) for tensor in event.tensors)
    if kind == PUSH:
        yield kind, step, name, target
    if kind == APPLY:
        yield (kind,)
        yield kind, source
    if kind == ASK:
        yield kind, step, name, source
    if kind == REDUCE:
        yield kind, step, name
    yield from (key for key, _ in _queues(event))


def _queues(event: Event) -> Iterator[tuple[Key, str]]:
    """The links that a transfer shares with others, and their names."""
    if event.kind in (PUSH, PULL):
        yield ("out", event.kind, event.source), f"{event.source} out"
        yield ("in", event.kind, event.target), f"{event.target} in"
    if event.kind == REDUCE:
        yield ("ring", event.source), "all"


def critical_path(trace: Trace, step: int, causes: Causes | None = None) -> list[Segment]:
    """The segments that a step of the slowest worker is made of, in their order."""
    causes = causes or Causes(trace)
    worker = max(trace.marks_s, key=lambda name: trace.marks_s[name][step + 1])
    begin_s, cursor_s = trace.marks_s[worker][step], trace.marks_s[worker][step + 1]
    number, link = causes.of_end(worker, cursor_s), ""
    segments: list[Segment] = []
    while cursor_s > begin_s:
        event = None if number is None else causes.events[number]
        if event is None or event.end_s < cursor_s:  # nothing that is known goes on
            until_s = begin_s if event is None else max(event.end_s, begin_s)
            segments.append(Segment(until_s, cursor_s, None))
            cursor_s = until_s
            continue
        assert number is not None
        cause, link = causes.of(number)
        ended_s = begin_s if cause is None else causes.events[cause].end_s
        until_s = max(event.begin_s, begin_s, ended_s)
        segments.append(Segment(until_s, cursor_s, event, link))
        cursor_s, number = until_s, cause
    return segments[::-1]
