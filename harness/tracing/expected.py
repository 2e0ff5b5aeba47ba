"""A traced step beside the law (``harness/prediction/law.py``), piece by piece, with nothing fitted.

Layers take as long as they were traced to take. Parameters queue at their server in the order in which they are asked for,
gradients at theirs or for the allreduce in that of the backward pass, and a byte passes the link as often as the law says:
once for each worker on another node, or 2 (n − 1) / n times around a ring.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from harness.tracing.trace import Event, Trace
from harness.worker.notes import BACKWARD, FORWARD, PUSH, REDUCE

Key = tuple[str, str]  # phase and name
DIFFERS = 0.05  # of a step, by which a piece comes too late or too soon


@dataclass(frozen=True)
class Piece:
    """The end of a pass of a layer, or of a transfer of a gradient, in seconds from the begin of a step.

    ``measured_s`` is that of the last worker, the mean of all traced steps.
    """

    phase: str
    name: str
    expected_s: float
    measured_s: float


def pieces(trace: Trace, bytes_per_s: float) -> list[Piece]:
    """The pieces of a step, in the order in which they are expected, on links of so many bytes/s."""
    ends: dict[Key, dict[int, float]] = defaultdict(dict)
    took: dict[Key, list[float]] = defaultdict(list)
    buckets: dict[str, Event] = {}
    for event in trace.events:
        if event.step in trace.steps and event.kind in (FORWARD, BACKWARD, PUSH, REDUCE):
            key = event.kind, event.tensors[0] if event.kind == PUSH else event.name
            begin_s = min(marks[event.step] for marks in trace.marks_s.values())
            ends[key][event.step] = max(ends[key].get(event.step, 0.0), event.end_s - begin_s)
            took[key].append(event.end_s - event.begin_s)
            if event.kind == REDUCE:
                buckets.setdefault(event.name, event)
    known = {key: median(each) for key, each in took.items()}
    expected = dict(_expected(trace, bytes_per_s, known, list(buckets.values())))
    both = [Piece(*key, expected[key], fmean(each.values())) for key, each in ends.items() if key in expected]
    return sorted(both, key=lambda piece: piece.expected_s)


def first_difference(every: Sequence[Piece], step_s: float) -> Piece | None:
    """The first piece that ends otherwise than expected; None if there is none."""
    return next((each for each in every if abs(each.measured_s - each.expected_s) > DIFFERS * step_s), None)


def _expected(
    trace: Trace, bytes_per_s: float, took: Mapping[Key, float], buckets: Sequence[Event]
) -> Iterator[tuple[Key, float]]:
    """The end of each piece, by its phase and its name."""
    plan: Any = trace.plan
    nodes = {role: [each["node"] for each in plan["processes"] if each["role"] == role] for role in ("worker", "ps")}
    held = plan["details"].get("pieces", ())

    def sent_s(ps: int, begin: int, end: int) -> float:
        """Seconds in which a server's link carries elements of a tensor for all workers on other nodes."""
        remote = sum(node != nodes["ps"][ps] for node in nodes["worker"])
        return 4 * (end - begin) * remote / bytes_per_s

    comes, free = dict[str, float](), defaultdict[int, float](float)
    for tensor, ps, begin, end in held:
        free[ps] += sent_s(ps, begin, end)
        comes[tensor] = max(comes.get(tensor, 0.0), free[ps])
    if trace.spec.options.get("order") == "none":
        comes = dict.fromkeys(comes, max(comes.values()))
    now_s, ready = 0.0, dict[str, float]()
    for layer, tensors in trace.layers.items():
        now_s = max(now_s, *(comes.get(tensor, 0.0) for tensor in tensors)) + took.get((FORWARD, layer), 0.0)
        yield (FORWARD, layer), now_s
    for layer, tensors in reversed(trace.layers.items()):
        now_s += took.get((BACKWARD, layer), 0.0)
        yield (BACKWARD, layer), now_s
        ready.update(dict.fromkeys(tensors, now_s))
    pushed = defaultdict[int, float](float)
    for tensor, ps, begin, end in reversed(held):
        pushed[ps] = max(pushed[ps], ready[tensor]) + sent_s(ps, begin, end)
        yield (PUSH, tensor), pushed[ps]
    around, averaged = 2 * (1 - 1 / len({*nodes["worker"]})), 0.0
    for bucket in sorted(buckets, key=lambda each: max(ready[tensor] for tensor in each.tensors)):
        averaged = max(averaged, *(ready[tensor] for tensor in bucket.tensors)) + around * bucket.size / bytes_per_s
        yield (REDUCE, bucket.name), averaged
