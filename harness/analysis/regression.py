"""Did it get slower? Two sets of results, compared measurement by measurement.

**Pairs.** Results of equal specs (the column ``spec``) form a pair, on each system of its own where both sides have it. The
unit of the test is the repeat in a fresh process; the repeats of several records of one spec on one side are pooled.

**The test** is Welch's t-test on log(img/s), one-sided, or Mann and Whitney's. Its p-values are adjusted for the number of
pairs in the comparison (Benjamini and Hochberg).

**The rule.** A pair is ``slower`` if and only if

(a) the adjusted p-value is below alpha, and
(b) the data do not exclude a slowdown as large as the threshold: the 99 % confidence interval of the change reaches it.

So the threshold excuses a slowdown only where the data show that it is smaller. ``faster`` is the same the other way round.
With (a) but not (b) the change is significant, below the threshold. With fewer than two repeats on a side there is no
spread to judge by, and nothing is guessed. A measurement that had a number and whose run now fails is a regression too.

Why alpha is 0.04 and the interval of (b) 99 %: with 5 repeats on either side, 3.6 % of unchanged pairs then pass (a) and at
most as many are called slower, whatever the noise; and a slowdown of 5 % in 2 % of noise is found in 96 % of all cases.
With (b) on the 95 % interval it would be 94.9 %, because that interval misses a true slowdown of exactly the threshold once
in 40 times. ``tests/unit/test_regression.py`` measures this.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from harness.analysis import differences, pairing, two_samples
from harness.analysis.differences import Difference
from harness.analysis.pairing import Matched, Results, Rows, Unpaired
from harness.analysis.spec_names import spec_names
from harness.analysis.two_samples import Test, Vector
from harness.core.text import plural
from harness.errors import InvalidInput

if TYPE_CHECKING:
    import pandas

ALPHA = 0.04
THRESHOLD = 0.05
SHOWN, DECIDING = 0.95, 0.99  # levels of the confidence intervals

Verdict = Literal[
    "no number",
    "slower",
    "cannot say",
    "significant, below the threshold",
    "faster",
    "no significant change",
]
VERDICTS: tuple[Verdict, ...] = Verdict.__args__  # type: ignore[attr-defined]  # the worst first
FAILING: tuple[Verdict, ...] = ("no number", "slower")
CHANGED: tuple[Verdict, ...] = (*FAILING, "significant, below the threshold", "faster")
Interval: TypeAlias = tuple[float, float]
Samples: TypeAlias = Sequence[Sequence[float] | Vector]


@dataclass(frozen=True)
class Rule:
    """How a comparison decides."""

    test: Test = "welch"
    alpha: float = ALPHA
    threshold: float = THRESHOLD


_DEFAULT = Rule()


@dataclass(frozen=True)
class Judgement:
    """What the data say about one pair. Changes are NEW / OLD − 1 of the geometric means, p is adjusted and one-sided."""

    verdict: Verdict
    reason: str = ""
    change: float | None = None
    ci95: Interval | None = None
    ci99: Interval | None = None
    p: float | None = None


@dataclass(frozen=True)
class Side:
    """One side of a pair. ``img_per_s`` is the geometric mean of the repeats, None without any."""

    records: int
    repeats: int
    img_per_s: float | None
    systems: tuple[str, ...]


@dataclass(frozen=True)
class MeanStepTimes:
    """Step times of one side of a pair, means over its records; tells whether every step or some steps are slower."""

    p50_s: float
    p99_s: float
    jitter_s: float
    slowest_over_median: float


@dataclass(frozen=True)
class Pair:
    """One measurement on both sides. ``differences`` and ``steps`` are told for pairs that changed."""

    label: str
    spec: Mapping[str, Any]
    old: Side
    new: Side
    judgement: Judgement
    differences: tuple[Difference, ...] = ()
    steps: tuple[MeanStepTimes, MeanStepTimes] | None = None

    @property
    def verdict(self) -> Verdict:
        return self.judgement.verdict


@dataclass(frozen=True)
class SideTotal:
    """What one side of a comparison holds: records with a number and their repeats, and runs without a number."""

    records: int
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
        """The pairs that make the comparison fail, the worst first."""
        return tuple(pair for pair in self.pairs if pair.verdict in FAILING)


# --- the rule, on plain values --------------------------------------------------------------------


def judge(old: Samples, new: Samples, rule: Rule = _DEFAULT) -> list[Judgement]:
    """A judgement of each pair of a comparison, from the img/s of the repeats on either side (all above 0)."""
    reasons = [_too_few(len(one), len(other), rule) for one, other in zip(old, new, strict=True)]
    judged = [number for number, reason in enumerate(reasons) if not reason]
    found = [Judgement("cannot say", reason) for reason in reasons]
    if not judged:
        return found
    test = two_samples.welch if rule.test == "welch" else two_samples.mann_whitney
    shifts = test([np.log(old[number]) for number in judged], [np.log(new[number]) for number in judged])
    slower, faster = (two_samples.benjamini_hochberg(p) for p in (shifts.p_lower, shifts.p_higher))
    change = np.expm1(shifts.shift)
    shown, deciding = (_back(shifts.interval(level)) for level in (SHOWN, DECIDING))
    for position, number in enumerate(judged):
        down = bool(slower[position] < rule.alpha)
        up = bool(faster[position] < rule.alpha)
        low, high = float(deciding[0][position]), float(deciding[1][position])
        verdict: Verdict = "no significant change"
        if down:
            verdict = "slower" if low <= -rule.threshold else "significant, below the threshold"
        elif up:
            verdict = "faster" if high >= rule.threshold else "significant, below the threshold"
        found[number] = Judgement(
            verdict,
            change=float(change[position]),
            ci95=(float(shown[0][position]), float(shown[1][position])),
            ci99=(low, high),
            p=float(min(slower[position], faster[position])),
        )
    return found


def _too_few(n_old: int, n_new: int, rule: Rule) -> str:
    """Why a pair with so many repeats cannot be judged, "" if it can."""
    if min(n_old, n_new) < 2:
        return "one repeat has no spread: 2 or more are needed on either side"
    if rule.test == "mann-whitney" and two_samples.least_p(n_old, n_new) >= rule.alpha:
        return f"the Mann–Whitney test cannot reach p < {rule.alpha:g} with {n_old} and {n_new} repeats"
    return ""


def _back(interval: tuple[Vector, Vector]) -> tuple[Vector, Vector]:
    """From differences of logarithms to changes; what has no lower bound may have lost everything."""
    return np.expm1(interval[0]), np.expm1(interval[1])


# --- the comparison of two DataFrames -------------------------------------------------------------


def compare(old: pandas.DataFrame, new: pandas.DataFrame, rule: Rule = _DEFAULT) -> ComparedResults:
    """Compare the results in two DataFrames of ``results.load(…, status=None)``.

    Raises InvalidInput if a side has no number or holds published figures, if both are the same runs, or if no spec is on
    both sides.
    """
    notes = []
    for name, side in (("OLD", old), ("NEW", new)):
        if not len(side):
            raise InvalidInput(f"{name} holds no records")
        if (side["origin"] != "measured").any():
            raise InvalidInput(f"{name} holds published figures, which have no repeats; compare takes records")
    if not (old["status"] == "completed").any():
        raise InvalidInput(f"OLD holds no number: none of its {plural(len(old), 'run')} is completed")
    again = new["id"].isin(old["id"])
    if again.all():
        raise InvalidInput(f"OLD and NEW hold the same {plural(len(new), 'run')}, such as {new['id'].iloc[0]}")
    if again.any():
        new = new[~again]
        verbs = ("is", "counts") if again.sum() == 1 else ("are", "count")
        notes.append(f"{plural(int(again.sum()), 'run')} of NEW {verbs[0]} also in OLD, and {verbs[1]} there only")
    before, after = Results(old), Results(new)
    matched, lost = pairing.matched(before, after), pairing.lost(before, after)
    if not matched and not lost:
        raise InvalidInput(pairing.nothing_in_common(before, after))

    judgements = judge(
        [before.img_per_s(one.old) for one in matched], [after.img_per_s(one.new) for one in matched], rule
    )
    judgements += [Judgement("no number", after.reason(one.new)) for one in lost]
    differing = [
        differences.environments(before.environments(one.old), after.environments(one.new)) for one in [*matched, *lost]
    ]
    # A run that failed early could not tell its environment, so it does not say what all have in common.
    common = _common(differing[: len(matched)] or differing)
    notes += _notes(rule, before, after, matched, judgements)
    return ComparedResults(
        rule,
        _total(before),
        _total(after),
        tuple(sorted(_pairs(before, after, [*matched, *lost], judgements, differing, common), key=_severity)),
        tuple(pairing.unpaired(before, after, [*matched, *lost])),
        common,
        tuple(notes),
    )


def _pairs(
    before: Results,
    after: Results,
    matched: Sequence[Matched],
    judgements: Sequence[Judgement],
    differing: Sequence[tuple[Difference, ...]],
    common: Sequence[Difference],
) -> Iterator[Pair]:
    specs = {text: json.loads(text) for text in dict.fromkeys(one.spec for one in matched)}
    names = spec_names(specs)
    several = {text for text, times in Counter(one.spec for one in matched).items() if times > 1}
    for one, judgement, found in zip(matched, judgements, differing, strict=True):
        old, new = _side(before, one.old), _side(after, one.new)
        label = names[one.spec] + (f" on {', '.join(old.systems)}" if one.spec in several else "")
        own: tuple[Difference, ...] = ()
        steps = None
        if judgement.verdict in CHANGED:
            own = tuple(difference for difference in found if difference not in common)
        if judgement.verdict in CHANGED and judgement.verdict != "no number":
            steps = MeanStepTimes(*map(float, before.steps(one.old))), MeanStepTimes(*map(float, after.steps(one.new)))
        yield Pair(label, specs[one.spec], old, new, judgement, own, steps)


def _side(results: Results, rows: Rows) -> Side:
    return Side(len(rows), *results.mean(rows), results.systems_of(rows))


def _total(results: Results) -> SideTotal:
    numbers = [row for spec in results.numbers for row in results.rows(spec)]
    repeats = sum(results.repeats[row] for row in numbers)
    return SideTotal(len(numbers), repeats, results.records - len(numbers), tuple(sorted(set(results.systems))))


def _common(differing: Sequence[tuple[Difference, ...]]) -> tuple[Difference, ...]:
    """The differences that every pair has, in the order of the first."""
    shared = set(differing[0]).intersection(*set(differing))
    return tuple(one for one in differing[0] if one in shared)


def _severity(pair: Pair) -> tuple[int, float]:
    change = pair.judgement.change or 0.0
    return VERDICTS.index(pair.verdict), -change if pair.verdict == "faster" else change


def _notes(
    rule: Rule, before: Results, after: Results, matched: Sequence[Matched], judgements: Sequence[Judgement]
) -> list[str]:
    """What a reader should know besides."""
    notes = []
    if beside := [spec for spec in after.failed if spec in after.numbers]:
        times = sum(len(after.failed[spec]) for spec in beside)
        reason = after.reason(after.failed[beside[0]]).split("\n")[0]
        notes.append(f"{plural(times, 'run')} of NEW failed while others of the same spec have a number: {reason}")
    judged = [one for one, judgement in zip(matched, judgements, strict=False) if judgement.p is not None]
    if rule.test == "mann-whitney" and judged:
        sizes = [(before.mean(one.old)[0], after.mean(one.new)[0]) for one in judged]
        least = min(starmap(two_samples.least_p, sizes))
        needed = int(least * len(judged) / rule.alpha) + 1
        if needed > 1:
            notes.append(
                f"Mann–Whitney's p is at least {least:.2g} with so few repeats: of {len(judged)} pairs {needed} or more "
                "must change before any change is significant"
            )
    return notes
