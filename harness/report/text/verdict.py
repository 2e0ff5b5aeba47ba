"""The verdict in words: a headline, what was found for each contender, a table, and what the answer does not cover.

Pure. ``sentences`` are for any page, ``text`` lays them out for a terminal, ``as_json`` is for scripts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from harness.analysis.scaling import CurvePoint, Interval
from harness.analysis.verdict import AtSize, ComparedContender, Overall, Verdict
from harness.core.text import interval, plural
from harness.report.text.table import table

QUESTION = "Do MPI-based toolkits scale better than parameter servers?"
_HEADINGS = (
    *("contender", "where", "workers", "img/s", "efficiency", "ps img/s", "ps efficiency", "best of"),
    *("efficiency ratio", "img/s ratio", ""),
)
_WORDS: dict[Overall, str] = {
    "yes": "Yes.",
    "no": "No.",
    "some": "Some of them.",
    "depends": "It depends on the size.",
    "no difference": "No difference.",
    "cannot say": "Cannot say.",
}
# Whose figures stand for all contenders: those of one with this answer.
_SHOWN: dict[Overall, str] = {"yes": "better", "some": "better", "depends": "changes", "no": "worse"}
_COUNTED = {
    "better": "better",
    "worse": "worse",
    "no difference": "no different",
    "changes": "better or worse depending on the size",
    "cannot say": "undecided",
}
_TRANSPORTS = {"mpi": "MPI", "gloo": "Gloo", "nccl": "NCCL", "grpc": "gRPC"}
_TERMS = {
    "batch_size": "per-device batch",
    "devices_per_node": "devices per node",
    "image_size": "image size",
    "warmup_steps": "warm-up steps",
    "steps": "measured steps",
    "software": "framework version",
}


@dataclass(frozen=True)
class Sentences:
    """The verdict as sentences. All but the headline may be none."""

    headline: str
    findings: tuple[str, ...]
    equal: tuple[str, ...]
    unequal: tuple[str, ...]
    indications: tuple[str, ...]
    left_out: tuple[str, ...]
    would_decide: tuple[str, ...]


def sentences(verdict: Verdict) -> Sentences:
    margin, every = verdict.margin, (*verdict.comparisons, *verdict.controls)
    return Sentences(
        headline=_headline(verdict),
        findings=tuple(_finding(one, margin) for one in every),
        equal=tuple(dict.fromkeys(_equal(one.terms.equal) for one in every if one.terms)),
        unequal=tuple(filter(None, map(_unequal, every))),
        indications=tuple(filter(None, map(_indication, every))),
        left_out=tuple(f"{plural(one.runs, 'run')} of {one.what}: {one.why}" for one in verdict.left_out),
        would_decide=tuple(dict.fromkeys(filter(None, map(_would_decide, every)))),
    )


def text(verdict: Verdict) -> str:
    """The verdict for a terminal."""
    said = sentences(verdict)
    rows = [row for one in (*verdict.comparisons, *verdict.controls) for row in _rows(one)]
    lists = {
        "equal on both sides:": said.equal,
        "not equal:": said.unequal,
        "an indication only, not like for like:": said.indications,
        "left out:": said.left_out,
        "what would decide it:": said.would_decide,
    }
    parts = [said.headline, "\n".join(map(_item, said.findings))]
    parts += [table([_HEADINGS, *rows], right={2, 3, 4, 5, 6, 7})] if rows else []
    parts += ["\n".join([title, *map(_item, items)]) for title, items in lists.items() if items]
    return "\n\n".join(filter(None, parts))


def _item(sentence: str) -> str:
    return f"  - {sentence}"


# --- the headline and the findings ----------------------------------------------------------------


def _headline(verdict: Verdict) -> str:
    word, compared = _WORDS[verdict.answer], verdict.comparisons
    if not compared:
        return (
            f"{word} There is no toolkit over MPI, Gloo or NCCL among these results to compare with parameter servers."
        )
    answered = [one for one in compared if one.answer != "cannot say"]
    if not answered:
        reasons = dict.fromkeys(_why_not(one, verdict.margin, contender(one.facets)) for one in compared)
        return " ".join([word, *(f"{reason[0].upper()}{reason[1:]}." for reason in list(reasons)[:2])])
    # Of these the one at the largest size, and there the one that differs most.
    wanted = _SHOWN.get(verdict.answer, "no difference")
    shown = max(
        (one for one in answered if one.answer == wanted),
        key=lambda one: (one.judged[-1].workers, abs(math.log(one.judged[-1].efficiency_ratio))),
    )
    where = f"On {shown.facets['system']} ({shown.facets['model']}, {shown.facets['data']})"
    parts = [word, f"{where} {_claim(shown, verdict.margin)}."]
    if len(compared) > 1:
        counts = {said: sum(one.answer == answer for one in compared) for answer, said in _COUNTED.items()}
        listed = ", ".join(f"{count} {said}" for said, count in counts.items() if count)
        parts.append(f"Of {len(compared)} contenders: {listed}.")
    return " ".join(parts)


def _finding(one: ComparedContender, margin: float) -> str:
    facets = one.facets
    prefix = "Control: " if facets["family"] == "collectives" else ""
    where = f"on {facets['system']} ({facets['model']}, {facets['data']}, batch {facets['batch_size']} per device)"
    if one.answer == "cannot say":
        return f"{prefix}{contender(facets)}, {where}: cannot say: {_why_not(one, margin, 'it')}."
    last = one.sizes[-1]
    rate = f"At {_size(last)} it trains {_ratio(last.throughput_ratio, last.throughput_interval)} as many img/s"
    if unjudged := " and ".join(_size(size) for size in one.sizes[1:] if size.p is None):
        rate += f"; nothing can be said of {unjudged}, measured without repeats"
    return f"{prefix}{one.answer}, {where}: {_claim(one, margin)}. {rate}."


def _claim(one: ComparedContender, margin: float) -> str:
    """What was found for a contender with an answer, without where."""
    name, last = contender(one.facets), one.judged[-1]
    keeps = (
        f"keeps {_ratio(last.efficiency_ratio, last.efficiency_interval)} the scaling efficiency of the best "
        f"parameter-server configuration (best of {len(last.servers.tried)}) on {_size(last)}"
    )
    relative = f"relative to {_size(one.sizes[0])}"
    if one.answer == "no difference":
        first = one.judged[0]
        sizes = f"at {_size(first)}" if first is last else f"at every size from {_size(first)} to {_size(last)}"
        return (
            f"{name} scales like parameter servers to within {100 * margin:g} %: {sizes} the interval of the ratio of "
            f"efficiencies lies within {1 - margin:g} and {1 + margin:g}; it {keeps}, {relative}"
        )
    if one.answer == "changes":
        return f"{name} scales {_phases(one)}; it {keeps}, {relative}"
    assert one.parts
    below, at = (next(size for size in one.sizes if size.workers == workers) for workers in one.parts)
    number = str(below.workers) if below.workers == below.nodes else _size(below)
    return f"{name} {keeps}, {relative}; they part between {number} and {_size(at)}"


def _phases(one: ComparedContender) -> str:
    """``worse up to 8 nodes, then better from 64 nodes on``."""
    different = [size for size in one.judged if size.direction]
    phases = [(direction, list(sizes)) for direction, sizes in groupby(different, key=lambda size: size.direction)]
    until_the_end = different[-1] is one.judged[-1]
    lines = [f"{direction} up to {_size(sizes[-1])}" for direction, sizes in phases]
    if until_the_end:
        direction, sizes = phases[-1]
        lines[-1] = f"{direction} from {_size(sizes[0])} on"
    else:
        lines.append("no difference can be told")
    return ", then ".join(lines)


def _why_not(one: ComparedContender, margin: float, name: str) -> str:
    """Why nothing can be said of a contender, called ``name`` in the sentence."""
    ratio = "its ratio of efficiencies" if name == "it" else f"{name}'s ratio of efficiencies"
    match one.reason:
        case "one size" if not one.sizes:
            return f"{name} and the parameter servers were not measured at a common size"
        case "one size":
            return f"{name} and the parameter servers have only {_size(one.sizes[0])} in common"
        case "other training":
            return f"{name} was only measured with {one.facets['training']}, which is another training"
        case "no spread":
            last = one.sizes[-1]
            kept = f"{100 * last.toolkit.efficiency:.1f} % against {100 * last.servers.efficiency:.1f} %"
            published = one.facets["origin"] == "published"
            why = "no repeats were published" if published else "there are no repeats"
            return (
                f"{ratio} is {last.efficiency_ratio:.3f} at {_size(last)} ({kept} relative to {_size(one.sizes[0])}), "
                f"but {why}, so nobody knows whether that is more than chance"
            )
        case "too wide":
            widest = max(one.judged, key=_width)
            had = min(len(point.best.sample.values) for size in one.judged for point in (size.toolkit, size.servers))
            needed = f"; at the noise seen an interval of ± {100 * margin:g} % takes {one.repeats} repeats"
            return (
                f"{ratio} is {_ratio(widest.efficiency_ratio, widest.efficiency_interval)} at {_size(widest)}, which "
                f"neither differs from 1 nor lies within 1 ± {100 * margin:g} %"
                f"{needed if one.repeats and one.repeats > had else ''}"
            )
        case _:
            return f"no parameter servers were measured like {name}: {_nearest(one)}"


def _width(size: AtSize) -> float:
    assert size.efficiency_interval
    return math.log(size.efficiency_interval[1] / size.efficiency_interval[0])


def _nearest(one: ComparedContender) -> str:
    if one.indication is None:
        return "there are none among these results"
    differs = one.indication.differs
    if "system" in differs:
        return f"there are none on {one.facets['system']}"
    if list(differs) == ["training"]:
        return f"they were only measured with {differs['training'][1]}, which is another training"
    return f"the nearest ones differ in {_differing(differs)}"


def _would_decide(one: ComparedContender) -> str:
    name = contender(one.facets)
    match one.reason:
        case "no spread":
            sizes = ", ".join(str(size.workers) for size in one.sizes)
            return f"at least 5 repeats of {name} and of the parameter servers on {sizes} workers (`--repeats 5`)"
        case "one size":
            return f"{name} and parameter servers on two or more common numbers of nodes"
        case "too wide":
            repeats = f"about {one.telling} repeats" if one.telling else "more repeats, or less noise"
            return f"{repeats} of {name} and of the parameter servers at each size, if the ratios stay as they are"
        case "no counterpart":
            terms = f"{one.facets['model']} on {one.facets['system']}"
            return f"parameter servers measured like {name}: {terms}, {one.facets['data']} data, with repeats"
        case "other training":
            return f"{name} without {one.facets['training']}"
        case _:
            return ""


# --- terms ----------------------------------------------------------------------------------------


def _term(name: str) -> str:
    return _TERMS.get(name, name)


def _against(values: tuple[Any, Any]) -> str:
    return " against ".join("not known" if value in ("", 0) else str(value) for value in values)


def _differing(differs: Mapping[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{_term(name)} ({_against(values)})" for name, values in differs.items())


def _equal(terms: Mapping[str, str]) -> str:
    return ", ".join(f"{_term(name)} {value}" for name, value in terms.items())


def _unequal(one: ComparedContender) -> str:
    if one.terms is None:
        return ""
    parts = []
    for name, values in one.terms.unequal.items():
        if name == "software":
            version = " version" if "framework" in one.terms.equal else ""
            parts.append(f"{_against(values)}: not the same framework{version}")
        elif name == "options":
            parts.append(f"each with its own options, tuned or not ({_against(values)})")
        elif name != "framework":  # its version says it
            parts.append(f"{_term(name)}: {_against(values)}")
    if one.terms.unknown:
        parts.append(f"not known: {', '.join(map(_term, one.terms.unknown))}")
    return f"{contender(one.facets)}: {'; '.join(parts)}" if parts else ""


def _indication(one: ComparedContender) -> str:
    nearest = one.indication
    if nearest is None or math.isnan(nearest.toolkit_efficiency):
        return ""
    versions = sorted({point.best.software for point in nearest.servers.points})
    return (
        f"{one.facets['model']} with {contender(one.facets)} keeps {100 * nearest.toolkit_efficiency:.1f} % at "
        f"{nearest.workers} workers relative to {nearest.base}, {nearest.servers.facets['model']} with parameter "
        f"servers of {' and '.join(versions)} {100 * nearest.servers_efficiency:.1f} %. "
        f"Not like for like: {_differing(nearest.differs)}"
    )


# --- parts of sentences ---------------------------------------------------------------------------


def contender(facets: Mapping[str, Any]) -> str:
    """``Horovod 0.28.1 on TensorFlow 2.16.1 over MPI``."""
    software, backend, transport = str(facets["software"]), str(facets["backend"]), facets["transport"]
    framework, _, own = software.partition(", ")
    over = f" over {_TRANSPORTS.get(transport, transport)}" if transport else ""
    # PyTorch, Caffe2 and Horovod's own tables name the backend already.
    if not own and backend in framework.lower():
        return f"{framework}{over}"
    return f"{own or backend}{f' on {framework}' if framework else ''}{over}"


def _size(one: AtSize) -> str:
    """``128 nodes``, or ``128 workers (16 nodes)``."""
    if one.workers == one.nodes:
        return plural(one.nodes, "node")
    return f"{one.workers} workers" + (f" ({plural(one.nodes, 'node')})" if one.nodes else "")


def _ratio(value: float, limits: Interval | None) -> str:
    return f"{value:.2f} × {interval(limits)}".rstrip()


# --- the table and JSON ---------------------------------------------------------------------------


def _rows(one: ComparedContender) -> list[tuple[str, ...]]:
    def ratio(value: float, limits: Interval | None) -> str:
        return f"{value:.3f} {interval(limits, 3)}".rstrip()

    where = f"{one.facets['system']}, {one.facets['model']}, {one.facets['data']}"
    published = one.facets["origin"] == "published"  # a publication names its best one only
    return [
        (
            *(contender(one.facets), where, str(size.workers)),
            *(f"{size.toolkit.img_per_s:.2f}", f"{100 * size.toolkit.efficiency:.1f} %"),
            *(f"{size.servers.img_per_s:.2f}", f"{100 * size.servers.efficiency:.1f} %"),
            "" if published else str(len(size.servers.tried)),
            ratio(size.efficiency_ratio, size.efficiency_interval) if size is not one.sizes[0] else "",
            ratio(size.throughput_ratio, size.throughput_interval),
            mark(size, size is one.sizes[0]),
        )
        for size in one.sizes
    ]


def mark(size: AtSize, first: bool) -> str:
    """How the toolkit differs at this size, in a word or two."""
    if first:
        return "(baseline)"
    if size.p is None:
        return "no repeats"
    return size.direction or "not significant"


def as_json(verdict: Verdict) -> dict[str, Any]:
    """The verdict for scripts: figures as they are, and the sentences."""
    said = sentences(verdict)
    return {
        "answer": verdict.answer,
        "margin": verdict.margin,
        "headline": said.headline,
        "comparisons": [_comparison(one, verdict.margin) for one in (*verdict.comparisons, *verdict.controls)],
        "left_out": [vars(one) for one in verdict.left_out],
        "would_decide": list(said.would_decide),
    }


def _comparison(one: ComparedContender, margin: float) -> dict[str, Any]:
    terms, indication = one.terms, one.indication
    return {
        **one.facets,
        "contender": contender(one.facets),
        "answer": one.answer,
        "reason": one.reason or None,
        "finding": _finding(one, margin),
        "base_workers": one.base or None,
        "parts_between_workers": one.parts,
        "repeats_for_margin": one.repeats,
        "repeats_to_tell": one.telling,
        "sizes": [_at_size(size) for size in one.sizes],
        "equal": dict(terms.equal) if terms else {},
        "unequal": dict(terms.unequal) if terms else {},
        "unknown": list(terms.unknown) if terms else [],
        "indication": _indication(one) or None,
        "differs": dict(indication.differs) if indication else {},
    }


def _at_size(one: AtSize) -> dict[str, Any]:
    return {
        "workers": one.workers,
        "nodes": one.nodes,
        "toolkit": _side(one.toolkit),
        "parameter_servers": _side(one.servers),
        "efficiency_ratio": one.efficiency_ratio,
        "efficiency_ratio_ci95": one.efficiency_interval,
        "img_per_s_ratio": one.throughput_ratio,
        "img_per_s_ratio_ci95": one.throughput_interval,
        "p": one.p,
        "significant": one.significant,
    }


def _side(point: CurvePoint) -> dict[str, Any]:
    best = point.best
    return {
        "img_per_s": point.img_per_s,
        "efficiency": point.efficiency,
        "backend": best.backend,
        "ps": best.ps,
        "best_of": len(point.tried),
        "repeats": len(best.sample.values) or None,
    }
