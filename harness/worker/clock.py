"""The clocks of the measured loop: the host's, and a GPU's own for the step marks.

A GPU runs behind the host. Waiting for it after every step would slow training down, so on a GPU a mark is an event in the
device's queue, and its time is read when the window is closed.
"""

from __future__ import annotations

import time
from typing import Any, List, Type


class Marks:
    """A row of points in time, taken on the host during the window and read after it."""

    def __init__(self, count: int) -> None:
        self._times = [0.0] * count

    def take(self, index: int) -> None:
        """Take mark ``index`` now; must not wait for a device."""
        self._times[index] = time.perf_counter()

    def seconds(self) -> List[float]:
        """Seconds from mark 0 to each mark. Only after the device is synchronised."""
        return [when - self._times[0] for when in self._times]


class CudaMarks(Marks):
    """PyTorch's CUDA events on the current stream."""

    def __init__(self, count: int) -> None:
        import torch

        self._events: List[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(count)]

    def take(self, index: int) -> None:
        self._events[index].record()

    def seconds(self) -> List[float]:
        return [self._events[0].elapsed_time(event) / 1000.0 for event in self._events]  # elapsed_time is in ms


class Clock:
    """The host's clock, and marks: the host's for devices on which a step has ended when ``step`` returns."""

    def __init__(self, marks: Type[Marks] = Marks) -> None:
        self.marks = marks  # with room for as many as are wanted, allocated before the window opens

    def now(self) -> float:
        """Seconds; monotonic, meaningful only within one process."""
        return time.perf_counter()
