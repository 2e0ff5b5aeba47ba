"""Traced steps: events of several clocks on one axis, halves joined, and the path that a step's end waited for."""

from dataclasses import replace
from itertools import pairwise

import pytest

from harness.core.spec import RunSpec
from harness.tracing.exposed import OTHER, exposed
from harness.tracing.path import critical_path
from harness.tracing.perfetto import perfetto
from harness.tracing.trace import Event, Trace, joined, on_our_clock
from harness.worker.notes import APPLY, ASK, BACKWARD, FORWARD, PULL, PUSH, REDUCE

SPEC = RunSpec.validated(
    backend="torch_parameter_server", nodes=3, model="pointwise", steps=1, warmup_steps=1, trace_steps=1
)
STEP = 1  # the first after the one in which the pipeline fills
KERNEL, LAST = "stem.conv.kernel", "dense.kernel"


def made(events: list[tuple[object, ...]], ends_s: dict[str, float]) -> Trace:
    """A trace of one step that begins at 0 s: events are kind, name, source, target, begin and end in s, and bytes."""
    return Trace(
        spec=SPEC,
        plan={},
        events=tuple(Event(STEP, *event) for event in events),  # type: ignore[arg-type]
        marks_s={name: (-1.0, 0.0, end_s, end_s + 1) for name, end_s in ends_s.items()},
        error_s=1e-5,
        measured_s=1.0,
        missing={},
    )


def pulled(until_s: list[float], name: str = LAST, begin_s: float = 0.0) -> list[tuple[object, ...]]:
    """A server sends a tensor to workers, one after the other on its link, all asked for at ``begin_s``."""
    return [(PULL, f"{name}:0", "ps-0", f"worker-{n}", begin_s, end_s, 8) for n, end_s in enumerate(until_s)]


def test_a_pull_that_nothing_hides_is_on_the_path_for_as_long_as_the_server_sends_it() -> None:
    """Forward of the first layer ends at 0.1 s; the last layer waits until 0.6 s for what is sent to three workers."""
    computing = [
        (FORWARD, KERNEL, "worker-2", "", 0.0, 0.1, 0),
        (FORWARD, LAST, "worker-2", "", 0.6, 0.7, 0),
        (BACKWARD, LAST, "worker-2", "", 0.7, 0.8, 0),
        (BACKWARD, KERNEL, "worker-2", "", 0.8, 1.0, 0),
    ]
    asked = [(ASK, f"{LAST}:0", "worker-2", "ps-0", 0.0, 0.0, 0)]
    trace = made([*computing, *asked, *pulled([0.2, 0.4, 0.6])], {"worker-0": 0.9, "worker-2": 1.0})
    segments = critical_path(trace, STEP)
    assert sum(segment.seconds for segment in segments) == pytest.approx(1.0)
    assert all(after.begin_s == before.end_s for before, after in pairwise(segments))
    sending, *_ = rows = exposed(trace)
    assert (sending.phase, sending.process, sending.tensors, sending.link) == (PULL, "ps-0", (LAST,), "ps-0 out")
    assert (sending.seconds, sending.times, sending.size) == (pytest.approx(0.6), 3, 8)
    assert {row.phase: pytest.approx(row.seconds) for row in rows} == {PULL: 0.6, BACKWARD: 0.3, FORWARD: 0.1}


def test_a_pull_that_computing_hides_is_not_on_the_path() -> None:
    trace = made(
        [
            (FORWARD, KERNEL, "worker-0", "", 0.0, 0.5, 0),
            *pulled([0.2]),
            (FORWARD, LAST, "worker-0", "", 0.5, 1.0, 0),
        ],
        {"worker-0": 1.0},
    )
    assert [(row.phase, row.seconds) for row in exposed(trace)] == [(FORWARD, pytest.approx(1.0))]


def test_an_update_waits_for_the_last_workers_gradient() -> None:
    trace = made(
        [
            (BACKWARD, LAST, "worker-0", "", 0.0, 0.1, 0),
            (BACKWARD, LAST, "worker-1", "", 0.0, 0.5, 0),
            (PUSH, f"{LAST}:0", "worker-0", "ps-0", 0.1, 0.2, 8),
            (PUSH, f"{LAST}:0", "worker-1", "ps-0", 0.5, 0.7, 8),
            (APPLY, f"{LAST}:0", "ps-0", "", 0.7, 0.8, 0),
        ],
        {"worker-0": 1.0, "worker-1": 0.9},
    )
    path = [
        (segment.event and segment.event.source, round(segment.seconds, 3)) for segment in critical_path(trace, STEP)
    ]
    assert path == [("worker-1", 0.5), ("worker-1", 0.2), ("ps-0", 0.1), (None, 0.2)]
    assert exposed(trace)[-1].phase != OTHER or exposed(trace)[-1].seconds == pytest.approx(0.2)


def test_an_allreduce_begins_with_the_last_rank() -> None:
    trace = made(
        [
            (BACKWARD, LAST, "worker-0", "", 0.0, 0.2, 0),
            (BACKWARD, LAST, "worker-1", "", 0.0, 0.6, 0),
            (REDUCE, LAST, "worker-0", "", 0.2, 1.0, 8),
            (REDUCE, LAST, "worker-1", "", 0.6, 1.0, 8),
        ],
        {"worker-0": 1.0, "worker-1": 1.0},
    )
    assert {row.phase: pytest.approx(row.seconds) for row in exposed(trace)} == {BACKWARD: 0.6, REDUCE: 0.4}


def test_halves_of_a_transfer_are_joined_and_what_is_asked_for_leaves_no_sooner() -> None:
    key = STEP, PULL, f"{LAST}:0", "ps-0", "worker-0"
    half = [(*key, None, 0.9, 8), (*key, 0.1, None, 8), (STEP, ASK, f"{LAST}:0", "worker-0", "ps-0", 0.3, 0.3, 0)]
    assert [event[5:7] for event in joined(half) if event.kind == PULL] == [(0.3, 0.9)]
    assert not joined([(*key, 0.1, None, 8)])


@pytest.mark.parametrize("drift", [0.0, 1e-4])
def test_clocks_that_drift_evenly_are_aligned(drift: float) -> None:
    """Another clock is 100 s ahead at 10 s, and gains ``drift`` seconds in each second."""

    def there(seconds: float) -> float:
        return seconds + 100 + drift * (seconds - 10)

    before, after = ((at, there(at) - at, 0.0, 1e-5) for at in (10.0, 20.0))
    assert on_our_clock(there(13.0), before, after, of_day=False) == pytest.approx(13.0, abs=1e-6)


def test_perfetto_has_a_slice_for_each_event_and_an_arrow_for_each_transfer() -> None:
    trace = made([*pulled([0.2, 0.4]), (FORWARD, LAST, "worker-0", "", 0.4, 1.0, 0)], {"worker-0": 1.0})
    entries = perfetto(trace)["traceEvents"]
    slices = [entry for entry in entries if entry["ph"] == "X" and entry["pid"]]
    assert len(slices) == len(trace.events) and len([entry for entry in entries if entry["ph"] == "s"]) == 2
    on_path = [entry for entry in entries if entry["ph"] == "X" and not entry["pid"]]
    assert sum(entry["dur"] for entry in on_path) == pytest.approx(1e6)
    assert replace(trace, measured_s=0.5).longer == pytest.approx(1.0)
