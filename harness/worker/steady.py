"""The test of steady steps, for warm-up and for measured ones alike, and the time of a steady step.

The first steps after a barrier are no steps like those that follow: all workers begin at once, queues are empty, and
nothing of the step before is still under way. So the first one is left out, and as many more, up to a third of all, as it
takes for the rest not to trend. The time of a step is the period of that rest, by the marks between its ends; the edges of
the window are not in it. (T. Kalibera and R. Jones, "Rigorous Benchmarking in Reasonable Time", ISMM 2013, look for the
state in which repetitions are independent in the same way: leave out what comes before, look at the rest again.)

What trends: the means of up to ``BLOCKS`` blocks of steps in a row are joined by the line of Theil and Sen (the median of
the slopes between any two), which changes by more than ``LIMIT`` from the first block to the last; or the median of the
later half differs by as much from that of the earlier one, as where they change at once. One slow step among many is
neither. Steps that were waited for repeat to a few per mille, so that this is enough. Steps that were computed scatter:
there the blocks have to rise or fall by the test of Mann and Kendall, too, with p < ``ALPHA``. Blocks make neighbours that
resemble each other count less. The same holds for a change by up to twice the ``LIMIT`` of steps that were waited for, if
neighbours differ by more than ``REPEATS``: so they do where parameters come in a new order in every step.
"""

from __future__ import annotations

import math
from itertools import combinations
from statistics import fmean, median
from typing import NamedTuple, Optional, Sequence, Tuple

LIMIT = 0.02  # change of a step over what is measured, as a share
REPEATS = 0.005  # by which neighbours differ, in the median, as a share
ALPHA = 0.05
BLOCKS = 10
FEWEST = 3  # steps of which it can be told whether they trend, where they repeat as clocks do
FEWEST_SCATTERED = 6  # and where they scatter: fewer blocks tell next to nothing


class Steadiness(NamedTuple):
    """The number of steps ``left_out`` after the barrier, and the share by which the others change from first to last.

    ``drift`` is None where there are too few steps to tell. ``trends``: they change by more than chance and ``LIMIT``.
    """

    left_out: int
    drift: Optional[float]
    trends: bool


def drift(durations_s: Sequence[float]) -> Tuple[float, float]:
    """The share by which steps change from first to last, and the p-value of Mann and Kendall (normal approximation).

    H. B. Mann, Econometrica 13 (1945) 245–259; P. K. Sen, J. Am. Stat. Assoc. 63 (1968) 1379–1389.
    """
    count = min(len(durations_s), BLOCKS)
    ends = [round(block * len(durations_s) / count) for block in range(count + 1)]
    blocks = [fmean(durations_s[begin:end]) for begin, end in zip(ends, ends[1:])]
    pairs = [(later - earlier, blocks[later] - blocks[earlier]) for earlier, later in combinations(range(count), 2)]
    slope = median(rise / apart for apart, rise in pairs)
    # The surplus of pairs that rise over those that fall, or reverse.
    surplus = abs(sum((rise > 0) - (rise < 0) for _, rise in pairs))
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    p = math.erfc(max(surplus - 1, 0) / deviation / math.sqrt(2))
    at_once = median(blocks[count // 2 :]) - median(blocks[: count // 2])
    return max(slope * (count - 1), at_once, key=abs) / median(blocks), p


def trends(change: float, p: float, scatters: bool) -> bool:
    """True if a ``drift`` is more than ``LIMIT`` and, of steps that scatter, than chance."""
    return abs(change) > LIMIT and (not scatters or p < ALPHA)


def _may_be_chance(change: float, durations_s: Sequence[float]) -> bool:
    """True if steps that were waited for scatter so much, and change so little, that only a test can tell a trend."""
    apart = median(abs(after - before) for before, after in zip(durations_s, durations_s[1:])) / median(durations_s)
    return len(durations_s) >= FEWEST_SCATTERED and apart > REPEATS and abs(change) <= 2 * LIMIT


def settled(durations_s: Sequence[float], scatters: bool) -> Optional[bool]:
    """True if warm-up may end after steps of so many seconds; None: it is too early to ask, on all workers alike."""
    count = 2 * FEWEST_SCATTERED if scatters else FEWEST + 1
    if len(durations_s) <= count or len(durations_s) % (count // 2):
        return None
    return not trends(*drift(durations_s[-count:]), scatters)


def steadiness(durations_s: Sequence[float], scatters: bool) -> Steadiness:
    """The steadiness of steps in a row (seconds each, means of all ranks) after a barrier. ``scatters``: see above."""
    steps, fewest = len(durations_s), FEWEST_SCATTERED if scatters else FEWEST
    if steps - 1 < fewest:
        return Steadiness(min(1, steps - 1), None, False)
    last = max(1, min(steps // 3, steps - fewest))
    for left_out in sorted({*range(1, last, max(1, steps // BLOCKS // 2)), last}):
        change, p = drift(rest := durations_s[left_out:])
        if not (still := trends(change, p, scatters or _may_be_chance(change, rest))):
            break
    return Steadiness(left_out, change, still)


def step_s(marks_s: Sequence[Sequence[float]], left_out: int) -> float:
    """The period in seconds of the steps that are not left out, from ``marks_s[rank][mark]``: seconds from the barrier.

    It is the time between the moments at which all ranks had made the steps that are left out, and the last one. With
    servers ranks are not in phase: the longest of their own periods would be longer by 2.4 % on 64 nodes and 3 steps.
    """
    steps = min(map(len, marks_s)) - 1 - left_out
    return (max(marks[-1] for marks in marks_s) - max(marks[left_out] for marks in marks_s)) / steps
