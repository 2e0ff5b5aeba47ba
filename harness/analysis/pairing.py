"""Which results of two sets are the same measurement, and what has no partner."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from harness.analysis.differences import closest, spec_names
from harness.core.text import plural

if TYPE_CHECKING:
    import pandas

Runs: TypeAlias = Sequence[Mapping[Any, Any]]  # rows of a side's DataFrame
Match: TypeAlias = tuple[str, Runs, Runs]  # a spec, and its runs on both sides
Name = Literal["OLD", "NEW"]
_COLUMNS = (
    *("id", "spec", "system", "status", "reason", "environment", "values"),
    *("step_p50_s", "step_p99_s", "jitter_s", "slowest_over_median"),
)


class Results:
    """One side's runs, found by spec: those with a number by system, too, and those that failed or were interrupted."""

    def __init__(self, frame: pandas.DataFrame) -> None:
        """``frame`` is one of ``results.load(…, status=None)`` with measured runs only."""
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


@dataclass(frozen=True)
class Unpaired:
    """A measurement that has a number on one side only, or was tried in vain on both."""

    side: Name
    label: str
    systems: tuple[str, ...]
    why: str


def systems(runs: Runs) -> tuple[str, ...]:
    return tuple(sorted({run["system"] for run in runs}))


def matched(old: Results, new: Results) -> list[Match]:
    """Specs with a number on both sides, system by system where both sides have a system."""
    matches: list[Match] = []
    for spec, here in old.numbers.items():
        there = new.numbers.get(spec, {})
        if both := [system for system in here if system in there]:
            matches += [(spec, here[system], there[system]) for system in both]
        elif there:  # another system, or a machine whose name changes from job to job
            matches.append((spec, old.of(spec), new.of(spec)))
    return matches


def unpaired(old: Results, new: Results, matches: Iterable[Match]) -> list[Unpaired]:
    """What is in no match, on either side, each with the other side's closest spec if it was not tried there."""
    used = {run["id"] for _, here, there in matches for run in (*here, *there)}
    tried = {**new.failed, **new.interrupted}
    specs = {spec: json.loads(spec) for spec in tried if spec not in old.numbers and spec not in new.numbers}
    in_vain = [
        Unpaired("NEW", name, systems(tried[spec]), f"{new.in_vain(spec, 'NEW')}; OLD has no number either")
        for spec, name in spec_names(specs).items()
    ]
    return [*_alone("OLD", old, "NEW", new, used), *_alone("NEW", new, "OLD", old, used), *in_vain]


def _alone(side: Name, here: Results, other: Name, there: Results, used: set[str]) -> Iterator[Unpaired]:
    left = {spec: [run for run in here.of(spec) if run["id"] not in used] for spec in here.numbers}
    left = {spec: runs for spec, runs in left.items() if runs}
    names = spec_names({spec: json.loads(spec) for spec in left})
    candidates = [spec for spec in there.numbers if not any(run["id"] in used for run in there.of(spec))]
    untried = [spec for spec in left if spec not in there.numbers and not there.in_vain(spec, other)]
    nearest = closest(untried, candidates or list(there.numbers))
    for spec, runs in left.items():
        if spec in there.numbers:
            why = f"not in {other} on {', '.join(systems(runs))}, but on {', '.join(there.numbers[spec])}"
        else:
            why = f"not in {other}" + (f"; the closest differs in {nearest[spec]}" if spec in nearest else "")
            why = there.in_vain(spec, other) or why
        yield Unpaired(side, names[spec], systems(runs), why)


def nothing_in_common(old: Results, new: Results) -> str:
    """One line about two sides of which no measurement can be compared."""
    if not new.numbers:
        return f"NEW holds no number: none of its {plural(len(new.runs), 'run')} is completed"
    counts = f"no spec of OLD ({len(old.numbers)}) is in NEW ({len(new.numbers)}), so nothing can be compared; "
    nearest = closest(list(old.numbers), list(new.numbers))
    if not nearest:
        return counts + "they have no backend in common"
    differing, times = Counter(nearest.values()).most_common(1)[0]
    return counts + f"the closest differ in {differing}" + (f" ({times} of {len(nearest)})" if len(nearest) > 1 else "")
