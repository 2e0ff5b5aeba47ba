"""The verdict in words: a headline, what was found for each contender, a table, and what the answer does not cover.

``headline`` and ``lists`` are for any page, ``details`` lays them out for a terminal.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter

from harness.analysis.ratios import ChanceUnit, Ratio, chance_takes
from harness.analysis.scaling import TUNED, Configuration, CurvePoint, SharedFacets
from harness.analysis.verdict import AtSize, ComparedContender, Overall, Verdict
from harness.core.text import interval, listed, percent, plural
from harness.report.text import table
from harness.report.text.table import Column, Table, prose
from harness.results.result import LENGTH

INDICATIONS = "An indication only, not like for like"
QUESTION = "Do MPI-based toolkits scale better than parameter servers?"
# For each answer the word for it, and whose figures stand for all contenders: those of one with that answer.
_ANSWERS: dict[Overall, tuple[str, str]] = {
    "yes": ("Yes.", "better"),
    "no": ("No.", "worse"),
    "some": ("Some of them.", "better"),
    "depends": ("It depends on the size.", "changes"),
    "no difference": ("No difference.", "no difference"),
    "cannot say": ("Undecided", ""),
}
# The answers for one contender, in words.
_WORDS = ("better", "worse", "no different", "better or worse depending on the size", "undecided", "nothing to compare")
LACKING_REPEATS = ("no spread", "too wide")  # reasons that more repeats would take away
_TRANSPORTS = {"mpi": "MPI", "gloo": "Gloo", "nccl": "NCCL", "grpc": "gRPC"}
TERMS = {
    "batch_size": "per-device batch",
    "devices_per_node": "devices per node",
    "image_size": "image size",
    **LENGTH,
}


def details(verdict: Verdict) -> list[str]:
    """What was compared, as tables, and what there is to say beside the headline; nothing without parameter servers."""
    contenders = (*verdict.comparisons, *verdict.controls)
    if not any(contender.indication or contender.reason != "no counterpart" for contender in contenders):
        return []
    tables = [table.text(_table(contender)) for contender in contenders if contender.sizes]
    return tables + [prose("\n  - ".join([f"{title}:", *items])) for title, items in lists(verdict).items() if items]


def lists(verdict: Verdict) -> dict[str, list[str]]:
    """What there is to say beside the headline: sentences by the title that they stand under, which may be none."""
    contenders = (*verdict.comparisons, *verdict.controls)
    terms = [one.terms.equal for one in contenders if one.terms]
    equal = (", ".join(f"{TERMS.get(name, name)} {value}" for name, value in each.items()) for each in terms)
    wanted = (_undecided(one, verdict)[1] for one in contenders if one.reason)
    points = (point for one in contenders for each in one.sizes for point in (each.toolkit, each.servers))
    return {
        "Each toolkit": [_finding(one, verdict) for one in contenders],
        INDICATIONS: list(filter(None, map(_indication, contenders))),
        "Equal on both sides": list(dict.fromkeys(equal)),
        "Not equal": list(filter(None, map(_unequal, contenders))),
        "What would make them comparable": list(dict.fromkeys(filter(None, wanted))),
        "Of several publications": list(dict.fromkeys(alternatives(points))),
        "Left out": [f"{plural(one.runs, 'run')} of {one.what}: {one.why}" for one in verdict.left_out],
    }


def headline(verdict: Verdict) -> str:
    compared, (word, shown_answer) = verdict.comparisons, _ANSWERS[verdict.answer]
    if not compared:
        return "Nothing to compare: no toolkit over MPI, Gloo or NCCL has a throughput among these results."
    if verdict.answer == "cannot say":
        shown = max(lacking_repeats(verdict) or compared, key=_telling)
        return f"{_word(shown).capitalize()} on {where(shown.facets)}: {_undecided(shown, verdict)[0]}."
    # Of these the one at the largest size, and there the one that differs most.
    shown = max(
        (one for one in compared if one.answer == shown_answer),
        key=lambda one: (one.judged[-1].workers, abs(math.log(one.judged[-1].efficiency_ratio.value))),
    )
    parts = [word, f"On {where(shown.facets)} {_claim(shown, verdict.margin)}."]
    if len(compared) > 1:
        counts = Counter(map(_word, compared))
        counted = ", ".join(f"{counts[each]} {each}" for each in _WORDS if counts[each])
        there = " there" if len({where(one.facets) for one in compared}) == 1 else ""
        parts.append(f"Of {len(compared)} contenders{there}: {counted.replace('nothing', 'with nothing')}.")
    return " ".join(parts)


def _telling(one: ComparedContender) -> tuple[int, float]:
    """How much an undecided comparison tells: at how many sizes, and how well the toolkit scales; the best one decides."""
    return len(one.sizes), one.sizes[-1].efficiency_ratio.value if one.sizes else 0.0


def by_chance(found: Ratio, throughputs: int, verdict: Verdict) -> str:
    """How much runs would have to scatter for a ratio of so many throughputs to be chance, beside what is known of them."""
    run, needed = verdict.scatters, percent(chance_takes(found.value, throughputs), None, 1)
    known = "no publication here tells how they scatter"
    if run:
        known = f"the most that is known here is {percent(run.stdev / run.rate, None, 1)} ({run.source or run.system})"
    return f"chance takes runs that scatter by {needed}, and {known}"


def lacking_repeats(verdict: Verdict) -> list[ComparedContender]:
    """Those that were compared, with too few repeats to tell how they differ."""
    return [one for one in verdict.comparisons if one.reason in LACKING_REPEATS]


def alternatives(points: Iterable[CurvePoint]) -> list[str]:
    """Of points that several publications are of, a sentence each: which one counts, and what the others say."""
    sentences = []
    tuned = attrgetter(*(name for name in TUNED if name != "publication"))
    for point in points:
        best = point.best
        published = [one for one in point.tried if one is not best and not one.runs[0].measured]
        alike = [one for one in published if tuned(one.runs[0]) == tuned(best.runs[0])]
        if alike:
            others = listed(f"{one.sample.mean:,.0f} ({_published(one)})" for one in alike)
            of = f"{contender(vars(best) | {'mpi': best.mpi})} on {size(point.workers, point.nodes)}"
            sentences.append(
                f"{of}: {point.img_per_s:,.0f} img/s counts ({_published(best)}), the best beside {others}"
            )
    return sentences


def _published(one: Configuration) -> str:
    return "; ".join(filter(None, one.runs[0].publication))


def _finding(one: ComparedContender, verdict: Verdict) -> str:
    prefix = "Control: " if one.facets["family"] == "collectives" else ""
    found = f"{prefix}{_word(one)} on {where(one.facets, batch=True)}"
    if one.answer == "cannot say":
        return f"{found}: {_undecided(one, verdict)[0]}."
    last = one.sizes[-1]
    rate = f"At {_size(last)} it trains {ratio(last.throughput_ratio)} as many img/s"
    if unjudged := " and ".join(_size(size) for size in one.sizes[1:] if size.efficiency_ratio.p is None):
        rate += f"; nothing can be said of {unjudged}, measured in one job"
    return f"{found}: {_claim(one, verdict.margin)}. {rate}."


def _word(one: ComparedContender) -> str:
    if one.answer == "cannot say":
        return "undecided" if one.reason in LACKING_REPEATS else "nothing to compare"
    words = {"no difference": "no different", "changes": "better or worse depending on the size"}
    return words.get(one.answer, one.answer)


def where(facets: SharedFacets, batch: bool = False) -> str:
    """``daint:gpu (inception3, synthetic)``: what is known of that, with the ``batch`` and what goes with it if wanted."""
    known = [facets["model"], facets["data"]]
    if batch and facets["batch_size"]:
        known.append(f"batch {facets['batch_size']} per device")
    if batch and facets["devices_per_node"] > 1:
        known.append(f"{facets['devices_per_node']} devices per node")
    inside = ", ".join(filter(None, known))
    return (facets["system"] or "a system without a name") + (f" ({inside})" if inside else "")


def _claim(one: ComparedContender, margin: float) -> str:
    """What was found for a contender with an answer, without where."""
    name, first, last = contender(one.facets), one.judged[0], one.judged[-1]
    keeps = (
        f"keeps {ratio(last.efficiency_ratio)} the scaling efficiency of the best "
        f"parameter-server configuration (best of {len(last.servers.tried)}) on {_size(last)}, "
        f"relative to {_size(one.sizes[0])} ({unit(last.efficiency_ratio.unit, one.facets)})"
    )
    if one.answer == "no difference":
        sizes = f"at {_size(first)}" if first is last else f"at every size from {_size(first)} to {_size(last)}"
        return (
            f"{name} scales like parameter servers to within {100 * margin:g} %: {sizes} the interval of the ratio of "
            f"efficiencies lies within {1 - margin:g} and {1 + margin:g}; it {keeps}"
        )
    if one.answer == "changes":  # such as "worse up to 8 nodes, then better from 64 nodes on"
        different = [size for size in one.judged if size.direction]
        phases = [(direction, list(sizes)) for direction, sizes in groupby(different, key=lambda size: size.direction)]
        parts = [f"{direction} up to {_size(sizes[-1])}" for direction, sizes in phases]
        if different[-1] is last:
            direction, sizes_of_phase = phases[-1]
            parts[-1] = f"{direction} from {_size(sizes_of_phase[0])} on"
        else:
            parts.append("no difference can be told")
        return f"{name} scales {', then '.join(parts)}; it {keeps}"
    assert one.parts
    below, above = (next(size for size in one.sizes if size.workers == workers) for workers in one.parts)
    number = str(below.workers) if below.workers == below.toolkit.nodes else _size(below)
    return f"{name} {keeps}; they part between {number} and {_size(above)}"


def _undecided(one: ComparedContender, verdict: Verdict) -> tuple[str, str]:
    """Why nothing can be said of a contender, and what would make it comparable, if it is not."""
    facets, toolkit = one.facets, contender(one.facets)
    match one.reason:
        case "one size":
            common = f"have only {_size(one.sizes[0])} in common" if one.sizes else "were not measured at a common size"
            wanted = f"{toolkit} and parameter servers on two or more common numbers of nodes"
            return f"{toolkit} and the parameter servers {common}", wanted
        case "other training":
            training = facets["training"]
            said = f"{toolkit} was only measured with {training}, which is another training"
            return said, f"{toolkit} without {training}"
        case "no spread":
            last = one.sizes[-1]
            kept = " against ".join(percent(side.efficiency, None, 1) for side in (last.toolkit, last.servers))
            of = last.efficiency_ratio.unit
            missing = f"they ran in {unit(of, facets)}" if of.fewest else unit(of, facets)
            said = (
                f"{toolkit} keeps {last.efficiency_ratio.value:.3f} × the scaling efficiency of the best parameter servers "
                f"on {_size(last)} ({kept}, relative to {_size(one.sizes[0])}), "
                f"but {missing}, so its significance is unknown"
            )
            published = facets["origin"] == "published"
            return said + (f": {by_chance(last.efficiency_ratio, 4, verdict)}" if published else ""), ""
        case "too wide":
            widths = [high / low for low, high in (size.efficiency_ratio.interval or (1.0, 1.0) for size in one.judged)]
            widest = one.judged[widths.index(max(widths))]
            said = (
                f"{toolkit} keeps {ratio(widest.efficiency_ratio)} the scaling efficiency of the best parameter servers "
                f"on {_size(widest)} ({unit(widest.efficiency_ratio.unit, facets)}), which neither differs "
                f"from 1 nor lies within 1 ± {100 * verdict.margin:g} %"
            )
            return said, ""
    differs = one.indication.differs if one.indication else None
    if differs is None:
        nearest = "there are none among these results"
    elif "system" in differs:
        nearest = f"there are none on {facets['system']}"
    elif list(differs) == ["training"]:
        nearest = f"they were only measured with {differs['training'][1]}, which is another training"
    else:
        nearest = f"the nearest ones differ in {_differing(differs)}"
    wanted = f"parameter servers on {where(facets, batch=True)}, in several jobs, to compare {toolkit} with"
    return f"no parameter servers were measured like {toolkit}: {nearest}", wanted


def _against(values: tuple[object, object]) -> str:
    return " against ".join("not known" if value in ("", 0) else str(value) for value in values)


def _differing(differs: Mapping[str, tuple[object, object]]) -> str:
    return ", ".join(f"{TERMS.get(name, name)} ({_against(values)})" for name, values in differs.items())


def _unequal(one: ComparedContender) -> str:
    if one.terms is None:
        return ""
    unequal = {name: values for name, values in one.terms.unequal.items() if name != "framework"}  # its version says it
    parts = [f"{TERMS.get(name, name)}: {_against(values)}" for name, values in unequal.items()]
    if one.terms.unknown:
        parts.append(f"not known: {', '.join(TERMS.get(name, name) for name in one.terms.unknown)}")
    return f"{contender(one.facets)}: {'; '.join(parts)}" if parts else ""


def _indication(one: ComparedContender) -> str:
    nearest = one.indication
    if nearest is None or nearest.largest is None:
        return ""
    ours, theirs = nearest.largest
    versions = " and ".join(sorted({point.best.software for point in nearest.servers.points}))
    return (
        f"{one.facets['model']} with {contender(one.facets)} keeps {percent(ours.efficiency, None, 1)} at "
        f"{ours.workers} workers relative to {ours.base_workers}, {nearest.servers.facets['model']} with parameter "
        f"servers of {versions} {percent(theirs.efficiency, None, 1)}. Not like for like: {_differing(nearest.differs)}"
    )


def contender(facets: SharedFacets) -> str:
    """``Horovod 0.28.1 on TensorFlow 2.16.1 over MPI``, or over one of several libraries."""
    software, backend, transport = str(facets["software"]), str(facets["backend"]), facets["transport"]
    framework, _, own = software.partition(", ")
    over = f" over {facets.get('mpi') or _TRANSPORTS.get(transport, transport)}" if transport else ""
    # PyTorch, Caffe2 and Horovod's own tables name the backend already.
    if not own and backend in framework.lower():
        return f"{framework}{over}"
    return f"{own or backend}{f' on {framework}' if framework else ''}{over}"


def size(workers: int, nodes: int) -> str:
    """``128 nodes``, or ``128 workers (16 nodes)``."""
    if workers == nodes:
        return plural(nodes, "node")
    return plural(workers, "worker") + (f" ({plural(nodes, 'node')})" if nodes else "")


def _size(one: AtSize) -> str:
    return size(one.workers, one.toolkit.nodes)


def unit(found: ChanceUnit, facets: SharedFacets) -> str:
    """``3 jobs each``, ``5 pairs in one allocation``: what chance is counted in; emulated devices are one host's."""
    where = ", emulated on one host" if facets["device"].startswith("emulated:") else ""
    several = f"{found.fewest} to {found.most}" if found.fewest < found.most else f"{found.fewest}"
    if facets["origin"] == "published" and found.fewest > 1:
        return f"by published deviations of {several} runs each"
    if found.pairs:
        return f"{plural(found.pairs, 'pair')} in one allocation{where}"
    if not found.fewest:
        return "no repeats are known"
    return (f"{several} jobs each" if found.most > 1 else "one job each") + where


def ratio(found: Ratio) -> str:
    """``1.17 × [0.71, 1.93]``; bounds far from 1 have the digits that say something: ``[0.0032, 1144]``."""
    bounds = (
        f"{bound:.0f}" if bound >= 100 else f"{bound:.{2 if bound >= 0.1 else 4}f}" for bound in found.interval or ()
    )
    return f"{found.value:.2f} ×" + (f" [{', '.join(bounds)}]" if found.interval else "")


def _table(one: ComparedContender) -> Table:
    def column(heading: str, cells: Iterable[str], optional: bool = False) -> Column:
        return Column(heading, list(cells), right=True, optional=optional)

    def ratios(several: Iterable[Ratio]) -> Iterator[str]:
        return (f"{each.value:.3f} {interval(each.interval, 3)}".rstrip() for each in several)

    sizes, published = one.sizes, one.facets["origin"] == "published"  # a publication names its best one only
    ours, theirs = ([getattr(size, side) for size in sizes] for side in ("toolkit", "servers"))
    efficiencies = ["", *list(ratios(size.efficiency_ratio for size in sizes))[1:]]
    columns = [
        column("workers", (str(size.workers) for size in sizes)),
        column("img/s", (f"{side.img_per_s:.2f}" for side in ours)),
        column("servers' img/s", (f"{side.img_per_s:.2f}" for side in theirs)),
        column("ratio of img/s", ratios(size.throughput_ratio for size in sizes)),
        column("efficiency", (percent(side.efficiency, None, 1) for side in ours), optional=True),
        column("servers' efficiency", (percent(side.efficiency, None, 1) for side in theirs), optional=True),
        column("ratio of efficiencies", efficiencies),
        Column("", [mark(size, size is sizes[0]) for size in sizes]),
    ]
    if not published:
        columns.insert(3, column("best of", (str(len(side.tried)) for side in theirs), optional=True))
    on = where(one.facets, batch=True)
    return Table(columns, f"{contender(one.facets)} against the best parameter servers on {on}:")


def mark(size: AtSize, first: bool) -> str:
    """How the toolkit differs at this size, in a word or two."""
    if first:
        return "(baseline)"
    if size.efficiency_ratio.p is None:
        return "one job" if size.efficiency_ratio.unit.fewest else "no repeats"
    return size.direction or "not significant"
