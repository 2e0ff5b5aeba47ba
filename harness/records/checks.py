"""Judging a repeat: what must hold for its times to count. Pure: facts in, checks out.

It happens when a repeat has ended, and again whenever its record is verified.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from harness.core.spec import RunSpec


class Frozen(BaseModel):
    """Base of what a record holds: immutable, closed to unknown names, and without infinities."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Check(Frozen):
    """One condition that a repeat must meet for its times to count."""

    name: str
    passed: bool
    detail: str


class RankTraffic(Frozen):
    """Bytes that a process moved over TCP within the window, and the interfaces that carried them."""

    sent: int
    received: int
    interfaces: list[str]


class Rank(Frozen):
    """One worker's raw times (seconds from the opening of its window, see ``worker/loop.py``) and evidence.

    ``input_wait_s`` has the seconds that each measured step waited for its batch; it is empty with synthetic images.
    ``network`` is None where the kernel does not tell. ``servers``, on rank 0, has the bytes that each parameter server
    sent and received within the window.
    """

    rank: int
    host: str
    marks_s: list[float]
    finished_s: float = Field(gt=0)
    window_s: float = Field(gt=0)
    input_wait_s: list[float] = []
    network: RankTraffic | None = None
    servers: list[tuple[int, int]] = []
    evidence: dict[str, Any]


class Epoch(Frozen):
    """One epoch of a training, as rank 0 reports it (see ``worker/training.py``).

    ``epoch`` counts from 1 to at most ``epochs``; ``steps`` are this epoch's. ``loss`` is the mean over all workers and
    steps, ``rate`` the learning rate of the last step. The accuracies (fractions) and the mean loss on the validation
    ``images`` are None, and these 0, where the epoch was not evaluated. ``train_s`` and ``elapsed_s`` are seconds since the
    first step of all, resumed or not: of training, and with evaluations and checkpoints. ``img_per_s`` is this epoch's.
    """

    epoch: int = Field(ge=1)
    epochs: int
    steps: int = Field(ge=1)
    loss: float
    rate: float
    top1: float | None = Field(ge=0, le=1)
    top5: float | None = Field(ge=0, le=1)
    validation_loss: float | None
    images: int
    train_s: float = Field(gt=0)
    elapsed_s: float = Field(gt=0)
    img_per_s: float = Field(gt=0)


class TrainedRank(Frozen):
    """What one worker says at the end of a training: how many steps it made in this run, and its evidence."""

    rank: int
    host: str
    steps: int
    evidence: dict[str, Any]


def judge(spec: RunSpec, ranks: Sequence[Rank], world_size: int, expected_updates: int) -> list[Check]:
    """All checks of one repeat, in the order in which a person would want to hear of a failure.

    ``world_size`` is the planned number of worker processes.
    """
    marks = sorted({len(rank.marks_s) - 1 for rank in ranks})
    slowest = max(ranks, key=lambda rank: rank.finished_s)
    ratio = slowest.finished_s / median(rank.finished_s for rank in ranks)
    return [
        *_alike(ranks, world_size, expected_updates),
        Check(name="steps", passed=marks == [spec.steps], detail=f"{marks} steps marked, expected {spec.steps}"),
        Check(
            name="no_straggler",
            passed=ratio <= spec.straggler_limit,
            detail=f"rank {slowest.rank} on {slowest.host} took {ratio:.2f} × the median rank, "
            f"limit {spec.straggler_limit:g}",
        ),
    ]


def judge_training(ranks: Sequence[TrainedRank], world_size: int, steps: int, expected_updates: int) -> list[Check]:
    """All checks of a training of ``steps`` steps, as ``judge`` has them of a repeat."""
    made = sorted({rank.steps for rank in ranks})
    return [
        *_alike(ranks, world_size, expected_updates),
        Check(name="steps", passed=made == [steps], detail=f"{made} steps made, expected {steps}"),
    ]


def _alike(ranks: Sequence[Rank] | Sequence[TrainedRank], world_size: int, expected_updates: int) -> list[Check]:
    """That every rank was there, and that all did the same training."""
    evidence = [rank.evidence for rank in ranks]
    present = sorted(rank.rank for rank in ranks)
    worlds = sorted({facts["world_size"] for facts in evidence})
    infinite = [rank.rank for rank in ranks if not rank.evidence["finite"]]
    digests = {facts["digest"] for facts in evidence}
    updates = sorted({facts["updates"] for facts in evidence})
    unchanged = [rank.rank for rank in ranks if not rank.evidence["changed"]]
    return [
        Check(
            name="all_ranks",
            passed=present == list(range(world_size)),
            detail=f"{len(ranks)} of {world_size} reported",
        ),
        Check(name="world_size", passed=worlds == [world_size], detail=f"ranks saw {worlds}, planned {world_size}"),
        Check(
            name="finite",
            passed=not infinite,
            detail=f"loss {evidence[0]['loss']}" + (f"; not finite on ranks {infinite}" if infinite else ""),
        ),
        Check(
            name="replicas_equal",
            passed=len(digests) == 1,
            detail=f"{len(digests)} different sets of parameters on {len(ranks)} ranks",
        ),
        Check(
            name="updates",
            passed=updates == [expected_updates],
            detail=f"parameters were updated {updates} times, expected {expected_updates}",
        ),
        Check(
            name="trained",
            passed=not unchanged,
            detail=f"parameters unchanged on ranks {unchanged}" if unchanged else "parameters changed on every rank",
        ),
    ]
