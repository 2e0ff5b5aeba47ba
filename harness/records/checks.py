"""Judging a repeat: what must hold for its times to count. Pure: facts in, checks out.

It happens when a repeat has ended, and again whenever its record is verified.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from pydantic import Field

from harness.core.spec import Frozen, RunSpec


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
    input_wait_s: list[float] = Field(default_factory=list)
    network: RankTraffic | None = None
    servers: list[tuple[int, int]] = Field(default_factory=list)
    evidence: dict[str, Any]

    @property
    def steps(self) -> int:
        return len(self.marks_s) - 1


class TrainedRank(Frozen):
    """What one worker says at the end of a training: how many steps it made in this run, and its evidence."""

    rank: int
    host: str
    steps: int
    evidence: dict[str, Any]


def judge(spec: RunSpec, ranks: Sequence[Rank], world_size: int, expected_updates: int) -> list[Check]:
    """All checks of one repeat of a measurement: those of ``judge_ranks``, and that no rank held up the others."""
    slowest = max(ranks, key=lambda rank: rank.finished_s)
    ratio = slowest.finished_s / median(rank.finished_s for rank in ranks)
    limit = spec.straggler_limit
    detail = f"rank {slowest.rank} on {slowest.host} took {ratio:.2f} × the median rank, limit {limit:g}"
    return [
        *judge_ranks(ranks, world_size, spec.steps, expected_updates),
        Check(name="no_straggler", passed=ratio <= limit, detail=detail),
    ]


def judge_ranks(
    ranks: Sequence[Rank] | Sequence[TrainedRank], world_size: int, steps: int, expected_updates: int
) -> list[Check]:
    """That all ``world_size`` workers did the same ``steps``, in the order in which a person would want to hear of it."""
    evidence = [rank.evidence for rank in ranks]
    worlds = sorted({facts["world_size"] for facts in evidence})
    infinite = [rank.rank for rank in ranks if not rank.evidence["finite"]]
    parameters = len({facts["digest"] for facts in evidence})
    updates = sorted({facts["updates"] for facts in evidence})
    unchanged = [rank.rank for rank in ranks if not rank.evidence["changed"]]
    made = sorted({rank.steps for rank in ranks})
    not_finite = f"; not finite on ranks {infinite}" if infinite else ""
    changed = f"unchanged on ranks {unchanged}" if unchanged else "changed on every rank"
    checks = {
        "all_ranks": (
            sorted(rank.rank for rank in ranks) == list(range(world_size)),
            f"{len(ranks)} of {world_size} reported",
        ),
        "world_size": (worlds == [world_size], f"ranks saw {worlds}, planned {world_size}"),
        "finite": (not infinite, f"loss {evidence[0]['loss']}{not_finite}"),
        "replicas_equal": (parameters == 1, f"{parameters} different sets of parameters on {len(ranks)} ranks"),
        "updates": (
            updates == [expected_updates],
            f"parameters were updated {updates} times, expected {expected_updates}",
        ),
        "trained": (not unchanged, f"parameters {changed}"),
        "steps": (made == [steps], f"{made} steps made, expected {steps}"),
    }
    return [Check(name=name, passed=passed, detail=detail) for name, (passed, detail) in checks.items()]
