"""The verdict in words: a headline, a finding for each contender, a table, and what the answer does not cover.

``headline`` and ``lists`` are for any page, ``details`` lays them out for a terminal.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import attrgetter

from harness.analysis.ratios import ChanceUnit, Ratio, chance_takes
from harness.analysis.scaling import TUNED, Configuration, CurvePoint, SharedFacets
from harness.analysis.verdict import AtSize, ComparedContender, Overall, ScalingAnswer, Verdict
from harness.core.text import interval, listed, percent, plural
from harness.report.text import table
from harness.report.text.table import Column, Table, prose
from harness.results.result import LENGTH

INDICATIONS = "An indication only, not like for like"
QUESTION = "Do MPI-based toolkits scale better than parameter servers?"
# For each answer the word for it, and the answer of the contender whose figures stand for all.
_ANSWERS: dict[Overall, tuple[str, str]] = {
    "yes": ("Yes.", "better"),
    "no": ("No.", "worse"),
    "some": ("Some of them.", "better"),
    "depends": ("It depends on the size.", "changes"),
    "no difference": ("No difference.", "no difference"),
    "cannot say": ("Undecided", ""),
}
# The answers for one contender, in words.
_WORDS: dict[ScalingAnswer, str] = {
    "better": "better",
    "worse": "worse",
    "no difference": "no different",
    "changes": "better or worse depending on the size",
}
LACKING_REPEATS = ("no spread", "too wide")  # reasons that more repeats would take away
_TRANSPORTS = {"mpi": "MPI", "gloo": "Gloo", "nccl": "NCCL", "grpc": "gRPC"}
TERMS = {
    "batch_size": "per-device batch",
    "devices_per_node": "devices per node",
    "image_size": "image size",
    **LENGTH,
}


def details(verdict: Verdict) -> list[str]:
    """The tables of what was compared, and the ``lists``; nothing without parameter servers."""
    contenders = (*verdict.comparisons, *verdict.controls)
    if not any(contender.indication or contender.reason != "no counterpart" for contender in contenders):
        return []
    tables = [table.text(_table(contender)) for contender in contenders if contender.sizes]
    return tables + [prose("\n  - ".join([f"{title}:", *items])) for title, items in lists(verdict).items() if items]


def lists(verdict: Verdict) -> dict[str, list[str]]:
    """The sentences beside the headline, by the title that they stand under, which may be none."""
    contenders = (*verdict.comparisons, *verdict.controls)
    terms = [contender.terms.equal for contender in contenders if contender.terms]
    points = (point for each in contenders for size in each.sizes for point in (size.toolkit, size.servers))
    equal = (", ".join(f"{_term(name)} {value}" for name, value in each.items()) for each in terms)
    needed = (_undecided(contender, verdict)[1] for contender in contenders if contender.reason)
    return {
        "Each toolkit": [_finding(contender, verdict) for contender in contenders],
        INDICATIONS: list(filter(None, map(_indication, contenders))),
        "Equal on both sides": list(dict.fromkeys(equal)),
        "Not equal": list(filter(None, map(_unequal, contenders))),
        "What would make them comparable": list(dict.fromkeys(filter(None, needed))),
        "Of several publications": list(dict.fromkeys(alternatives(points))),
        "Left out": [f"{plural(each.runs, 'run')} of {each.subject}: {each.why}" for each in verdict.left_out],
    }


def _term(name: str) -> str:
    return TERMS.get(name, name)


def headline(verdict: Verdict) -> str:
    compared, (word, shown_answer) = verdict.comparisons, _ANSWERS[verdict.answer]
    if not compared:
        return "Nothing to compare: no toolkit over MPI, Gloo or NCCL has a throughput among these results."
    if verdict.answer == "cannot say":
        # The one at most sizes, and of these the one that scales best.
        shown = max(
            lacking_repeats(verdict) or compared,
            key=lambda each: (len(each.sizes), each.sizes[-1].efficiency_ratio.value if each.sizes else 0.0),
        )
        return f"{_word(shown).capitalize()} on {where(shown.facets)}: {_undecided(shown, verdict)[0]}."
    # The one at the largest size, and there the one that differs most.
    shown = max(
        (each for each in compared if each.answer == shown_answer),
        key=lambda each: (each.judged[-1].workers, abs(math.log(each.judged[-1].efficiency_ratio.value))),
    )
    parts = [word, f"On {where(shown.facets)} {_claim(shown, verdict.margin)}."]
    if len(compared) > 1:
        counts = Counter(map(_word, compared))
        words = (*_WORDS.values(), "undecided", "nothing to compare")
        counted = ", ".join(f"{counts[word]} {word}" for word in words if counts[word])
        there = " there" if len({where(each.facets) for each in compared}) == 1 else ""
        parts.append(f"Of {len(compared)} contenders{there}: {counted.replace('nothing', 'with nothing')}.")
    return " ".join(parts)


def by_chance(ratio: Ratio, throughputs: int, verdict: Verdict) -> str:
    """The scatter of runs that would make a ratio of so many throughputs chance, beside what is known of it."""
    run, needed = verdict.scatters, percent(chance_takes(ratio.value, throughputs), None, 1)
    known = "no publication here tells how they scatter"
    if run:
        known = f"the most that is known here is {percent(run.stdev / run.rate, None, 1)} ({run.source or run.system})"
    return f"chance takes runs that scatter by {needed}, and {known}"


def lacking_repeats(verdict: Verdict) -> list[ComparedContender]:
    """The contenders that were compared, with too few repeats to tell how they differ."""
    return [each for each in verdict.comparisons if each.reason in LACKING_REPEATS]


def alternatives(points: Iterable[CurvePoint]) -> list[str]:
    """A sentence for each point that several publications are of: which one counts, and what the others say."""
    sentences = []
    tuned = attrgetter(*(name for name in TUNED if name != "publication"))
    for point in points:
        best = point.best
        published = [each for each in point.tried if each is not best and not each.runs[0].measured]
        alike = [each for each in published if tuned(each.runs[0]) == tuned(best.runs[0])]
        if alike:
            others = listed(f"{each.sample.mean:,.0f} ({_publication(each)})" for each in alike)
            of = f"{contender(vars(best))} on {size(point.workers, point.nodes)}"
            sentences.append(
                f"{of}: {point.img_per_s:,.0f} img/s counts ({_publication(best)}), the best beside {others}"
            )
    return sentences


def _publication(configuration: Configuration) -> str:
    return "; ".join(filter(None, configuration.runs[0].publication))


def _finding(compared: ComparedContender, verdict: Verdict) -> str:
    prefix = "Control: " if compared.facets["family"] == "collectives" else ""
    answer = f"{prefix}{_word(compared)} on {where(compared.facets, batch=True)}"
    if compared.answer == "cannot say":
        return f"{answer}: {_undecided(compared, verdict)[0]}."
    last = compared.sizes[-1]
    rate = f"At {_size(last)} it trains {ratio(last.throughput_ratio)} as many img/s"
    if unjudged := " and ".join(_size(size) for size in compared.sizes[1:] if size.efficiency_ratio.p is None):
        rate += f"; nothing can be said of {unjudged}, measured in one job"
    return f"{answer}: {_claim(compared, verdict.margin)}. {rate}."


def _word(compared: ComparedContender) -> str:
    without_answer = "undecided" if compared.reason in LACKING_REPEATS else "nothing to compare"
    return _WORDS.get(compared.answer, without_answer)


def where(facets: SharedFacets, batch: bool = False) -> str:
    """``daint:gpu (inception3, synthetic)``, as far as it is known; with the ``batch``, also the devices per node."""
    known = [facets["model"], facets["data"]]
    if batch and facets["batch_size"]:
        known.append(f"batch {facets['batch_size']} per device")
    if batch and facets["devices_per_node"] > 1:
        known.append(f"{facets['devices_per_node']} devices per node")
    inside = ", ".join(filter(None, known))
    return (facets["system"] or "a system without a name") + (f" ({inside})" if inside else "")


def _claim(compared: ComparedContender, margin: float) -> str:
    """The finding for a contender with an answer, without its system."""
    name, first, last = contender(compared.facets), compared.judged[0], compared.judged[-1]
    keeps = (
        f"keeps {ratio(last.efficiency_ratio)} the scaling efficiency of the best "
        f"parameter-server configuration (best of {len(last.servers.tried)}) on {_size(last)}, "
        f"relative to {_size(compared.sizes[0])} ({unit(last.efficiency_ratio.unit, compared.facets)})"
    )
    if compared.answer == "no difference":
        sizes = f"at {_size(first)}" if first is last else f"at every size from {_size(first)} to {_size(last)}"
        return (
            f"{name} scales like parameter servers to within {100 * margin:g} %: {sizes} the interval of the ratio of "
            f"efficiencies lies within {1 - margin:g} and {1 + margin:g}; it {keeps}"
        )
    if compared.answer == "changes":  # such as "worse up to 8 nodes, then better from 64 nodes on"
        different = [size for size in compared.judged if size.direction]
        phases = [[*sizes] for _, sizes in groupby(different, key=attrgetter("direction"))]
        parts = [f"{phase[0].direction} up to {_size(phase[-1])}" for phase in phases]
        if different[-1] is last:
            parts[-1] = f"{last.direction} from {_size(phases[-1][0])} on"
        else:
            parts.append("no difference can be told")
        return f"{name} scales {', then '.join(parts)}; it {keeps}"
    assert compared.parts
    below, above = (next(size for size in compared.sizes if size.workers == workers) for workers in compared.parts)
    number = str(below.workers) if below.workers == below.toolkit.nodes else _size(below)
    return f"{name} {keeps}; they part between {number} and {_size(above)}"


def _undecided(compared: ComparedContender, verdict: Verdict) -> tuple[str, str]:
    """The reason why nothing can be said of a contender, and what would make it comparable, if it is not."""
    facets, toolkit = compared.facets, contender(compared.facets)
    match compared.reason:
        case "one size":
            smallest = next(map(_size, compared.sizes), "")
            common = f"have only {smallest} in common" if smallest else "were not measured at a common size"
            needed = f"{toolkit} and parameter servers on two or more common numbers of nodes"
            return f"{toolkit} and the parameter servers {common}", needed
        case "other training":
            training = facets["training"]
            reason = f"{toolkit} was only measured with {training}, which is another training"
            return reason, f"{toolkit} without {training}"
        case "no spread":
            last = compared.sizes[-1]
            kept = " against ".join(percent(side.efficiency, None, 1) for side in (last.toolkit, last.servers))
            of = last.efficiency_ratio.unit
            missing = f"they ran in {unit(of, facets)}" if of.fewest else unit(of, facets)
            reason = (
                f"{toolkit} keeps {last.efficiency_ratio.value:.3f} × the scaling efficiency of the best parameter servers "
                f"on {_size(last)} ({kept}, relative to {_size(compared.sizes[0])}), "
                f"but {missing}, so its significance is unknown"
            )
            published = facets["origin"] == "published"
            return reason + (f": {by_chance(last.efficiency_ratio, 4, verdict)}" if published else ""), ""
        case "too wide":
            widths = [
                high / low for size in compared.judged for low, high in [size.efficiency_ratio.interval or (1, 1)]
            ]
            widest = compared.judged[widths.index(max(widths))]
            reason = (
                f"{toolkit} keeps {ratio(widest.efficiency_ratio)} the scaling efficiency of the best parameter servers "
                f"on {_size(widest)} ({unit(widest.efficiency_ratio.unit, facets)}), which neither differs "
                f"from 1 nor lies within 1 ± {100 * verdict.margin:g} %"
            )
            return reason, ""
    differs = compared.indication.differs if compared.indication else None
    if differs is None:
        nearest = "there are none among these results"
    elif "system" in differs:
        nearest = f"there are none on {facets['system']}"
    elif list(differs) == ["training"]:
        nearest = f"they were only measured with {differs['training'][1]}, which is another training"
    else:
        nearest = f"the nearest ones differ in {_differing(differs)}"
    needed = f"parameter servers on {where(facets, batch=True)}, in several jobs, to compare {toolkit} with"
    return f"no parameter servers were measured like {toolkit}: {nearest}", needed


def _against(values: tuple[object, object]) -> str:
    return " against ".join("not known" if value in ("", 0) else str(value) for value in values)


def _differing(differs: Mapping[str, tuple[object, object]]) -> str:
    return ", ".join(f"{_term(name)} ({_against(values)})" for name, values in differs.items())


def _unequal(compared: ComparedContender) -> str:
    if compared.terms is None:
        return ""
    # The version of a framework names it.
    unequal = {name: values for name, values in compared.terms.unequal.items() if name != "framework"}
    parts = [f"{_term(name)}: {_against(values)}" for name, values in unequal.items()]
    if compared.terms.unknown:
        parts.append(f"not known: {', '.join(map(_term, compared.terms.unknown))}")
    return f"{contender(compared.facets)}: {'; '.join(parts)}" if parts else ""


def _indication(compared: ComparedContender) -> str:
    nearest = compared.indication
    if nearest is None or nearest.largest is None:
        return ""
    ours, theirs = nearest.largest
    versions = " and ".join(sorted({point.best.software for point in nearest.servers.points}))
    return (
        f"{compared.facets['model']} with {contender(compared.facets)} keeps {percent(ours.efficiency, None, 1)} at "
        f"{ours.workers} workers relative to {ours.base_workers}, {nearest.servers.facets['model']} with parameter "
        f"servers of {versions} {percent(theirs.efficiency, None, 1)}. Not like for like: {_differing(nearest.differs)}"
    )


def contender(facets: SharedFacets) -> str:
    """``Horovod 0.28.1 on TensorFlow 2.16.1 over MPI``, or over one of several libraries."""
    software, backend, transport = str(facets["software"]), str(facets["backend"]), facets["transport"]
    framework, _, toolkit = software.partition(", ")
    over = f" over {facets.get('mpi') or _TRANSPORTS.get(transport, transport)}" if transport else ""
    # PyTorch, Caffe2 and Horovod's own tables name the backend already.
    if not toolkit and backend in framework.lower():
        return f"{framework}{over}"
    return f"{toolkit or backend}{f' on {framework}' if framework else ''}{over}"


def size(workers: int, nodes: int) -> str:
    """``128 nodes``, or ``128 workers (16 nodes)``."""
    if workers == nodes:
        return plural(nodes, "node")
    return plural(workers, "worker") + (f" ({plural(nodes, 'node')})" if nodes else "")


def _size(at: AtSize) -> str:
    return size(at.workers, at.toolkit.nodes)


def unit(counted: ChanceUnit, facets: SharedFacets) -> str:
    """``3 jobs each``, ``5 pairs in one allocation``: the unit of chance; emulated devices are one host's."""
    where = ", emulated on one host" if facets["device"].startswith("emulated:") else ""
    several = f"{counted.fewest} to {counted.most}" if counted.fewest < counted.most else f"{counted.fewest}"
    if facets["origin"] == "published" and counted.fewest > 1:
        return f"by published deviations of {several} runs each"
    if counted.pairs:
        return f"{plural(counted.pairs, 'pair')} in one allocation{where}"
    if not counted.fewest:
        return "no repeats are known"
    return (f"{several} jobs each" if counted.most > 1 else "one job each") + where


def ratio(times: Ratio) -> str:
    """``1.17 × [0.71, 1.93]``; bounds far from 1 have the digits that say something: ``[0.0032, 1144]``."""
    bounds = [f"{each:.0f}" if each >= 100 else f"{each:.{2 if each >= 0.1 else 4}f}" for each in times.interval or ()]
    return f"{times.value:.2f} ×" + (f" [{', '.join(bounds)}]" if bounds else "")


def _table(compared: ComparedContender) -> Table:
    def column(heading: str, cells: Iterable[str], optional: bool = False) -> Column:
        return Column(heading, list(cells), right=True, optional=optional)

    def digits(ratio: Ratio) -> str:
        return f"{ratio.value:.3f} {interval(ratio.interval, 3)}".rstrip()

    sizes = compared.sizes
    ours, theirs = ([getattr(size, side) for size in sizes] for side in ("toolkit", "servers"))
    columns = [
        column("workers", (str(size.workers) for size in sizes)),
        column("img/s", (f"{side.img_per_s:.2f}" for side in ours)),
        column("servers' img/s", (f"{side.img_per_s:.2f}" for side in theirs)),
        column("ratio of img/s", (digits(size.throughput_ratio) for size in sizes)),
        column("efficiency", (percent(side.efficiency, None, 1) for side in ours), optional=True),
        column("servers' efficiency", (percent(side.efficiency, None, 1) for side in theirs), optional=True),
        column("ratio of efficiencies", ["", *(digits(size.efficiency_ratio) for size in sizes[1:])]),
        Column("", [mark(size, size is sizes[0]) for size in sizes]),
    ]
    if compared.facets["origin"] != "published":  # a publication names its best one only
        columns.insert(3, column("best of", (str(len(side.tried)) for side in theirs), optional=True))
    on = where(compared.facets, batch=True)
    return Table(columns, f"{contender(compared.facets)} against the best parameter servers on {on}:")


def mark(size: AtSize, first: bool) -> str:
    """A word or two for how the toolkit differs at this size."""
    if first:
        return "(baseline)"
    if size.efficiency_ratio.p is None:
        return "one job" if size.efficiency_ratio.unit.fewest else "no repeats"
    return size.direction or "not significant"
