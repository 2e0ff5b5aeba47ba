"""What reading real images costs, beside synthetic ones, and how much of that is waiting for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from harness.records.checks import Rank

if TYPE_CHECKING:
    from harness.records.measurement import Record, Repeat


@dataclass(frozen=True)
class InputWait:
    """How long a step waits for its batch: the mean over steps and repeats of what the rank waits that waits longest.

    In synchronous training nobody is faster than that rank. ``share`` is that of a step's time; ``rank`` waits most of all.
    """

    per_step_s: float
    share: float
    rank: int


@dataclass(frozen=True)
class IoOverhead:
    """(synthetic − real) / synthetic in img/s, as the 2017 report defines it, with a 95 % confidence interval.

    ``interval`` is None with a single repeat. A step takes ``longer_s`` longer with real images; ``wait`` tells what of it
    is waiting. The rest is what decoding takes from the processor, the memory and the network while the training computes.
    """

    overhead: float
    interval: tuple[float, float] | None
    longer_s: float
    wait: InputWait | None

    @property
    def elsewhere_s(self) -> float:
        """What a step takes longer without waiting, in seconds."""
        return self.longer_s - (self.wait.per_step_s if self.wait else 0.0)


def input_wait(repeats: Sequence[Repeat]) -> InputWait | None:
    """What a run waited for its images; None when its workers did not tell, or all images are synthetic."""
    waits = [_longest(repeat.ranks) for repeat in repeats]
    if not repeats or not all(waits):
        return None
    per_step_s = fmean(wait for one in waits for wait in one)
    ranks = [fmean(sum(repeat.ranks[rank].input_wait_s) for repeat in repeats) for rank in range(len(repeats[0].ranks))]
    steps_s = fmean(_step_s(repeat) for repeat in repeats)
    return InputWait(per_step_s, per_step_s / steps_s, ranks.index(max(ranks)))


def io_overhead(real: Record, synthetic: Record) -> IoOverhead:
    """What ``real`` has lost against ``synthetic``, two completed runs whose repeats took turns.

    The interval is that of a ratio of means of pairs (Cochran, Sampling Techniques, 3rd ed., 6.4), because what the machine
    does besides hits both runs of a round alike.
    """
    assert real.derived and synthetic.derived
    ours, theirs = real.derived.img_per_s, synthetic.derived.img_per_s
    overhead = (theirs.mean - ours.mean) / theirs.mean
    half = _half_width(ours.values, theirs.values)
    longer_s = fmean(map(_step_s, real.repeats)) - fmean(map(_step_s, synthetic.repeats))
    return IoOverhead(
        overhead=overhead,
        interval=None if half is None else (overhead - half, overhead + half),
        longer_s=longer_s,
        wait=input_wait(real.repeats),
    )


def _half_width(real: Sequence[float], synthetic: Sequence[float]) -> float | None:
    """Of the 95 % confidence interval of mean(real) / mean(synthetic), values in pairs."""
    pairs = len(real)
    if pairs < 2 or pairs != len(synthetic):
        return None
    from scipy.special import stdtrit  # the t quantile; scipy.stats takes ten times as long to import

    mean = fmean(synthetic)
    ratio = fmean(real) / mean
    variance = sum((r - ratio * s) ** 2 for r, s in zip(real, synthetic, strict=True)) / (pairs - 1)
    quantile = float(stdtrit(pairs - 1, 0.975))
    return quantile * math.sqrt(variance / pairs) / mean


def _longest(ranks: Sequence[Rank]) -> list[float]:
    """For each step the longest wait of any rank; empty when not all ranks tell."""
    return [max(step) for step in zip(*(rank.input_wait_s for rank in ranks), strict=False)]


def _step_s(repeat: Repeat) -> float:
    """Seconds per step in the window."""
    return max(rank.window_s for rank in repeat.ranks) / (len(repeat.ranks[0].marks_s) - 1)
