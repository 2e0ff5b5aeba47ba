"""A/B comparisons as text: how many repeats they take, and what came of them. Pure."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.analysis import ab
from harness.analysis.ab import POWER, Noise, PairedVerdict
from harness.analysis.ratios import MOST_REPEATS
from harness.core.plain import json_text, plain
from harness.core.spec import RunSpec
from harness.core.text import interval, plural
from harness.records.kernel import kernel_of, size_text
from harness.records.pairs import Preflight
from harness.report.text.kernel_table import UNITS
from harness.running.sides import Comparison

SCHEMA = "harness.ab.verdict/1"


def sides(a: str, b: str) -> str:
    return "\n".join(f"{name}  {text or 'as given'}" for name, text in (("A", a), ("B", b)))


def power(noises: Mapping[int, Noise], spec: RunSpec, difference: float, repeats: int) -> str:
    """How many repeats of each side show the ``difference``, and how likely ``repeats`` do, by earlier runs.

    Of several sizes of a kernel: of the one that varies least from repeat to repeat, and of the one that varies most.
    """
    ends = [choose(noises, key=lambda size: noises[size].deviation) for choose in (min, max)]
    lines = []
    for size in dict.fromkeys(ends):
        noise, together = noises[size], len(noises)
        needed = ab.repeats_for(noise.deviation, difference, together)
        there = ab.power(noise.deviation, difference, repeats, together)
        earlier = f"{noise.runs} earlier runs" if noise.runs > 1 else "an earlier run"
        lines.append(
            f"repeats: {f'at {size_text(kernel_of(spec), size)} ' if spec.kernel else ''}"
            f"a difference of {_share(difference)} is shown with {_share(POWER)} power by {_of_each(needed)}; "
            f"--repeats {repeats} shows it with {_share(there)} "
            f"(noise {_share(noise.deviation)}, from {plural(noise.repeats, 'repeat')} of {earlier})"
        )
    return "\n".join(lines)


def verdicts(found: Mapping[int, PairedVerdict], spec: RunSpec) -> str:
    """A line for each verdict, and what holds for all sizes of a kernel."""
    if not spec.kernel:
        return verdict(found[0], clock(spec))
    names = [size_text(kernel_of(spec), size) for size in found]
    width = max(map(len, names))
    unit = UNITS[kernel_of(spec).unit]
    lines = [
        f"{name:>{width}}  {_answer(each)} (A {each.a.mean / 1e9:.4g} and B {each.b.mean / 1e9:.4g} {unit})"
        for name, each in zip(names, found.values(), strict=True)
    ]
    every = f" of all {len(found)} sizes together" if len(found) > 1 else ""
    return "\n".join([*lines, f"95 % CI{every}, {_unit(next(iter(found.values())))}"])


def clock(spec: RunSpec) -> str:
    return " by the program's own clock" if spec.program else ""


def verdict(found: PairedVerdict, clock: str = "") -> str:
    """One line: which side is faster and by how much, that there is no difference, or what would decide it."""
    means = f"A {found.a.mean:.2f} and B {found.b.mean:.2f} img/s{clock}"
    return f"{_answer(found)} (95 % CI; {means}, {_unit(found)})"


def _unit(found: PairedVerdict) -> str:
    """``5 pairs in one allocation``, which is all that the verdict is about, or ``3 jobs, each with both sides``."""
    if found.jobs > 1:
        return f"{found.jobs} jobs, each with both sides"
    return f"{plural(len(found.a.values), 'pair')} in one allocation"


def _answer(found: PairedVerdict) -> str:
    low, high = found.ci95
    change = f"{100 * (found.ratio - 1):+.1f} % {interval((low - 1, high - 1), 1, 100)}".replace("-", "−")
    if not found.scatters:
        return (
            f"undecided: B differs from A by {change} in all pairs; what does not scatter is rounded, or not measured"
        )
    if found.answer == "undecided":
        needed, units = _of_each(found.units), "jobs" if found.jobs > 1 else "repeats"
        return f"undecided: B differs from A by {change}; {units} to decide it, if this and the noise stay: {needed}"
    if found.answer == "no difference":
        return f"no difference larger than {math.ceil(1000 * found.largest) / 10:g} %: B differs from A by {change}"
    limits = (low - 1, high - 1) if found.ratio > 1 else (1 / high - 1, 1 / low - 1)
    by = max(found.ratio, 1 / found.ratio) - 1
    less = "" if found.matters else f", less than the {_share(found.difference)} that matter"
    return f"{found.answer} by {100 * by:.1f} % {interval(limits, 1, 100)}{less}".replace("-", "−")


def _of_each(repeats: int | None) -> str:
    return f"more than {MOST_REPEATS:,}" if repeats is None else f"{repeats:,} of each side"


def as_json(
    found: Mapping[int, PairedVerdict],
    spec: RunSpec,
    comparison: Comparison,
    runs: Sequence[Path],
    checked: Preflight | None,
) -> str:
    """For scripts: the verdict on each size of a kernel or, with the size 0, the one on img/s. Ratios are B / A.

    ``preflight`` is what the check before the first repeat found, if nodes were ``checked``, as in a record.
    """
    settings = zip("ab", (comparison.a, comparison.b), runs, strict=True)
    document = {
        "schema": SCHEMA,
        "kernel": spec.subject if spec.kernel else None,
        "clock": clock(spec).strip(),
        "sides": {name: {"settings": text, "run": str(run)} for name, text, run in settings},
        "slower": any(verdict.slower for verdict in found.values()),
        "verdicts": [{"size": size, **plain(verdict)} for size, verdict in found.items()],
        "preflight": checked and checked.model_dump(),
    }
    return json_text(document)


def _share(share: float) -> str:
    return f"{100 * share:.3g} %"
