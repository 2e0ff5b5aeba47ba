"""A/B comparisons as text: the repeats that they take, and their verdicts. Pure."""

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
    """The number of repeats of each side that show the ``difference``, and the power of ``repeats``, by earlier runs.

    There is a line for the size of a kernel that varies least from repeat to repeat, and one for that which varies most.
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


def verdicts(by_size: Mapping[int, PairedVerdict], spec: RunSpec) -> str:
    """A line for each verdict, by size of a kernel, and one about all of them."""
    if not spec.kernel:
        return verdict(by_size[0], clock(spec))
    names = [size_text(kernel_of(spec), size) for size in by_size]
    width = max(map(len, names))
    unit = UNITS[kernel_of(spec).unit]
    lines = [
        f"{name:>{width}}  {_answer(each)} (A {each.a.mean / 1e9:.4g} and B {each.b.mean / 1e9:.4g} {unit})"
        for name, each in zip(names, by_size.values(), strict=True)
    ]
    every = f" of all {len(by_size)} sizes together" if len(by_size) > 1 else ""
    return "\n".join([*lines, f"95 % CI{every}, {_unit(next(iter(by_size.values())))}"])


def clock(spec: RunSpec) -> str:
    return " by the program's own clock" if spec.program else ""


def verdict(paired: PairedVerdict, clock: str = "") -> str:
    """One line: which side is faster and by how much, that there is no difference, or what would decide it."""
    means = f"A {paired.a.mean:.2f} and B {paired.b.mean:.2f} img/s{clock}"
    return f"{_answer(paired)} (95 % CI; {means}, {_unit(paired)})"


def _unit(paired: PairedVerdict) -> str:
    """``5 pairs in one allocation``, which is all that the verdict is about, or ``3 jobs, each with both sides``."""
    if paired.jobs > 1:
        return f"{paired.jobs} jobs, each with both sides"
    return f"{plural(len(paired.a.values), 'pair')} in one allocation"


def _answer(paired: PairedVerdict) -> str:
    low, high = paired.ci95
    change = f"{100 * (paired.ratio - 1):+.1f} % {interval((low - 1, high - 1), 1, 100)}".replace("-", "−")
    if not paired.scatters:
        return (
            f"undecided: B differs from A by {change} in all pairs; what does not scatter is rounded, or not measured"
        )
    if paired.answer == "undecided":
        needed, units = _of_each(paired.units), "jobs" if paired.jobs > 1 else "repeats"
        return f"undecided: B differs from A by {change}; {units} to decide it, if this and the noise stay: {needed}"
    if paired.answer == "no difference":
        return f"no difference larger than {math.ceil(1000 * paired.largest) / 10:g} %: B differs from A by {change}"
    limits = (low - 1, high - 1) if paired.ratio > 1 else (1 / high - 1, 1 / low - 1)
    by = max(paired.ratio, 1 / paired.ratio) - 1
    less = "" if paired.matters else f", less than the {_share(paired.difference)} that matter"
    return f"{paired.answer} by {100 * by:.1f} % {interval(limits, 1, 100)}{less}".replace("-", "−")


def _of_each(repeats: int | None) -> str:
    return f"more than {MOST_REPEATS:,}" if repeats is None else f"{repeats:,} of each side"


def as_json(
    by_size: Mapping[int, PairedVerdict],
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
        "slower": any(verdict.slower for verdict in by_size.values()),
        "verdicts": [{"size": size, **plain(verdict)} for size, verdict in by_size.items()],
        "preflight": checked and checked.model_dump(),
    }
    return json_text(document)


def _share(share: float) -> str:
    return f"{100 * share:.3g} %"
