"""Where a number comes from, in lines of text: what a reader sees who points at it."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.analysis.scaling import Configuration, Interval
from harness.core.text import plural

if TYPE_CHECKING:
    import pandas

SHOWN_SOURCES = 2


@dataclass(frozen=True)
class Runs:
    """Columns of a DataFrame of ``results.load``, each by the labels of its rows.

    ``varied`` are the options of each backend that are not the same in all its measured runs.
    """

    columns: Mapping[Hashable, Mapping[Any, Any]]
    varied: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, frame: pandas.DataFrame) -> Runs:
        measured = frame[frame["origin"] == "measured"]  # publications tell no options
        varied = {}
        for backend, texts in measured.groupby("backend")["options"].unique().items():
            options = [json.loads(text or "{}") for text in texts]
            names = {name for each in options for name in each}
            different = (name for name in names if len({json.dumps(each.get(name)) for each in options}) > 1)
            varied[str(backend)] = frozenset(different)
        return cls(frame[["software", "transport_seen", "started", "note", "model"]].to_dict(), varied)

    def seen(self, one: Configuration, column: str) -> list[str]:
        """The different values that ``column`` has in the runs of a configuration, without "", in order."""
        return sorted({self.columns[column][row] for row in one.rows} - {""})

    def options(self, one: Configuration) -> str:
        """The options beside the number of servers, without those that are the same in all runs of the backend."""
        varied = self.varied.get(one.backend, frozenset())
        return ", ".join(f"{key}={value}" for key, value in one.options.items() if value is not None and key in varied)

    def configuration(self, one: Configuration) -> str:
        """What was tuned: ``116 ps, placement=greedy``."""
        return ", ".join(filter(None, [one.label, self.options(one)]))

    def of_configuration(self, one: Configuration) -> list[str]:
        """Repeats, dates, software, options, what carried the gradients, and the records of one configuration."""
        runs, values = len(one.sources), len(one.sample.values)
        repeats = f"{plural(values, 'repeat')} in {plural(runs, 'run')}" if values else f"published mean ({runs} row)"
        options = ", ".join(f"{key}={value}" for key, value in one.options.items() if value is not None)
        transports = "; ".join(self.seen(one, "transport_seen"))
        sources = list(dict.fromkeys(one.sources))
        return [
            ", ".join(filter(None, [repeats, days(self.seen(one, "started"))])),
            *self.seen(one, "software"),
            *([f"options: {options}"] if options else []),
            *([f"gradients: {transports}"] if transports else []),
            *sources[:SHOWN_SOURCES],
            *([f"and {len(sources) - SHOWN_SOURCES:,} more"] if len(sources) > SHOWN_SOURCES else []),
        ]


def days(started: Sequence[str]) -> str:
    """The first and the last day of sorted times."""
    return " to ".join(dict.fromkeys(time[:10] for time in (*started[:1], *started[-1:])))


def throughput(value: float) -> str:
    """With as many digits as are of interest: ``9,219.7`` and ``38.25``."""
    return f"{value:,.2f}" if value < 100 else f"{value:,.1f}" if value < 10_000 else f"{value:,.0f}"


def interval(ends: Interval | None, percent: bool = False) -> str:
    """`` (95 % CI 90.1 to 93.4)``, or nothing where no spread is known."""
    if ends is None:
        return ""
    low, high = (f"{end:.1%}" if percent else throughput(end) for end in ends)
    return f" (95 % CI {low} to {high})"
