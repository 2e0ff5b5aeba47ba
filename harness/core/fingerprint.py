"""The fingerprint of a measurement: the results of its arithmetic in a few numbers, and where two of them part.

On synthetic images and with one seed every run of a spec does the same arithmetic, which leaves losses and parameters.
Workers report both when the window has closed, so that a fingerprint costs the measurement nothing.

Two runs on the same software are compared over the first ``FIRST`` steps, before rounding errors have grown.
docs/regressions.md describes the comparison, and what is ``allowed``.
"""

import math
import struct
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

from harness.core.spec import Frozen

FIRST = 10  # steps, as many as the protocol's warm-up has
# The relative difference that losses may have from float32 on another device, by precision (benchmarks/gpu_check.py).
TOLERANCES = {"fp32": 1e-3, "tf32": 0.02, "amp": 0.05, "fp16": 0.05}
FP32_ON_CPUS = 1e-4  # 30 times the largest difference of repeats with parameter servers (docs/regressions.md)
EMULATED = "an emulated device computes no losses; its gradients are known values, which tests check the sums of"
REAL = "images from files may be others tomorrow; synthetic ones are always the same"
AS_MANY_AS_NEEDED = "warm-up ended when steps were steady, after another number of them each time"
EACH_BY_ITSELF = "each worker's gradient is applied by itself, and their order decides what comes of it"
UNREPORTED = "its workers report no losses"


class LossGroup(Frozen):
    """The outcome that the ``repeats`` with these numbers have in common bit for bit."""

    repeats: tuple[int, ...]
    losses: tuple[float, ...]  # of the first steps, means over all ranks
    bits: str  # 128 bits of SHA-256, hexadecimal: of all steps' and ranks' losses, and the last step's parameters


class Fingerprint(Frozen):
    """The outcomes of a run's repeats, that of the most repeats first."""

    steps: int = 0  # that the bits are of, warm-up included
    outcomes: tuple[LossGroup, ...] = ()
    note: str = ""  # why there are no outcomes

    @property
    def usual(self) -> LossGroup:
        """The outcome of the most repeats, of the first one if all differ."""
        return self.outcomes[0]

    @property
    def exact(self) -> bool:
        """True if several repeats, and more than half of them, are the same bit for bit: then nothing is left to chance."""
        return 1 < len(self.usual.repeats) > sum(len(other.repeats) for other in self.outcomes[1:])


class Parting(NamedTuple):
    """The place where two outcomes part, and the loss of either there."""

    step: int  # from 1; 0 if the first steps have the same losses, but later ones, single ranks or parameters differ
    old: float
    new: float
    beyond: bool  # by more than rounding explains


def allowed(precision: str, device: str) -> float:
    """The relative difference that losses on the same software may have on a ``device`` such as "cpu" or "cuda"."""
    return FP32_ON_CPUS if (precision, device) == ("fp32", "cpu") else TOLERANCES[precision]


def taken(repeats: Sequence[tuple[Sequence[Sequence[float]], str]]) -> Fingerprint:
    """The fingerprint of repeats. Of each: ``losses[rank][step]``, and the digest of the parameters after the last step."""
    if not all(losses and all(losses) for losses, _ in repeats):
        return Fingerprint(note=UNREPORTED)
    alike: dict[tuple[tuple[float, ...], str], list[int]] = {}
    for number, (losses, parameters) in enumerate(repeats, start=1):
        means = tuple(math.fsum(step) / len(losses) for step in zip(*(rank[:FIRST] for rank in losses), strict=False))
        every = b"".join(struct.pack(f"<{len(rank)}d", *rank) for rank in losses)
        alike.setdefault((means, sha256(every + parameters.encode()).hexdigest()[:32]), []).append(number)
    outcomes = [LossGroup(repeats=tuple(numbers), losses=means, bits=bits) for (means, bits), numbers in alike.items()]
    outcomes.sort(key=lambda outcome: -len(outcome.repeats))
    return Fingerprint(steps=len(repeats[0][0][0]) if repeats else 0, outcomes=tuple(outcomes))


def parting(old: Fingerprint, new: Fingerprint, at_most: float) -> Parting | None:
    """The place where two runs on the same software part; None if they do not. ``at_most`` is what is ``allowed``.

    Every repeat of one has to differ from every repeat of the other, and by more than repeats of one run do.
    """
    if old.exact and new.exact:
        return _apart([old.usual], [new.usual], at_most) or _other_bits(old.usual, new.usual, old.steps == new.steps)
    return _apart(old.outcomes, new.outcomes, at_most)


def odd_repeats(fingerprint: Fingerprint, at_most: float) -> Iterator[tuple[LossGroup, Parting]]:
    """The outcomes of a run that part from its usual one: by more than ``at_most``, and by a bit if it is ``exact``."""
    for other in fingerprint.outcomes[1:]:
        apart = _apart([fingerprint.usual], [other], at_most)
        if apart is None and fingerprint.exact:
            apart = _other_bits(fingerprint.usual, other, same_steps=True)
        if apart:
            yield other, apart


def spread(fingerprint: Fingerprint) -> float:
    """The largest relative difference between the losses of a run's repeats."""
    return max(map(_spread, zip(*(outcome.losses for outcome in fingerprint.outcomes), strict=False)), default=0.0)


def _apart(old: Sequence[LossGroup], new: Sequence[LossGroup], at_most: float) -> Parting | None:
    """The first step at which more than rounding sets the two sides apart."""
    sides = [zip(*(outcome.losses for outcome in side), strict=False) for side in (old, new)]
    for step, (here, there) in enumerate(zip(*sides, strict=False), start=1):
        if max(here) < min(there):
            nearest = max(here), min(there)
        elif max(there) < min(here):
            nearest = min(here), max(there)
        else:
            continue
        if _difference(*nearest) > max(at_most, _spread(here), _spread(there)):
            return Parting(step, *nearest, beyond=True)
    return None


def _other_bits(old: LossGroup, new: LossGroup, same_steps: bool) -> Parting | None:
    """The place where two outcomes that rounding may set apart differ in their bits; None if they do not."""
    for step, (here, there) in enumerate(zip(old.losses, new.losses, strict=False), start=1):
        if here != there:
            return Parting(step, here, there, beyond=False)
    if same_steps and old.bits != new.bits:
        return Parting(0, old.losses[-1], new.losses[-1], beyond=False)
    return None


def _spread(losses: Sequence[float]) -> float:
    return _difference(min(losses), max(losses))


def _difference(first: float, second: float) -> float:
    """The difference relative to the larger number."""
    return 0.0 if first == second else abs(first - second) / max(abs(first), abs(second))
