"""A/B comparisons as text: how many repeats they take, and what came of them. Pure."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.analysis import ab
from harness.analysis.ab import POWER, Noise, Verdict
from harness.analysis.scaling import MOST_REPEATS
from harness.core.text import interval, plural
from harness.running.sides import Comparison

SCHEMA = "harness.ab.verdict/1"
TOO_MANY = f"more than {MOST_REPEATS:,}"


def sides(a: str, b: str) -> str:
    return "\n".join(f"{name}  {text or 'as given'}" for name, text in (("A", a), ("B", b)))


def power(noise: Noise, difference: float, repeats: int, of_runs: str) -> str:
    """How many repeats of each side show the ``difference``, and how likely ``repeats`` do. The noise is ``of_runs``."""
    needed, there = ab.repeats_for(noise.deviation, difference), ab.power(noise.deviation, difference, repeats)
    takes = TOO_MANY if needed is None else f"{needed:,} of each side"
    return (
        f"repeats: a difference of {_share(difference)} is shown with {_share(POWER)} power by {takes}; "
        f"--repeats {repeats} shows it with {_share(there)} "
        f"(noise {_share(noise.deviation)}, from {plural(noise.repeats, 'repeat')} of {of_runs})"
    )


def earlier(noise: Noise) -> str:
    """What the noise of earlier runs is from."""
    return f"{noise.runs} earlier runs" if noise.runs > 1 else "an earlier run"


def unknown(folder: Path, pilot: int) -> str:
    return f"repeats: {folder} has no earlier run of this, so the first {pilot} of each side say how many it takes"


def verdict(found: Verdict, clock: str = "") -> str:
    """One line: which side is faster and by how much, that there is no difference, or what would decide it."""
    change = f"{100 * (found.ratio - 1):+.1f} % {interval(_changes(found), 1, 100)}".replace("-", "−")
    if found.answer == "undecided":
        more = TOO_MANY if found.repeats is None else f"{found.repeats:,} of each side"
        answer = f"undecided: B differs from A by {change}; repeats to decide it, if this and the noise stay: {more}"
    elif found.answer == "no difference":
        answer = f"no difference larger than {math.ceil(1000 * found.largest) / 10:g} %: B differs from A by {change}"
    else:
        limits = _changes(found) if found.ratio > 1 else _changes(found, inverse=True)
        by = max(found.ratio, 1 / found.ratio) - 1
        less = "" if found.matters else f", less than the {_share(found.difference)} that matter"
        answer = f"{found.answer} by {100 * by:.1f} % {interval(limits, 1, 100)}{less}".replace("-", "−")
    means = f"A {found.a.mean:.2f} and B {found.b.mean:.2f} img/s{clock}"
    return f"{answer} (95 % CI; {means}, {plural(len(found.a.values), 'repeat')} each)"


def as_json(found: Verdict, comparison: Comparison, runs: Sequence[Path], clock: str = "") -> str:
    """For scripts. ``change`` is B / A − 1, and so are its limits."""
    of_sides: dict[str, Any] = {
        name: {"settings": text, "run": str(run), "img_per_s": side.mean, "values": side.values}
        for name, text, side, run in zip("ab", (comparison.a, comparison.b), (found.a, found.b), runs, strict=True)
    }
    document = {
        "schema": SCHEMA,
        "answer": found.answer,
        "change": found.ratio - 1,
        "ci95": _changes(found),
        "difference": found.difference,
        "matters": found.matters,
        "slower": found.slower,
        "noise": found.noise.deviation,
        "repeats_to_decide": found.repeats,
        "repeats_for_difference": ab.repeats_for(found.noise.deviation, found.difference),
        "clock": clock.strip(),
        **of_sides,
    }
    return json.dumps(document, indent=1, allow_nan=False)


def _changes(found: Verdict, inverse: bool = False) -> tuple[float, float]:
    low, high = found.ci95
    return (1 / high - 1, 1 / low - 1) if inverse else (low - 1, high - 1)


def _share(share: float) -> str:
    return f"{100 * share:.3g} %"
