"""What a kernel says of itself: how many bytes count, and what they are divided by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

NUMBER = 4  # bytes: float32


@dataclass(frozen=True)
class Kernel:
    """A kernel whose step moves a message of S bytes among n ranks, in t seconds.

    Its algorithm bandwidth is S / t, its bus bandwidth ``bus(n, servers)`` × S / t (docs/kernels.md derives it). ``what``
    says what a step does. In ``messages`` the message goes one after another in a step, and t is the time of one. With
    ``slices`` the message has a slice for each rank. It takes ``ranks`` at the least.
    """

    what: str
    bus: Callable[[int, int], float]
    messages: int = 1
    slices: bool = False
    ranks: int = 1

    def size(self, wanted: int, ranks: int) -> int:
        """The size of a message in bytes, the largest up to ``wanted`` that can be divided, or the smallest there is."""
        unit = NUMBER * (ranks if self.slices else 1)
        return max(wanted // unit, 1) * unit
