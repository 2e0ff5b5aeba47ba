"""The clocks of the measured loop: the host's, and a GPU's own for the step marks.

A GPU runs behind the host. Waiting for it after every step would slow training down, so on a GPU a mark is an event in the
device's queue, and its time is read when the window is closed.
"""

from __future__ import annotations

import time
from typing import Any, List, Protocol


class Marks(Protocol):
    """A row of points in time, taken during the window and read after it."""

    def take(self, index: int) -> None:
        """Take mark ``index`` now; must not wait for a device."""

    def seconds(self) -> List[float]:
        """Seconds from mark 0 to each mark. Only after the device is synchronised."""


class Clock(Protocol):
    """``now`` is in seconds, monotonic, meaningful only within one process."""

    def now(self) -> float:
        """Seconds on this process's clock."""

    def marks(self, count: int) -> Marks:
        """Room for ``count`` marks, allocated before the window opens."""


class HostClock:
    """The host's monotonic clock, for devices on which a step has ended when ``step`` returns."""

    def now(self) -> float:
        """Seconds on the host's monotonic clock."""
        return time.perf_counter()

    def marks(self, count: int) -> Marks:
        """``count`` host times."""
        return _HostMarks(count)


class CudaClock(HostClock):
    """The host's clock for the window, PyTorch CUDA events on the current stream for the marks."""

    def marks(self, count: int) -> Marks:
        """``count`` CUDA events."""
        return _CudaMarks(count)


class _HostMarks:
    def __init__(self, count: int) -> None:
        self._times = [0.0] * count

    def take(self, index: int) -> None:
        self._times[index] = time.perf_counter()

    def seconds(self) -> List[float]:
        return [when - self._times[0] for when in self._times]


class _CudaMarks:
    def __init__(self, count: int) -> None:
        import torch

        self._events: List[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(count)]

    def take(self, index: int) -> None:
        self._events[index].record()

    def seconds(self) -> List[float]:
        return [self._events[0].elapsed_time(event) / 1000.0 for event in self._events]  # elapsed_time is in ms
