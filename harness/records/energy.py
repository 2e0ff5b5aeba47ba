"""Joules of a window, from the counters of all nodes at its barriers; docs/energy.md has the formulas.

A counter that cannot be trusted gives no number, and neither does a sum that it is a part of: the reason is kept instead.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pydantic import Field

from harness.core.spec import Frozen
from harness.core.statistics import Summary, summarise

UPDATES = 20  # of a counter within the window: a part of one is then at most 5 % of the figure
SLACK = 0.05  # by this share the time between readings may be longer than the window
SAME_J = 1.0  # counters that are as close as this at both ends are one counter, seen twice
# The parts of a node, and the sources in order. A module may hold a package and memory: it is shown, never added.
PARTS = ("package", "memory", "gpu")
SOURCES = ("pm_counters", "nvml", "powercap")
NOTHING = "no counter of energy: no powercap, no pm_counters, and no GPU in use"
EMULATED = "an emulated device: what this machine used says nothing about it"


class CounterReading(Frozen):
    """A counter at both ends, in joules. ``worker/energy/counter.py`` describes it; ``problem`` is why it has no joules.

    Where a source counts them, ``freshness`` has the number of its updates at both ends, ``generation`` that of its caps.
    """

    source: str
    covers: str
    name: str
    update_s: float = Field(gt=0)
    range_j: float | None = Field(None, gt=0)
    most_w: float | None = Field(None, gt=0)
    before_j: float | None = None
    after_j: float | None = None
    problem: str = ""
    freshness: tuple[int, int] | None = None
    generation: tuple[int, int] | None = None

    @property
    def kind(self) -> "_Kind":
        return self.source, self.covers


class RankEnergy(Frozen):
    """The counters of a node, read ``interval_s`` apart; why not more were read (``missing``); hosts without a reader.

    ``machine`` is the boot id: nodes of a run that share a machine have it in common.
    """

    machine: str
    interval_s: float = Field(gt=0)
    counters: list[CounterReading]
    missing: list[str] = Field(default_factory=list)
    unread: list[str] = Field(default_factory=list)


class EnergyPart(Frozen):
    """Joules per image of all that ``source`` counts of one kind (``covers``), on all nodes."""

    source: str
    covers: str
    joules_per_image: Summary


class Energy(Frozen):
    """``joules_per_image`` is the sum of the parts that all nodes have, which ``covers`` names; None without any."""

    covers: str = ""
    joules_per_image: Summary | None = None
    parts: tuple[EnergyPart, ...] = ()
    notes: tuple[str, ...] = ()


class Used(Frozen):
    """``joules`` of each window: the sum of the parts that all nodes have, which ``covers`` names; None without any."""

    covers: str = ""
    joules: Summary | None = None
    notes: tuple[str, ...] = ()


class Read(NamedTuple):
    """One window, of a repeat or an epoch: its length (seconds), and each reader's host and readings."""

    window_s: float
    readers: Sequence[tuple[str, RankEnergy]]


_Kind = tuple[str, str]  # source, covers


class _Notes:
    """Reasons, each said once, with the counters and the hosts that it is true of."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], tuple[dict[str, None], dict[str, None]]] = {}

    def add(self, reason: str, host: str = "", source: str = "", name: str = "") -> None:
        names, hosts = self._of.setdefault((source, reason), ({}, {}))
        names |= {name: None} if name else {}
        hosts |= {host: None} if host else {}

    def texts(self) -> Iterator[str]:
        for (source, reason), (names, hosts) in self._of.items():
            counters = " ".join(filter(None, [source, ", ".join(names)]))
            more = f" and {len(hosts) - 1} more" if len(hosts) > 1 else ""
            where = f" (on {next(iter(hosts))}{more})" if hosts else ""
            yield f"{counters}: {reason}{where}" if source else f"{reason}{where}"


def derive(repeats: Sequence[Read], images: int) -> Energy:
    """Joules per image over the ``images`` of a window; nothing where no rank was to read a counter."""
    joules, notes = _of_all(repeats)
    values = {kind: [each / images for each in its] for kind, its in joules.items()}
    covers, total = _sum(values)
    each_part = [(source, part, summarise(its)) for (source, part), its in values.items()]
    parts = tuple(EnergyPart(source=source, covers=part, joules_per_image=mean) for source, part, mean in each_part)
    return Energy(covers=covers, joules_per_image=total, parts=parts, notes=notes)


def used(windows: Sequence[Read]) -> Used:
    """The joules of each of ``windows``; nothing where no rank was to read a counter."""
    values, notes = _of_all(windows)
    covers, total = _sum(values)
    return Used(covers=covers, joules=total, notes=notes)


def _of_all(windows: Sequence[Read]) -> tuple[dict[_Kind, list[float]], tuple[str, ...]]:
    """The joules of each window, of each kind that all of them have, and notes on them."""
    notes = _Notes()
    every = [_joules(window, notes) for window in windows]
    caps: dict[tuple[str, str], set[int]] = defaultdict(set)
    for host, read in (reader for window in windows for reader in window.readers):
        for counter in read.counters:
            caps[host, counter.source].update(counter.generation or ())
    for (host, source), generations in caps.items():
        if len(generations) > 1:
            notes.add("the power cap was changed meanwhile", host, source)
    kinds = [kind for kind in every[0] if all(kind in joules for joules in every)]
    return {kind: [joules[kind] for joules in every] for kind in kinds}, tuple(notes.texts())


def _sum(values: Mapping[_Kind, Sequence[float]]) -> tuple[str, Summary | None]:
    """The sum of a whole node's joules or of its parts', and the name of what it covers."""
    first = {part: (source, part) for source in reversed(SOURCES) for part in PARTS if (source, part) in values}
    node = ("pm_counters", "node")
    chosen = [node] if node in values else [first[part] for part in PARTS if part in first]
    total = [sum(each) for each in zip(*(values[kind] for kind in chosen), strict=True)]
    return " + ".join(f"{covers} ({source})" for source, covers in chosen), summarise(total) if total else None


def _joules(repeat: Read, notes: _Notes) -> dict[_Kind, float]:
    """The joules of each kind that every machine of the run has, all of its counters sound. Adds to ``notes``."""
    machines: dict[str, dict[tuple[str, str], tuple[CounterReading, float]]] = defaultdict(dict)
    hosts: dict[str, list[str]] = defaultdict(list)
    for host, read in repeat.readers:
        hosts[read.machine].append(host)
        for reason in read.missing:
            notes.add(reason, host)
        for unread in read.unread:
            notes.add("no worker is there, so nobody reads its counters, and no figure covers the run", unread)
        for counter in read.counters:
            machines[read.machine].setdefault((counter.source, counter.name), (counter, read.interval_s))
    totals: dict[_Kind, float] = defaultdict(float)
    refused: set[_Kind] = set()
    kinds = {counter.kind for counters in machines.values() for counter, _ in counters.values()}
    for machine, its in hosts.items():
        host, counters = its[0], machines[machine]
        if len(its) > 1:
            notes.add(f"{len(its)} nodes of the run are one machine, whose counters are counted once", host)
        if not counters and not any(read.missing for _, read in repeat.readers if read.machine == machine):
            notes.add(NOTHING, host)
        for kind in kinds - {counter.kind for counter, _ in counters.values()}:
            notes.add(f"there is no counter of {kind[1]}, which other nodes have", host, kind[0])
            refused.add(kind)
        kept: list[CounterReading] = []
        for counter, interval_s in counters.values():
            if original := next((each for each in kept if _mirrors(counter, each)), None):
                same = f"shows the numbers of {original.name}, so it is that counter once more and is left out"
                notes.add(same, host, counter.source, counter.name)
                continue
            kept.append(counter)
            try:
                totals[counter.kind] += joules(counter, interval_s, repeat.window_s)
            except ValueError as error:
                notes.add(str(error), host, counter.source, counter.name)
                refused.add(counter.kind)
    if any(read.unread for _, read in repeat.readers):
        return {}
    return {kind: value for kind, value in sorted(totals.items()) if kind not in refused}


def _mirrors(counter: CounterReading, other: CounterReading) -> bool:
    """True for counters of one kind with the same numbers."""
    # Counters that do not move are no mirrors of each other: both have no number.
    if counter.kind != other.kind or counter.before_j == counter.after_j:
        return False
    ends = ((counter.before_j, other.before_j), (counter.after_j, other.after_j))
    return all(a is not None and b is not None and abs(a - b) <= SAME_J for a, b in ends)


def joules(counter: CounterReading, interval_s: float, window_s: float) -> float:
    """The joules between two readings of a counter. Raises ValueError with the reason why they are not known."""
    before, after = counter.before_j, counter.after_j
    if counter.problem or before is None or after is None:
        raise ValueError(counter.problem or "was not read")
    if window_s < UPDATES * counter.update_s:
        raise ValueError(
            f"the window is shorter than {UPDATES * counter.update_s:g} s, in which a counter is updated {UPDATES} times"
        )
    if counter.freshness and (updates := counter.freshness[1] - counter.freshness[0]) < UPDATES:
        raise ValueError(f"was updated {updates} times within the window, less than {UPDATES} times")
    if interval_s > (1 + SLACK) * window_s:
        raise ValueError(f"was read {interval_s:.3g} s apart, for a window of {window_s:.3g} s")
    if after == before:
        raise ValueError("does not move")
    if counter.range_j is None:
        if after < before:
            raise ValueError("went back within the window: it was reset")
        return after - before
    if counter.most_w and counter.most_w * interval_s >= counter.range_j:
        raise ValueError(
            f"may have wrapped around more than once: {counter.range_j:.0f} J are {counter.most_w:.0f} W in "
            f"{counter.range_j / counter.most_w:.0f} s, and the window took {window_s:.0f} s"
        )
    return after - before if after > before else after - before + counter.range_j
