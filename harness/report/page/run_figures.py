"""Figures of single runs: how long each rank's steps took, and the same measurement over time."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy
import pandas

from harness.analysis import history as changes
from harness.core.text import minute
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
from harness.report.page.lines import Line
from harness.results.result import Result

SHOWN_RECORDS = 24
SHOWN_RANKS = 256
FEWEST_RANKS = 4  # of a run whose step times are drawn
STRAGGLER = 1.05  # a rank is pointed out whose median step takes 5 % longer than that of the median rank
HISTORY_RUNS = changes.FEWEST  # the same measurement done as often has a history worth a figure
SHOWN_HISTORIES = 50
PERCENTILES = (1, 50, 99)


def steps(lines: Sequence[Line]) -> list[Figure]:
    """The step times of the best run at each measured curve's largest size. Raises InvalidInput for a damaged record."""
    ends = [(line, line.curve.points[-1]) for line in lines if not line.published]
    largest = [(line, end) for line, end in ends if end.workers >= FEWEST_RANKS]
    # A run may belong to a curve of weak and to one of strong scaling.
    by_source = {point.best.sources[-1]: (line, point.workers) for line, point in reversed(largest)}
    runs = sorted(by_source.items(), key=lambda run: (-run[1][1], run[1][0].name, run[0]))
    return [of_ranks(*curve, source, read_steps(Path(source))) for source, curve in runs[:SHOWN_RECORDS]]


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
    """The distribution of the step time of each rank of one run, or of the slowest of very many: stragglers stand out."""
    typical = ranks["p50"].median()
    shown = ranks.nlargest(SHOWN_RANKS, "p50").sort_values("rank")
    usual, slow = list[Spot](), list[Spot]()
    for row in shown.to_dict("records"):
        rank, median, low, high = row["rank"], row["p50"], row["p1"], row["p99"]
        hover = (
            f"rank {rank} on {row['hosts']}",
            f"median {median:,.2f} ms ({median / typical - 1:+.1%} of the median rank)",
            f"1st to 99th percentile {low:,.2f} to {high:,.2f} ms, longest {row['longest']:,.2f} ms",
            source,
        )
        (slow if median > STRAGGLER * typical else usual).append(Spot(rank, median, low, high, hover, source=source))
    series = [Series("median, 1st to 99th percentile", "accent", usual, Style("c0", "circle"), line.facets)]
    if slow:
        above = f"median over {STRAGGLER - 1:.0%} above that of all ranks"
        series.append(Series(above, "accent", slow, Style("c1", "diamond"), line.facets))
    subject = f"{line.name}, {workers:,} workers, {line.system}, {panel_name(*line.panel)}"
    some = f" The slowest {len(shown):,} of {len(ranks):,} ranks."
    run = Path(source).parent.name
    x, y = Axis("rank", "linear", count_ticks(shown["rank"])), Axis("step time (ms)", "linear", from_zero=True)
    note = f"All repeats of {run}.{some if len(shown) < len(ranks) else ''}"
    return Figure(slug("steps", subject, run[-8:]), f"Step times, {subject}", subject, x, y, series, note)


def history(completed: Sequence[Result]) -> list[Figure]:
    """img/s against the date with changes of the level, of measurements that ``HISTORY_RUNS`` jobs or more have made."""
    every = changes.by_measurement(run for run in completed if run.measured)
    often = [[run for runs in jobs for run in runs] for jobs in every.values() if len(jobs) >= HISTORY_RUNS]
    often.sort(key=len, reverse=True)
    return [_history(number, runs) for number, runs in enumerate(often[:SHOWN_HISTORIES], start=1)]


def _history(number: int, every: Sequence[Result]) -> Figure:
    runs = sorted(every, key=lambda run: (run.started, run.id))
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
        spots.append(Spot(run.started[:19], mean, hover=hover, source=run.source))
    contender = " ".join(filter(None, (first.backend, first.framework, first.transport)))
    parts = [contender, f"{first.workers:,} workers", f"{first.ps} ps" if first.ps else ""]
    parts += [f"batch {first.batch_size} per device", first.system, panel_name(first.model, first.data)]
    subject = ", ".join(filter(None, parts))
    facets = Facets.of_run(first)
    (past,) = changes.series(every)
    series = [
        Series("mean of a run", "accent", spots, Style("c0", "circle"), facets),
        Series("level", "line", _levels(past), Style("c1"), facets),
    ]
    marks = [(change.after.started[:19], f"{change.change:+.1%}") for change in past.changes]
    name = slug("history", str(number), first.backend, str(first.workers), first.model)
    title, choice = f"History, {subject}", f"{subject} ({len(runs):,} runs)"
    return Figure(name, title, choice, Axis("", "date"), Axis("img/s", "linear"), series, marks=marks)


def _levels(series: changes.RunSeries) -> list[Spot]:
    """The level between changes, from the first run to the last."""
    firsts = [series.runs[0], *(change.after for change in series.changes)]
    lasts = [*(change.before for change in series.changes), series.runs[-1]]
    rates = [*(change.old_rate for change in series.changes), series.level]
    ends = [(rate, run) for rate, *both in zip(rates, firsts, lasts, strict=True) for run in both]
    return [Spot(run.started[:19], rate, hover=(f"level {throughput(rate)} img/s",)) for rate, run in ends]
