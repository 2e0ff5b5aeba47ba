"""Comparisons of two sets of results as text: for a terminal, for scripts, for CI systems."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeVar
from xml.etree import ElementTree

from harness.analysis import work
from harness.analysis.differences import NOTHING, Difference
from harness.analysis.regression import CHANGED, FAILING, UNDECIDED, VERDICTS, ComparedResults, Pair, SideTotal
from harness.core.plain import json_text, plain
from harness.core.text import plural
from harness.report.text.kernel_table import UNITS
from harness.report.text.table import Column, Table, as_markdown, literally, prose, text

SCHEMA = "harness.comparison/1"
_LISTED = 40  # pairs without a significant change that a terminal shows; the others are counted
_DIFFERENCES = 12
Of = TypeVar("Of")
# What XML 1.0 has no place for, not even escaped: most control characters, halves of surrogate pairs.
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def terminal(comparison: ComparedResults, old: str, new: str) -> str:
    """For people: the verdict, the table (the worst first), what may explain it, what was not compared, the rule."""
    pairs = comparison.pairs
    if len(pairs) > _LISTED:
        pairs = tuple(pair for pair in pairs if pair.verdict != "no significant change")
    sides = f"  OLD  {_side(old, comparison.old)}\n  NEW  {_side(new, comparison.new)}"
    parts = [prose(f"{verdict(comparison)}\n\n{sides}"), *map(text, _tables(pairs))]
    if hidden := len(comparison.pairs) - len(pairs):
        without = f"{plural(hidden, 'measurement')} without a significant change"
        parts.append(f"and {without} (--markdown and --json have them)")
    remarks = (prose("\n".join(lines)) for lines in _remarks(comparison) if lines)
    return "\n\n".join([*parts, *remarks, prose(rule(comparison))])


def verdict(comparison: ComparedResults) -> str:
    """One line: whether something is slower or which slowdown is not excluded, and what became of how many pairs."""
    counts = comparison.counts
    became = ", ".join(f"{counts[each]} {each}" for each in VERDICTS if counts[each])
    other = sum(pair.work is not None and pair.work.answer == "other work" for pair in comparison.pairs)
    differently = f"; NOT THE SAME WORK in {plural(other, 'measurement')}" if other else ""
    return f"{_answer(comparison)}: {plural(len(comparison.pairs), 'measurement')} compared: {became}{differently}"


def _answer(comparison: ComparedResults) -> str:
    if comparison.regressions:
        return "SLOWER"
    undecided, threshold = comparison.undecided, f"{100 * comparison.rule.threshold:g} %"
    if not undecided:
        return f"no slowdown of {threshold} or more" if comparison.rule.threshold else "no slowdown"
    where = f" in {plural(len(undecided), 'measurement')}" if len(undecided) < len(comparison.pairs) else ""
    return f"no significant slowdown; {_not_excluded(undecided)} is not excluded{where}"


def _not_excluded(pairs: Sequence[Pair]) -> str:
    """The largest slowdown that lies within a 95 % interval of ``pairs``: ``a slowdown of up to 29 %``."""
    lowest = min(pair.judgement.ci95[0] if pair.judgement.ci95 else -1.0 for pair in pairs)
    # Rounded away from 0: what is printed as excluded has to be.
    return f"a slowdown of {f'up to {math.ceil(-1000 * lowest) / 10:.3g} %' if lowest > -0.999 else 'any size'}"


def failure(comparison: ComparedResults) -> str:
    """One line about a comparison that fails: how many got slower, and the worst of them."""
    worst, counts = comparison.regressions[0], comparison.counts
    slower, lost = counts["slower"], counts["no number"]
    parts = [f"{slower} of {plural(len(comparison.pairs), 'measurement')} got slower"] if slower else []
    parts += [f"{lost} {'has' if lost == 1 else 'have'} no number any more"] if lost else []
    return f"{', '.join(parts)}; the worst is {worst.label}: {_outcome(worst)}"


def rule(comparison: ComparedResults) -> str:
    chosen = comparison.rule
    threshold = f"{100 * chosen.threshold:g} %"
    rates = " or ".join(sorted({"rate" if pair.kernel else pair.unit for pair in comparison.pairs}))
    judgements = [pair.judgement for pair in comparison.pairs]
    one_job = {f"; where {judgement.reason}" for judgement in judgements if judgement.p and judgement.reason}
    return (
        f"slower (faster): one-sided p < {chosen.alpha:g} by Welch's t-test on log({rates}) of the jobs, "
        f"adjusted for the number of measurements (Benjamini–Hochberg), and the 99 % CI of the change reaches "
        f"−{threshold} (+{threshold}); too noisy: no significant change, but the 95 % CI reaches −{threshold}; "
        f"{rates.replace('rate', 'rates')} are geometric means of the jobs{''.join(sorted(one_job))}"
    )


def as_json(comparison: ComparedResults, old: str, new: str) -> str:
    """For scripts: everything, in the order of the table."""
    return json_text({"schema": SCHEMA, "sources": {"old": old, "new": new}, **plain(comparison)})


def junit(comparison: ComparedResults, old: str, new: str) -> str:
    """For CI systems: JUnit XML, one test case per pair; what was not compared, or cannot be judged, is skipped."""
    pairs, unpaired = comparison.pairs, comparison.unpaired
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        name=f"harness compare {old} {new}",
        tests=str(len(pairs) + len(unpaired)),
        failures=str(len(comparison.regressions)),
        errors="0",
        skipped=str(len(comparison.undecided) + len(unpaired)),
    )

    def case(label: str, element: str, words: Sequence[str] = (), **attributes: str) -> None:
        # In JUnit every case has a class; ours is the backend, so that these are grouped.
        added = ElementTree.SubElement(suite, "testcase", classname=f"harness.{label.split()[0]}", name=label)
        ElementTree.SubElement(added, element, attributes).text = "\n".join(words) or None

    for pair in pairs:
        outcome, details = _outcome(pair), _details(pair, comparison.differences)
        words = [outcome, *pair.judgement.reason.split("\n")[1:], *details]
        if pair.verdict in UNDECIDED:
            case(pair.label, "skipped", details, message=outcome)
        elif pair.verdict in FAILING:
            case(pair.label, "failure", words, message=outcome, type=pair.verdict)
        else:
            case(pair.label, "system-out", words)
    for alone in unpaired:
        case(alone.label, "skipped", message=f"not compared: {alone.why}")
    ElementTree.indent(root)
    document = _NOT_IN_XML.sub("\ufffd", ElementTree.tostring(root, encoding="unicode"))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{document}\n'


def markdown(comparison: ComparedResults, old: str, new: str) -> str:
    def in_line(words: str) -> str:
        return literally(words).replace("\r", " ").replace("\n", " ")

    remarks = [line for lines in _remarks(comparison) for line in lines]
    lines = [
        f"**{in_line(verdict(comparison))}**",
        "",
        f"- OLD {in_line(_side(old, comparison.old))}",
        f"- NEW {in_line(_side(new, comparison.new))}",
        "",
        as_markdown(_tables(comparison.pairs)),
        "",
        *(f"{'  ' * line.startswith('  ')}- {in_line(line.strip())}" for line in remarks),
        "",
        in_line(rule(comparison)),
    ]
    return "\n".join(lines) + "\n"


def _side(name: str, total: SideTotal) -> str:
    repeats = f"{plural(total.records, 'record')} with {plural(total.repeats, 'repeat')} in {plural(total.jobs, 'job')}"
    without = f", {plural(total.without_number, 'run')} without a number" if total.without_number else ""
    return f"{name}: {repeats}{without}, on {', '.join(total.systems) or 'a machine without a name'}"


def _tables(pairs: Sequence[Pair]) -> list[Table]:
    """A table of the pairs in img/s, and another one of those of kernels, which have units of their own."""
    tables = []
    for unit, of_kernels in ((" img/s", False), ("", True)):
        headings = ("measurement", "verdict", f"old{unit}", f"new{unit}", "change", "95 % CI", "p")
        rows = [_row(pair) for pair in pairs if bool(pair.kernel) == of_kernels]
        columns = zip(headings, zip(*rows, strict=True), strict=False)
        if rows:
            tables.append(Table([Column(*column, right=number > 1) for number, column in enumerate(columns)]))
    return tables


def rate_text(unit: str, rate: float | None) -> str:
    """``123.45 img/s``, ``1.23 GB/s``."""
    if rate is None:
        return ""
    return f"{rate:.2f} img/s" if unit == "img/s" else f"{rate / 1e9:.3g} {UNITS[unit]}"


def _row(pair: Pair) -> tuple[str, ...]:
    judgement = pair.judgement
    rates = (rate_text(pair.unit, side.rate).removesuffix(" img/s") for side in (pair.old, pair.new))
    change = "" if judgement.change is None else change_text(judgement.change)
    limits = " … ".join(map(change_text, judgement.ci95 or ()))
    p = "" if judgement.p is None else "< 0.0001" if judgement.p < 1e-4 else f"{judgement.p:.4f}"
    return (pair.label, pair.verdict, *rates, change, limits, p)


def _outcome(pair: Pair) -> str:
    """The outcome of a pair in words; "no significant change" comes before any percentage."""
    change, ci95, p = _row(pair)[-3:]
    old, new = (rate_text(pair.unit, side.rate) for side in (pair.old, pair.new))
    if pair.verdict == "no number":
        return f"had {old}, now has no number: {first_line(pair.judgement.reason)}"
    if not (change and p):
        figures = f"{old} → {new}, {change}" if change else f"{old}, now {new}"
        return f"cannot say: {pair.judgement.reason} ({figures})"
    noisy = f"no significant change; {_not_excluded([pair])} is not excluded"
    verdict = noisy if pair.verdict == "too noisy" else pair.verdict
    return (
        f"{verdict}: {change} (95 % CI {ci95}, p {p if p.startswith('<') else f'= {p}'}), "
        f"{old} → {new}, {pair.old.jobs} and {plural(pair.new.jobs, 'job')}"
        + (f"; {pair.judgement.reason}" if pair.judgement.reason else "")
    )


def _details(pair: Pair, common: Sequence[Difference]) -> list[str]:
    """Possible causes of a change: systems first, then differences, then the step times."""
    lines = [f"systems: {_systems(pair)}"] if pair.old.systems != pair.new.systems else []
    lines += [pair.work.text] if pair.work and pair.work.answer in work.CHANGED else []
    return [*lines, *(listed_differences([*pair.differences, *common]) or [NOTHING]), *_steps(pair)]


def _systems(pair: Pair) -> str:
    return f"{', '.join(pair.old.systems) or 'unnamed'} → {', '.join(pair.new.systems) or 'unnamed'}"


def _steps(pair: Pair) -> list[str]:
    if pair.steps is None:
        return []
    old, new = pair.steps
    parts = []
    for name in ("p50", "p99", "jitter"):
        before, after = old[f"{name}_s"], new[f"{name}_s"]
        relative = f" ({change_text(after / before - 1)})" if before else ""
        parts.append(f"{name} {before * 1e3:.1f} → {after * 1e3:.1f} ms{relative}")
    before, after = old["slowest_over_median"], new["slowest_over_median"]
    if abs(after / before - 1) > 0.01:
        parts.append(f"slowest rank {before:.2f} → {after:.2f} × the median rank")
    return [f"step time: {', '.join(parts)}"]


def _remarks(comparison: ComparedResults) -> tuple[list[str], ...]:
    """Lists of the differences between OLD and NEW, of the answers about their work, of notes, and of what was left out.

    Differences are those of all measurements, then those of each one that changed.
    """
    lines, common = [], comparison.differences
    if moved := {_systems(pair) for pair in comparison.pairs if pair.old.systems != pair.new.systems}:
        lines.append(f"OLD and NEW are from different systems: {'; '.join(sorted(moved))}")
    changed = [pair for pair in comparison.pairs if pair.verdict in CHANGED]
    if common:
        lines.append("differences between OLD and NEW in every measurement:")
        lines += [f"  {line}" for line in listed_differences(common)]
    elif changed:
        lines.append("between OLD and NEW nothing differs in every measurement alike")
    else:
        lines.append(f"between OLD and NEW {NOTHING} in every measurement")
    for pair in changed:
        causes = [_outcome(pair)] if pair.verdict == "no number" else []
        causes += listed_differences(pair.differences) or ([] if common else [NOTHING])
        causes += _steps(pair)
        lines += [f"{pair.label}:", *(f"  {line}" for line in causes)] if causes else []
    # One line for all that are alike: an upgrade that changes the core count concerns every measurement.
    by_work = _labels((pair.work, pair.label) for pair in comparison.pairs if pair.work)
    works = []
    for answer, labels in sorted(by_work.items(), key=lambda each: work.ANSWERS.index(each[0].answer)):
        sentence = "cannot say whether it is the same work" if answer.answer == "cannot say" else answer.answer
        which = _such_as(labels, "measurements such as")
        works.append(f"{sentence}: {which}" + (f": {answer.text}" if answer.text else ""))
    reasons = _labels(((alone.side, alone.why), alone.label) for alone in comparison.unpaired)
    unpaired = [f"not compared: {plural(len(comparison.unpaired), 'measurement')}"] if reasons else []
    for (side, why), labels in reasons.items():
        unpaired.append(f"  {side}: {_such_as(labels, 'such as')}: {first_line(why)}")
    return lines, works, [f"note: {first_line(note)}" for note in comparison.notes], unpaired


def _labels(labelled: Iterable[tuple[Of, str]]) -> dict[Of, list[str]]:
    """The labels by what they are alike in."""
    labels: dict[Of, list[str]] = defaultdict(list)
    for alike_in, label in labelled:
        labels[alike_in].append(label)
    return labels


def _such_as(labels: Sequence[str], words: str) -> str:
    return labels[0] if len(labels) == 1 else f"{len(labels)} {words} {labels[0]}"


def listed_differences(differences: Sequence[Difference]) -> list[str]:
    more = len(differences) - _DIFFERENCES
    return [*map(str, differences[:_DIFFERENCES]), *([f"and {more} more (--json has all)"] if more > 0 else [])]


def first_line(words: str) -> str:
    """The first line of what a failed process left behind, without control characters."""
    line = words.strip().split("\n")[0]
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in line)


def change_text(change: float) -> str:
    """``−7.4 %``, with a typographic minus; ``+∞`` where there is no bound."""
    return "+∞" if change == math.inf else f"{100 * change:+.1f} %".replace("-", "−")
