"""The fastest and the best scaling contenders, and the jobs that would decide it: in sentences, and as a table."""

import re
from collections.abc import Sequence

from harness.analysis.fastest import Race, Ranking, Standing
from harness.analysis.ratios import MOST_REPEATS
from harness.analysis.verdict import Verdict
from harness.core.text import listed, percent, plural
from harness.report.text import verdict as verdicts
from harness.report.text.table import prose, table
from harness.report.text.verdict import QUESTION, TERMS, contender, lacking_repeats, ratio, unit

_VERSION = re.compile(r" \d[\w.+-]*")
SMALLER = 4  # sizes that the answer names beside the largest one
SUPERLINEAR = 1.1  # efficiency that no way of distributing has
UNKNOWN = 3  # jobs that are asked for where nothing is known of the noise


def answer(races: Sequence[Race], verdict: Verdict) -> list[str]:
    """The answer in a few sentences, for the race at the largest size with most contenders.

    It says who is fastest there, who scales best, and, where there is something to compare, whether MPI-based toolkits
    scale better than parameter servers. The last sentence says what would decide what is undecided.
    """
    if not races:
        return ["No run among these results has a number to compare."]
    race = races[0]
    if not race.contested:
        only = race.sizes[-1]
        throughput = f"{rate(only.best)} img/s on {size(only)}"
        return [f"{_on(race)} there is nothing to compare {who(only.best)} with: {throughput}."]
    *smaller, fastest = race.contested
    scales = race.scales
    sentences = [f"{_on(race)} {_faster(fastest)}"]
    if fastest.p is None and race.facets["origin"] == "published":
        chance = verdicts.by_chance(fastest.standings[1].ratio, 2, verdict)
        sentences.append(f"{chance[0].upper()}{chance[1:]}.")
    sentences += [f"{each}." for each in verdicts.alternatives(standing.point for standing in fastest.standings)]
    if smaller:
        shown = "; ".join(map(_briefly, smaller[: -1 - SMALLER : -1]))
        more = f"; {len(smaller) - SMALLER} more" if len(smaller) > SMALLER else ""
        sentences.append(f"Ahead at smaller sizes, with the lead over the next: {shown}{more}.")
    if scales:
        sentences.append(f"From {scales.base} to {size(scales)} {_kept(scales)}")
    lacking = lacking_repeats(verdict)
    if lacking or verdict.answer != "cannot say":
        sentences.append(f"{QUESTION} {verdicts.headline(verdict)}")
    rankings = [ranking for ranking in (fastest, scales) if ranking and not ranking.decided and not ranking.equal]
    # At which sizes, and how many jobs or pairs it takes there; None where that is not known.
    undecided = [([ranking.base, ranking.workers], ranking.p is not None, ranking.units) for ranking in rankings]
    undecided += [([size.workers for size in each.sizes], each.reason == "too wide", each.units) for each in lacking]
    if undecided:
        of_nodes = all(ranking.workers == ranking.best.point.nodes for ranking in race.contested)
        in_pairs = any(ranking.unit.pairs for ranking in rankings)
        in_pairs |= any(size.efficiency_ratio.unit.pairs > 0 for each in lacking for size in each.sizes)
        sentences.append(_would_decide(undecided, "node" if of_nodes else "worker", in_pairs))
    return sentences


def headline(races: Sequence[Race], verdict: Verdict) -> str:
    """The answer as the first lines of a page that has no tables of all races."""
    others = sum(bool(race.contested) for race in races[1:])
    of = "other systems, models, data or batches"
    more = [f"`harness best` has {plural(others, 'more comparison')}, of {of}."] if others else []
    return prose("\n".join([*answer(races, verdict), *more]))


def text(races: Sequence[Race], verdict: Verdict, in_detail: bool) -> str:
    """The answer, and the speeds of its race.

    ``in_detail`` every race in which something can be compared has tables, and toolkits stand beside parameter servers.
    """
    sentences, compared = answer(races, verdict), verdicts.details(verdict)
    parts = [prose("\n".join(sentences))]
    contested = [race for race in races if race.contested] or races[:1]
    if races and not in_detail:
        count = plural(len(contested), "comparison")
        more = f"`--details` shows {count} of systems, models and batches, efficiencies, and toolkits beside servers."
        return "\n\n".join([*parts, table(_speeds(races[0]), right={2, 3, 4}), prose(more)])
    for race in contested:
        varying = "; ".join(f"{TERMS[name]} {', '.join(map(str, values))}" for name, values in race.varying.items())
        parts.append(prose(f"{_on(race)}:" + (f" runs differ in {varying}" if varying else "")))
        parts.append(table(_speeds(race), right={2, 3, 4}))
        if race.scales:
            parts.append(f"On {size(race.scales)} relative to {race.scales.base}:")
            parts.append(table(_efficiencies(race.scales), right={1, 2}))
    if compared and not any(sentence.startswith(QUESTION) for sentence in sentences):
        parts.append(prose(f"{QUESTION} {verdicts.headline(verdict)}"))
    return "\n\n".join([*parts, *compared])


def _faster(ranking: Ranking) -> str:
    best, second = ranking.standings[:2]
    rates = f"{rate(best)} against {rate(second)} img/s"
    lead, on = f"{ratio(second.ratio)} the img/s of {_short(ranking)[1]} ({rates})", size(ranking)
    return _sentence(ranking, f"is fastest on {on}", f"was fastest on {on}", f"are equally fast on {on}", f"has {lead}")


def _kept(ranking: Ranking) -> str:
    best, second = ranking.standings[:2]
    kept = " against ".join(percent(standing.point.efficiency, None, 1) for standing in (best, second))
    lead = f"keeps {ratio(second.ratio)} the efficiency of {_short(ranking)[1]} ({kept})"
    doubt = f" More than {100 * SUPERLINEAR:.0f} % says that something slowed down the smaller size: measure it again."
    sentence = _sentence(ranking, "scales best", "scaled best", "scale equally well", lead)
    return sentence + (doubt if best.point.efficiency > SUPERLINEAR else "")


def _sentence(ranking: Ranking, does: str, did: str, alike: str, lead: str) -> str:
    """The claim that the best ``does`` or ``did`` something, or that several are ``alike``; and its ``lead``."""
    entered, of = zip(_short(ranking), ranking.standings, strict=True), unit(ranking.unit, ranking.best.facets)
    names = [name for name, each in entered if each is ranking.best or each in ranking.rivals]  # which may be the best
    if ranking.decided:
        return f"{names[0]} {does}: it {lead}, {of}."
    if ranking.equal:
        return f"{listed(names)} {alike}, to within {100 * ranking.margin:g} %: {names[0]} {lead}, {of}."
    if ranking.p is None:
        known = f"they ran in {of}" if ranking.unit.fewest else of
        return f"{names[0]} {did} when it was measured: it {lead}, but {known}, so that may be chance."
    second = ranking.standings[1]
    alone = second in ranking.rivals and second.ratio.interval is not None and second.ratio.interval[0] > 1
    several = "; that interval would do for one size, but not where several are looked at" if alone else ""
    return f"it is undecided whether {listed(names, 'or')} {does}: {names[0]} {lead}, {of}{several}."


def _briefly(ranking: Ranking) -> str:
    """``4 nodes, PyTorch over Gloo, 1.02 × [0.78, 1.32] (undecided)``: the lead is over the next one."""
    how = f" ({_sureness(ranking)})" if not ranking.decided else ""
    return f"{size(ranking)}, {_short(ranking)[0]}, {ratio(ranking.standings[1].ratio)}{how}"


def _short(ranking: Ranking) -> list[str]:
    """The contenders' names, with versions only where they would be the same without."""
    names = list(map(who, ranking.standings))
    short = [_VERSION.sub("", name) for name in names]
    return short if len(set(short)) == len(names) else names


def _would_decide(undecided: Sequence[tuple[Sequence[int], bool, int | None]], of: str, in_pairs: bool) -> str:
    sizes = sorted({workers for at, _, _ in undecided for workers in at if workers})
    on = f"of each contender on {listed(sizes)} {of if sizes == [1] else f'{of}s'}"
    if not all(known for _, known, _ in undecided):
        how = f"`--jobs {UNKNOWN}` on a cluster, else as many runs"
        return f"What would decide it: {UNKNOWN} jobs {on} ({how}), or more if they scatter."
    needed = [units for _, _, units in undecided if units]
    units = "repeats" if in_pairs else "jobs"
    if len(needed) < len(undecided):
        return f"What would decide it: less noise; as it is, more than {MOST_REPEATS} {units} {on} would be needed."
    most = max(needed)
    return f"What would decide it: about {most} {units} {on}, if the ratios stay as they are (`--{units} {most}`)."


def _on(race: Race) -> str:
    """``On daint:gpu (inception3, synthetic, batch 64 per device)``, with what else tells races apart."""
    return f"On {verdicts.where(race.facets, batch=True)}"


def who(standing: Standing) -> str:
    return contender(standing.facets)


def size(ranking: Ranking) -> str:
    """The size of a ranking, as ``128 nodes``."""
    return verdicts.size(ranking.workers, ranking.best.point.nodes)


def rate(standing: Standing) -> str:
    """img/s with four digits or more."""
    value = standing.point.img_per_s
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"


def _speeds(race: Race) -> Sequence[tuple[str, ...]]:
    rows = [("size", "way of distributing", "img/s", "the fastest's / its img/s", "best of")]
    for ranking in race.sizes:
        for standing, lead in zip(ranking.standings, _leads(ranking), strict=True):
            point, at = standing.point, size(ranking) if standing is ranking.best else ""
            name = who(standing) + (f", {point.best.ps} ps" if point.best.ps > 1 else "")
            rows.append((at, name, f"{point.img_per_s:.2f}", lead, str(len(point.tried))))
    return rows


def _efficiencies(ranking: Ranking) -> Sequence[tuple[str, ...]]:
    rows = [("way of distributing", "scaling efficiency", "the best's / its efficiency")]
    for standing, lead in zip(ranking.standings, _leads(ranking), strict=True):
        rows.append((who(standing), percent(standing.point.efficiency, None, 1), lead))
    return rows


def _leads(ranking: Ranking) -> list[str]:
    """The sureness of the first, then the ratios of the others."""
    return [_sureness(ranking), *(ratio(standing.ratio) for standing in ranking.standings[1:])]


def _sureness(ranking: Ranking) -> str:
    if ranking.decided or len(ranking.standings) == 1:
        return "best" if ranking.decided else ""
    if ranking.equal:
        return f"within {100 * ranking.margin:g} %"
    return "undecided" if ranking.p is not None else "one job" if ranking.unit.fewest else "no repeats"
