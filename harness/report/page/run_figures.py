"""Figures of single runs: how long each rank's steps took, and the same measurement over time."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.analysis import history as changes
from harness.core.text import minute
from harness.errors import InvalidInput
from harness.report.page.figures import Axis, Facets, Figure, Mark, Series, Spot, Style, panel_name, slug
from harness.report.page.lines import Line
from harness.report.page.provenance import throughput

if TYPE_CHECKING:
    import pandas

SHOWN_RECORDS = 24
SHOWN_RANKS = 256
STRAGGLER = 1.05  # a rank is pointed out whose median step takes 5 % longer than that of the median rank
HISTORY_RUNS = changes.FEWEST  # the same measurement done as often has a history worth a figure
SHOWN_HISTORIES = 50
SHOWN_HISTORY_RUNS = 500

PERCENTILES = (1, 25, 50, 75, 99)


def chosen(lines: Sequence[Line]) -> list[tuple[Line, int, str]]:
    """Whose step times are shown: of each measured curve the largest size's best run, at most ``SHOWN_RECORDS``.

    As lines with the number of workers and the record's file, the largest runs first.
    """
    largest = [(line, line.curve.points[-1]) for line in lines if not line.published]
    # A run may belong to a curve of weak and to one of strong scaling.
    by_source = {point.best.sources[-1]: (line, point.workers) for line, point in reversed(largest)}
    runs = [(line, workers, source) for source, (line, workers) in by_source.items()]
    return sorted(runs, key=lambda run: (-run[1], run[0].full_name, run[2]))[:SHOWN_RECORDS]


def read_steps(path: Path) -> pandas.DataFrame:
    """The step times in a record over all repeats, in ms: a row for each rank, with its hosts, quantiles and longest step.

    The record was judged when its row was made, so its raw times are taken as they are. Raises InvalidInput for a file that
    cannot be read.
    """
    import numpy
    import pandas

    marks: dict[int, list[Any]] = defaultdict(list)
    hosts: dict[int, dict[str, None]] = defaultdict(dict)
    try:
        for repeat in json.loads(path.read_bytes())["repeats"]:
            for rank in repeat["ranks"]:
                marks[rank["rank"]].append(rank["marks_s"])
                hosts[rank["rank"]][rank["host"]] = None
        ranks = sorted(marks)
        steps_ms = 1e3 * numpy.diff(numpy.array([marks[rank] for rank in ranks]), axis=-1).reshape(len(ranks), -1)
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}") from None
    except (LookupError, TypeError, ValueError) as error:
        raise InvalidInput(f"{path}: not a valid record: {error!r}") from None
    columns = [f"p{percentile}" for percentile in PERCENTILES]
    frame = pandas.DataFrame(numpy.percentile(steps_ms, PERCENTILES, axis=1).T, columns=columns)
    return frame.assign(rank=ranks, hosts=[", ".join(hosts[rank]) for rank in ranks], longest=steps_ms.max(axis=1))


def steps(line: Line, workers: int, source: str, ranks: pandas.DataFrame) -> Figure:
    """The distribution of the step time of each rank of one run: median, middle half, middle 98 %, and stragglers."""
    shown, typical = _sample(ranks), ranks["p50"].median()
    slow = shown[shown["p50"] > STRAGGLER * typical]
    room = max(1.0, min(12.0, 560 / len(shown)))  # points of width for each rank

    def spread(name: str, low: str, high: str, width: float) -> Series:
        spots = [
            Spot(*values) for values in zip(*(shown[each].tolist() for each in ("rank", "p50", low, high)), strict=True)
        ]
        return Series(name, "spread", spots, Style("c0"), line.facets, width=width)

    def medians(name: str, its: pandas.DataFrame, style: Style) -> Series:
        spots = []
        for its_rank in its.to_dict("records"):
            rank, median = its_rank["rank"], its_rank["p50"]
            hover = (
                f"rank {rank} on {its_rank['hosts']}",
                f"median {median:,.2f} ms ({median / typical - 1:+.1%} of the median rank)",
                f"1st to 99th percentile {its_rank['p1']:,.2f} to {its_rank['p99']:,.2f} ms, "
                f"longest {its_rank['longest']:,.2f} ms",
                source,
            )
            spots.append(Spot(rank, median, hover=hover))
        return Series(name, "accent", spots, style, line.facets)

    series = [
        spread("1st to 99th percentile", "p1", "p99", max(0.8, room / 6)),
        spread("middle half", "p25", "p75", room * 0.7),
        medians("median", shown, Style("c7", "circle")),
    ]
    if len(slow):
        above = f"median over {STRAGGLER - 1:.0%} above that of all ranks"
        series.append(medians(above, slow, Style("c1", "diamond")))
    what = f"{line.name}, {workers:,} workers, {line.system}, {panel_name(*line.panel)}"
    some = f" {len(shown):,} of {len(ranks):,} ranks: the slowest and every few others."
    run = Path(source).parent.name
    return Figure(
        name=slug("steps", what, run[-8:]),
        title=f"Step times, {what}",
        choice=what,
        x=Axis("rank", "linear", "count"),
        y=Axis("step time (ms)", "linear", "ms"),
        series=series,
        note=f"All repeats of {run}.{some if len(shown) < len(ranks) else ''}",
    )


def _sample(ranks: pandas.DataFrame) -> pandas.DataFrame:
    """At most ``SHOWN_RANKS``: an eighth are the slowest, the others evenly spaced."""
    if len(ranks) <= SHOWN_RANKS:
        return ranks
    slowest = ranks.nlargest(SHOWN_RANKS // 8, "p50").index
    others = ranks.index.drop(slowest)
    count = SHOWN_RANKS - len(slowest)
    spaced = [others[number * len(others) // count] for number in range(count)]
    return ranks.loc[slowest.union(spaced)]


def history(completed: pandas.DataFrame) -> list[Figure]:
    """img/s against the date for each measurement that was done at least ``HISTORY_RUNS`` times on a system.

    ``completed`` are such runs of ``results.load``. Changes of the level are marked. The measurements done most often come
    first; of more than ``SHOWN_HISTORIES`` the others are left out, and of each at most the latest ``SHOWN_HISTORY_RUNS``
    runs are shown.
    """
    measured = completed[completed["origin"] == "measured"]
    often = [runs for _, runs in measured.groupby(["system", "spec"]) if len(runs) >= HISTORY_RUNS]
    often.sort(key=lambda runs: -len(runs))
    return [_history(number, runs) for number, runs in enumerate(often[:SHOWN_HISTORIES], start=1)]


def _history(number: int, every: pandas.DataFrame) -> Figure:
    runs = every.tail(SHOWN_HISTORY_RUNS).to_dict("records")
    first = runs[0]
    spots = []
    for run in runs:
        mean, half = run["img_per_s"], run["ci95"]
        interval = f" ± {throughput(half)} (95 % CI)" if half == half else ""
        hover = (
            f"{minute(run['started'])} UTC",
            f"{throughput(mean)} img/s{interval}",
            *filter(None, (run["software"], run["transport_seen"])),
            run["source"],
        )
        spots.append(Spot(run["started"][:19], mean, mean - half, mean + half, hover))
    contender = " ".join(filter(None, (first["backend"], first["framework"], first["transport"])))
    parts = [contender, f"{first['workers']:,} workers", f"{first['ps']} ps" if first["ps"] else ""]
    parts += [f"batch {first['batch_size']} per device", first["system"], panel_name(first["model"], first["data"])]
    what = ", ".join(filter(None, parts))
    facets = Facets(*((str(first[name]),) for name in Facets._fields))
    return Figure(
        name=slug("history", str(number), first["backend"], str(first["workers"]), first["model"]),
        title=f"History, {what}",
        choice=f"{what} ({len(every):,} runs)",
        x=Axis("", "date", "date"),
        y=Axis("img/s", "linear", "img_per_s"),
        series=[Series("mean of a run, 95 % CI of its repeats", "curve", spots, Style("c0", "circle"), facets)],
        note=f"The latest {len(runs):,} of {len(every):,} runs." if len(runs) < len(every) else "",
        marks=[
            Mark(change.after.started[:19], f"{change.change:+.1%}")
            for each in changes.series(every)
            for change in each.changes
            if change.after.started >= first["started"]
        ],
    )
