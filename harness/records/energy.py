"""Joules of a window, from what counters of all nodes said at its barriers; docs/energy.md has the formulas.

A counter that cannot be trusted gives no number, and neither does what it is a part of: the reason is kept instead.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pydantic import Field

from harness.core.spec import Frozen
from harness.core.statistics import Summary, summarise

UPDATES = 20  # of a counter within the window: what happened in a part of one is then at most 5 % of the figure
SLACK = 0.05  # how much longer than the window the time between readings may be
SAME_J = 1.0  # counters that are as close as this at both ends are one counter, seen twice
# What makes up a node, and which source is asked first. A module may hold a package and memory: it is shown, never added.
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


class RankEnergy(Frozen):
    """What a node's reader read, ``interval_s`` apart; why it could not read more (``missing``); hosts without a reader.

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
    """``joules_per_image`` is that of what ``covers`` says, the sum of the parts that all nodes have; None without any."""

    covers: str = ""
    joules_per_image: Summary | None = None
    parts: tuple[EnergyPart, ...] = ()
    notes: tuple[str, ...] = ()


class Used(Frozen):
    """``joules`` of each window, of what ``covers`` says: the sum of the parts that all nodes have; None without any."""

    covers: str = ""
    joules: Summary | None = None
    notes: tuple[str, ...] = ()


class Read(NamedTuple):
    """One window, of a repeat or an epoch: its length (seconds), and of each reader its host and what it read."""

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

    def texts(self) -> tuple[str, ...]:
        return tuple(
            " ".join(filter(None, [source, ", ".join(names)])) + (": " if source else "") + reason + _some(list(hosts))
            for (source, reason), (names, hosts) in self._of.items()
        )


def _some(hosts: Sequence[str]) -> str:
    more = f" and {len(hosts) - 1} more" if len(hosts) > 1 else ""
    return f" (on {hosts[0]}{more})" if hosts else ""


def derive(repeats: Sequence[Read], images: int) -> Energy:
    """Joules per image over the ``images`` of a window; nothing where no rank was to read a counter."""
    joules, notes = _of_all(repeats)
    values = {kind: [each / images for each in its] for kind, its in joules.items()}
    covers, total = _sum(values)
    parts = (
        EnergyPart(source=source, covers=covers, joules_per_image=summarise(its))
        for (source, covers), its in values.items()
    )
    return Energy(covers=covers, joules_per_image=total, parts=tuple(parts), notes=notes)


def used(windows: Sequence[Read]) -> Used:
    """The joules of each of ``windows``; nothing where no rank was to read a counter."""
    values, notes = _of_all(windows)
    covers, total = _sum(values)
    return Used(covers=covers, joules=total, notes=notes)


def _of_all(windows: Sequence[Read]) -> tuple[dict[_Kind, list[float]], tuple[str, ...]]:
    """The joules of each window, of each kind that all of them have, and what there is to say of that."""
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
    return {kind: [joules[kind] for joules in every] for kind in kinds}, notes.texts()


def _sum(values: Mapping[_Kind, Sequence[float]]) -> tuple[str, Summary | None]:
    """What the figure covers, and the sum of that."""
    chosen = _chosen([*values])
    total = [sum(each) for each in zip(*(values[kind] for kind in chosen), strict=True)]
    return " + ".join(f"{covers} ({source})" for source, covers in chosen), summarise(total) if total else None


def _chosen(kinds: Sequence[_Kind]) -> list[_Kind]:
    if ("pm_counters", "node") in kinds:
        return [("pm_counters", "node")]
    each = ([(source, part) for source in SOURCES if (source, part) in kinds][:1] for part in PARTS)
    return [kind for first in each for kind in first]


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
    kinds = {(counter.source, counter.covers) for own in machines.values() for counter, _ in own.values()}
    for machine, its in hosts.items():
        host, own = its[0], machines[machine]
        if len(its) > 1:
            notes.add(f"{len(its)} nodes of the run are one machine, whose counters are counted once", host)
        if not own and not any(read.missing for _, read in repeat.readers if read.machine == machine):
            notes.add(NOTHING, host)
        for kind in kinds - {(counter.source, counter.covers) for counter, _ in own.values()}:
            notes.add(f"there is no counter of {kind[1]}, which other nodes have", host, kind[0])
            refused.add(kind)
        for counter, interval_s in _once([*own.values()], host, notes):
            kind = counter.source, counter.covers
            try:
                totals[kind] += joules(counter, interval_s, repeat.window_s)
            except ValueError as error:
                notes.add(str(error), host, counter.source, counter.name)
                refused.add(kind)
    if any(read.unread for _, read in repeat.readers):
        return {}
    return {kind: value for kind, value in sorted(totals.items()) if kind not in refused}


def _once(
    read: Sequence[tuple[CounterReading, float]], host: str, notes: _Notes
) -> Iterator[tuple[CounterReading, float]]:
    """Counters without those that mirror an earlier one of their kind."""
    kept: list[CounterReading] = []
    for counter, interval_s in read:
        if original := next((each for each in kept if _mirrors(counter, each)), None):
            same = f"shows the numbers of {original.name}, so it is that counter once more and is left out"
            notes.add(same, host, counter.source, counter.name)
            continue
        kept.append(counter)
        yield counter, interval_s


def _mirrors(one: CounterReading, other: CounterReading) -> bool:
    if (one.source, one.covers) != (other.source, other.covers):
        return False
    ends = ((one.before_j, other.before_j), (one.after_j, other.after_j))
    # What does not move is not a mirror of what does not move either: both have no number.
    moves = one.before_j != one.after_j
    return moves and all(a is not None and b is not None and abs(a - b) <= SAME_J for a, b in ends)


def joules(counter: CounterReading, interval_s: float, window_s: float) -> float:
    """What was used between two readings of a counter. Raises ValueError with the reason why that is not known."""
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
