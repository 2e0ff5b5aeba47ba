"""The measured loop: in which order it trains, waits and looks at its clock, and what becomes of unequal ranks."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from harness.worker import loop, trainer

WARMUP = ["announce", "perf_counter", "step", "synchronize", "perf_counter", "announce"]
OPENING = ["marks", "barrier", "look", "server_bytes", "read", "read", "barrier", "perf_counter", "take 0"]
STEPS = ["step", "take 1", "step", "take 2"]
CLOSING = ["synchronize", "perf_counter", "barrier", "perf_counter"]
AFTERWARDS = ["read", "between", "read", "between", "look", "between", "server_bytes", "barrier", "seconds"]


def test_within_the_window_there_are_only_steps_and_it_closes_when_all_devices_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = Mock()
    seen.time.perf_counter.side_effect = itertools.count()
    seen.trainer.server_bytes.side_effect = [[(10, 1)], [(40, 2)]]
    monkeypatch.setattr(loop, "time", seen.time)
    monkeypatch.setattr(loop, "traffic", seen.traffic)
    monkeypatch.setattr(loop, "cores", seen.cores)
    window = loop.measure(seen.trainer, 1, 2, seen.announce, seen.meter, None, Path("run"))
    calls = [(name.split(".")[-1], args) for name, args, _ in seen.mock_calls]
    order = [f"{name} {args[0]}" if name == "take" else name for name, args in calls]
    assert order == WARMUP + OPENING + STEPS + CLOSING + AFTERWARDS
    assert (window.finished_s, window.window_s, window.servers) == (1, 2, [(30, 1)])


def test_warm_up_ends_when_its_steps_are_settled_and_says_after_how_many() -> None:
    trainer_, asked = Mock(), []

    def settled(durations_s: list[float]) -> bool:
        asked.append(len(durations_s))
        return len(durations_s) == 3

    trainer_.server_bytes.return_value = []
    window = loop.measure(trainer_, 10, 2, Mock(), None, settled)
    assert (window.warmup_steps, asked, trainer_.step.call_count) == (3, [1, 2, 3], 5)


class Simulated:
    """A rank in a time of its own, which passes as it counts bytes and waits for its device or for the other ranks."""

    marks = trainer.Marks

    def __init__(self, meeting: threading.Barrier, step_s: float, clock_s: float) -> None:
        self.meeting, self.step_s = meeting, step_s
        self.clock_s = clock_s  # what its host's clock shows at 0
        self.now_s = self.device_s = 0.0  # until when its host and its device have computed

    def step(self) -> None:
        self.device_s = max(self.device_s, self.now_s) + self.step_s

    def synchronize(self) -> None:
        self.now_s = max(self.device_s, self.now_s)

    def barrier(self) -> None:
        self.meeting.wait()

    def server_bytes(self) -> list[tuple[int, int]]:
        self.now_s += self.step_s
        return []


def test_the_window_of_a_fast_rank_is_as_long_as_that_of_the_slowest(monkeypatch: pytest.MonkeyPatch) -> None:
    def together() -> None:
        latest_s = max(rank.now_s for rank in ranks)
        for rank in ranks:
            rank.now_s = latest_s

    meeting = threading.Barrier(2, together, timeout=60)
    ranks = [Simulated(meeting, step_s=1.0, clock_s=1000.0), Simulated(meeting, step_s=3.0, clock_s=50.0)]
    own = threading.local()
    clock = SimpleNamespace(perf_counter=lambda: own.rank.clock_s + own.rank.now_s)
    for module in (loop, trainer):
        monkeypatch.setattr(module, "time", clock)

    def measured(rank: Any) -> loop.Window:
        own.rank = rank
        return loop.measure(rank, 1, 4, Mock())

    with ThreadPoolExecutor(2) as threads:
        fast, slow = threads.map(measured, ranks)
    assert (fast.finished_s, slow.finished_s) == (4.0, 12.0)
    assert fast.window_s == slow.window_s == 12.0
