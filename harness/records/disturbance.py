"""Disturbances of a measurement: others on its cores, and a step much longer than the others. Neither is a failure."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from harness.core.spec import Frozen
from harness.core.text import plural
from harness.records.record import AnyRank, AnyRepeat

MATTERS = 0.05  # of the cores that a run may use, used by others
LEAST_S = 1.0  # between readings: the kernel counts ticks of 10 ms, and those of every process by themselves
LONG, FEWEST = 3.0, 5  # medians that a step takes which is named; steps below which a median says little


class CoreUse(Frozen):
    """Core-seconds within ``interval_s`` on the ``cores`` that the run's processes may use: theirs, and all others'.

    ``quota`` is the number of cores whose time control groups leave to them, None without a limit. ``machine`` is its boot
    id, ``namespace`` that of the process ids which the reader sees: a container's own only.
    """

    machine: str
    namespace: str
    cores: int
    quota: float | None
    interval_s: float
    own_core_s: float
    others_core_s: float


class WatchedRank(AnyRank):
    """``marks_s`` are seconds from the opening of a rank's window. ``cores`` are there on the reader of a node, on CPUs."""

    marks_s: list[float]
    cores: CoreUse | None = None


OneWatched = TypeVar("OneWatched", bound=WatchedRank)


class Others(Frozen):
    """``core_s`` that others used in a window, as a ``share`` of the ``cores`` that the run may use on this host.

    Under a quota only time that is taken from the quota counts in the share.
    """

    repeat: int
    host: str
    cores: float
    core_s: float
    share: float


class LongStep(Frozen):
    """A step (s, of the device) that took so many ``medians`` of its repeat.

    On ``ranks`` ranks it took ``LONG`` medians or more, and so did ``more`` steps of other numbers.
    """

    repeat: int
    rank: int
    host: str
    step: int
    step_s: float
    medians: float
    ranks: int
    more: int


class Disturbance(Frozen):
    """The largest share that others took in a repeat, None where nobody looked, and the longest step, None without one."""

    others: Others | None = None
    long_step: LongStep | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """The disturbances that matter, a sentence each."""
        notes, others, long = [], self.others, self.long_step
        if others and others.share > MATTERS:
            cores = f"{others.cores:g} core{'s' * (others.cores != 1)}"
            notes.append(
                f"others took {others.share:.0%} of the cores that the run may use on {others.host} "
                f"({others.core_s:.1f} core-seconds on {cores} in repeat {others.repeat})"
            )
        if long:
            also = f"; it was long on {plural(long.ranks - 1, 'other rank')}, too" if long.ranks > 1 else ""
            also += f"; {plural(long.more, 'other step')} took {LONG:g} × the median or more" if long.more else ""
            notes.append(
                f"step {long.step} of repeat {long.repeat} took {long.step_s:.3g} s on rank {long.rank} on {long.host}, "
                f"{long.medians:.1f} × the median{also}"
            )
        return tuple(notes)


def derive(repeats: Sequence[AnyRepeat[OneWatched]], dilation: float = 1.0) -> Disturbance:
    others = max((each for repeat in repeats for each in _others(repeat)), key=lambda each: each.share, default=None)
    return Disturbance(others=others, long_step=_long_step(repeats, dilation))


def _others(repeat: AnyRepeat[OneWatched]) -> Iterator[Others]:
    """The use by others of each machine. Readers see the processes of their namespace."""
    machines: dict[str, dict[str, tuple[CoreUse, str]]] = {}
    for rank in repeat.ranks:
        if rank.cores and rank.cores.interval_s >= LEAST_S:
            machines.setdefault(rank.cores.machine, {}).setdefault(rank.cores.namespace, (rank.cores, rank.host))
    for seen in machines.values():
        use, host = max(seen.values(), key=lambda each: each[0].own_core_s + each[0].others_core_s)
        core_s = max(use.own_core_s + use.others_core_s - sum(each.own_core_s for each, _ in seen.values()), 0.0)
        cores = min(use.cores, use.quota or use.cores)
        share = max(core_s / use.interval_s - (use.cores - cores), 0.0) / cores
        yield Others(repeat=repeat.number, host=host, cores=cores, core_s=core_s, share=share)


def _long_step(repeats: Sequence[AnyRepeat[OneWatched]], dilation: float) -> LongStep | None:
    import numpy as np  # here, so that commands that compute nothing answer at once

    longest, count = None, 0
    for repeat in repeats:
        steps_s = np.diff([rank.marks_s for rank in repeat.ranks], axis=1) / dilation  # [ranks, steps]
        medians = steps_s / np.median(steps_s)
        at, step = (int(place) for place in np.unravel_index(medians.argmax(), medians.shape))
        if medians.shape[1] < FEWEST or not medians[at, step] >= LONG:
            continue
        count += int((medians.max(axis=0) >= LONG).sum())
        if longest is None or medians[at, step] > longest.medians:
            rank = repeat.ranks[at]
            longest = LongStep(
                repeat=repeat.number,
                rank=rank.rank,
                host=rank.host,
                step=step + 1,
                step_s=float(steps_s[at, step]),
                medians=float(medians[at, step]),
                ranks=int((medians[:, step] >= LONG).sum()),
                more=0,
            )
    return longest and longest.model_copy(update={"more": count - 1})
