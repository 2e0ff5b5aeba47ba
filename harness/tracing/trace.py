"""The events of traced steps, read from a run directory and put on the clock of the first worker.

A process notes the begin or the end of a transfer, or both (``harness/worker/notes.py``). Two halves of one are joined in
the order in which they were noted. What is left without its other half is left out.
"""

import json
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from harness import models
from harness.core.spec import RunSpec
from harness.errors import InvalidInput
from harness.worker.agent.seating import SPEC, folder_of, name_of, plan_of
from harness.worker.notes import ASK, BACKWARD, FORWARD
from harness.worker.trace import LEAD

# A time of the first worker's clock; what another process's clock and its time of day are ahead of it; how far that is off.
Look = tuple[float, float, float, float]


# An event as it was noted, on our clock: step, kind, name, source, target, begin, end, bytes.
Half = tuple[int, str, str, str, str, float | None, float | None, int]


class Event(NamedTuple):
    """An event in seconds from the begin of the first traced step, on the first worker's clock. An instant has no length.

    ``name`` is a layer's, named by its first tensor, or a tensor's, with its first element (``dense.kernel:0``), or those
    of a bucket. ``target`` is the process that ``source`` sends to, "" if none.
    """

    step: int
    kind: str
    name: str
    source: str
    target: str
    begin_s: float
    end_s: float
    size: int  # bytes

    @property
    def tensors(self) -> tuple[str, ...]:
        return tuple(part.partition(":")[0] for part in self.name.split())


@dataclass(frozen=True)
class Trace:
    """Traced steps of a repeat. On an emulated device seconds are its own.

    ``marks_s`` are by worker when each step begins, and when the last has ended. ``error_s`` is how far apart clocks may
    be. ``measured_s`` is the median of the measured steps. ``missing`` says by process and kind what no framework told.
    """

    spec: RunSpec
    plan: Mapping[str, object]
    events: tuple[Event, ...]
    marks_s: Mapping[str, tuple[float, ...]]
    error_s: float
    measured_s: float
    missing: Mapping[str, Mapping[str, str]]
    link_bytes_per_s: float | None = None  # the limit of the first worker's link, where an emulated device knows it

    @property
    def steps(self) -> range:
        """The numbers of the steps that were to be traced; the pipeline fills and empties in others."""
        return range(LEAD, LEAD + self.spec.trace_steps)

    @property
    def step_s(self) -> float:
        """The mean of the traced steps of the slowest worker."""
        first, last = self.steps[0], self.steps[-1] + 1
        return max(marks[last] - marks[first] for marks in self.marks_s.values()) / len(self.steps)

    @property
    def longer(self) -> float:
        """How much longer a traced step takes than a measured one, as a share of it."""
        return self.step_s / self.measured_s - 1

    @cached_property
    def layers(self) -> dict[str, tuple[str, ...]]:
        """The tensors of each layer that computes, by its name: a layer has those up to the next one's first."""
        names = {event.name for event in self.events if event.kind in (FORWARD, BACKWARD)}
        layers: dict[str, list[str]] = defaultdict(list)
        layer = ""
        for tensor in models.specification(self.spec.model, self.spec.bytes_scale).tensors:
            layer = tensor.name if tensor.name in names else layer
            layers[layer].append(tensor.name)
        return {name: tuple(tensors) for name, tensors in layers.items()}


def read(run_dir: Path, repeat: int = 1) -> Trace:
    """The trace of a repeat. Raises InvalidInput if nothing was traced."""
    folder = folder_of(run_dir, repeat)
    spec = RunSpec.model_validate_json((run_dir / SPEC).read_text())
    plan = plan_of(run_dir, repeat)
    reports = {
        name_of(process): _reports(folder / "events" / f"{name_of(process)}.jsonl") for process in plan["processes"]
    }
    traces = {name: each["trace"] for name, each in reports.items() if "trace" in each}
    if not spec.trace_steps or "worker-0" not in traces:
        raise InvalidInput(f"{run_dir}: no step was traced; measure with `harness run --trace 3`")
    before, after = traces["worker-0"]["clocks"]
    origin = traces["worker-0"]["marks_s"][LEAD]

    def ours(process: str, seconds: float, clock: str = "") -> float:
        which = clock or process
        return float(on_our_clock(seconds, before[which], after[which], bool(clock)) - origin) / spec.dilation

    noted = [
        (*event[:5], *(None if when is None else ours(name, when, event[8]) for when in event[5:7]), event[7])
        for name, trace in traces.items()
        for event in trace["events"]
    ]
    limit = (reports["worker-0"]["measured"]["kept"] or {}).get("link_bytes_per_s")
    measured = [report["measured"]["marks_s"] for report in reports.values() if "measured" in report]
    return Trace(
        spec=spec,
        plan=plan,
        events=tuple(sorted(joined(noted), key=lambda event: event.begin_s)),
        marks_s={
            name: tuple(ours(name, mark) for mark in trace["marks_s"])
            for name, trace in traces.items()
            if "marks_s" in trace
        },
        error_s=max(look[-1] for looks in (before, after) for look in looks.values()) / spec.dilation,
        measured_s=median(end - begin for marks in measured for begin, end in pairwise(marks)) / spec.dilation,
        missing={name: trace["missing"] for name, trace in traces.items() if trace["missing"]},
        link_bytes_per_s=limit and limit * spec.dilation,
    )


def joined(noted: Sequence[Half]) -> list[Event]:
    """Whole events of those that were noted: a begin without an end goes with the next end of the same transfer.

    What is asked for leaves no sooner.
    """
    whole: list[Event] = []
    asked = {
        (step, name, source, target): end
        for step, kind, name, source, target, _, end, _ in noted
        if kind == ASK and end is not None
    }
    begins: dict[tuple[int, str, str, str, str], deque[float]] = defaultdict(deque)
    for step, kind, name, source, target, begin, end, size in sorted(noted, key=lambda event: event[5] is None):
        transfer = step, kind, name, source, target
        if end is None and begin is not None:
            begins[transfer].append(begin)
        elif end is not None and (begin is not None or begins[transfer]):
            left = begins[transfer].popleft() if begin is None else begin
            left = max(left, asked.get((step, name, target, source), left))
            whole.append(Event(*transfer, min(left, end), end, size))
    return whole


def _reports(file: Path) -> dict[str, dict[str, Any]]:
    """The last event of each kind in a process's file, by kind."""
    return {event["event"]: event for event in map(json.loads, file.read_text().splitlines())}


def on_our_clock(seconds: float, before: Look, after: Look, of_day: bool) -> float:
    """A time of another clock on that of the first worker. Between two looks the clocks drift apart evenly."""
    ahead, later = before[1 + of_day], after[1 + of_day]
    share = (seconds - ahead - before[0]) / (after[0] - before[0])
    return seconds - ahead - share * (later - ahead)
