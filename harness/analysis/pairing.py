"""Which results of two sets are the same measurement, and what has no partner."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from harness.analysis.spec_names import flat, shown, spec_names
from harness.core.text import plural

if TYPE_CHECKING:
    import pandas

Rows: TypeAlias = Sequence[int]  # positions in a side's DataFrame
Name = Literal["OLD", "NEW"]

# What a spec gets from its machine unless told: an upgrade changes it without anybody's wish.
_FROM_THE_MACHINE = {"threads", "data_threads", "data"}
_COMPARED = 200  # specs without a partner for which the closest one is looked up, on either side


class Results:
    """One side's runs, found by spec and, those with a number, by system."""

    def __init__(self, frame: pandas.DataFrame) -> None:
        """``frame`` is one of ``results.load(…, status=None)`` with measured runs only."""
        self.numbers: dict[str, dict[str, list[int]]] = {}
        self.failed: dict[str, list[int]] = {}
        self.interrupted: dict[str, list[int]] = {}
        self.records = len(frame)
        self.values: list[NDArray[np.float64]] = frame["values"].tolist()
        self.systems: list[str] = frame["system"].tolist()
        self._reasons, self._environments = frame["reason"].tolist(), frame["environment"].tolist()
        self._steps = frame[["step_p50_s", "step_p99_s", "jitter_s", "slowest_over_median"]].to_numpy()
        self.repeats: list[int] = [len(values) for values in self.values]
        of_each = np.repeat(np.arange(len(frame)), self.repeats)
        logarithms = np.log(np.concatenate([*self.values, np.empty(0)]))
        self._log_sums: list[float] = np.bincount(of_each, logarithms, len(frame)).tolist()
        without = {"failed": self.failed, "interrupted": self.interrupted}
        for row, (spec, status) in enumerate(zip(frame["spec"], frame["status"], strict=True)):
            if status == "completed":
                self.numbers.setdefault(spec, {}).setdefault(self.systems[row], []).append(row)
            else:
                without[status].setdefault(spec, []).append(row)

    def rows(self, spec: str) -> list[int]:
        """The runs of ``spec`` that have a number, on any system."""
        return [row for rows in self.numbers[spec].values() for row in rows]

    def img_per_s(self, rows: Rows) -> NDArray[np.float64]:
        return self.values[rows[0]] if len(rows) == 1 else np.concatenate([self.values[row] for row in rows])

    def mean(self, rows: Rows) -> tuple[int, float | None]:
        """How many repeats these runs have, and the geometric mean of their img/s, None without any."""
        repeats = sum(self.repeats[row] for row in rows)
        return repeats, math.exp(sum(self._log_sums[row] for row in rows) / repeats) if repeats else None

    def systems_of(self, rows: Rows) -> tuple[str, ...]:
        return tuple(sorted({self.systems[row] for row in rows}))

    def environments(self, rows: Rows) -> list[str]:
        return sorted({self._environments[row] for row in rows})

    def steps(self, rows: Rows) -> NDArray[np.float64]:
        """p50, p99 and jitter of the step times in seconds, and the slowest rank over the median: means over these runs."""
        means: NDArray[np.float64] = self._steps[list(rows)].mean(axis=0)
        return means

    def reason(self, rows: Rows) -> str:
        """Why the last of these runs has no number."""
        return str(self._reasons[rows[-1]])


@dataclass(frozen=True)
class Matched:
    """Runs of one spec on both sides."""

    spec: str
    old: Rows
    new: Rows


@dataclass(frozen=True)
class Unpaired:
    """A measurement that has a number on one side only, or was tried in vain on both."""

    side: Name
    label: str
    systems: tuple[str, ...]
    why: str


def matched(old: Results, new: Results) -> list[Matched]:
    """Specs with a number on both sides, system by system where both sides have a system."""
    found = []
    for spec, here in old.numbers.items():
        there = new.numbers.get(spec, {})
        if both := [system for system in here if system in there]:
            found += [Matched(spec, here[system], there[system]) for system in both]
        elif there:  # another system, or a machine whose name changes from job to job
            found.append(Matched(spec, old.rows(spec), new.rows(spec)))
    return found


def lost(old: Results, new: Results) -> list[Matched]:
    """Specs that have a number in OLD and in NEW none, because the runs failed."""
    return [
        Matched(spec, old.rows(spec), new.failed[spec])
        for spec in old.numbers
        if spec in new.failed and spec not in new.numbers
    ]


def unpaired(old: Results, new: Results, pairs: Iterable[Matched]) -> list[Unpaired]:
    """What is not in ``pairs``, on either side, each with the other side's closest spec if it was not tried there."""
    used: dict[Name, set[int]] = {"OLD": set(), "NEW": set()}
    for pair in pairs:
        used["OLD"].update(pair.old)
        used["NEW"].update(pair.new)
    return [
        *_alone("OLD", old, "NEW", new, used),
        *_alone("NEW", new, "OLD", old, used),
        *_in_vain(old, new, used["NEW"]),
    ]


def _alone(side: Name, here: Results, other: Name, there: Results, used: dict[Name, set[int]]) -> Iterator[Unpaired]:
    """The measurements with a number ``here`` that are in no pair."""
    left = {
        spec: rows
        for spec, systems in here.numbers.items()
        if (rows := [row for rows in systems.values() for row in rows if row not in used[side]])
    }
    names = spec_names({spec: json.loads(spec) for spec in left})
    taken = {spec for spec in there.numbers if used[other].intersection(there.rows(spec))}
    candidates = [spec for spec in there.numbers if spec not in taken] or list(there.numbers)
    tried = {**there.failed, **there.interrupted}
    nearest = closest([spec for spec in left if spec not in there.numbers and spec not in tried], candidates)
    for spec, rows in left.items():
        systems = here.systems_of(rows)
        if spec in there.numbers:
            why = f"not in {other} on {', '.join(systems)}, but on {', '.join(there.numbers[spec])}"
        elif spec in tried:
            how = "interrupted" if spec in there.interrupted else "failed"
            why = f"{how} in {other}: {there.reason(tried[spec])}"
        else:
            why = f"not in {other}" + (f"; the closest differs in {nearest[spec]}" if spec in nearest else "")
        yield Unpaired(side, names[spec], systems, why)


def _in_vain(old: Results, new: Results, used: set[int]) -> Iterator[Unpaired]:
    """What was tried in NEW without a number, and has none in OLD either."""
    tried = {**new.failed, **new.interrupted}
    specs = {spec: json.loads(spec) for spec in tried if spec not in old.numbers and spec not in new.numbers}
    for spec, name in spec_names(specs).items():
        how = "interrupted" if spec in new.interrupted else "failed"
        why = f"{how} in NEW: {new.reason(tried[spec])}; OLD has no number either"
        yield Unpaired("NEW", name, new.systems_of(tried[spec]), why)


def closest(specs: Sequence[str], others: Sequence[str]) -> dict[str, str]:
    """How each spec (of the first ``_COMPARED``) differs from the most similar of ``others``: ``threads 12 → 16``.

    A field that a spec gets from its machine counts less than one that somebody chose. Another backend is not similar.
    """
    if not specs or not others:
        return {}
    parsed = [flat(json.loads(text)) for text in others]
    names = sorted({name for one in parsed for name in one})
    codes: dict[str, int] = {}
    table = np.array([[codes.setdefault(str(one.get(name)), len(codes)) for name in names] for one in parsed])
    weights = np.array([1 if name in _FROM_THE_MACHINE else 1000 if name == "backend" else 10 for name in names])
    found = {}
    for text in specs[:_COMPARED]:
        own = flat(json.loads(text))
        mine = np.array([codes.get(str(own.get(name)), -1) for name in names])
        nearest = parsed[int(((table != mine) @ weights).argmin())]
        if nearest["backend"] != own["backend"]:
            continue
        changed = [name for name in {**own, **nearest} if str(own.get(name)) != str(nearest.get(name))]
        found[text] = ", ".join(f"{name} {shown(own.get(name))} → {shown(nearest.get(name))}" for name in changed)
    return found


def nothing_in_common(old: Results, new: Results) -> str:
    """One line about two sides of which no measurement can be compared."""
    if not new.numbers:
        return f"NEW holds no number: none of its {plural(new.records, 'run')} is completed"
    told = f"no spec of OLD ({len(old.numbers)}) is in NEW ({len(new.numbers)}), so nothing can be compared; "
    nearest = closest(list(old.numbers), list(new.numbers))
    if not nearest:
        return told + "they have no backend in common"
    differing, times = Counter(nearest.values()).most_common(1)[0]
    return told + f"the closest differ in {differing}" + (f" ({times} of {len(nearest)})" if len(nearest) > 1 else "")
