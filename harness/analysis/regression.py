"""Did it get slower? Two sets of results, compared measurement by measurement; docs/regressions.md has the rule.

Results of equal specs form a pair, on each system of its own where both sides have it. Each size of a kernel is a result of
its own, with its rate in place of img/s.

**The work** of both sides is compared by its losses (``work.py``), and judged by itself: it makes nothing slower.

The unit is the job: its repeats count as one value, the mean of their logarithms. With two or more jobs on either side
the test is Welch's, with the degrees of freedom of ``satterthwaite``. A side with one job does not say how much jobs
differ; ``_variance`` has what is taken in its place.

A pair is ``slower`` if (a) the adjusted p-value is below alpha, and (b) the 99 % confidence interval of the change reaches
the threshold.

Why alpha is 0.04 and the interval of (b) 99 %: with 5 jobs on either side at most 3.2 % of unchanged pairs are then called
slower, whatever the noise, and a slowdown of 5 % in 2 % of noise is found in 95 % of all cases. The 95 % interval would
miss a true slowdown of exactly the threshold once in 40 times. ``tests/unit/test_regression.py`` measures this.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from statistics import fmean
from typing import ClassVar, Literal, TypeAlias, get_args

import numpy as np

from harness.analysis import across, ratios, work
from harness.analysis.differences import Difference, closest, environments, spec_names
from harness.analysis.ratios import ROUNDED, Interval, Sample, Shift, pooled_variance
from harness.analysis.work import Work
from harness.core.text import plural
from harness.errors import InvalidInput
from harness.results.result import LENGTH, Result
from harness.results.sources import kernels as kernels_of
from harness.results.sources import trainings

ALPHA = 0.04
THRESHOLD = 0.05
SHOWN, DECIDING = 0.95, 0.99  # levels of the confidence intervals
ASSUMED = 0.05  # the standard deviation of log(rate) between jobs, where there are not enough to tell
ENOUGH = 3  # degrees of freedom that tell it

ChangeVerdict = Literal[
    "no number",
    "slower",
    "cannot say",
    "too noisy",
    "significant, below the threshold",
    "faster",
    "no significant change",
]
VERDICTS: tuple[ChangeVerdict, ...] = get_args(ChangeVerdict)  # the worst first
FAILING: tuple[ChangeVerdict, ...] = ("no number", "slower")
# Where a slowdown as large as the threshold is not excluded.
UNDECIDED: tuple[ChangeVerdict, ...] = ("cannot say", "too noisy")
CHANGED: tuple[ChangeVerdict, ...] = (*FAILING, "significant, below the threshold", "faster")
Runs: TypeAlias = Sequence[Result]
SideName = Literal["OLD", "NEW"]
OldNew: TypeAlias = tuple[Sample, Sample]


@dataclass(frozen=True)
class Rule:
    """The limits by which a comparison decides."""

    alpha: float = ALPHA
    threshold: float = THRESHOLD


_DEFAULT = Rule()


@dataclass(frozen=True)
class Judgement:
    """The judgement of one pair. Changes are NEW / OLD − 1 of the geometric means, p is adjusted and one-sided.

    ``reason`` says why nothing can be said, or where the spread between jobs is from if not from both sides.
    """

    verdict: ChangeVerdict
    reason: str = ""
    change: float | None = None
    ci95: Interval | None = None
    ci99: Interval | None = None
    p: float | None = None


@dataclass(frozen=True)
class SideRates:
    """One side of a pair. ``rate`` is the geometric mean of the jobs, None without any.

    It is img/s, or a kernel's bytes or floating point operations per second.
    """

    records: int
    jobs: int
    repeats: int
    rate: float | None
    systems: tuple[str, ...]


@dataclass(frozen=True)
class Pair:
    """One measurement on both sides. ``differences`` and ``steps`` are of pairs that changed.

    ``steps`` are means over the records of each side of their step times: they tell whether every step or some are slower.
    ``work`` is there of a training with a number on both sides of one system.
    """

    DERIVED: ClassVar = ("verdict",)

    label: str
    kernel: str  # "" for a training
    unit: str  # of the rates: "img/s", "bytes/s" or "flop/s"
    spec: Mapping[str, object]
    old: SideRates
    new: SideRates
    judgement: Judgement
    differences: tuple[Difference, ...] = ()
    steps: tuple[Mapping[str, float], Mapping[str, float]] | None = None
    work: Work | None = None

    @property
    def verdict(self) -> ChangeVerdict:
        return self.judgement.verdict


@dataclass(frozen=True)
class Match:
    """The runs of one measurement on both sides, and their judgement. It is ``lost`` if those of NEW have failed."""

    old: Runs
    new: Runs
    lost: bool = False
    judgement: Judgement = Judgement("no number")

    @property
    def key(self) -> str:
        return self.old[0].key

    @property
    def changed(self) -> bool:
        return self.judgement.verdict in CHANGED

    @cached_property
    def differences(self) -> tuple[Difference, ...]:
        return environments(*([run.environment for run in runs] for runs in (self.old, self.new)))


@dataclass(frozen=True)
class Unpaired:
    """A measurement that has a number on one side only, or was tried in vain on both."""

    side: SideName
    label: str
    systems: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class SideTotal:
    """The size of one side of a comparison: records with a number, their jobs and repeats, and runs without a number."""

    records: int
    jobs: int
    repeats: int
    without_number: int
    systems: tuple[str, ...]


@dataclass(frozen=True)
class ComparedResults:
    """The result of ``compare``. ``pairs`` are sorted, the worst first; ``differences`` are those of all pairs."""

    DERIVED: ClassVar = ("slower", "inconclusive", "counts")

    rule: Rule
    old: SideTotal
    new: SideTotal
    pairs: tuple[Pair, ...]
    unpaired: tuple[Unpaired, ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> Mapping[ChangeVerdict, int]:
        return {verdict: sum(pair.verdict == verdict for pair in self.pairs) for verdict in VERDICTS}

    @property
    def slower(self) -> bool:
        return bool(self.regressions)

    @property
    def inconclusive(self) -> bool:
        return not self.regressions and bool(self.undecided)

    @property
    def regressions(self) -> tuple[Pair, ...]:
        return tuple(pair for pair in self.pairs if pair.verdict in FAILING)

    @property
    def undecided(self) -> tuple[Pair, ...]:
        return tuple(pair for pair in self.pairs if pair.verdict in UNDECIDED)


def judge(pairs: Sequence[OldNew], rule: Rule = _DEFAULT, systems: Sequence[object] = ()) -> list[Judgement]:
    """A judgement of each pair of a comparison, from the rates of the repeats on either side (all above 0).

    Pairs on equal ``systems``, by default all, tell each other how much jobs differ where a side has one.
    """
    systems = systems or [""] * len(pairs)
    on_system: dict[object, list[Sample]] = defaultdict(list)
    for pair, system in zip(pairs, systems, strict=True):
        on_system[system] += pair
    spreads = {system: pooled_variance(each.units for each in samples) for system, samples in on_system.items()}
    tested = [_tested(pair, spreads[system]) for pair, system in zip(pairs, systems, strict=True)]
    shifts = [shift for shift, _ in tested if shift]
    lower, higher = (
        iter(ratios.benjamini_hochberg(np.array([shift.p(sign) for shift in shifts])).tolist())
        for sign in (ratios.LESS, ratios.MORE)
    )
    return [
        _judgement(shift, next(lower), next(higher), rule, reason) if shift else Judgement("cannot say", reason)
        for shift, reason in tested
    ]


def _tested(pair: OldNew, spread: tuple[float, int]) -> tuple[Shift | None, str]:
    """The shift between both sides, and what the spread between jobs is taken from if not from both; None, and why.

    ``spread`` is that of all pairs on the system.
    """
    before, after = (sample.units for sample in pair)
    within = pooled_variance([before, after])
    fewest, most = sorted((len(before), len(after)))
    if fewest > 1:
        if not within[0] > ROUNDED**2:
            return None, "no side scatters: its figures are rounded, or one figure is there several times"
        return ratios.welch(before, after, careful=True), ""
    spread = within if within[1] >= ENOUGH else spread
    known = spread[1] >= ENOUGH
    if fewest < 1 or (min(len(sample.values) for sample in pair) < 2 and (most < 2 or not known)):
        return None, "one repeat has no spread: 2 or more, or more jobs, are needed on either side"
    source = "is that of other jobs" if known else f"is assumed to be {100 * ASSUMED:g} %, as too few jobs tell it"
    reason = f"a side has one job; the spread between jobs {source}"
    return Shift(fmean(after) - fmean(before), *_variance(pair, spread)), reason


def _judgement(shift: Shift, slower: float, faster: float, rule: Rule, reason: str) -> Judgement:
    """The judgement of a shift, by its adjusted probabilities."""
    # From differences of logarithms to changes; what has no lower bound may have lost everything.
    bounds = (shift.value, *shift.interval(SHOWN), *shift.interval(DECIDING))
    change, low95, high95, low, high = np.expm1(bounds).tolist()
    verdict: ChangeVerdict = "too noisy" if low95 <= -rule.threshold else "no significant change"
    if slower < rule.alpha:
        verdict = "slower" if low <= -rule.threshold else "significant, below the threshold"
    elif faster < rule.alpha:
        verdict = "faster" if high >= rule.threshold else "significant, below the threshold"
    return Judgement(verdict, reason, change, (low95, high95), (low, high), min(slower, faster))


def _variance(pair: OldNew, spread: tuple[float, int]) -> tuple[float, float]:
    """The variance of the difference of the means where a side has one job, and its degrees of freedom.

    The ``spread`` between jobs is that of the pair's other side or, if that has not ``ENOUGH`` degrees of freedom f, of all
    pairs on the system. A few jobs may be alike by chance, so one more counts towards it, with half of ``ASSUMED``: (f·s² +
    ``ASSUMED``²/4)/(f + 1). Without ``ENOUGH`` in all it is ``ASSUMED``², or what was seen if that is more, which is taken
    as known; the noise of the repeats is added to it.
    """
    between, freedom = spread
    per_job = sum(1 / len(sample.units) for sample in pair)
    if freedom >= ENOUGH:
        return (freedom * between + ASSUMED**2 / 4) / (freedom + 1) * per_job, freedom
    total, uncertain = max(between, ASSUMED**2) * per_job, 0.0
    for sample in pair:
        of_repeats, more = pooled_variance(sample.by_job.values())
        if more:
            error = of_repeats / len(sample.values)
            total, uncertain = total + error, uncertain + error**2 / more
    return total, total**2 / uncertain if uncertain else math.inf


def compare(old: Sequence[Result], new: Sequence[Result], rule: Rule = _DEFAULT) -> ComparedResults:
    """Compare all results of two sides, of any kind and status.

    Results of two systems without a spec in common, and published ones, are compared as ``across.matched`` says. Raises
    InvalidInput if a side has no number, if both are the same runs, or if nothing is on both sides.
    """
    for name, side in (("OLD", old), ("NEW", new)):
        if not side:
            raise InvalidInput(f"{name} holds no records")
    if not any(run.completed for run in old):
        raise InvalidInput(f"OLD holds no number: none of its {plural(_count(old), 'run')} is completed")
    notes: list[str] = []
    if two_systems := _two_systems(trainings(old), trainings(new)):
        *both, notes = across.matched(trainings(old), trainings(new))
        old, new = ([*matched, *kernels_of(side)] for matched, side in zip(both, (old, new), strict=True))
    new = _without(old, new, notes)
    before, after = _Side(old), _Side(new)
    matches = _judged([*_matches(before, after)], rule, two_systems)
    if not matches:
        raise InvalidInput(_nothing_in_common(before, after))
    # A run that failed early could not tell its environment, so it does not count.
    first, *others = (match.differences for match in ([match for match in matches if not match.lost] or matches))
    common = tuple(difference for difference in first if all(difference in other for other in others))
    pairs = tuple(sorted(_pairs(matches, common, two_systems), key=_severity))
    notes += [*_lengths(matches, common), *_failed_beside(after)]
    unpaired = tuple(_unpaired(before, after, matches))
    return ComparedResults(rule, before.total, after.total, pairs, unpaired, common, tuple(notes))


def _two_systems(old: Runs, new: Runs) -> bool:
    """True where specs of the two sides cannot be equal: published ones, or those of two machines that have none alike."""
    if not all(run.measured for run in chain(old, new)):
        return True
    systems, keys = ([{getattr(run, name) for run in side} for side in (old, new)] for name in ("system", "key"))
    return bool(old and new) and systems[0].isdisjoint(systems[1]) and keys[0].isdisjoint(keys[1])


def _without(old: Runs, new: Runs, notes: list[str]) -> Runs:
    """The ``new`` runs that are no old ones; adds a note of the others. Raises InvalidInput if that leaves none."""
    ids = {run.id for run in old}
    left = [run for run in new if run.id not in ids]
    if not left:
        raise InvalidInput(f"OLD and NEW hold the same {plural(_count(new), 'run')}, such as {new[0].id}")
    if len(left) < len(new):
        count = _count([run for run in new if run.id in ids])
        verbs = ("is", "counts") if count == 1 else ("are", "count")
        notes.append(f"{plural(count, 'run')} of NEW {verbs[0]} also in OLD, and {verbs[1]} there only")
    return left


def _count(runs: Runs) -> int:
    """The number of these runs. A kernel's has a result for each size; published ones have no id."""
    return len({run.id for run in runs if run.id}) + sum(not run.id for run in runs)


class _Side:
    """One side's runs, by key: those with a number by system, too, and those that failed or were interrupted."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.numbers: dict[str, dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
        self.failed: dict[str, list[Result]] = defaultdict(list)
        self.interrupted: dict[str, list[Result]] = defaultdict(list)
        for run in runs:
            if run.completed:
                self.numbers[run.key][run.system].append(run)
            else:
                (self.failed if run.status == "failed" else self.interrupted)[run.key].append(run)

    def of(self, key: str) -> Runs:
        return [*chain(*self.numbers[key].values())]

    def specs(self, keys: Sequence[str]) -> dict[str, Mapping[str, object]]:
        known = {run.key: run.spec for run in self.runs}
        return {key: known[key] for key in keys}

    def in_vain(self, key: str, name: SideName) -> str:
        """The reason why the last run of a spec has no number; "" if none was tried in vain."""
        runs = self.interrupted.get(key) or self.failed.get(key)
        return f"{runs[-1].status} in {name}: {runs[-1].reason}" if runs else ""

    @property
    def total(self) -> SideTotal:
        with_number = [run for run in self.runs if run.completed]
        repeats = {run.id: len(run.values) for run in with_number}
        jobs = {job for run in with_number for job in run.jobs}
        runs = {run.id for run in self.runs}
        return SideTotal(len(repeats), len(jobs), sum(repeats.values()), len(runs) - len(repeats), _systems(self.runs))


def _systems(runs: Runs) -> tuple[str, ...]:
    return tuple(sorted({run.system for run in runs}))


def _matches(old: _Side, new: _Side) -> Iterator[Match]:
    """Specs with a number on both sides, on each system that both have; then those of which all runs of NEW have failed."""
    for key, here in old.numbers.items():
        there = new.numbers.get(key, {})
        if both := [system for system in here if system in there]:
            yield from (Match(here[system], there[system]) for system in both)
        elif there:  # another system, or a machine whose name changes from job to job
            yield Match(old.of(key), new.of(key))
    for key in old.numbers:
        if key in new.failed and key not in new.numbers:
            yield Match(old.of(key), new.failed[key], lost=True)


def _judged(matches: Sequence[Match], rule: Rule, two_systems: bool) -> list[Match]:
    """The matches with their judgement. Of another system there may never be more repeats: its change is given anyway."""
    having = [match for match in matches if not match.lost]
    pairs = [(_sample(match.old), _sample(match.new)) for match in having]
    judgements = judge(pairs, rule, [(_systems(match.old), _systems(match.new)) for match in having])
    if two_systems:
        judgements = [
            replace(judgement, change=new.mean / old.mean - 1) if judgement.verdict == "cannot say" else judgement
            for judgement, (old, new) in zip(judgements, pairs, strict=True)
        ]
    lost = [replace(match, judgement=Judgement("no number", match.new[-1].reason)) for match in matches if match.lost]
    return [replace(match, judgement=each) for match, each in zip(having, judgements, strict=True)] + lost


def _pairs(matches: Sequence[Match], common: Sequence[Difference], two_systems: bool) -> Iterator[Pair]:
    """A pair for each match. One that has changed has the differences that are not ``common`` to all, and the steps."""
    names = spec_names({match.key: match.old[0].spec for match in matches})
    times = Counter(match.key for match in matches)
    for match in matches:
        old, new = match.old, match.new
        label = names[match.key] + (f" on {', '.join(_systems(old))}" if times[match.key] > 1 else "")
        pair = Pair(label, old[0].kernel, old[0].unit, old[0].spec, _side(old), _side(new), match.judgement)
        if match.changed:
            differences = tuple(difference for difference in match.differences if difference not in common)
            pair = replace(pair, differences=differences)
        if not (match.lost or two_systems or pair.kernel):
            steps = (_steps(old), _steps(new)) if match.changed else None
            pair = replace(pair, steps=steps, work=work.between(old, new))
        yield pair


def _severity(pair: Pair) -> tuple[int, float]:
    change = pair.judgement.change or 0.0
    return VERDICTS.index(pair.verdict), -change if pair.verdict == "faster" else change


def _lengths(matches: Sequence[Match], common: Sequence[Difference]) -> list[str]:
    """Notes of other steps and the like in pairs that have not changed; the others list their differences themselves."""
    unchanged = [match for match in matches if not match.changed]
    differences = (each for match in unchanged for each in match.differences if each not in common)
    lengths = Counter(difference for difference in differences if difference.name in LENGTH.values())
    return [f"{difference} in {plural(number, 'measurement')}" for difference, number in lengths.items()]


def _failed_beside(new: _Side) -> list[str]:
    """A note of runs that failed while others of the same spec have a number."""
    beside = [runs for key, runs in new.failed.items() if key in new.numbers]
    if not beside:
        return []
    reason = beside[0][-1].reason.split("\n")[0]
    runs = plural(len({run.id for run in chain(*beside)}), "run")
    return [f"{runs} of NEW failed while others of the same spec have a number: {reason}"]


def _sample(runs: Runs) -> Sample:
    """The rates of the repeats of ``runs``. A published mean is of no job, and has none."""
    values = [value for run in runs for value in run.values]
    jobs = [job for run in runs for job in run.jobs]
    if len(jobs) == len(values):
        return Sample.of(values, jobs) if values else Sample(np.nan)
    return Sample(float(np.exp(np.mean(np.log(values)))))


def _side(runs: Runs) -> SideRates:
    sample = _sample(runs)
    mean = None if np.isnan(sample.mean) else sample.mean
    return SideRates(len(runs), len(sample.units), len(sample.values), mean, _systems(runs))


def _steps(runs: Runs) -> dict[str, float]:
    names = ("p50_s", "p99_s", "jitter_s", "slowest_over_median")
    return {name: float(np.mean([getattr(run, name) for run in runs])) for name in names}


def _unpaired(old: _Side, new: _Side, matches: Sequence[Match]) -> list[Unpaired]:
    """The runs that are in no match, on either side, with the other side's closest spec if they were not tried there."""
    used = {run for match in matches for run in (*match.old, *match.new)}
    tried = new.failed | new.interrupted
    without = new.specs([key for key in tried if key not in old.numbers and key not in new.numbers])
    in_vain = [
        Unpaired("NEW", name, _systems(tried[key]), f"{new.in_vain(key, 'NEW')}; OLD has no number either")
        for key, name in spec_names(without).items()
    ]
    return [*_alone("OLD", old, "NEW", new, used), *_alone("NEW", new, "OLD", old, used), *in_vain]


def _alone(side: SideName, here: _Side, other: SideName, there: _Side, used: set[Result]) -> Iterator[Unpaired]:
    left = {key: [run for run in here.of(key) if run not in used] for key in here.numbers}
    left = {key: runs for key, runs in left.items() if runs}
    names = spec_names(here.specs([*left]))
    candidates = [key for key in there.numbers if used.isdisjoint(there.of(key))]
    untried = [key for key in left if key not in there.numbers and not there.in_vain(key, other)]
    nearest = closest(here.specs(untried), there.specs(candidates or [*there.numbers]).values())
    for key, runs in left.items():
        if key in there.numbers:
            why = f"not in {other} on {', '.join(_systems(runs))}, but on {', '.join(there.numbers[key])}"
        else:
            why = f"not in {other}" + (f"; the closest differs in {nearest[key]}" if key in nearest else "")
            why = there.in_vain(key, other) or why
        yield Unpaired(side, names[key], _systems(runs), why)


def _nothing_in_common(old: _Side, new: _Side) -> str:
    if not new.numbers:
        return f"NEW holds no number: none of its {plural(len({run.id for run in new.runs}), 'run')} is completed"
    counts = f"no spec of OLD ({len(old.numbers)}) is in NEW ({len(new.numbers)}), so nothing can be compared; "
    nearest = closest(old.specs([*old.numbers]), new.specs([*new.numbers]).values())
    if not nearest:
        return counts + "they have no backend in common"
    differing, times = Counter(nearest.values()).most_common(1)[0]
    return counts + f"the closest differ in {differing}" + (f" ({times} of {len(nearest)})" if len(nearest) > 1 else "")
