"""A counter of energy: what every sensor finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Optional, Tuple

Stamp = Optional[Tuple[int, int]]


@dataclass(frozen=True)
class Counter:
    """``read`` returns the joules since some time in the past, and raises OSError or ValueError.

    ``covers`` is ``node``, ``package``, ``memory``, ``gpu`` or ``module`` (a GPU with what is mounted beside it). The
    counter changes every ``update_s``. One that begins again at 0 after ``range_j`` says which average power it cannot
    have exceeded meanwhile (``most_w``). ``stamp`` returns how often a source has updated all its counters and changed its
    power cap, None where it counts neither; counters of one source have it in common.
    """

    source: str
    covers: str
    name: str
    update_s: float
    read: Callable[[], float]
    range_j: Optional[float] = None
    most_w: Optional[float] = None
    stamp: Callable[[], Stamp] = lambda: None
