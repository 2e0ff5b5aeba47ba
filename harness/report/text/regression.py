"""Comparisons of two sets of results as text: for a terminal, for scripts, for CI systems."""

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from xml.etree import ElementTree

from harness.analysis import work
from harness.analysis.differences import NOTHING, Difference
from harness.analysis.regression import (
    CHANGED,
    FAILING,
    UNDECIDED,
    VERDICTS,
    ComparedResults,
    Pair,
    SideTotal,
)
from harness.core.plain import json_text, plain
from harness.core.text import plural
from harness.report.text.kernel_table import UNITS
from harness.report.text.table import Column, Table, as_markdown, literally, prose, text

SCHEMA = "harness.comparison/1"
_LISTED = 40  # pairs without a significant change that a terminal shows; the others are counted
_DIFFERENCES = 12
# What XML 1.0 has no place for, not even escaped: most control characters, halves of surrogate pairs.
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def terminal(comparison: ComparedResults, old: str, new: str) -> str:
    """For people: the verdict, the table (the worst first), what may explain it, what was not compared, the rule."""
    pairs = comparison.pairs
    if len(pairs) > _LISTED:
        pairs = tuple(pair for pair in pairs if pair.verdict != "no significant change")
    sides = f"  OLD  {_side(old, comparison.old)}\n  NEW  {_side(new, comparison.new)}"
    parts = [prose(f"{verdict(comparison)}\n\n{sides}")]
    if pairs:
        parts += map(text, _tables(pairs))
    if hidden := len(comparison.pairs) - len(pairs):
        parts.append(
            f"and {plural(hidden, 'measurement')} without a significant change (--markdown and --json have them)"
        )
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
    kinds = dict.fromkeys("rate" if pair.kernel else pair.unit for pair in comparison.pairs)
    rates = " or ".join(sorted(kinds))
    one_job = {
        f"; where {pair.judgement.reason}" for pair in comparison.pairs if pair.judgement.p and pair.judgement.reason
    }
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
        name=f"harness regression {old} {new}",
        tests=str(len(pairs) + len(unpaired)),
        failures=str(len(comparison.regressions)),
        errors="0",
        skipped=str(len(comparison.undecided) + len(unpaired)),
    )
    # In JUnit every case has a class; ours is the kind of measurement, so that backends are grouped.
    for pair in pairs:
        case = ElementTree.SubElement(suite, "testcase", classname=f"harness.{pair.spec['backend']}", name=pair.label)
        outcome = _outcome(pair)
        if pair.verdict in UNDECIDED:
            skipped = ElementTree.SubElement(case, "skipped", message=outcome)
            skipped.text = "\n".join(_details(pair, comparison.differences))
            continue
        failed = {"message": outcome, "type": pair.verdict} if pair.verdict in FAILING else {}
        element = ElementTree.SubElement(case, "failure" if failed else "system-out", failed)
        reason = pair.judgement.reason.split("\n")[1:]
        element.text = "\n".join([outcome, *reason, *_details(pair, comparison.differences)])
    for alone in unpaired:
        backend = alone.label.split()[0]
        case = ElementTree.SubElement(suite, "testcase", classname=f"harness.{backend}", name=alone.label)
        ElementTree.SubElement(case, "skipped", message=f"not compared: {alone.why}")
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
    without = f", {plural(total.without_number, 'run')} without a number" if total.without_number else ""
    return (
        f"{name}: {plural(total.records, 'record')} with {plural(total.repeats, 'repeat')} "
        f"in {plural(total.jobs, 'job')}{without}, "
        f"on {', '.join(total.systems) or 'a machine without a name'}"
    )


def _tables(pairs: Sequence[Pair]) -> list[Table]:
    """A table of the pairs in img/s, and another one of those of kernels, which have units of their own."""
    tables = []
    for unit, of_kernels in ((" img/s", False), ("", True)):
        rows = [_row(pair) for pair in pairs if bool(pair.kernel) == of_kernels]
        headings = ("measurement", "verdict", f"old{unit}", f"new{unit}", "change", "95 % CI", "p")
        if rows:
            columns = enumerate(zip(headings, zip(*rows, strict=True), strict=True))
            tables.append(Table([Column(heading, cells, right=number > 1) for number, (heading, cells) in columns]))
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
    """What became of a pair, in words; "no significant change" comes before any percentage."""
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
    """What may explain a change: systems first, then what differs, then the step times."""
    differing = [*pair.differences, *common]
    lines = [f"systems: {_systems(pair)}"] if pair.old.systems != pair.new.systems else []
    lines += [pair.work.text] if pair.work and pair.work.answer in work.CHANGED else []
    return [*lines, *(listed_differences(differing) or [NOTHING]), *_steps(pair)]


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
    """What differs between OLD and NEW everywhere and where something changed, whether the work is the same, the notes, and
    what was not compared."""
    lines, common = [], comparison.differences
    if moved := {_systems(pair) for pair in comparison.pairs if pair.old.systems != pair.new.systems}:
        lines.append(f"OLD and NEW are from different systems: {'; '.join(sorted(moved))}")
    changed = [pair for pair in comparison.pairs if pair.verdict in CHANGED]
    if common:
        lines += [
            "what differs between OLD and NEW in every measurement:",
            *(f"  {line}" for line in listed_differences(common)),
        ]
    elif changed:
        lines.append("between OLD and NEW nothing differs in every measurement alike")
    else:
        lines.append(f"between OLD and NEW {NOTHING} in every measurement")
    for pair in changed:
        own = [_outcome(pair)] if pair.verdict == "no number" else []
        own += listed_differences(pair.differences) or ([] if common else [NOTHING])
        own += _steps(pair)
        lines += [f"{pair.label}:", *(f"  {line}" for line in own)] if own else []
    # One line for all that are alike: an upgrade that changes the core count concerns every measurement.
    labels: dict[tuple[str, str], list[str]] = defaultdict(list)
    for alone in comparison.unpaired:
        labels[alone.side, alone.why].append(alone.label)
    unpaired = [f"not compared: {plural(len(comparison.unpaired), 'measurement')}"] if labels else []
    for (side, why), alike in labels.items():
        which = alike[0] if len(alike) == 1 else f"{len(alike)} such as {alike[0]}"
        unpaired.append(f"  {side}: {which}: {first_line(why)}")
    return lines, _work(comparison), [f"note: {first_line(note)}" for note in comparison.notes], unpaired


def _work(comparison: ComparedResults) -> list[str]:
    """Where OLD and NEW have done other work, or the same, or nobody can say; one line for all that are alike."""
    labels: dict[work.Work, list[str]] = defaultdict(list)
    for pair in comparison.pairs:
        if pair.work:
            labels[pair.work].append(pair.label)
    lines = []
    for found in sorted(labels, key=lambda found: work.ANSWERS.index(found.answer)):
        alike = labels[found]
        which = alike[0] if len(alike) == 1 else f"{len(alike)} measurements such as {alike[0]}"
        answer = "cannot say whether it is the same work" if found.answer == "cannot say" else found.answer
        lines.append(f"{answer}: {which}" + (f": {found.text}" if found.text else ""))
    return lines


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
