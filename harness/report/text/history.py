"""Histories of measurements as text: for a terminal and for scripts. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from harness.analysis.differences import NOTHING
from harness.analysis.history import FEWEST, LEVEL, History
from harness.core.text import minute, plural
from harness.report.text.regression import percent, some_differences
from harness.report.text.table import table

SCHEMA = "harness.history/1"


def terminal(history: History) -> str:
    """For people: the changes of each series, then what did not change, then what was too short to say."""
    changes, measurements = 0, plural(len(history.series), "measurement")
    changed, still = [], [("no change point", "system", "runs", "first", "last", "level, img/s")]
    for series in history.series:
        count, first, last = len(series.runs), series.runs[0].started[:10], series.runs[-1].started[:10]
        if not series.changes:
            still.append((series.label, series.system, str(count), first, last, f"{series.level:.2f}"))
            continue
        lines = [f"{series.label} on {series.system or 'a machine without a name'}"]
        lines.append(f"  {count} runs, {first} to {last}; now {series.level:.2f} img/s")
        for change in series.changes:
            low, high = map(percent, change.ci95)
            lines += [
                f"  between {minute(change.before.started)} and {minute(change.after.started)}: "
                f"{change.old_img_per_s:.2f} → {change.new_img_per_s:.2f} img/s, "
                f"{percent(change.change)} (95 % CI {low} … {high})",
                f"    {change.before.id}  →  {change.after.id}",
                *(f"  {line}" for line in some_differences(change.differences) or [f"  {NOTHING}"]),
            ]
        changes += len(series.changes)
        changed.append("\n".join(lines))
    notes = []
    if history.short:
        notes.append(f"{plural(history.short, 'measurement')} with fewer than {FEWEST} runs, too few for a history")
    if history.without_number:
        notes.append(f"{plural(history.without_number, 'run')} without a number, left out")
    notes.append(f"of measurements that do not change {100 * LEVEL:g} % are said to have a change point")
    summary = f"{plural(changes, 'change point')} in {len(changed)} of {measurements}"
    parts = [summary if changed else f"no change point in any of {measurements}", *changed]
    parts += [table(still, right={2, 5})] if len(still) > 1 else []
    return "\n\n".join([*parts, "\n".join(notes)])


def as_json(history: History, sources: Sequence[str]) -> str:
    """For scripts: every series with its runs and its changes."""
    document = {"schema": SCHEMA, "sources": list(sources), "level": LEVEL, **dataclasses.asdict(history)}
    return json.dumps(document, indent=1, allow_nan=False)
