"""A comparison of two sets of results as text: for a terminal, for scripts, and for what CI systems read. Pure."""

from __future__ import annotations

import dataclasses
import json
import math
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
    pairs = comparison.pairs
    shown = [pair for pair in pairs if pair.verdict != "no significant change"]
    if everything or len(pairs) <= _LISTED:
        shown = list(pairs)
    parts = [f"{verdict(comparison)}\n\n  OLD  {_side(old, comparison.old)}\n  NEW  {_side(new, comparison.new)}"]
    if shown:
        parts.append(table([_HEADINGS, *map(_row, shown)], right={2, 3, 4, 5, 6}))
    if hidden := len(pairs) - len(shown):
        parts.append(f"and {plural(hidden, 'measurement')} without a significant change (--all shows them)")
    remarks = _explanations(comparison), _notes(comparison), _not_compared(comparison.unpaired, everything)
    return "\n\n".join([*parts, *("\n".join(lines) for lines in remarks if lines), rule(comparison.rule)])


def verdict(comparison: ComparedResults) -> str:
    """One line: how many pairs there are, and what became of them, the worst first."""
    counts = comparison.counts
    became = ", ".join(_PHRASES[one].format(counts[one]) for one in VERDICTS if counts.get(one))
    answer = "SLOWER" if comparison.regressions else "not slower"
    return f"{answer}: {plural(len(comparison.pairs), 'measurement')} compared, {became}"


def failure(comparison: ComparedResults) -> str:
    """One line about a comparison that fails: how many got slower, and the worst of them."""
    worst = comparison.regressions[0]
    slower, lost = comparison.counts.get("slower", 0), comparison.counts.get("no number", 0)
    parts = [f"{slower} of {plural(len(comparison.pairs), 'measurement')} got slower"] if slower else []
    parts += [f"{lost} {'has' if lost == 1 else 'have'} no number any more"] if lost else []
    return f"{', '.join(parts)}; the worst is {worst.label}: {_outcome(worst)}"


def rule(chosen: Rule) -> str:
    """How the comparison decided, for the reader of its table."""
    threshold = f"{100 * chosen.threshold:g} %"
    return (
        f"slower (faster): one-sided p < {chosen.alpha:g} by {_TESTS[chosen.test]} on log(img/s) of the repeats, adjusted\n"
        f"for the number of measurements (Benjamini–Hochberg), and the 99 % CI of the change reaches "
        f"−{threshold} (+{threshold});\nimg/s are geometric means of the repeats"
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
        "pairs": list(map(_pair, comparison.pairs)),
        "not_compared": [vars(one) for one in comparison.unpaired],
        "notes": list(comparison.notes),
    }
    return json.dumps(document, indent=1, allow_nan=False)


def _pair(pair: Pair) -> dict[str, Any]:
    judgement = pair.judgement

    def bounds(interval: Interval | None) -> list[float | None] | None:
        return interval and [bound if math.isfinite(bound) else None for bound in interval]

    return {
        "label": pair.label,
        "verdict": judgement.verdict,
        "reason": judgement.reason,
        "old": vars(pair.old),
        "new": vars(pair.new),
        "change": judgement.change,
        "ci95": bounds(judgement.ci95),
        "ci99": bounds(judgement.ci99),
        "p": judgement.p,
        "differences": list(map(vars, pair.differences)),
        "step_times": dict(zip(("old", "new"), map(vars, pair.steps), strict=True)) if pair.steps else None,
        "spec": pair.spec,
    }


def junit(comparison: ComparedResults, old: str, new: str) -> str:
    """For CI systems: JUnit XML, one test case per pair; what was not compared, or cannot be judged, is skipped."""
    unpaired, undecided = comparison.unpaired, comparison.counts.get("cannot say", 0)
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        name=_legal(f"harness compare {old} {new}"),
        tests=str(len(comparison.pairs) + len(unpaired)),
        failures=str(len(comparison.regressions)),
        errors="0",
        skipped=str(undecided + len(unpaired)),
    )

    def case(label: str, backend: str) -> ElementTree.Element:
        # In JUnit every case has a class; ours is the kind of measurement, so that backends are grouped.
        return ElementTree.SubElement(suite, "testcase", classname=_legal(f"harness.{backend}"), name=_legal(label))

    for pair in comparison.pairs:
        outcome = _legal(_outcome(pair))
        of_pair = case(pair.label, pair.spec["backend"])
        text = [_outcome(pair), *pair.judgement.reason.split("\n")[1:], *_details(pair, comparison.differences)]
        if pair.verdict in FAILING:
            element = ElementTree.SubElement(of_pair, "failure", message=outcome, type=pair.verdict)
            element.text = _legal("\n".join(text))
        elif pair.verdict == "cannot say":
            ElementTree.SubElement(of_pair, "skipped", message=outcome)
        else:
            ElementTree.SubElement(of_pair, "system-out").text = _legal("\n".join(text))
    for one in unpaired:
        of_one = case(one.label, one.label.split()[0])
        ElementTree.SubElement(of_one, "skipped", message=_legal(f"not compared: {one.why}"))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


# What XML 1.0 has no place for, not even escaped: most control characters, halves of surrogate pairs.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _legal(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", text)


def github(comparison: ComparedResults) -> str:
    """Workflow commands of GitHub Actions: an error for what fails, a warning for what could not be judged or compared.

    GitHub shows 10 of each kind per step, so that the worst come first.
    """
    undecided = [pair for pair in comparison.pairs if pair.verdict == "cannot say"]
    lines = [
        _command("error", f"{pair.label}: {pair.verdict}", _outcome(pair), *_details(pair, comparison.differences))
        for pair in comparison.regressions
    ]
    lines += [_command("warning", f"{pair.label}: cannot say", _outcome(pair)) for pair in undecided]
    lines += [_command("warning", f"{one.label}: not compared", first_line(one.why)) for one in comparison.unpaired]
    return "\n".join([*lines, _command("notice", "harness compare", verdict(comparison))])


def _command(kind: str, title: str, *message: str) -> str:
    """One workflow command, escaped as GitHub's own toolkit does it (actions/toolkit, packages/core/src/command.ts)."""

    def escaped(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    title = escaped(title).replace(":", "%3A").replace(",", "%2C")
    return f"::{kind} title={title}::{escaped(chr(10).join(message))}"


def markdown(comparison: ComparedResults, old: str, new: str) -> str:
    """For pull requests and job summaries."""
    remarks = [*_explanations(comparison), *_notes(comparison), *_not_compared(comparison.unpaired, everything=True)]
    lines = [
        f"**{_literally(verdict(comparison))}**",
        "",
        f"- OLD {_literally(_side(old, comparison.old))}",
        f"- NEW {_literally(_side(new, comparison.new))}",
        "",
        f"| {' | '.join(_HEADINGS)} |",
        "| --- | --- | --: | --: | --: | --: | --: |",
        *(f"| {' | '.join(map(_literally, _row(pair)))} |" for pair in comparison.pairs),
        "",
        *(f"{'  ' * line.startswith('  ')}- {_literally(line.strip())}" for line in remarks),
        "",
        _literally(rule(comparison.rule)),
    ]
    return "\n".join(lines) + "\n"


def _literally(text: str) -> str:
    """Text that Markdown shows as it is, in one line and within its cell."""
    return re.sub(r"([\\`*_<>\[\]|])", r"\\\1", text).replace("\r", " ").replace("\n", " ")


# --- the parts that they share --------------------------------------------------------------------


def _side(name: str, total: SideTotal) -> str:
    without = f", {plural(total.without_number, 'run')} without a number" if total.without_number else ""
    return (
        f"{name}: {plural(total.records, 'record')} with {plural(total.repeats, 'repeat')}{without}, "
        f"on {', '.join(total.systems) or 'a machine without a name'}"
    )


def _row(pair: Pair) -> tuple[str, ...]:
    judgement = pair.judgement
    rates = ("" if rate is None else f"{rate:.2f}" for rate in (pair.old.img_per_s, pair.new.img_per_s))
    p = "" if judgement.p is None else "< 0.0001" if judgement.p < 1e-4 else f"{judgement.p:.4f}"
    change = "" if judgement.change is None else percent(judgement.change)
    return (pair.label, pair.verdict, *rates, change, _ci(judgement.ci95), p)


def _outcome(pair: Pair) -> str:
    """What became of a pair, in words; "no significant change" comes before any percentage."""
    judgement = pair.judgement
    _, _, old, new, change, ci95, p = _row(pair)
    if pair.verdict == "no number":
        return f"had {old} img/s, now has no number: {first_line(judgement.reason)}"
    if judgement.change is None or judgement.p is None:
        return f"cannot say: {judgement.reason} ({old} img/s, now {new} img/s)"
    return (
        f"{pair.verdict}: {change} (95 % CI {ci95}, p {p if p.startswith('<') else f'= {p}'}), "
        f"{old} img/s → {new} img/s, {pair.old.repeats} and {plural(pair.new.repeats, 'repeat')}"
    )


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
    parts = []
    for name in ("p50", "p99", "jitter"):
        before, after = getattr(old, f"{name}_s"), getattr(new, f"{name}_s")
        relative = f" ({percent(after / before - 1)})" if before else ""
        parts.append(f"{name} {before * 1e3:.1f} → {after * 1e3:.1f} ms{relative}")
    if abs(new.slowest_over_median / old.slowest_over_median - 1) > 0.01:
        parts.append(f"slowest rank {old.slowest_over_median:.2f} → {new.slowest_over_median:.2f} × the median rank")
    return [f"step time: {', '.join(parts)}"]


def _explanations(comparison: ComparedResults) -> list[str]:
    """What differs between OLD and NEW everywhere, then what differs in addition where something changed."""
    lines = []
    if moved := {_systems(pair) for pair in comparison.pairs if pair.old.systems != pair.new.systems}:
        lines.append(f"OLD and NEW are from different systems: {'; '.join(sorted(moved))}")
    changed = [pair for pair in comparison.pairs if pair.verdict in CHANGED]
    if not changed and not comparison.differences:
        return [*lines, f"between OLD and NEW {NOTHING} in every measurement"]
    if comparison.differences:
        lines += ["what differs between OLD and NEW in every measurement:", *some_differences(comparison.differences)]
    else:
        lines.append("between OLD and NEW nothing differs in every measurement alike")
    for pair in changed[:_LISTED]:
        own = [f"  {_outcome(pair)}"] if pair.verdict == "no number" else []
        own += [f"  {NOTHING}"] if not comparison.differences and not pair.differences else []
        own += [*some_differences(pair.differences), *(f"  {line}" for line in _steps(pair))]
        lines += [f"{pair.label}:", *own] if own else []
    if len(changed) > _LISTED:
        lines.append(f"and {len(changed) - _LISTED} more that changed (--json tells what differs there)")
    return lines


def some_differences(differences: Sequence[Difference]) -> list[str]:
    """The most relevant differences, one indented line each."""
    more = len(differences) - _DIFFERENCES
    lines = [f"  {one}" for one in differences[:_DIFFERENCES]]
    return [*lines, f"  and {more} more (--json has all)"] if more > 0 else lines


def _notes(comparison: ComparedResults) -> list[str]:
    return [f"note: {first_line(note)}" for note in comparison.notes]


def _not_compared(unpaired: Sequence[Unpaired], everything: bool) -> list[str]:
    """One line for all that are alike: an upgrade that changes the core count concerns every measurement."""
    if not unpaired:
        return []
    labels: dict[tuple[str, str], list[str]] = {}
    for one in unpaired:
        labels.setdefault((one.side, one.why), []).append(one.label)
    lines = [f"not compared: {plural(len(unpaired), 'measurement')}"]
    for (side, why), alike in list(labels.items())[: None if everything else _LISTED]:
        which = alike[0] if len(alike) == 1 else f"{len(alike)} such as {alike[0]}"
        lines.append(f"  {side}: {which}: {first_line(why)}")
    if len(lines) <= len(labels):
        lines.append(f"  and {len(labels) - _LISTED} more kinds (--all shows them)")
    return lines


def first_line(text: str) -> str:
    """The first line of what a failed process left behind, without control characters."""
    line = text.strip().split("\n")[0]
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in line)


def percent(change: float) -> str:
    """``−7.4 %``, with a typographic minus; ``+∞`` where there is no bound."""
    return "+∞" if change == math.inf else f"{100 * change:+.1f} %".replace("-", "−")


def _ci(interval: Interval | None) -> str:
    return "" if interval is None else f"{percent(interval[0])} … {percent(interval[1])}"
