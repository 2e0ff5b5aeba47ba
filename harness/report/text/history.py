"""Histories of measurements as text: for a terminal, for scripts."""

from collections.abc import Sequence

from harness.analysis.differences import NOTHING
from harness.analysis.history import FEWEST, LEVEL, History, RunSeries
from harness.core.plain import json_text, plain
from harness.core.text import minute, plural
from harness.report.text.regression import change_text, listed_differences, rate_text
from harness.report.text.table import table

SCHEMA = "harness.history/1"


def terminal(history: History) -> str:
    """For people: the changes of each series, then what did not change, then what was too short to say."""
    changes, measurements = 0, plural(len(history.series), "measurement")
    changed, still = [], [("no change point", "system", "runs", "first", "last", "level")]
    for series in history.series:
        count, first, last = len(series.runs), series.runs[0].started[:10], series.runs[-1].started[:10]
        level = rate_text(series.unit, series.level)
        if not series.changes:
            still.append((series.label, series.system, str(count), first, last, level))
            continue
        lines = [_where(series), f"  {count} runs, {first} to {last}; now {level}"]
        for change in series.changes:
            old, new = (rate_text(series.unit, rate) for rate in (change.old_rate, change.new_rate))
            low, high = map(change_text, change.ci95)
            lines += [
                f"  between {minute(change.before.started)} and {minute(change.after.started)}: "
                f"{old.removesuffix(' img/s')} → {new}, {change_text(change.change)} (95 % CI {low} … {high})",
                f"    {change.before.id}  →  {change.after.id}",
                *(f"    {line}" for line in listed_differences(change.differences) or [NOTHING]),
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
    parts += [_work(series) for series in history.series if series.work]
    return "\n\n".join([*parts, "\n".join(notes)])


def _where(series: RunSeries) -> str:
    return f"{series.label} on {series.system or 'a machine without a name'}"


def _work(series: RunSeries) -> str:
    """The runs at which the losses of a series became others, or its software did."""
    lines = [f"the work of {_where(series)}"]
    for change in series.work:
        lines.append(f"  {minute(change.started)}: {change.work.text}")
        lines.append(f"    {change.before}  →  {change.after}" if change.before else f"    {change.after}")
    return "\n".join(lines)


def as_json(history: History, sources: Sequence[str]) -> str:
    return json_text({"schema": SCHEMA, "sources": sources, "level": LEVEL, **plain(history)})
