"""Did it get slower? Two sets of results, compared measurement by measurement; docs/regressions.md has the rule.

Results of equal specs (the column ``spec``) form a pair, on each system of its own where both sides have it. Each size of a
kernel is a result of its own, with its rate in place of img/s.

**Energy** of the same repeats is compared apart, as images per joule, where both sides have it of the same parts.
``more energy`` and ``less energy`` are then what ``slower`` and ``faster`` are of img/s, with an adjustment of their own.

**The work** of both sides is compared by its losses (``work.py``), and judged by itself: it makes nothing slower.

The unit is the job: its repeats count as one value, the mean of their logarithms. With two or more jobs on either side
the test is Welch's. A side with one job does not say how much jobs differ; ``_variance`` has what is taken in its place.

A pair is ``slower`` if (a) the adjusted p-value is below alpha, and (b) the 99 % confidence interval of the change reaches
the threshold.

Why alpha is 0.04 and the interval of (b) 99 %: with 5 jobs on either side, 3.6 % of unchanged pairs then pass (a) and at
most as many are called slower, whatever the noise; and a slowdown of 5 % in 2 % of noise is found in 96 % of all cases.
With (b) on the 95 % interval it would be 94.9 %, because that interval misses a true slowdown of exactly the threshold once
in 40 times. ``tests/unit/test_regression.py`` measures this.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from harness import kernels
from harness.analysis import across, two_samples, work
from harness.analysis.differences import LENGTH, Difference, closest, environments, spec_names
from harness.analysis.ratios import Interval, Sample, satterthwaite
from harness.analysis.two_samples import Test
from harness.analysis.work import Work
from harness.core.text import plural
from harness.errors import InvalidInput

if TYPE_CHECKING:
    import pandas

ALPHA = 0.04
THRESHOLD = 0.05
SHOWN, DECIDING = 0.95, 0.99  # levels of the confidence intervals
ASSUMED = 0.05  # the standard deviation of log(rate) between jobs, where there are not enough to tell
ENOUGH = 3  # degrees of freedom that tell it

Verdict = Literal[
    "no number",
    "slower",
    "more energy",
    "cannot say",
    "too noisy",
    "significant, below the threshold",
    "faster",
    "less energy",
    "no significant change",
]
VERDICTS: tuple[Verdict, ...] = Verdict.__args__  # type: ignore[attr-defined]  # the worst first
FAILING: tuple[Verdict, ...] = ("no number", "slower", "more energy")
UNDECIDED: tuple[Verdict, ...] = ("cannot say", "too noisy")  # a slowdown as large as the threshold is not excluded
CHANGED: tuple[Verdict, ...] = (*FAILING, "significant, below the threshold", "faster", "less energy")
Runs: TypeAlias = Sequence[Mapping[Any, Any]]  # rows of a side's DataFrame
Match: TypeAlias = tuple[str, Runs, Runs]  # a spec, and its runs on both sides
Name = Literal["OLD", "NEW"]
_COLUMNS = (
    *("id", "spec", "system", "status", "reason", "environment", "values", "jobs"),
    *("step_p50_s", "step_p99_s", "jitter_s", "slowest_over_median", "energy", "joules_values"),
    *("fingerprint", "precision", "device"),
)
Samples: TypeAlias = Sequence[Sample]


@dataclass(frozen=True)
class Rule:
    """How a comparison decides."""

    test: Test = "welch"
    alpha: float = ALPHA
    threshold: float = THRESHOLD


_DEFAULT = Rule()


@dataclass(frozen=True)
class Judgement:
    """What the data say about one pair. Changes are NEW / OLD − 1 of the geometric means, p is adjusted and one-sided.

    ``reason`` says why nothing can be said, or what the spread between jobs is taken from if not from both sides.
    """

    verdict: Verdict
    reason: str = ""
    change: float | None = None
    ci95: Interval | None = None
    ci99: Interval | None = None
    p: float | None = None


@dataclass(frozen=True)
class Side:
    """One side of a pair. ``rate`` is the geometric mean of the jobs, None without any.

    It is img/s, images per joule, or a kernel's bytes or floating point operations per second.
    """

    records: int
    jobs: int
    repeats: int
    rate: float | None
    systems: tuple[str, ...]


@dataclass(frozen=True)
class Pair:
    """One measurement on both sides. ``differences`` and ``steps`` are told for pairs that changed.

    ``steps`` are means over the records of each side of their step times: whether every step or some steps are slower.
    ``energy`` says what the joules cover of a pair that is about images per joule, else it is "". ``work`` is there of a
    training with a number on both sides of one system.
    """

    label: str
    spec: Mapping[str, Any]
    old: Side
    new: Side
    judgement: Judgement
    differences: tuple[Difference, ...] = ()
    steps: tuple[Mapping[str, float], Mapping[str, float]] | None = None
    energy: str = ""
    work: Work | None = None

    @property
    def verdict(self) -> Verdict:
        return self.judgement.verdict

    @property
    def kernel(self) -> str:
        """Which one was measured; "" for a training."""
        return str(self.spec.get("kernel", ""))

    @property
    def unit(self) -> str:
        """Of its sides' rates: "img/s", "bytes/s", "flop/s", or the same per joule."""
        unit = unit_of(self.kernel)
        return unit.replace("/s", "/J") if self.energy else unit


def unit_of(kernel: str) -> str:
    """Of the rate of a kernel, or of a training."""
    return kernels.specification(kernel).unit if kernel else "img/s"


@dataclass(frozen=True)
class Unpaired:
    """A measurement that has a number on one side only, or was tried in vain on both."""

    side: Name
    label: str
    systems: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class SideTotal:
    """What one side of a comparison holds: records with a number, their jobs and repeats, and runs without a number."""

    records: int
    jobs: int
    repeats: int
    without_number: int
    systems: tuple[str, ...]


@dataclass(frozen=True)
class ComparedResults:
    """Everything that ``compare`` found. ``pairs`` are sorted, the worst first; ``differences`` are those of all pairs."""

    rule: Rule
    old: SideTotal
    new: SideTotal
    pairs: tuple[Pair, ...]
    unpaired: tuple[Unpaired, ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> Mapping[Verdict, int]:
        return Counter(pair.verdict for pair in self.pairs)

    @property
    def regressions(self) -> tuple[Pair, ...]:
        return tuple(pair for pair in self.pairs if pair.verdict in FAILING)

    @property
    def undecided(self) -> tuple[Pair, ...]:
        return tuple(pair for pair in self.pairs if pair.verdict in UNDECIDED)


def judge(old: Samples, new: Samples, rule: Rule = _DEFAULT, systems: Sequence[object] = ()) -> list[Judgement]:
    """A judgement of each pair of a comparison, from the rates of the repeats on either side (all above 0).

    Pairs on equal ``systems``, by default all, tell each other how much jobs differ where a side has one.
    """
    judgements, judged = [], []
    systems = systems or [""] * len(old)
    spreads = {system: _between(old, new, [system == each for each in systems]) for system in systems}
    for number, pair in enumerate(zip(old, new, strict=True)):
        jobs = [len(sample.units) for sample in pair]
        between = spreads[systems[number]]
        own = _between(pair[:1], pair[1:])
        spread = own if own[1] >= ENOUGH else between
        reason = ""
        if rule.test == "mann-whitney" and (min(jobs) < 1 or two_samples.least_p(*jobs) >= rule.alpha):
            reason = "the Mann–Whitney test cannot reach p < {:g} with {} and {} jobs".format(rule.alpha, *jobs)
        elif min(jobs) < 1 or (
            min(len(sample.values) for sample in pair) < 2 and (max(jobs) < 2 or spread[1] < ENOUGH)
        ):
            reason = "one repeat has no spread: 2 or more, or more jobs, are needed on either side"
        else:
            judged.append((number, spread))
            if min(jobs) < 2:
                known = spread[1] >= ENOUGH
                source = (
                    "is that of other jobs"
                    if known
                    else f"is assumed to be {100 * ASSUMED:g} %, as too few jobs tell it"
                )
                reason = f"a side has one job; the spread between jobs {source}"
        judgements.append(Judgement("cannot say", reason))
    if not judged:
        return judgements
    pairs = [(old[number], new[number]) for number, _ in judged]
    if rule.test == "welch":
        variances = [_variance(*pair, spread) for pair, (_, spread) in zip(pairs, judged, strict=True)]
        shift = np.array([np.mean(after.units) - np.mean(before.units) for before, after in pairs])
        shifts = two_samples.student(shift, *map(np.array, zip(*variances, strict=True)))
    else:
        shifts = two_samples.mann_whitney(
            *([np.array(sample.units) for sample in side] for side in zip(*pairs, strict=True))
        )
    # From differences of logarithms to changes; what has no lower bound may have lost everything.
    changes = (
        np.expm1(column).tolist() for column in (shifts.shift, *shifts.interval(SHOWN), *shifts.interval(DECIDING))
    )
    adjusted = (two_samples.benjamini_hochberg(p).tolist() for p in (shifts.p_lower, shifts.p_higher))
    numbers = [number for number, _ in judged]
    for number, change, low95, high95, low, high, slower, faster in zip(numbers, *changes, *adjusted, strict=True):
        verdict: Verdict = "too noisy" if low95 <= -rule.threshold else "no significant change"
        if slower < rule.alpha:
            verdict = "slower" if low <= -rule.threshold else "significant, below the threshold"
        elif faster < rule.alpha:
            verdict = "faster" if high >= rule.threshold else "significant, below the threshold"
        reason = judgements[number].reason
        judgements[number] = Judgement(verdict, reason, change, (low95, high95), (low, high), min(slower, faster))
    return judgements


def _between(old: Samples, new: Samples, of: Sequence[bool] | None = None) -> tuple[float, int]:
    """The variance between jobs of these samples, of all that have several, and its degrees of freedom."""
    several = [
        np.array(sample.units)
        for number, pair in enumerate(zip(old, new, strict=True))
        for sample in pair
        if (of is None or of[number]) and len(sample.units) > 1
    ]
    freedom = sum(len(units) - 1 for units in several)
    return sum(float(np.var(units) * len(units)) for units in several) / max(1, freedom), freedom


def _variance(old: Sample, new: Sample, spread: tuple[float, int]) -> tuple[float, float]:
    """The variance of the difference of the means of both sides, and its degrees of freedom.

    With several jobs each it is Welch's, with the degrees of freedom of ``satterthwaite``. Where a side has one, the
    ``spread`` between jobs is that of the pair's other side or, if that has not ``ENOUGH`` degrees of freedom f, of all
    pairs on the system. A few jobs may be alike by chance, so one more counts towards it, with half of ``ASSUMED``: (f·s² +
    ``ASSUMED``²/4)/(f + 1). Without ``ENOUGH`` in all it is ``ASSUMED``², or what was seen if that is more, which is taken
    as known; the noise of the repeats is added to it.
    """
    (between, freedom), pair = spread, (old, new)
    jobs = [len(sample.units) for sample in pair]
    if min(jobs) > 1:
        errors = [
            (math.sqrt(max(float(np.var(s.units, ddof=1)), 1e-28) / len(s.units)), len(s.units) - 1.0) for s in pair
        ]
        return sum(error**2 for error, _ in errors), satterthwaite(errors)
    per_job = sum(1 / n for n in jobs)
    if freedom >= ENOUGH:
        return (freedom * between + ASSUMED**2 / 4) / (freedom + 1) * per_job, freedom
    total, uncertain = max(between, ASSUMED**2) * per_job, 0.0
    for sample in pair:
        its = len(sample.values) - len(sample.units)
        if its:
            squares = sum(float(np.var(logs) * len(logs)) for logs in sample.by_job.values())
            error = squares / its / len(sample.values)
            total, uncertain = total + error, uncertain + error**2 / its
    return total, total**2 / uncertain if uncertain else np.inf


def compare(old: pandas.DataFrame, new: pandas.DataFrame, rule: Rule = _DEFAULT) -> ComparedResults:
    """Compare all runs of two calls of ``results.load``, each with kernels ``beside`` it if there are some.

    Results of two systems without a spec in common, and published ones, are compared as ``across.matched`` says. Raises
    InvalidInput if a side has no number, if both are the same runs, or if nothing is on both sides.
    """
    notes: list[str] = []
    for name, side in (("OLD", old), ("NEW", new)):
        if not len(side):
            raise InvalidInput(f"{name} holds no records")
    if not (old["status"] == "completed").any():
        raise InvalidInput(f"OLD holds no number: none of its {plural(_count(old), 'run')} is completed")
    if two_systems := _two_systems(*map(_trained, (old, new))):
        old, new, notes = _across(old, new)
    again = new["id"].isin(old["id"])
    if again.all():
        raise InvalidInput(f"OLD and NEW hold the same {plural(_count(new), 'run')}, such as {new['id'].iloc[0]}")
    if again.any():
        count, new = _count(new[again]), new[~again]
        verbs = ("is", "counts") if count == 1 else ("are", "count")
        notes.append(f"{plural(count, 'run')} of NEW {verbs[0]} also in OLD, and {verbs[1]} there only")
    before, after = _Results(old), _Results(new)
    matched = _matched(before, after)
    # What has a number in OLD and in NEW none, because the runs failed.
    lost = [
        (spec, before.of(spec), after.failed[spec])
        for spec in before.numbers
        if spec in after.failed and spec not in after.numbers
    ]
    matches = [*matched, *lost]
    if not matches:
        raise InvalidInput(_nothing_in_common(before, after))
    old_values = [_sample(runs) for _, runs, _ in matched]
    new_values = [_sample(runs) for _, _, runs in matched]
    systems = [(_systems(here), _systems(there)) for _, here, there in matched]
    judgements = judge(old_values, new_values, rule, systems)
    if two_systems:
        judgements = [_as_it_is(*each) for each in zip(judgements, old_values, new_values, strict=True)]
    judgements += [Judgement("no number", runs[-1]["reason"]) for _, _, runs in lost]
    differing = [environments(*([run["environment"] for run in runs] for runs in match[1:])) for match in matches]
    # A run that failed early could not tell its environment, so it does not say what all have in common.
    first, *others = differing[: len(matched)] or differing
    common = tuple(difference for difference in first if all(difference in other for other in others))
    specs = {spec: json.loads(spec) for spec, _, _ in matches}
    names, times = spec_names(specs), Counter(spec for spec, _, _ in matches)
    pairs = []
    for (spec, here, there), judgement, found in zip(matches, judgements, differing, strict=True):
        changed, lost_it = judgement.verdict in CHANGED, judgement.verdict == "no number"
        pairs.append(
            Pair(
                names[spec] + (f" on {', '.join(_systems(here))}" if times[spec] > 1 else ""),
                specs[spec],
                _side(here),
                _side(there),
                judgement,
                tuple(difference for difference in found if changed and difference not in common),
                (_steps(here), _steps(there))
                if changed and not lost_it and not two_systems and "kernel" not in specs[spec]
                else None,
                work=None if lost_it or two_systems or "kernel" in specs[spec] else work.between(here, there),
            )
        )

    if not two_systems:
        pairs += _energy(matched, pairs, rule, notes)

    # What changed lists its differences itself.
    lengths = Counter(
        difference
        for pair, found in zip(pairs[: len(differing)], differing, strict=True)
        for difference in found
        if pair.verdict not in CHANGED and difference.name in LENGTH.values() and difference not in common
    )
    notes += [f"{difference} in {plural(number, 'measurement')}" for difference, number in lengths.items()]
    if beside := [runs for spec, runs in after.failed.items() if spec in after.numbers]:
        reason = beside[0][-1]["reason"].split("\n")[0]
        runs = plural(len({run["id"] for those in beside for run in those}), "run")
        notes.append(f"{runs} of NEW failed while others of the same spec have a number: {reason}")

    def severity(pair: Pair) -> tuple[int, float]:
        change = pair.judgement.change or 0.0
        return VERDICTS.index(pair.verdict), -change if pair.verdict in ("faster", "less energy") else change

    return ComparedResults(
        rule,
        _total(before),
        _total(after),
        tuple(sorted(pairs, key=severity)),
        tuple(_unpaired(before, after, matches)),
        common,
        tuple(notes),
    )


def _two_systems(old: pandas.DataFrame, new: pandas.DataFrame) -> bool:
    """Whether the specs of the two sides cannot be equal: published ones, or those of two machines that have none alike."""
    if any((side["origin"] != "measured").any() for side in (old, new)):
        return True
    if old.empty or new.empty:
        return False
    return not any(set(old[name]) & set(new[name]) for name in ("system", "spec"))


def _trained(side: pandas.DataFrame) -> pandas.DataFrame:
    """What is not of kernels, which have no model; publications may not say theirs."""
    return side[(side["model"] != "") | (side["origin"] != "measured")]


def _across(old: pandas.DataFrame, new: pandas.DataFrame) -> tuple[pandas.DataFrame, pandas.DataFrame, list[str]]:
    """Both sides as ``across.matched`` makes them comparable; kernels as they are."""
    import pandas

    *matched, notes = across.matched(*map(_trained, (old, new)))
    before, after = (
        pandas.concat([those, side.drop(_trained(side).index)], ignore_index=True)
        for those, side in zip(matched, (old, new), strict=True)
    )
    return before, after, notes


def _count(side: pandas.DataFrame) -> int:
    """How many runs these are. A kernel's has a row for each size; published ones have no id."""
    named = side["id"] != ""
    return int(side.loc[named, "id"].nunique() + (~named).sum())


def _as_it_is(judgement: Judgement, old: Sample, new: Sample) -> Judgement:
    """What cannot be judged with its change all the same: of another system there may never be more repeats."""
    if judgement.verdict != "cannot say":
        return judgement
    return replace(judgement, change=new.mean / old.mean - 1)


def _energy(matched: Sequence[Match], of_img_per_s: Sequence[Pair], rule: Rule, notes: list[str]) -> list[Pair]:
    """Pairs of images per joule beside the pairs ``of_img_per_s``, which begin with those ``matched``."""
    found: list[tuple[Pair, str, Runs, Runs]] = []
    unlike = 0
    for (_, old, new), pair in zip(matched, of_img_per_s, strict=False):
        here, there = ({run["energy"] for run in runs if run["energy"]} for runs in (old, new))
        unlike += bool(here | there) and not here & there
        for covers in sorted(here & there):
            of = [[run for run in runs if run["energy"] == covers] for runs in (old, new)]
            found.append((pair, covers, of[0], of[1]))
    if unlike:
        notes.append(f"energy of the same parts is not on both sides in {plural(unlike, 'measurement')}")
    before = [_sample(runs, "joules_values") for _, _, runs, _ in found]
    after = [_sample(runs, "joules_values") for _, _, _, runs in found]
    judgements = judge(before, after, rule, [(_systems(here), _systems(there)) for _, _, here, there in found])
    words: dict[Verdict, Verdict] = {"slower": "more energy", "faster": "less energy"}
    return [
        replace(
            pair,
            label=f"{pair.label}, energy of {covers}",
            old=_side(old, here),
            new=_side(new, there),
            judgement=replace(judgement, verdict=words.get(judgement.verdict, judgement.verdict)),
            steps=None,
            energy=covers,
            work=None,
        )
        for (pair, covers, old, new), here, there, judgement in zip(found, before, after, judgements, strict=True)
    ]


def _sample(runs: Runs, column: str = "values") -> Sample:
    """The repeats of ``runs``: their rates or, of energy, images per joule. A published mean is of no job, and has none."""
    values = [1 / value if column == "joules_values" else value for run in runs for value in run[column]]
    jobs = [job for run in runs for job in run["jobs"]]
    if len(jobs) == len(values):
        return Sample.of(values, jobs) if values else Sample(np.nan)
    return Sample(float(np.exp(np.mean(np.log(values)))))


def _side(runs: Runs, sample: Sample | None = None) -> Side:
    sample = sample or _sample(runs)
    mean = None if np.isnan(sample.mean) else sample.mean
    return Side(len(runs), len(sample.units), len(sample.values), mean, _systems(runs))


def _steps(runs: Runs) -> dict[str, float]:
    names = ("step_p50_s", "step_p99_s", "jitter_s", "slowest_over_median")
    return {name.removeprefix("step_"): float(np.mean([run[name] for run in runs])) for name in names}


def _total(results: _Results) -> SideTotal:
    repeats = {run["id"]: len(run["values"]) for spec in results.numbers for run in results.of(spec)}
    runs = {run["id"] for run in results.runs}
    jobs = {job for spec in results.numbers for run in results.of(spec) for job in run["jobs"]}
    return SideTotal(len(repeats), len(jobs), sum(repeats.values()), len(runs) - len(repeats), _systems(results.runs))


class _Results:
    """One side's runs, found by spec: those with a number by system, too, and those that failed or were interrupted."""

    def __init__(self, frame: pandas.DataFrame) -> None:
        """``frame`` is one of ``results.load(…, status=None)``."""
        self.numbers: dict[str, dict[str, list[Mapping[Any, Any]]]] = {}
        self.failed: dict[str, list[Mapping[Any, Any]]] = {}
        self.interrupted: dict[str, list[Mapping[Any, Any]]] = {}
        self.runs: Runs = frame[list(_COLUMNS)].to_dict("records")
        for run in self.runs:
            if run["status"] == "completed":
                self.numbers.setdefault(run["spec"], {}).setdefault(run["system"], []).append(run)
            else:
                without = self.failed if run["status"] == "failed" else self.interrupted
                without.setdefault(run["spec"], []).append(run)

    def of(self, spec: str) -> Runs:
        return [run for runs in self.numbers[spec].values() for run in runs]

    def in_vain(self, spec: str, name: Name) -> str:
        """Why the last run of ``spec`` has no number; "" if none was tried in vain."""
        runs = self.interrupted.get(spec) or self.failed.get(spec)
        return f"{runs[-1]['status']} in {name}: {runs[-1]['reason']}" if runs else ""


def _systems(runs: Runs) -> tuple[str, ...]:
    return tuple(sorted({run["system"] for run in runs}))


def _matched(old: _Results, new: _Results) -> list[Match]:
    """Specs with a number on both sides, system by system where both sides have a system."""
    matches: list[Match] = []
    for spec, here in old.numbers.items():
        there = new.numbers.get(spec, {})
        if both := [system for system in here if system in there]:
            matches += [(spec, here[system], there[system]) for system in both]
        elif there:  # another system, or a machine whose name changes from job to job
            matches.append((spec, old.of(spec), new.of(spec)))
    return matches


def _unpaired(old: _Results, new: _Results, matches: Iterable[Match]) -> list[Unpaired]:
    """What is in no match, on either side, each with the other side's closest spec if it was not tried there."""
    used = {(run["id"], spec) for spec, here, there in matches for run in (*here, *there)}
    tried = {**new.failed, **new.interrupted}
    specs = {spec: json.loads(spec) for spec in tried if spec not in old.numbers and spec not in new.numbers}
    in_vain = [
        Unpaired("NEW", name, _systems(tried[spec]), f"{new.in_vain(spec, 'NEW')}; OLD has no number either")
        for spec, name in spec_names(specs).items()
    ]
    return [*_alone("OLD", old, "NEW", new, used), *_alone("NEW", new, "OLD", old, used), *in_vain]


def _alone(side: Name, here: _Results, other: Name, there: _Results, used: set[tuple[str, str]]) -> Iterator[Unpaired]:
    left = {spec: [run for run in here.of(spec) if (run["id"], spec) not in used] for spec in here.numbers}
    left = {spec: runs for spec, runs in left.items() if runs}
    names = spec_names({spec: json.loads(spec) for spec in left})
    candidates = [spec for spec in there.numbers if not any((run["id"], spec) in used for run in there.of(spec))]
    untried = [spec for spec in left if spec not in there.numbers and not there.in_vain(spec, other)]
    nearest = closest(untried, candidates or list(there.numbers))
    for spec, runs in left.items():
        if spec in there.numbers:
            why = f"not in {other} on {', '.join(_systems(runs))}, but on {', '.join(there.numbers[spec])}"
        else:
            why = f"not in {other}" + (f"; the closest differs in {nearest[spec]}" if spec in nearest else "")
            why = there.in_vain(spec, other) or why
        yield Unpaired(side, names[spec], _systems(runs), why)


def _nothing_in_common(old: _Results, new: _Results) -> str:
    if not new.numbers:
        return f"NEW holds no number: none of its {plural(len({run['id'] for run in new.runs}), 'run')} is completed"
    counts = f"no spec of OLD ({len(old.numbers)}) is in NEW ({len(new.numbers)}), so nothing can be compared; "
    nearest = closest(list(old.numbers), list(new.numbers))
    if not nearest:
        return counts + "they have no backend in common"
    differing, times = Counter(nearest.values()).most_common(1)[0]
    return counts + f"the closest differ in {differing}" + (f" ({times} of {len(nearest)})" if len(nearest) > 1 else "")
