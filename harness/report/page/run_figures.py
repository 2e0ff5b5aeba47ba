"""Figures of single runs: how long each rank's steps took, and the same measurement over time."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.analysis.history import FEWEST
from harness.errors import InvalidInput
from harness.report.page import provenance
from harness.report.page.figures import Axis, Facets, Figure, Mark, Series, Spot, Style, panel_name, slug
from harness.report.page.lines import Line
from harness.report.page.provenance import Runs

if TYPE_CHECKING:
    import pandas

SHOWN_RECORDS = 24
SHOWN_RANKS = 256
STRAGGLER = 1.05  # a rank is pointed out whose median step takes 5 % longer than that of the median rank
HISTORY_RUNS = FEWEST  # the same measurement done as often has a history worth a figure
SHOWN_HISTORIES = 50
SHOWN_HISTORY_RUNS = 500

PERCENTILES = (1, 25, 50, 75, 99)


@dataclass(frozen=True)
class RankSteps:
    """Step times of one rank over all repeats of a run, in milliseconds. ``hosts`` are those it ran on."""

    rank: int
    hosts: tuple[str, ...]
    percentiles_ms: tuple[float, ...]  # PERCENTILES
    longest_ms: float

    @property
    def median_ms(self) -> float:
        return self.percentiles_ms[2]


def chosen(lines: Sequence[Line]) -> list[tuple[Line, int, str]]:
    """Whose step times are shown: of each measured curve the largest size's best run, at most ``SHOWN_RECORDS``.

    As lines with the number of workers and the record's file, the largest runs first.
    """
    found = [
        (line, line.curve.points[-1].workers, line.curve.points[-1].best.sources[-1])
        for line in lines
        if not line.published and line.curve.points
    ]
    # A run may belong to a curve of weak and to one of strong scaling.
    once = {source: (line, workers, source) for line, workers, source in reversed(found)}
    return sorted(once.values(), key=lambda one: (-one[1], one[0].full_name, one[2]))[:SHOWN_RECORDS]


def read_steps(path: Path) -> list[RankSteps]:
    """The step times in a record, rank by rank. Raises InvalidInput for a file that cannot be read.

    The record was judged when its row was made, so its raw times are taken as they are.
    """
    import numpy

    try:
        repeats = json.loads(path.read_bytes())["repeats"]
        marks: dict[int, list[Any]] = {}
        hosts: dict[int, dict[str, None]] = {}
        for repeat in repeats:
            for rank in repeat["ranks"]:
                marks.setdefault(rank["rank"], []).append(rank["marks_s"])
                hosts.setdefault(rank["rank"], {})[rank["host"]] = None
        ranks = sorted(marks)
        steps_ms = 1e3 * numpy.diff(numpy.array([marks[rank] for rank in ranks]), axis=-1).reshape(len(ranks), -1)
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}") from None
    except (LookupError, TypeError, ValueError) as error:
        raise InvalidInput(f"{path}: not a valid record: {error!r}") from None
    percentiles = numpy.percentile(steps_ms, PERCENTILES, axis=1).T
    return [
        RankSteps(rank, tuple(hosts[rank]), tuple(map(float, quantiles)), float(longest))
        for rank, quantiles, longest in zip(ranks, percentiles, steps_ms.max(axis=1), strict=True)
    ]


def steps(line: Line, workers: int, source: str, ranks: Sequence[RankSteps]) -> Figure:
    """The distribution of the step time of each rank of one run: median, middle half, middle 98 %, and stragglers."""
    shown = _sample(ranks)
    typical = statistics.median(one.median_ms for one in ranks)
    slow = [one for one in shown if one.median_ms > STRAGGLER * typical]
    room = max(1.0, min(12.0, 560 / len(shown)))  # points of width for each rank
    usual = Style(0, "circle")

    def spread(name: str, low: int, high: int, width: float) -> Series:
        spots = [Spot(one.rank, one.median_ms, one.percentiles_ms[low], one.percentiles_ms[high]) for one in shown]
        return Series.of(name, "spread", spots, usual, line.facets, width=width)

    def medians(name: str, its: Sequence[RankSteps], style: Style) -> Series:
        spots = [Spot(one.rank, one.median_ms, hover=(*_rank(one, typical), source)) for one in its]
        return Series.of(name, "accent", spots, style, line.facets)

    series = [
        spread("1st to 99th percentile", 0, 4, max(0.8, room / 6)),
        spread("middle half", 1, 3, room * 0.7),
        medians("median", shown, Style(7, "circle")),
    ]
    if slow:
        above = f"median over {STRAGGLER - 1:.0%} above that of all ranks"
        series.append(medians(above, slow, Style(1, "diamond")))
    what = f"{line.name}, {workers:,} workers, {line.system}, {panel_name(*line.panel)}"
    some = f" {len(shown):,} of {len(ranks):,} ranks: the slowest and every few others."
    return Figure(
        name=slug("steps", what, Path(source).parent.name[-8:]),
        title=f"Step times, {what}",
        choice=what,
        x=Axis("rank", "linear", "count"),
        y=Axis("step time (ms)", "linear", "ms"),
        series=tuple(series),
        note=f"All repeats of {Path(source).parent.name}.{some if len(shown) < len(ranks) else ''}",
    )


def _rank(one: RankSteps, typical: float) -> tuple[str, ...]:
    low, _, median, _, high = one.percentiles_ms
    return (
        f"rank {one.rank} on {', '.join(one.hosts)}",
        f"median {median:,.2f} ms ({median / typical - 1:+.1%} of the median rank)",
        f"1st to 99th percentile {low:,.2f} to {high:,.2f} ms, longest {one.longest_ms:,.2f} ms",
    )


def _sample(ranks: Sequence[RankSteps]) -> list[RankSteps]:
    """At most ``SHOWN_RANKS``: an eighth are the slowest, the others evenly spaced."""
    if len(ranks) <= SHOWN_RANKS:
        return list(ranks)
    slowest = sorted(ranks, key=lambda one: -one.median_ms)[: SHOWN_RANKS // 8]
    others = [one for one in ranks if one not in slowest]
    count = SHOWN_RANKS - len(slowest)
    spaced = [others[number * len(others) // count] for number in range(count)]
    return sorted([*slowest, *spaced], key=lambda one: one.rank)


def history(
    frame: pandas.DataFrame, runs: Runs, marks: Mapping[tuple[str, str], Sequence[Mark]] | None = None
) -> list[Figure]:
    """img/s against the date for each measurement that was done at least ``HISTORY_RUNS`` times on a system.

    ``frame`` is one of ``results.load``, ``runs`` made of it. ``marks`` are points in time to point out, such as changes,
    by the rows' ``system`` and ``spec``. The measurements done most often come first; of more than ``SHOWN_HISTORIES`` the
    others are left out, and of each at most the latest ``SHOWN_HISTORY_RUNS`` runs are shown.
    """
    groups: dict[tuple[str, str], list[int]] = {}
    known = zip(*(frame[name].tolist() for name in ("system", "spec", "origin", "status")), strict=True)
    for row, (system, spec, origin, status) in enumerate(known):
        if (origin, status) == ("measured", "completed"):
            groups.setdefault((system, spec), []).append(row)
    often = sorted(
        ((key, rows) for key, rows in groups.items() if len(rows) >= HISTORY_RUNS),
        key=lambda one: (-len(one[1]), one[0]),
    )
    return [
        _history(number, rows, frame, runs, tuple((marks or {}).get(key, ())))
        for number, (key, rows) in enumerate(often[:SHOWN_HISTORIES], start=1)
    ]


def _history(number: int, every: Sequence[int], frame: pandas.DataFrame, runs: Runs, marks: tuple[Mark, ...]) -> Figure:
    rows = every[-SHOWN_HISTORY_RUNS:]
    first = frame.iloc[rows[0]]
    facets = Facets(**{name: (str(first[name]),) for name in Facets._fields})
    columns = runs.columns
    spots = []
    for row in rows:
        mean, half = float(columns["img_per_s"][row]), float(columns["ci95"][row])
        spots.append(Spot(columns["started"][row][:19], mean, mean - half, mean + half, provenance.of_run(runs, row)))
    contender = " ".join(filter(None, (first["backend"], first["framework"], first["transport"])))
    parts = [contender, f"{first['workers']:,} workers", f"{first['ps']} ps" if first["ps"] else ""]
    parts += [f"batch {first['batch_size']} per device", first["system"], panel_name(first["model"], first["data"])]
    what = ", ".join(filter(None, parts))
    return Figure(
        name=slug("history", str(number), str(first["backend"]), str(first["workers"]), str(first["model"])),
        title=f"History, {what}",
        choice=f"{what} ({len(every):,} runs)",
        x=Axis("", "date", "date"),
        y=Axis("img/s", "linear", "img_per_s"),
        series=(Series.of("mean of a run, 95 % CI of its repeats", "curve", spots, Style(0, "circle"), facets),),
        note=f"The latest {len(rows):,} of {len(every):,} runs." if len(rows) < len(every) else "",
        marks=tuple(mark for mark in marks if str(mark.x) >= columns["started"][rows[0]][:19]),
    )
