"""Who is fastest, who scales best, and what would decide it: in sentences, as a table, and for scripts."""

import math
from collections.abc import Sequence
from typing import Any

from harness.analysis.fastest import MARGIN, Race, Ranking, Standing
from harness.analysis.scaling import CONTENDER
from harness.core.text import interval, percent, plural
from harness.report.text.table import table
from harness.report.text.verdict import TERMS, contender

_SPEEDS = (
    "size",
    "way of distributing",
    "img/s",
    "the fastest's / its img/s",
    "node-hours per million images",
    "best of",
)
_EFFICIENCIES = ("way of distributing", "scaling efficiency", "the best's / its efficiency")
UNKNOWN = 5  # repeats that are asked for where nothing is known of the noise


def headline(races: Sequence[Race]) -> list[str]:
    """A sentence each: who is fastest at the largest size of the first race, who scales best, what would decide it.

    The last one only where something is undecided. Where there is nothing to compare: what there is.
    """
    if not races:
        return ["No run among these results has a number to compare."]
    race = races[0]
    if not race.contested:
        only = race.sizes[-1]
        found = f"{only.best.point.img_per_s:.4g} img/s, {_hours(only.best)} node-hours per million images"
        return [f"Nothing to compare: {where(race)} only {who(only.best)} was measured: {found} on {size(only)}."]
    fastest, scales = race.contested[-1], race.scales
    said = [f"{where(race)} {_claim(fastest, 'fastest', f'on {size(fastest)}')}: {_faster(fastest)}."]
    if scales:
        said.append(f"{_claim(scales, 'best to scale', f'from {scales.base} to {size(scales)}')}: {_kept(scales)}.")
    undecided = [ranking for ranking in (fastest, scales) if ranking and not ranking.decided and not ranking.equal]
    return [*said, _would_decide(undecided)] if undecided else said


def text(races: Sequence[Race]) -> str:
    """The headline, and a table for each race in which something can be compared, or else for the first one."""
    parts = ["\n".join(headline(races))]
    for race in [race for race in races if race.contested] or races[:1]:
        varying = "; ".join(f"{TERMS[name]} {', '.join(map(str, values))}" for name, values in race.varying.items())
        parts.append(f"{where(race)}:" + (f" runs differ in {varying}" if varying else ""))
        parts += [table([_SPEEDS, *_speeds(race)], right={2, 3, 4, 5})]
        if race.scales:
            parts += [
                f"On {size(race.scales)} relative to {race.scales.base}:",
                table([_EFFICIENCIES, *_efficiencies(race.scales)], right={1, 2}),
            ]
    return "\n\n".join(parts)


def as_json(races: Sequence[Race]) -> dict[str, Any]:
    """For scripts: figures as they are, and the sentences. Intervals are 95 % confidence intervals."""
    return {
        "headline": headline(races),
        "races": [
            {
                **race.facets,
                "sizes": [_as_json(ranking) for ranking in race.sizes],
                "scaling": _as_json(race.scales) if race.scales else None,
            }
            for race in races
        ],
    }


# --- sentences ------------------------------------------------------------------------------------


def _claim(ranking: Ranking, what: str, at: str) -> str:
    names = [who(one) for one in (ranking.best, *ranking.rivals)]
    if ranking.decided:
        return f"{names[0]} is {what} {at}"
    if ranking.equal:
        return f"{' and '.join(names)} are {what} {at}, equal to within {100 * MARGIN:g} %"
    if ranking.p is None:
        return f"{names[0]} was {what} {at}, by chance or not (there are no repeats)"
    return f"{' or '.join(names)} is {what} {at}, which is undecided"


def _faster(ranking: Ranking) -> str:
    best, second = ranking.standings[:2]
    rates = f"{best.point.img_per_s:.4g} against {second.point.img_per_s:.4g} img/s"
    hours = f"{_hours(best)} against {_hours(second)} node-hours per million images"
    return f"{_ratio(second)} the img/s of {who(second)} ({rates}; {hours})"


def _kept(ranking: Ranking) -> str:
    best, second = ranking.standings[:2]
    kept = " against ".join(percent(one.point.efficiency, None, 1) for one in (best, second))
    return f"it keeps {_ratio(second)} the efficiency of {who(second)} ({kept})"


def _would_decide(undecided: Sequence[Ranking]) -> str:
    sizes = sorted({workers for ranking in undecided for workers in (ranking.base, ranking.workers) if workers})
    on = f"of each on {' and '.join(map(str, sizes))} workers"
    repeats = [ranking.repeats for ranking in undecided if ranking.repeats]
    if any(ranking.p is None for ranking in undecided):
        return f"What would tell: {UNKNOWN} repeats {on} (`--repeats {UNKNOWN}`)."
    if len(repeats) < len(undecided):
        return f"What would tell: a quieter machine; the noise seen is too large for any number of repeats {on}."
    return (
        f"What would tell: about {max(repeats)} repeats {on}, if ratios stay as they are (`--repeats {max(repeats)}`)."
    )


# --- parts ----------------------------------------------------------------------------------------


def where(race: Race) -> str:
    """``On daint:gpu (inception3, synthetic, batch 64 per device)``, with what else tells races apart."""
    facets = race.facets
    several = facets["devices_per_node"]
    per_node = f", {several} devices per node" if several > 1 else ""
    return "On {system} ({model}, {data}, batch {batch_size} per device".format(**facets) + f"{per_node})"


def who(one: Standing) -> str:
    return contender(one.facets)


def size(ranking: Ranking) -> str:
    """``128 nodes``, or ``128 workers (16 nodes)``."""
    nodes = ranking.best.point.nodes
    if ranking.workers == nodes:
        return plural(nodes, "node")
    return plural(ranking.workers, "worker") + (f" ({plural(nodes, 'node')})" if nodes else "")


def _ratio(one: Standing) -> str:
    return f"{one.ratio.value:.2f} × {interval(one.ratio.interval)}".rstrip()


def _hours(one: Standing) -> str:
    return "" if math.isnan(one.node_hours) else f"{one.node_hours:.3g}"


# --- the tables and JSON ---------------------------------------------------------------------------


def _speeds(race: Race) -> list[tuple[str, ...]]:
    return [
        (
            "" if number else size(ranking),
            who(one),
            f"{one.point.img_per_s:.2f}",
            _ratio(one) if number else _sureness(ranking),
            _hours(one),
            str(len(one.point.tried)),
        )
        for ranking in race.sizes
        for number, one in enumerate(ranking.standings)
    ]


def _efficiencies(ranking: Ranking) -> list[tuple[str, ...]]:
    return [
        (who(one), percent(one.point.efficiency, None, 1), _ratio(one) if number else _sureness(ranking))
        for number, one in enumerate(ranking.standings)
    ]


def _sureness(ranking: Ranking) -> str:
    if ranking.decided or len(ranking.standings) == 1:
        return "best" if ranking.decided else ""
    if ranking.equal:
        return f"within {100 * MARGIN:g} %"
    return "no repeats" if ranking.p is None else "undecided"


def _as_json(ranking: Ranking) -> dict[str, Any]:
    return {
        "workers": ranking.workers,
        "base_workers": ranking.base or None,
        "decided": ranking.decided,
        "equal": ranking.equal,
        "repeats_to_tell": ranking.repeats,
        "standings": [
            {
                **{name: one.facets[name] for name in CONTENDER},
                "contender": who(one),
                "nodes": one.point.nodes,
                "img_per_s": one.point.img_per_s,
                "efficiency": None if math.isnan(one.point.efficiency) or not ranking.base else one.point.efficiency,
                "node_hours_per_million_images": None if math.isnan(one.node_hours) else one.node_hours,
                "best_over_this": one.ratio.value,
                "best_over_this_ci95": one.ratio.interval,
                "p": one.ratio.p,
                "ps": one.point.best.ps,
                "best_of": len(one.point.tried),
                "repeats": len(one.point.best.sample.values) or None,
            }
            for one in ranking.standings
        ],
    }
