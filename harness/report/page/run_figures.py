"""Figures of single runs: how long each rank's steps took, the same measurement over time, and img/s against joules."""

import math
from collections import defaultdict
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

import numpy
import pandas

from harness.analysis import history as changes
from harness.analysis.scaling import grouped
from harness.core.text import minute, plural
from harness.records.measurement import Record
from harness.report.page.figures import (
    Axis,
    Facets,
    Figure,
    Series,
    Spot,
    Style,
    count_ticks,
    panel_name,
    slug,
    throughput,
)
from harness.report.page.lines import Line, look
from harness.results.result import Result

SHOWN_RECORDS = 24
SHOWN_RANKS = 256
STRAGGLER = 1.05  # a rank is pointed out whose median step takes 5 % longer than that of the median rank
HISTORY_RUNS = changes.FEWEST  # the same measurement done as often has a history worth a figure
SHOWN_HISTORIES = 50
SHOWN_HISTORY_RUNS = 500
CROWDED = 40  # runs whose intervals would hide each other
POINTS = Style("c0", "circle")
PERCENTILES = (1, 25, 50, 75, 99)


def steps(lines: Sequence[Line]) -> list[Figure]:
    """The step times of the best run at each measured curve's largest size. Raises InvalidInput for a damaged record."""
    largest = [(line, line.curve.points[-1]) for line in lines if not line.published]
    # A run may belong to a curve of weak and to one of strong scaling.
    by_source = {point.best.sources[-1]: (line, point.workers) for line, point in reversed(largest)}
    runs = sorted(by_source.items(), key=lambda run: (-run[1][1], run[1][0].name, run[0]))
    return [of_ranks(*what, source, read_steps(Path(source))) for source, what in runs[:SHOWN_RECORDS]]


def read_steps(path: Path) -> pandas.DataFrame:
    """The steady steps in a record over all repeats, in ms of the device's own time: a row for each rank, with its hosts,
    quantiles and longest step. Raises InvalidInput for a record that cannot be read.
    """
    steps_s: dict[int, list[float]] = defaultdict(list)
    hosts: dict[int, dict[str, None]] = defaultdict(dict)
    record = Record.read(path)
    assert record.derived
    for repeat, steady in zip(record.repeats, record.derived.steady, strict=True):
        for rank in repeat.ranks:
            steps_s[rank.rank] += numpy.diff(rank.marks_s[steady.left_out :]).tolist()
            hosts[rank.rank][rank.host] = None
    ranks = sorted(steps_s)
    steps_ms = 1e3 * numpy.array([steps_s[rank] for rank in ranks]) / record.spec.dilation
    columns = [f"p{percentile}" for percentile in PERCENTILES]
    frame = pandas.DataFrame(numpy.percentile(steps_ms, PERCENTILES, axis=1).T, columns=columns)
    return frame.assign(rank=ranks, hosts=[", ".join(hosts[rank]) for rank in ranks], longest=steps_ms.max(axis=1))


def of_ranks(line: Line, workers: int, source: str, ranks: pandas.DataFrame) -> Figure:
    """The distribution of the step time of each rank of one run: median, middle half, middle 98 %, and stragglers.

    Of more than ``SHOWN_RANKS`` an eighth of those shown are the slowest, the others evenly spaced.
    """
    shown, typical = ranks, ranks["p50"].median()
    if len(ranks) > SHOWN_RANKS:
        slowest = ranks.nlargest(SHOWN_RANKS // 8, "p50").index
        others, count = ranks.index.drop(slowest), SHOWN_RANKS - len(slowest)
        shown = ranks.loc[slowest.union([others[number * len(others) // count] for number in range(count)])]
    room = max(1.0, min(12.0, 560 / len(shown)))  # points of width for each rank
    medians, halves, wide = [], [], []
    for row in shown.to_dict("records"):
        rank, median, low, high = row["rank"], row["p50"], row["p1"], row["p99"]
        hover = (
            f"rank {rank} on {row['hosts']}",
            f"median {median:,.2f} ms ({median / typical - 1:+.1%} of the median rank)",
            f"1st to 99th percentile {low:,.2f} to {high:,.2f} ms, longest {row['longest']:,.2f} ms",
            source,
        )
        medians.append(Spot(rank, median, hover=hover, source=source))
        halves.append(Spot(rank, median, row["p25"], row["p75"]))
        wide.append(Spot(rank, median, low, high))
    series = [
        Series("thin: 1st to 99th percentile", "spread", wide, Style("c0"), line.facets, width=max(0.8, room / 6)),
        Series("thick: middle half", "spread", halves, Style("c0"), line.facets, width=room * 0.7),
        Series("median", "accent", medians, Style("c7", "circle"), line.facets),
    ]
    if slow := [spot for spot in medians if spot.y > STRAGGLER * typical]:
        above = f"median over {STRAGGLER - 1:.0%} above that of all ranks"
        series.append(Series(above, "accent", slow, Style("c1", "diamond"), line.facets))
    what = f"{line.name}, {workers:,} workers, {line.system}, {panel_name(*line.panel)}"
    some = f" {len(shown):,} of {len(ranks):,} ranks: the slowest and every few others."
    run = Path(source).parent.name
    return Figure(
        name=slug("steps", what, run[-8:]),
        title=f"Step times, {what}",
        choice=what,
        x=Axis("rank", "linear", count_ticks(shown["rank"])),
        y=Axis("step time (ms)", "linear"),
        series=series,
        note=f"All repeats of {run}.{some if len(shown) < len(ranks) else ''}",
    )


def history(completed: Sequence[Result]) -> list[Figure]:
    """img/s against the date with changes of the level, of what was measured in ``HISTORY_RUNS`` jobs or more."""
    every = changes.by_measurement(run for run in completed if run.measured)
    often = [
        [run for runs in jobs for run in runs]
        for _, jobs in sorted(every.items(), key=_by_system)
        if len(jobs) >= HISTORY_RUNS
    ]
    often.sort(key=len, reverse=True)
    return [_history(number, runs) for number, runs in enumerate(often[:SHOWN_HISTORIES], start=1)]


def _by_system(item: tuple[tuple[str, str], object]) -> tuple[str, str]:
    (key, system), _ = item
    return system, key


def _history(number: int, every: Sequence[Result]) -> Figure:
    every = sorted(every, key=lambda run: (run.started, run.id))
    runs = every[-SHOWN_HISTORY_RUNS:]
    first = runs[0]
    spots = []
    for run in runs:
        mean, half = run.rate, run.ci95
        interval = f" ± {throughput(half)} (95 % CI)" if half == half else ""
        hover = (
            f"{minute(run.started)} UTC",
            f"{throughput(mean)} img/s{interval}",
            *filter(None, (run.software, run.transport_seen)),
            run.source,
        )
        reach = math.exp(half / mean)
        spots.append(Spot(run.started[:19], mean, mean / reach, mean * reach, hover, source=run.source))
    contender = " ".join(filter(None, (first.backend, first.framework, first.transport)))
    parts = [contender, f"{first.workers:,} workers", f"{first.ps} ps" if first.ps else ""]
    parts += [f"batch {first.batch_size} per device", first.system, panel_name(first.model, first.data)]
    what = ", ".join(filter(None, parts))
    facets = Facets.of_runs(first)
    (series_,) = changes.series(every)
    shown = [change for change in series_.changes if change.after.started >= first.started]
    crowded = len(runs) > CROWDED
    drawn = [Series("mean of a run, 95 % CI of its repeats", "curve", spots, POINTS, facets)]
    if crowded:
        bare = [spot._replace(low=math.nan, high=math.nan) for spot in spots]
        drawn = [Series("mean of a run", "accent", bare, POINTS, facets)]
    if shown or crowded:
        drawn.append(Series("level", "line", _levels(series_, runs), Style("c1"), facets))
    notes = [f"The latest {len(runs):,} of {len(every):,} runs." if len(runs) < len(every) else ""]
    notes.append("Intervals are left out; point at a run for its own." if crowded else "")
    return Figure(
        name=slug("history", str(number), first.backend, str(first.workers), first.model),
        title=f"History, {what}",
        choice=f"{what} ({len(every):,} runs)",
        x=Axis("", "date"),
        y=Axis("img/s", "linear"),
        series=drawn,
        note=" ".join(filter(None, notes)),
        marks=[(change.after.started[:19], f"{change.change:+.1%}") for change in shown],
    )


def _levels(series: changes.RunSeries, runs: Sequence[Result]) -> list[Spot]:
    """The level between changes, from the first to the last of ``runs``."""
    spots, start = [], runs[0].started
    for change in series.changes:
        if change.after.started >= runs[0].started:
            ends = max(start, change.before.started), change.after.started
            hover = (f"level {throughput(change.old_rate)} img/s",)
            spots += [Spot(time[:19], change.old_rate, hover=hover) for time in (start, ends[0])]
            start = ends[1]
    hover = (f"level {throughput(series.level)} img/s",)
    return [*spots, *(Spot(time[:19], series.level, hover=hover) for time in (start, runs[-1].started))]


def slower(figures: Sequence[Figure]) -> list[tuple[str, str, Figure]]:
    """When histories became slower, by how much, and which: the latest change first."""
    drops = [(time, word, figure) for figure in figures for time, word in figure.marks if word.startswith("-")]
    return sorted(drops, key=lambda drop: drop[0], reverse=True)


def rates_and_joules(completed: Sequence[Result]) -> list[Figure]:
    """A point for each run whose energy was measured; what joules cover is never mixed within a figure."""
    measured = [run for run in completed if run.energy]
    return [_joules(runs) for _, runs in grouped(measured, attrgetter("system", "model", "data", "energy"))]


def _joules(runs: Sequence[Result]) -> Figure:
    """The figure of runs that are alike in system, model, data and what their joules cover."""
    covers = runs[0].energy
    series = []
    for contender, alike in grouped(runs, attrgetter("backend", "framework", "transport")):
        name = " ".join(filter(None, contender))
        spots = [_joules_spot(name, run) for run in alike]
        series.append(Series(name, "accent", spots, look(*contender), Facets.of_runs(*alike)))
    what = f"{runs[0].system}, {panel_name(runs[0].model, runs[0].data)}, {covers}"
    return Figure(
        name=slug("energy", what),
        title=f"Energy, {what}",
        choice=what,
        x=Axis(f"J/img of {covers}", "linear"),
        y=Axis("img/s", "linear", from_zero=True),
        series=series,
        note="A run is the better the further it is to the upper left.",
    )


def _joules_spot(name: str, run: Result) -> Spot:
    hover = (
        f"{name}, {plural(run.workers, 'worker')}",
        f"{throughput(run.img_per_s)} img/s, {run.joules:.3g} J/img",
        *filter(None, (run.software, run.energy_note)),
        run.source,
    )
    return Spot(run.joules, run.img_per_s, hover=hover, source=run.source)
