"""What disturbed a measurement: what others used of its cores, and a step that took much longer than the others.

Neither is a failure. Both are in the record, and one line beside the number says each where it matters.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pydantic import Field

from harness.core.spec import Frozen
from harness.core.text import plural

MATTERS = 0.05  # of the cores that a run may use, used by others
LEAST_S = 1.0  # between readings: the kernel counts ticks of 10 ms, and every process rounds its own
LONG = 3.0  # medians that a step takes which is named
FEWEST = 5  # steps of a window, below which a median says little


class CoreUse(Frozen):
    """Core-seconds that a node's reader saw in ``interval_s`` on the ``cores`` that the run's processes may run on.

    ``own_core_s`` are those of the run's processes, ``others_core_s`` all else, the hypervisor's share included. ``quota``
    is how many cores' time control groups leave to the run, None without a limit. ``machine`` is the boot id, ``processes``
    the namespace of process ids: nodes of a run that share a machine have it in common, containers see only their own.
    """

    machine: str
    processes: str
    cores: int = Field(ge=1)
    quota: float | None = Field(gt=0)
    interval_s: float = Field(gt=0)
    own_core_s: float
    others_core_s: float


class Others(Frozen):
    """What others used of a machine in a window: ``core_s``, and ``share`` of the ``cores`` that the run may use.

    With a quota only what leaves less than the quota counts in ``share``.
    """

    repeat: int
    host: str
    cores: float
    core_s: float
    share: float


class LongStep(Frozen):
    """The longest step of all (s, in the device's time), ``medians`` times as long as the median step of its repeat.

    ``more`` steps of other numbers were as much longer than the median, or at least ``LONG`` times as long.
    """

    repeat: int
    rank: int
    host: str
    step: int
    step_s: float
    medians: float
    more: int


class Disturbance(Frozen):
    """``others`` are those of the repeat and the machine where they took the largest share; None where nobody looked.

    ``long_step`` is None where no step took ``LONG`` medians, or steps were fewer than ``FEWEST``.
    """

    others: Others | None = None
    long_step: LongStep | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What matters of it, a sentence each."""
        notes, others, long = [], self.others, self.long_step
        if others and others.share > MATTERS:
            of = f"the {others.cores:g} cores" if others.cores != 1 else "the core"
            notes.append(
                f"other processes took {others.share:.0%} of {of} that the run may use on {others.host} "
                f"({others.core_s:.1f} core-seconds in repeat {others.repeat})"
            )
        if long:
            more = f"; {plural(long.more, 'other step')} took {LONG:g} × the median or more" if long.more else ""
            notes.append(
                f"step {long.step} of repeat {long.repeat} took {long.step_s:.3g} s on rank {long.rank} on {long.host}, "
                f"{long.medians:.1f} × the median{more}"
            )
        return tuple(notes)


class Watched(NamedTuple):
    """One rank of one repeat: its host, its marks (s, in the device's time), and what it read if it is a reader."""

    rank: int
    host: str
    marks_s: Sequence[float]
    use: CoreUse | None


def derive(repeats: Mapping[int, Sequence[Watched]]) -> Disturbance:
    """What disturbed the repeats, each by its number."""
    every = [each for number, ranks in repeats.items() for each in _others(number, ranks)]
    return Disturbance(others=max(every, key=lambda each: each.share, default=None), long_step=_long_step(repeats))


def _others(repeat: int, ranks: Sequence[Watched]) -> Iterator[Others]:
    """What others used of each machine. Readers in one namespace see the same processes, and the first one counts."""
    machines: dict[str, dict[str, tuple[str, CoreUse]]] = defaultdict(dict)
    for each in ranks:
        if each.use and each.use.interval_s >= LEAST_S:
            machines[each.use.machine].setdefault(each.use.processes, (each.host, each.use))
    for seen in machines.values():
        # Of several containers each takes what the others use for somebody else's.
        host, use = max(seen.values(), key=lambda one: one[1].others_core_s + one[1].own_core_s)
        own_core_s = sum(one.own_core_s for _, one in seen.values())
        core_s = max(use.own_core_s + use.others_core_s - own_core_s, 0.0)
        cores = min(use.cores, use.quota or use.cores)
        share = max(core_s / use.interval_s - (use.cores - cores), 0.0) / cores
        yield Others(repeat=repeat, host=host, cores=cores, core_s=core_s, share=share)


def _long_step(repeats: Mapping[int, Sequence[Watched]]) -> LongStep | None:
    import numpy as np  # here, so that commands that compute nothing answer at once

    longest, numbers = None, 0
    for number, ranks in repeats.items():
        steps_s = np.diff([each.marks_s for each in ranks], axis=1)  # [ranks, steps]
        if steps_s.shape[1] < FEWEST or not (usual_s := float(np.median(steps_s))) > 0:
            continue
        medians = steps_s / usual_s
        numbers += int((medians.max(axis=0) >= LONG).sum())
        at, step = (int(place) for place in np.unravel_index(medians.argmax(), medians.shape))
        if medians[at, step] >= LONG and (longest is None or medians[at, step] > longest.medians):
            longest = LongStep(
                repeat=number,
                rank=ranks[at].rank,
                host=ranks[at].host,
                step=step + 1,
                step_s=float(steps_s[at, step]),
                medians=float(medians[at, step]),
                more=0,
            )
    return longest and longest.model_copy(update={"more": numbers - 1})
