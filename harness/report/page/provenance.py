"""Where a number comes from, in lines of text: what a reader sees who points at it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.analysis.scaling import Configuration, CurvePoint, Interval
from harness.core.text import minute, plural

if TYPE_CHECKING:
    import pandas

    from harness.report.page.lines import Line

COLUMNS = (
    *("origin", "source", "system", "software", "transport", "model", "data", "transport_seen", "started", "note"),
    *("img_per_s", "ci95", "workers", "ps", "processor", "backend", "options"),
)
SHOWN_SOURCES = 2


@dataclass(frozen=True)
class Runs:
    """The runs of a DataFrame of ``results.load`` as lists by column, and the rows of each source.

    ``varied`` are the options of each backend that are not the same in all its runs.
    """

    columns: Mapping[str, Sequence[Any]]
    rows: Mapping[str, Sequence[int]]
    varied: Mapping[str, frozenset[str]]
    _seen: dict[tuple[tuple[str, ...], str], list[Any]] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, frame: pandas.DataFrame) -> Runs:
        """Those of ``frame``."""
        columns = {name: frame[name].tolist() for name in COLUMNS}
        rows: dict[str, list[int]] = {}
        for number, source in enumerate(columns["source"]):
            rows.setdefault(source, []).append(number)
        options: dict[str, list[dict[str, Any]]] = {}
        for backend, text, origin in dict.fromkeys(
            zip(*(columns[n] for n in ("backend", "options", "origin")), strict=True)
        ):
            if origin == "measured":  # publications tell no options
                options.setdefault(backend, []).append(json.loads(text or "{}"))
        return cls(columns, rows, {backend: _varied(found) for backend, found in options.items()})

    def seen(self, sources: Sequence[str], column: str) -> list[Any]:
        """The different values that ``column`` has in the runs of ``sources``, without "", in order."""
        asked = (tuple(sources), column)
        if asked not in self._seen:  # the same points stand in several figures, and may be of very many runs
            values = {self.columns[column][row] for source in sources for row in self.rows.get(source, ())}
            self._seen[asked] = sorted(values - {""})
        return self._seen[asked]


def _varied(options: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    names = {name for one in options for name in one}
    return frozenset(name for name in names if len({json.dumps(one.get(name)) for one in options}) > 1)


def of_point(point: CurvePoint, runs: Runs, line: Line) -> tuple[str, ...]:
    """Everything about a point of ``line``."""
    best = point.best
    nodes = f" on {plural(point.nodes, 'node')}" if point.nodes else ""
    lines = [line.name, f"{plural(point.workers, 'worker')}{nodes}, {line.system}"]
    if not math.isnan(point.img_per_s):
        lines.append(f"{throughput(point.img_per_s)} img/s{interval(point.interval)}")
    if not math.isnan(point.efficiency):
        lines.append(f"scaling efficiency {point.efficiency:.1%}{interval(point.efficiency_interval, percent=True)}")
    tuned = configuration(best, runs)
    if len(point.tried) > 1:
        lines.append(f"best of {len(point.tried)} configurations" + (f": {tuned}" if tuned else ""))
    elif tuned:
        lines.append(tuned)
    if line.published:
        return tuple([*lines, *of_publication(point, runs, line)])
    return tuple([*lines, *of_configuration(best, runs)])


def of_publication(point: CurvePoint, runs: Runs, line: Line) -> list[str]:
    """Who published a point, of which software, and the note that came with it."""
    rows = [
        row
        for source in dict.fromkeys(point.best.sources)
        for row in runs.rows.get(source, ())
        if runs.columns["workers"][row] == point.workers and runs.columns["ps"][row] == point.best.ps
    ]
    notes = dict.fromkeys(
        runs.columns["note"][row] for row in rows if runs.columns["model"][row] == line.facets.model[0]
    )
    return [*filter(None, [str(line.curve.facets["software"]), *notes]), *dict.fromkeys(point.best.sources)]


def of_configuration(one: Configuration, runs: Runs) -> list[str]:
    """Repeats, dates, software, options, what carried the gradients, and the records of one configuration."""
    dates = when(runs.seen(one.sources, "started"))
    told = ", ".join(f"{key}={value}" for key, value in one.options.items() if value is not None)
    seen = runs.seen(one.sources, "transport_seen")
    sources = list(dict.fromkeys(one.sources))
    more = len(sources) - SHOWN_SOURCES
    return [
        ", ".join(filter(None, [repeats(one), dates])),
        *runs.seen(one.sources, "software"),
        *([f"options: {told}"] if told else []),
        *([f"gradients: {'; '.join(seen)}"] if seen else []),
        *sources[:SHOWN_SOURCES],
        *([f"and {more:,} more"] if more > 0 else []),
    ]


def of_run(runs: Runs, row: int) -> tuple[str, ...]:
    """One run among others of the same measurement."""
    columns = {name: values[row] for name, values in runs.columns.items()}
    ci95 = columns["ci95"]
    return (
        f"{minute(columns['started'])} UTC",
        f"{throughput(columns['img_per_s'])} img/s{'' if math.isnan(ci95) else f' ± {throughput(ci95)} (95 % CI)'}",
        *filter(None, (columns["software"], columns["transport_seen"])),
        columns["source"],
    )


def configuration(one: Configuration, runs: Runs) -> str:
    """What was tuned: ``116 ps, placement=greedy``."""
    return ", ".join(filter(None, [one.label, options(one, runs)]))


def options(one: Configuration, runs: Runs) -> str:
    """The options beside the number of servers, without those that are the same in all runs of the backend."""
    varied = runs.varied.get(one.backend, frozenset())
    return ", ".join(f"{key}={value}" for key, value in one.options.items() if value is not None and key in varied)


def repeats(one: Configuration) -> str:
    """``15 repeats in 3 runs``; of publications that tell a mean only, nothing is known."""
    runs = f"{len(one.sources)} run{'s' * (len(one.sources) != 1)}"
    count = len(one.sample.values)
    return f"{count} repeat{'s' * (count != 1)} in {runs}" if count else f"published mean ({len(one.sources)} row)"


def when(started: Sequence[str]) -> str:
    """The first and the last day of sorted times."""
    days = [one[:10] for one in started]
    if not days:
        return ""
    return days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"


def throughput(value: float) -> str:
    """With as many digits as are of interest: ``9,219.7`` and ``38.25``."""
    if math.isnan(value):
        return ""
    return f"{value:,.2f}" if value < 100 else f"{value:,.1f}" if value < 10_000 else f"{value:,.0f}"


def interval(ends: Interval | None, percent: bool = False) -> str:
    """`` (95 % CI 90.1 to 93.4)``, or nothing where no spread is known."""
    if ends is None:
        return ""
    low, high = (f"{end:.1%}" if percent else throughput(end) for end in ends)
    return f" (95 % CI {low} to {high})"
