"""A comparison of two sets of results as text: for a terminal, for scripts, and for what CI systems read. Pure."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from harness.analysis.differences import NOTHING, Difference
from harness.analysis.pairing import Unpaired
from harness.analysis.regression import (
    CHANGED,
    FAILING,
    VERDICTS,
    ComparedResults,
    Interval,
    Pair,
    Rule,
    SideTotal,
    Verdict,
)
from harness.core.text import plural
from harness.report.text.table import table

SCHEMA = "harness.comparison/1"
_LISTED = 40  # pairs without a significant change that a terminal shows; the others are counted
_DIFFERENCES = 12
_TESTS = {"welch": "Welch's t-test", "mann-whitney": "the Mann–Whitney test"}
_HEADINGS = ("measurement", "verdict", "old img/s", "new img/s", "change", "95 % CI", "p")
_PHRASES: dict[Verdict, str] = {
    "no number": "{} with no number any more",
    "slower": "{} slower",
    "cannot say": "{} cannot be judged",
    "significant, below the threshold": "{} significant, below the threshold",
    "faster": "{} faster",
    "no significant change": "{} without a significant change",
}


def terminal(comparison: ComparedResults, old: str, new: str, everything: bool = False) -> str:
    """For people: the verdict, the table (the worst first), what may explain it, what was not compared, the rule."""
    quiet = [pair for pair in comparison.pairs if pair.verdict == "no significant change"]
    hidden = 0 if everything or len(comparison.pairs) <= _LISTED else len(quiet)
    shown = [pair for pair in comparison.pairs if not hidden or pair.verdict != "no significant change"]
    parts = [f"{verdict(comparison)}\n\n  OLD  {_side(old, comparison.old)}\n  NEW  {_side(new, comparison.new)}"]
    if shown:
        parts.append(table([_HEADINGS, *map(_row, shown)], right={2, 3, 4, 5, 6}))
    if hidden:
        parts.append(f"and {plural(hidden, 'measurement')} without a significant change (--all shows them)")
    parts.append("\n".join(_explanations(comparison)))
    if comparison.notes:
        parts.append("\n".join(_notes(comparison)))
    if comparison.unpaired:
        parts.append("\n".join(_not_compared(comparison.unpaired, everything)))
    parts.append(rule(comparison.rule))
    return "\n\n".join(parts)


def verdict(comparison: ComparedResults) -> str:
    """One line: how many pairs there are, and what became of them, the worst first."""
    counts = comparison.counts
    told = ", ".join(_PHRASES[one].format(counts[one]) for one in VERDICTS if counts.get(one))
    answer = "SLOWER" if comparison.regressions else "not slower"
    return f"{answer}: {plural(len(comparison.pairs), 'measurement')} compared, {told}"


def failure(comparison: ComparedResults) -> str:
    """One line about a comparison that fails: how many got slower, and the worst of them."""
    worst = comparison.regressions[0]
    slower, lost = comparison.counts.get("slower", 0), comparison.counts.get("no number", 0)
    told = [f"{slower} of {plural(len(comparison.pairs), 'measurement')} got slower"] if slower else []
    told += [f"{lost} {'has' if lost == 1 else 'have'} no number any more"] if lost else []
    return f"{', '.join(told)}; the worst is {worst.label}: {_outcome(worst)}"


def rule(chosen: Rule) -> str:
    """How the comparison decided, for the reader of its table."""
    return (
        f"slower (faster): one-sided p < {chosen.alpha:g} by {_TESTS[chosen.test]} on log(img/s) of the repeats, adjusted\n"
        f"for the number of measurements (Benjamini–Hochberg), and the 99 % CI of the change reaches "
        f"−{_plain(chosen.threshold)} (+{_plain(chosen.threshold)});\nimg/s are geometric means of the repeats"
    )


def as_json(comparison: ComparedResults, old: Sequence[str], new: Sequence[str]) -> str:
    """For scripts: everything, in the order of the table. A bound that does not exist is null."""
    document = {
        "schema": SCHEMA,
        "slower": bool(comparison.regressions),
        "rule": dataclasses.asdict(comparison.rule),
        "old": {"sources": list(old), **dataclasses.asdict(comparison.old)},
        "new": {"sources": list(new), **dataclasses.asdict(comparison.new)},
        "counts": {one: comparison.counts.get(one, 0) for one in VERDICTS},
        "differences": list(map(vars, comparison.differences)),
        "pairs": list(map(_pair_as_json, comparison.pairs)),
        "not_compared": [vars(one) for one in comparison.unpaired],
        "notes": list(comparison.notes),
    }
    return json.dumps(document, indent=1, allow_nan=False)


def _pair_as_json(pair: Pair) -> dict[str, Any]:
    judgement = pair.judgement
    return {
        "label": pair.label,
        "verdict": judgement.verdict,
        "reason": judgement.reason,
        "old": vars(pair.old),
        "new": vars(pair.new),
        "change": judgement.change,
        "ci95": _finite(judgement.ci95),
        "ci99": _finite(judgement.ci99),
        "p": judgement.p,
        "differences": list(map(vars, pair.differences)),
        "step_times": dict(zip(("old", "new"), map(vars, pair.steps), strict=True)) if pair.steps else None,
        "spec": pair.spec,
    }


def _finite(interval: Interval | None) -> list[float | None] | None:
    return interval and [bound if abs(bound) != float("inf") else None for bound in interval]


def junit(comparison: ComparedResults, old: str, new: str) -> str:
    """For CI systems: JUnit XML, one test case per pair; what was not compared, or cannot be judged, is skipped."""
    # In JUnit every case has a class; ours is the kind of measurement, so that backends are grouped.
    suite = ElementTree.Element("testsuite", name=_legal(f"harness compare {old} {new}"))
    for pair in comparison.pairs:
        case = _case(suite, pair.label, pair.spec["backend"])
        text = "\n".join(
            [_outcome(pair), *pair.judgement.reason.split("\n")[1:], *_details(pair, comparison.differences)]
        )
        if pair.verdict in FAILING:
            element = ElementTree.SubElement(case, "failure", message=_legal(_outcome(pair)), type=pair.verdict)
            element.text = _legal(text)
        elif pair.verdict == "cannot say":
            ElementTree.SubElement(case, "skipped", message=_legal(_outcome(pair)))
        else:
            ElementTree.SubElement(case, "system-out").text = _legal(text)
    for one in comparison.unpaired:
        case = _case(suite, one.label, one.label.split()[0])
        ElementTree.SubElement(case, "skipped", message=_legal(f"not compared: {one.why}"))
    skipped = comparison.counts.get("cannot say", 0) + len(comparison.unpaired)
    suite.set("tests", str(len(comparison.pairs) + len(comparison.unpaired)))
    suite.set("failures", str(len(comparison.regressions)))
    suite.set("errors", "0")
    suite.set("skipped", str(skipped))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, label: str, backend: str) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", classname=_legal(f"harness.{backend}"), name=_legal(label))


# What XML 1.0 has no place for, not even escaped: most control characters, halves of surrogate pairs.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _legal(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)


def github(comparison: ComparedResults) -> str:
    """Workflow commands of GitHub Actions: an error for what fails, a warning for what could not be judged or compared.

    GitHub shows 10 of each kind per step, so that the worst come first.
    """
    lines = [
        _command("error", f"{pair.label}: {pair.verdict}", [_outcome(pair), *_details(pair, comparison.differences)])
        for pair in comparison.regressions
    ]
    lines += [
        _command("warning", f"{pair.label}: cannot say", [_outcome(pair)])
        for pair in comparison.pairs
        if pair.verdict == "cannot say"
    ]
    lines += [_command("warning", f"{one.label}: not compared", [first_line(one.why)]) for one in comparison.unpaired]
    lines.append(_command("notice", "harness compare", [verdict(comparison)]))
    return "\n".join(lines)


def _command(kind: str, title: str, message: Sequence[str]) -> str:
    """One workflow command, escaped as GitHub's own toolkit does it (actions/toolkit, packages/core/src/command.ts)."""
    text = _escaped("\n".join(message))
    return f"::{kind} title={_escaped(title).replace(':', '%3A').replace(',', '%2C')}::{text}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def markdown(comparison: ComparedResults, old: str, new: str) -> str:
    """For pull requests and job summaries."""
    rows = [_HEADINGS, ("---", "---", "--:", "--:", "--:", "--:", "--:"), *map(_row, comparison.pairs)]
    lines = [f"**{_cell(verdict(comparison))}**", ""]
    lines += [f"- OLD {_cell(_side(old, comparison.old))}", f"- NEW {_cell(_side(new, comparison.new))}", ""]
    lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in rows]
    told = [*_explanations(comparison), *_notes(comparison), *_not_compared(comparison.unpaired, everything=True)]
    lines += ["", *(f"{'  ' * line.startswith('  ')}- {_cell(line.strip())}" for line in told)]
    return "\n".join([*lines, "", _cell(rule(comparison.rule))]) + "\n"


def _cell(text: str) -> str:
    """Text that stays in its cell and is shown as it is."""
    return re.sub(r"([\\`*_<>\[\]|])", r"\\\1", text).replace("\r", " ").replace("\n", " ") if text != "--:" else text


# --- the parts that they share --------------------------------------------------------------------


def _side(name: str, total: SideTotal) -> str:
    without = f", {plural(total.without_number, 'run')} without a number" if total.without_number else ""
    return (
        f"{name}: {plural(total.records, 'record')} with {plural(total.repeats, 'repeat')}{without}, "
        f"on {', '.join(total.systems) or 'a machine without a name'}"
    )


def _row(pair: Pair) -> tuple[str, ...]:
    judgement = pair.judgement
    p = "" if judgement.p is None else "< 0.0001" if judgement.p < 1e-4 else f"{judgement.p:.4f}"
    change = "" if judgement.change is None else percent(judgement.change)
    return (
        pair.label,
        pair.verdict,
        _rate(pair.old.img_per_s),
        _rate(pair.new.img_per_s),
        change,
        _ci(judgement.ci95),
        p,
    )


def _outcome(pair: Pair) -> str:
    """What became of a pair, in words; "no significant change" comes before any percentage."""
    judgement = pair.judgement
    old, new = f"{_rate(pair.old.img_per_s)} img/s", f"{_rate(pair.new.img_per_s)} img/s"
    if pair.verdict == "no number":
        return f"had {old}, now has no number: {first_line(judgement.reason)}"
    if judgement.change is None or judgement.p is None:
        return f"cannot say: {judgement.reason} ({old}, now {new})"
    repeats = f"{pair.old.repeats} and {plural(pair.new.repeats, 'repeat')}"
    return (
        f"{pair.verdict}: {percent(judgement.change)} (95 % CI {_ci(judgement.ci95)}, p {_p(judgement.p)}), "
        f"{old} → {new}, {repeats}"
    )


def _p(p: float) -> str:
    return "< 0.0001" if p < 1e-4 else f"= {p:.4f}"


def _details(pair: Pair, common: Sequence[Difference]) -> list[str]:
    """What may explain a change: systems first, then what differs, then the step times."""
    differing = [*pair.differences, *common]
    lines = [f"systems: {_systems(pair)}"] if pair.old.systems != pair.new.systems else []
    lines += [str(one) for one in differing[:_DIFFERENCES]] if differing else [NOTHING]
    if len(differing) > _DIFFERENCES:
        lines.append(f"and {len(differing) - _DIFFERENCES} more differences")
    return [*lines, *_steps(pair)]


def _systems(pair: Pair) -> str:
    return f"{', '.join(pair.old.systems) or 'unnamed'} → {', '.join(pair.new.systems) or 'unnamed'}"


def _steps(pair: Pair) -> list[str]:
    if pair.steps is None:
        return []
    old, new = pair.steps

    def ratio(name: str, one: float, other: float) -> str:
        relative = f" ({percent(other / one - 1)})" if one else ""
        return f"{name} {one * 1e3:.1f} → {other * 1e3:.1f} ms{relative}"

    parts = [
        ratio("p50", old.p50_s, new.p50_s),
        ratio("p99", old.p99_s, new.p99_s),
        ratio("jitter", old.jitter_s, new.jitter_s),
    ]
    if abs(new.slowest_over_median / old.slowest_over_median - 1) > 0.01:
        parts.append(f"slowest rank {old.slowest_over_median:.2f} → {new.slowest_over_median:.2f} × the median rank")
    return [f"step time: {', '.join(parts)}"]


def _explanations(comparison: ComparedResults) -> list[str]:
    """What differs between OLD and NEW everywhere, then what differs besides where something changed."""
    lines = []
    moved = {_systems(pair) for pair in comparison.pairs if pair.old.systems != pair.new.systems}
    if moved:
        lines.append(f"OLD and NEW are from different systems: {'; '.join(sorted(moved))}")
    changed = [pair for pair in comparison.pairs if pair.verdict in CHANGED]
    if not changed and not comparison.differences:
        return [*lines, f"between OLD and NEW {NOTHING} in every measurement"]
    if comparison.differences:
        lines += ["what differs between OLD and NEW in every measurement:", *some_differences(comparison.differences)]
    else:
        lines.append("between OLD and NEW nothing differs in every measurement alike")
    for pair in changed[:_LISTED]:
        own = [*some_differences(pair.differences), *(f"  {line}" for line in _steps(pair))]
        if not comparison.differences and not pair.differences:
            own.insert(0, f"  {NOTHING}")
        if pair.verdict == "no number":
            own.insert(0, f"  {_outcome(pair)}")
        if own:
            lines += [f"{pair.label}:", *own]
    if len(changed) > _LISTED:
        lines.append(f"and {len(changed) - _LISTED} more that changed (--json tells what differs there)")
    return lines


def some_differences(found: Sequence[Difference]) -> list[str]:
    """The most relevant differences, one indented line each."""
    more = len(found) - _DIFFERENCES
    lines = [f"  {one}" for one in found[:_DIFFERENCES]]
    return [*lines, f"  and {more} more (--json has all)"] if more > 0 else lines


def _notes(comparison: ComparedResults) -> list[str]:
    return [f"note: {first_line(note)}" for note in comparison.notes]


def _not_compared(found: Sequence[Unpaired], everything: bool) -> list[str]:
    """One line for all that are alike: an upgrade that changes the core count concerns every measurement."""
    if not found:
        return []
    grouped: dict[tuple[str, str], list[Unpaired]] = {}
    for one in found:
        grouped.setdefault((one.side, one.why), []).append(one)
    lines = [f"not compared: {plural(len(found), 'measurement')}"]
    groups = list(grouped.items())
    for (side, why), alike in groups if everything else groups[:_LISTED]:
        which = alike[0].label if len(alike) == 1 else f"{len(alike)} such as {alike[0].label}"
        lines.append(f"  {side}: {which}: {first_line(why)}")
    if not everything and len(groups) > _LISTED:
        lines.append(f"  and {len(groups) - _LISTED} more kinds (--all shows them)")
    return lines


def first_line(text: str) -> str:
    """The first line of what a failed process left behind, without control characters."""
    line = text.strip().split("\n")[0]
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in line)


def percent(change: float) -> str:
    """``−7.4 %``, with a typographic minus; ``+∞`` where there is no bound."""
    if change == float("inf"):
        return "+∞"
    return f"{100 * change:+.1f} %".replace("-", "−")


def _plain(share: float) -> str:
    return f"{100 * share:g} %"


def _ci(interval: Interval | None) -> str:
    return "" if interval is None else f"{percent(interval[0])} … {percent(interval[1])}"


def _rate(img_per_s: float | None) -> str:
    return "" if img_per_s is None else f"{img_per_s:.2f}"
