"""Histories of measurements as text: for a terminal and for scripts. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from harness.analysis.differences import NOTHING
from harness.analysis.history import FEWEST, LEVEL, Change, History, RunSeries
from harness.core.text import minute, plural
from harness.report.text.regression import percent, some_differences
from harness.report.text.table import table

SCHEMA = "harness.history/1"


def terminal(history: History) -> str:
    """For people: the changes of each series, then what did not change, then what was too short to say."""
    changed = [one for one in history.series if one.changes]
    still = [one for one in history.series if not one.changes]
    changes, of = sum(len(one.changes) for one in changed), plural(len(history.series), "measurement")
    in_some = f"{plural(changes, 'change point')} in {len(changed)} of {of}"
    parts = [in_some if changed else f"no change point in any of {of}", *map(_changed, changed)]
    if still:
        rows = [("no change point", "system", "runs", "first", "last", "level, img/s")]
        rows += [(one.label, one.system, str(len(one.runs)), *_span(one), f"{one.level:.2f}") for one in still]
        parts.append(table(rows, right={2, 5}))
    notes = [f"of measurements that do not change {100 * LEVEL:g} % are said to have a change point"]
    if history.without_number:
        notes.insert(0, f"{plural(history.without_number, 'run')} without a number, left out")
    if history.short:
        short = plural(history.short, "measurement")
        notes.insert(0, f"{short} with fewer than {FEWEST} runs, too few for a history")
    return "\n\n".join([*parts, "\n".join(notes)])


def as_json(history: History, sources: Sequence[str]) -> str:
    """For scripts: every series with its runs and its changes."""
    document = {"schema": SCHEMA, "sources": list(sources), "level": LEVEL, **dataclasses.asdict(history)}
    return json.dumps(document, indent=1, allow_nan=False)


def _span(one: RunSeries) -> tuple[str, str]:
    return one.runs[0].started[:10], one.runs[-1].started[:10]


def _changed(one: RunSeries) -> str:
    first, last = _span(one)
    lines = [
        f"{one.label} on {one.system or 'a machine without a name'}",
        f"  {len(one.runs)} runs, {first} to {last}; now {one.level:.2f} img/s",
    ]
    return "\n".join([*lines, *(line for change in one.changes for line in _change(change))])


def _change(change: Change) -> list[str]:
    low, high = change.ci95
    between = f"between {minute(change.before.started)} and {minute(change.after.started)}"
    return [
        f"  {between}: {change.old_img_per_s:.2f} → {change.new_img_per_s:.2f} img/s, "
        f"{percent(change.change)} (95 % CI {percent(low)} … {percent(high)})",
        f"    {change.before.id}  →  {change.after.id}",
        *(f"  {line}" for line in some_differences(change.differences) or [f"  {NOTHING}"]),
    ]
