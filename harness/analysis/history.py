"""When did it change? Change points in the history of one measurement, as a cron job or a CI system collects it.

The unit is the run: its mean, as log(img/s) or the logarithm of a kernel's rate, in the order in which the runs started.
Runs of one job share its nodes and its hour, and count as one.

**Detection** is binary segmentation. In a segment of n runs every split with at least ``SHORTEST`` runs on either side is
tried; the statistic is the largest distance between the means of both parts, in standard errors. How large it gets when
nothing changes is found by permuting the segment's own runs, unless it is far beyond doubt: nothing is assumed but that,
without a change, their order means nothing. A segment in which the largest distance is significant is split there, and
each part is searched at half the level (Bonferroni).

**Outliers** are drawn in to ``CLIPPED`` robust standard deviations from the segment's median first, and a part has at least
``SHORTEST`` runs, so that one bad run is no change.

**The level** of a whole series is 0.03: 3 % of series without a change are said to have one. A drop of 5 % in 2 % of noise
in the middle of 30 runs is found in more than 99 %, and in 98 % within two runs of where it is. Both are measured by
``tests/unit/test_history.py``.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from operator import attrgetter
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from harness.analysis import ratios, work
from harness.analysis.differences import Difference, environments, spec_names
from harness.analysis.ratios import Vector
from harness.analysis.work import WorkChange
from harness.core.statistics import MAD_TO_STDEV
from harness.errors import InvalidInput
from harness.results.result import Result

LEVEL = 0.03  # the probability of finding any change in a series without one
SHORTEST = 3  # runs between two changes
FEWEST = 2 * SHORTEST  # runs of a series that can have a change
CLIPPED = 2.5  # robust standard deviations from the median
_BESIDE = 3  # runs on either side of a change whose environments are compared
_FIRST, _FURTHER = 60, 400  # permutations at a time: most segments without a change are known after the first
_AT_ONCE = 200_000  # numbers permuted at a time


@dataclass(frozen=True)
class PastRun:
    """One run of a series. ``rate`` is the mean of its repeats: img/s, or a kernel's bytes or operations per second."""

    id: str
    started: str
    rate: float


@dataclass(frozen=True)
class Change:
    """A change of level between two runs that follow each other. ``change`` is relative, with its 95 % interval."""

    before: PastRun
    after: PastRun
    old_rate: float
    new_rate: float
    change: float
    ci95: tuple[float, float]
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class RunSeries:
    """The runs of one spec on one system, and where their level changed. ``level`` is the current one, a rate.

    ``work`` says where the runs' losses became others, or their software (``work.py``).
    """

    label: str
    system: str
    kernel: str  # "" for a training
    unit: str  # of the rates
    spec: Mapping[str, object]
    runs: tuple[PastRun, ...]
    level: float
    changes: tuple[Change, ...]
    work: tuple[WorkChange, ...]


@dataclass(frozen=True)
class History:
    """All series with enough runs, those with changes first; and how much was too short or had no number."""

    series: tuple[RunSeries, ...]
    short: int
    without_number: int


def change_points(img_per_s: Sequence[float] | Vector) -> list[int]:
    """The positions of the first runs after each change of a series' level, in order.

    The same values give the same answer.
    """
    values = np.log(np.asarray(img_per_s, dtype=float))
    # A split was placed before the later ones were known; now each is placed best between its neighbours.
    bounds = [0, *sorted(_split(values, 0, len(values), LEVEL)), len(values)]
    for number in range(1, len(bounds) - 1):
        start, end = bounds[number - 1], bounds[number + 1]
        bounds[number] = start + _best(_clipped(values[start:end]))[0]
    return bounds[1:-1]


def _split(values: Vector, start: int, end: int, level: float) -> Iterator[int]:
    """The change points in ``values[start:end]``, in no order."""
    if end - start < FEWEST:
        return
    segment = _clipped(values[start:end])
    if np.ptp(segment) == 0:
        return
    before, distance = _best(segment)
    if _significant(segment, distance, level):
        middle = start + before
        yield middle
        yield from _split(values, start, middle, level / 2)
        yield from _split(values, middle, end, level / 2)


def _clipped(values: Vector) -> Vector:
    """Values with outliers drawn in. If most are equal there is no scale to tell outliers by."""
    middle = np.median(values)
    reach = CLIPPED * MAD_TO_STDEV * np.median(np.abs(values - middle))
    return np.clip(values, middle - reach, middle + reach) if reach > 0 else values


def _best(segment: Vector) -> tuple[int, float]:
    """The best split of a segment, as the number of runs before it, and its distance."""
    distances = _distances(segment[None, :])[0]
    return int(distances.argmax()) + SHORTEST, float(distances.max())


def _distances(rows: Vector) -> Vector:
    """The distance between the means of both parts, in standard errors, for each row and split.

    The noise is estimated from the differences of successive runs (J. von Neumann, Ann. Math. Stat. 12 (1941) 367–395),
    which a change of level hardly touches. With the spread of all runs instead, a drop and the recovery from it hide each
    other.
    """
    size = rows.shape[1]
    left = np.arange(SHORTEST, size - SHORTEST + 1)
    rows = rows - rows.mean(axis=1, keepdims=True)
    sums = np.cumsum(rows[:, : size - SHORTEST], axis=1)[:, SHORTEST - 1 :]
    steps = rows[:, 1:] - rows[:, :-1]
    noise = np.sqrt(np.einsum("rs,rs->r", steps, steps) / (2 * (size - 1)))
    distances: Vector = np.abs(sums) * np.sqrt(size / (left * (size - left))) / noise[:, None]
    return distances


def _significant(segment: Vector, distance: float, level: float) -> bool:
    """True if at most ``level`` of the orders of these values have a split that is as good.

    There are as many permutations as the level needs; most segments without a change are known after the first few.
    """
    if distance > _beyond_doubt(len(segment), level):
        return True
    needed = round(5 / level)
    allowed = int(level * (needed + 1)) - 1  # of (1 + as good) / (1 + needed) ≤ level
    threshold = distance * (1 - 1e-9)  # the same values in another order are added up to another last digit
    # The orders are shared by all segments of a size, so each segment is shuffled in a way of its own first.
    shuffled = np.random.default_rng(zlib.crc32(segment.tobytes())).permutation(segment)
    as_good = tried = 0
    while tried < needed:
        orders = _orders(len(segment), tried)[: needed - tried]
        as_good += int((_distances(shuffled[orders]).max(axis=1) >= threshold).sum())
        if as_good > allowed:
            return False
        tried += len(orders)
    return True


@lru_cache(maxsize=4096)
def _beyond_doubt(size: int, level: float) -> float:
    """A distance that is significant without permuting: normal noise reaches it ten times less often than ``level``.

    That is Student's t with fewer degrees of freedom than the estimate of the noise has, for all splits together
    (Bonferroni). Clipped values have lighter tails than normal ones.
    """
    from scipy.special import stdtrit

    splits = size - 2 * SHORTEST + 1
    return float(stdtrit((size - 1) / 2, 1 - level / (20 * splits)))


@lru_cache(maxsize=64)
def _orders(size: int, tried: int) -> NDArray[np.intp]:
    """Some permutations of ``size`` positions, one per row: those to try after ``tried`` others."""
    count = _FIRST if tried == 0 else _FURTHER
    rows = np.broadcast_to(np.arange(size), (max(1, min(count, _AT_ONCE // size)), size))
    return np.random.default_rng((size, tried)).permuted(rows, axis=1)


def find(results: Sequence[Result]) -> History:
    """The history of results of any kind and status.

    Raises InvalidInput for published figures, and without a spec with enough runs.
    """
    if not all(run.measured for run in results):
        raise InvalidInput("published figures have no history; give folders with records")
    completed = [run for run in results if run.completed]
    lengths = [len(jobs) for jobs in by_measurement(completed).values()]
    if not (long_enough := series(completed)):
        raise InvalidInput(
            f"no measurement has {FEWEST} runs with a number, which a history takes; "
            f"the longest has {max(lengths, default=0)}"
        )
    without = len({run.id for run in results}) - len({run.id for run in completed})
    return History(tuple(long_enough), len(lengths) - len(long_enough), without)


def series(completed: Iterable[Result]) -> list[RunSeries]:
    """The histories of the specs and systems with enough runs, of results that have a number."""
    groups = {key: jobs for key, jobs in by_measurement(completed).items() if len(jobs) >= FEWEST}
    names = spec_names({key: jobs[0][0].spec for (key, _), jobs in groups.items()})
    every = [_series(names[key], jobs) for (key, _), jobs in groups.items()]
    return sorted(every, key=lambda each: (not each.changes, each.label, each.system))


def by_measurement(completed: Iterable[Result]) -> dict[tuple[str, str], list[list[Result]]]:
    """The runs by key and system, in their order, those of one job together."""
    jobs: dict[tuple[str, str], dict[frozenset[str], list[Result]]] = {}
    for run in sorted(completed, key=attrgetter("started", "id")):
        jobs.setdefault((run.key, run.system), {}).setdefault(frozenset(run.jobs), []).append(run)
    return {measurement: [*by_job.values()] for measurement, by_job in jobs.items()}


def _series(label: str, jobs: Sequence[Sequence[Result]]) -> RunSeries:
    firsts = [runs[0] for runs in jobs]
    values = np.array([fmean(value for run in runs for value in run.values) for runs in jobs])
    runs = [PastRun(run.id, run.started, rate) for run, rate in zip(firsts, values.tolist(), strict=True)]
    bounds = [0, *change_points(values), len(values)]
    parts = [_clipped(np.log(values[start:end])) for start, end in pairwise(bounds)]
    levels = [float(np.exp(part.mean())) for part in parts]
    environment, changes = [run.environment for run in firsts], []
    for number, at in enumerate(bounds[1:-1]):
        shift = ratios.welch(parts[number].tolist(), parts[number + 1].tolist())
        change, low, high = np.expm1((shift.value, *shift.interval(0.95))).tolist()
        start, end = max(bounds[number], at - _BESIDE), min(bounds[number + 2], at + _BESIDE)
        differing = environments(environment[start:at], environment[at:end])
        old, new = levels[number : number + 2]
        changes.append(Change(runs[at - 1], runs[at], old, new, change, (low, high), differing))
    measurement = firsts[0].system, firsts[0].kernel, firsts[0].unit, firsts[0].spec
    return RunSeries(label, *measurement, tuple(runs), levels[-1], tuple(changes), tuple(work.changes(firsts)))
