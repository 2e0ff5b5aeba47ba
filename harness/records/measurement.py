"""The record of a measurement: everything needed to believe its number, or to know why there is none.

Raw times are the result; ``derived`` is computed from them and carries the id of its formula. A record that is not
``completed`` has no derived figures, and no edit of its status gives it any: a completed record must hold every repeat, and
its evidence is judged again.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Any, Literal

from pydantic import Field, field_validator

from harness.core import fingerprint, statistics
from harness.core.emulation import STEADY, Kept, kept_up
from harness.core.fingerprint import Fingerprint
from harness.core.spec import SYNTHETIC, Frozen, RunSpec
from harness.records.carried import by_rdma
from harness.records.disturbance import Disturbance, WatchedRank
from harness.records.disturbance import derive as derive_disturbance
from harness.records.energy import EMULATED, Energy, RankEnergy, Read
from harness.records.energy import derive as derive_energy
from harness.records.pairs import Preflight
from harness.records.record import (
    NOT_SEEN,
    AnyRecord,
    AnyRepeat,
    Check,
    Seen,
    checks_of,
    judge_ranks,
    seen_by,
    verify_repeats,
)
from harness.worker.steady import LIMIT, steadiness, step_s


class RankTraffic(Frozen):
    """Bytes that a process moved over TCP within the window, over which interfaces, and those of each card of its host."""

    sent: int
    received: int
    interfaces: list[str]
    cards: dict[str, tuple[int, int]] = Field(default_factory=dict)


class Rank(WatchedRank):
    """One worker's raw times (seconds from the opening of its window, see ``worker/loop.py``) and evidence.

    ``input_wait_s`` has the seconds that each measured step waited for its batch; it is empty with synthetic images.
    ``network`` is None where the kernel does not tell. ``servers``, on rank 0, has the bytes that each parameter server
    sent and received within the window. ``kept`` says how well an emulated device, and what carried it, kept up.
    ``energy`` is there on the rank that read a node's counters. ``warmup_steps`` were made, if not those of the spec.
    """

    finished_s: float = Field(gt=0)
    window_s: float = Field(gt=0)
    input_wait_s: list[float] = Field(default_factory=list)
    network: RankTraffic | None = None
    servers: list[tuple[int, int]] = Field(default_factory=list)
    kept: Kept | None = None
    energy: RankEnergy | None = None
    warmup_steps: int | None = None

    @property
    def cards(self) -> dict[str, tuple[int, int]]:
        """Bytes sent and received by the cards of its host."""
        return self.network.cards if self.network else {}


Repeat = AnyRepeat[Rank]


class WindowSeen(Seen):
    """Also the bytes that a worker moved over TCP per step (means over workers and repeats; None where the kernel does not
    tell) and over which interfaces; what the slowest of emulated devices' links is limited to.
    """

    sent_bytes_per_step: float | None
    received_bytes_per_step: float | None
    interfaces: tuple[str, ...]
    link_bytes_per_s: float | None


class Steady(Frozen):
    """The steadiness of the steps of a repeat: see ``harness.worker.steady.Steadiness``."""

    left_out: int
    drift: float | None
    trends: bool


class Derived(Frozen):
    """Figures computed from the raw times."""

    formula: str
    img_per_s: statistics.Summary
    step_times: statistics.StepTimes
    energy: Energy
    fingerprint: Fingerprint
    disturbance: Disturbance
    steady: tuple[Steady, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """The disturbances of the run, a sentence each; and that steps of a real device were not steady."""
        notes = self.disturbance.notes
        if not (trends := [(str(number), each) for number, each in enumerate(self.steady, 1) if each.trends]):
            return notes
        (first, its), *others = trends
        if not others:
            return (*notes, f"repeat {first} was not steady: {in_words(its)}")
        numbers = ", ".join(number for number, _ in trends)
        return (*notes, f"repeats {numbers} were not steady; in repeat {first} {in_words(its)}")

    @field_validator("formula")
    @classmethod
    def _ours(cls, value: str) -> str:
        if value.removesuffix(statistics.EMULATED_TIME) != statistics.FORMULA:
            raise ValueError(f"must be {statistics.FORMULA!r}, or figures are not comparable")
        return value


class Record(AnyRecord):
    """One measurement. ``preflight`` is there if nodes and links were to be checked before."""

    file_name = "record.json"
    FIGURES = ("derived",)

    schema_: Literal["harness.record/1"] = Field(alias="schema")
    seen: WindowSeen
    derived: Derived | None
    preflight: Preflight | None = None
    repeats: list[Repeat]

    @property
    def outcome(self) -> str:
        return f"{self.derived.img_per_s.mean:.2f} img/s" if self.derived else ""

    def verify(self) -> None:
        super().verify()
        if self.seen != window_seen_by(self.spec, self.repeats):
            raise ValueError(NOT_SEEN)

    def verify_figures(self) -> None:
        if self.derived is None:
            raise ValueError("a completed run has derived figures")
        starts = {(repeat.job, repeat.restart) for repeat in self.repeats if repeat.job}
        if len(starts) != len({job for job, _ in starts}):
            raise ValueError("repeats from before and after the job was requeued are mixed")
        verify_repeats(self.spec, self.repeats, lambda ranks: judge(self.spec, self.plan, ranks, self.expected_updates))
        derived = derive(self.spec, self.repeats)
        if not _alike(derived.model_dump(), self.derived.model_dump()):
            raise ValueError("the derived figures do not follow from the raw times")


def _alike(left: object, right: object) -> bool:
    """Equal, but for the last digits of numbers: NumPy's and SciPy's versions differ in those."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_alike(left[key], right[key]) for key in left)
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(_alike, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-12)
    return bool(left == right)


def judge(spec: RunSpec, plan: Mapping[str, Any], ranks: Sequence[Rank], expected_updates: int) -> list[Check]:
    """All checks of one repeat of a measurement: those of ``judge_ranks``, that no rank held up the others, that RDMA
    carried what it had to, and that an emulated device's steps are steady and its machine kept up.
    """
    world_size = plan["world_size"]
    slowest = max(ranks, key=lambda rank: rank.finished_s)
    ratio = slowest.finished_s / median(rank.finished_s for rank in ranks)
    limit = spec.straggler_limit
    if spec.warmup_auto and ranks[0].warmup_steps is not None:  # updates are of steps that were made
        expected_updates *= ranks[0].warmup_steps + spec.steps
        expected_updates //= spec.warmup_steps + spec.steps
    detail = f"rank {slowest.rank} on {slowest.host} took {ratio:.2f} × the median rank, limit {limit:g}"
    checks = judge_ranks(ranks, [len(rank.marks_s) - 1 for rank in ranks], world_size, spec.steps, expected_updates)
    checks.append(Check(name="no_straggler", passed=ratio <= limit, detail=detail))
    if spec.require_rdma:
        checks += checks_of({"rdma": by_rdma(spec, plan, ranks)})
    if spec.emulated:
        kept, windows_s = [rank.kept for rank in ranks if rank.kept], [rank.window_s for rank in ranks]
        if len(kept) != len(ranks):
            raise ValueError("a rank does not say how its emulated device kept up")
        steady = steady_of(spec, ranks)
        is_steady = steady.drift is not None and not steady.trends
        checks += checks_of({**kept_up(kept, windows_s, spec.dilation), STEADY: (is_steady, in_words(steady))})
    return checks


def durations_s(ranks: Sequence[Rank]) -> list[float]:
    """Seconds of each step of a repeat, the mean of all ranks."""
    marks_s = [fmean(of_step) for of_step in zip(*(rank.marks_s for rank in ranks), strict=True)]
    return [after - before for before, after in pairwise(marks_s)]


def steady_of(spec: RunSpec, ranks: Sequence[Rank]) -> Steady:
    """The steadiness of the steps of a repeat: of the mean of all ranks' durations, the time that all of them wait."""
    scatters = not spec.emulated or spec.data != SYNTHETIC  # what is read is not equally long
    return Steady(**steadiness(durations_s(ranks), scatters=scatters)._asdict())


def in_words(steady: Steady) -> str:
    """The steadiness of a repeat as a clause for people."""
    first = f"the first {steady.left_out} left out" if steady.left_out > 1 else "the first left out"
    if steady.drift is None:
        return "too few steps to tell whether they are steady"
    return f"steps change by {steady.drift:+.1%} from first to last, {first}, limit {LIMIT:.0%}"


def img_per_s(spec: RunSpec, ranks: Sequence[Rank]) -> float:
    """Images per second of one repeat, in the time of the device that trained, real or emulated.

    Of a single step there are no two marks to take a period between: there the longest window counts.
    """
    if spec.steps == 1:
        period_s = max(rank.window_s for rank in ranks)
    else:
        period_s = step_s([rank.marks_s for rank in ranks], steady_of(spec, ranks).left_out)
    return spec.global_batch / (period_s / spec.dilation)


def derive(spec: RunSpec, repeats: Sequence[Repeat]) -> Derived:
    """Times of an emulated device are its own: the real ones over the dilation. Steps are steady ones."""
    steady = [steady_of(spec, repeat.ranks) for repeat in repeats]
    every_s = [
        (after - before) / spec.dilation
        for repeat, of_repeat in zip(repeats, steady, strict=True)
        for rank in repeat.ranks
        for before, after in pairwise(rank.marks_s[of_repeat.left_out :])
    ]
    finished_s = [[rank.finished_s / spec.dilation for rank in repeat.ranks] for repeat in repeats]
    return Derived(
        formula=statistics.FORMULA + (statistics.EMULATED_TIME if spec.emulated else ""),
        img_per_s=statistics.summarise([img_per_s(spec, repeat.ranks) for repeat in repeats]),
        step_times=statistics.step_times(every_s, finished_s),
        energy=energy_of(spec, repeats),
        fingerprint=fingerprint_of(spec, repeats),
        disturbance=derive_disturbance(repeats, spec.dilation),
        steady=tuple(steady),
    )


def fingerprint_of(spec: RunSpec, repeats: Sequence[Repeat]) -> Fingerprint:
    """The fingerprint of the computation, or why there is none. Steps that were one update each were the same.

    With asynchronous ones, and with ``--sync barrier``, there are as many updates as workers.
    """
    every = [sorted(repeat.ranks, key=lambda rank: rank.rank) for repeat in repeats]
    updates = {rank.evidence["updates"] for ranks in every for rank in ranks}
    if spec.emulated:
        return Fingerprint(note=fingerprint.EMULATED)
    if spec.data != SYNTHETIC:
        return Fingerprint(note=fingerprint.REAL)
    if spec.warmup_auto:
        return Fingerprint(note=fingerprint.AS_MANY_AS_NEEDED)
    if updates != {spec.warmup_steps + spec.steps}:
        return Fingerprint(note=fingerprint.EACH_BY_ITSELF)
    return fingerprint.taken(
        [([rank.evidence.get("losses", []) for rank in ranks], ranks[0].evidence["digest"]) for ranks in every]
    )


def energy_of(spec: RunSpec, repeats: Sequence[Repeat]) -> Energy:
    if spec.emulated:
        return Energy(notes=(EMULATED,))
    windows_s = [max(rank.window_s for rank in repeat.ranks) for repeat in repeats]
    readers = [[(rank.host, rank.energy) for rank in repeat.ranks if rank.energy] for repeat in repeats]
    return derive_energy(list(map(Read, windows_s, readers)), spec.workers * spec.batch_size * spec.steps)


def window_seen_by(spec: RunSpec, repeats: Sequence[Repeat]) -> WindowSeen:
    ranks = [rank for repeat in repeats for rank in repeat.ranks]
    moved = [rank.network for rank in ranks if rank.network]
    links = [rank.kept.link_bytes_per_s for rank in ranks if rank.kept and rank.kept.link_bytes_per_s]
    return WindowSeen(
        **seen_by(ranks).model_dump(),
        sent_bytes_per_step=fmean(network.sent for network in moved) / spec.steps if moved else None,
        received_bytes_per_step=fmean(network.received for network in moved) / spec.steps if moved else None,
        interfaces=tuple(sorted({interface for network in moved for interface in network.interfaces})),
        link_bytes_per_s=min(links, default=None),
    )
