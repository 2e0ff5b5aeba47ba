"""The verdict in words: a headline, what was found for each contender, a table, and what the answer does not cover.

Pure. ``told`` gives structured text for any page, ``text`` lays it out for a terminal, ``as_json`` is for scripts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.analysis.scaling import Interval, Point
from harness.analysis.verdict import AtSize, Comparison, Overall, Verdict
from harness.core.text import interval, plural
from harness.report.text.table import table

HEADINGS = (
    *("contender", "where", "workers", "img/s", "efficiency", "ps img/s", "ps efficiency", "best of"),
    *("efficiency ratio", "img/s ratio", ""),
)
_RIGHT = {2, 3, 4, 5, 6, 7}
_WORDS: dict[Overall, str] = {
    "yes": "Yes.",
    "no": "No.",
    "some": "Some of them.",
    "depends": "It depends on the size.",
    "no difference": "No difference.",
    "cannot say": "Cannot say.",
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
class Told:
    """The verdict as text. Every part but ``headline`` may be empty; ``rows`` go with ``headings``."""

    question: str
    headline: str
    findings: tuple[str, ...]
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    equal: tuple[str, ...]
    unequal: tuple[str, ...]
    indications: tuple[str, ...]
    left_out: tuple[str, ...]
    would_decide: tuple[str, ...]


QUESTION = "Do MPI-based toolkits scale better than parameter servers?"


def told(found: Verdict) -> Told:
    """The verdict's parts, each as sentences or rows."""
    every = (*found.comparisons, *found.controls)
    decide = [needed for one in every if (needed := _would_decide(one, found.margin))]
    return Told(
        question=QUESTION,
        headline=_headline(found),
        findings=tuple(_finding(one, found.margin) for one in every),
        headings=HEADINGS,
        rows=tuple(row for one in every for row in _rows(one)),
        equal=tuple(dict.fromkeys(_held(one.terms.equal) for one in every if one.terms)),
        unequal=tuple(text for one in every if (text := _unequal(one))),
        indications=tuple(text for one in every if (text := _indicated(one))),
        left_out=tuple(f"{plural(one.runs, 'run')} of {one.what}: {one.why}" for one in found.left_out),
        would_decide=tuple(dict.fromkeys(decide)),
    )


def text(found: Verdict) -> str:
    """The verdict for a terminal."""
    parts = told(found)
    sections = [parts.headline, _listed("", parts.findings)]
    if parts.rows:
        sections.append(table([parts.headings, *parts.rows], right=_RIGHT))
    titles = {
        "equal on both sides": parts.equal,
        "not equal": parts.unequal,
        "an indication only, not like for like": parts.indications,
        "left out": parts.left_out,
        "what would decide it": parts.would_decide,
    }
    sections += [_listed(title, lines) for title, lines in titles.items()]
    return "\n\n".join(section for section in sections if section)


def _listed(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return "\n".join([*([f"{title}:"] if title else []), *(f"  - {line}" for line in lines)])


# --- the headline and the findings ----------------------------------------------------------------


def _headline(found: Verdict) -> str:
    word = _WORDS[found.answer]
    if not found.comparisons:
        return (
            f"{word} There is no toolkit over MPI, Gloo or NCCL among these results to compare with parameter servers."
        )
    said = [one for one in found.comparisons if one.answer != "cannot say"]
    if not said:
        reasons = dict.fromkeys(_why_not(one, found.margin, contender(one.facets)) for one in found.comparisons)
        return f"{word} {' '.join(f'{reason[0].upper()}{reason[1:]}.' for reason in list(reasons)[:2])}"
    # One contender's figures stand for all: those at the largest size, and there the ones that differ most.
    wanted = {"yes": "better", "some": "better", "depends": "changes", "no": "worse"}.get(found.answer, "no difference")
    shown = max((one for one in said if one.answer == wanted), key=lambda one: _weight(one.judged[-1]))
    where = f"On {shown.facets['system']} ({shown.facets['model']}, {shown.facets['data']})"
    parts = [word, f"{where} {_claim(shown, found.margin)}."]
    if len(found.comparisons) > 1:
        counts = [(answer, sum(one.answer == answer for one in found.comparisons)) for answer in _SAID]
        listed = ", ".join(f"{count} {_SAID[answer]}" for answer, count in counts if count)
        parts.append(f"Of {len(found.comparisons)} contenders: {listed}.")
    return " ".join(parts)


_SAID = {
    "better": "better",
    "worse": "worse",
    "no difference": "no different",
    "changes": "better or worse depending on the size",
    "cannot say": "undecided",
}


def _weight(size: AtSize) -> tuple[int, float]:
    return size.workers, abs(math.log(size.efficiency_ratio))


def _finding(one: Comparison, margin: float) -> str:
    facets = one.facets
    prefix = "Control: " if facets["family"] == "collectives" else ""
    where = f"on {facets['system']} ({facets['model']}, {facets['data']}, batch {facets['batch_size']} per device)"
    if one.answer == "cannot say":
        return f"{prefix}{contender(facets)}, {where}: cannot say: {_why_not(one, margin, 'it')}."
    last = one.sizes[-1]
    rate = f"At {_size(last)} it trains {_ratio(last.throughput_ratio, last.throughput_interval)} as many img/s"
    return f"{prefix}{one.answer}, {where}: {_claim(one, margin)}. {rate}{_once(one)}."


def _once(one: Comparison) -> str:
    """Sizes that could not be judged."""
    unjudged = [_size(size) for size in one.sizes[1:] if size.p is None]
    return f"; nothing can be said of {' and '.join(unjudged)}, measured without repeats" if unjudged else ""


def _claim(one: Comparison, margin: float) -> str:
    """What was found for a contender with an answer, without where."""
    name, last = contender(one.facets), one.judged[-1]
    servers = f"the scaling efficiency of the best parameter-server configuration (best of {len(last.servers.tried)})"
    keeps = f"keeps {_ratio(last.efficiency_ratio, last.efficiency_interval)} {servers} on {_size(last)}"
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
    apart = f"between {_number(below)} and {_size(at)}"
    return f"{name} {keeps}, {relative}; they part {apart}"


def _phases(one: Comparison) -> str:
    """``worse up to 8 nodes, then better from 64 nodes on``."""
    told = [size for size in one.judged if size.direction]
    phases: list[list[AtSize]] = []
    for size in told:
        if phases and phases[-1][0].direction == size.direction:
            phases[-1].append(size)
        else:
            phases.append([size])
    lines = []
    for phase in phases:
        if phase is phases[-1] and phase[-1] is one.judged[-1]:
            lines.append(f"{phase[0].direction} from {_size(phase[0])} on")
        else:
            lines.append(f"{phase[0].direction} up to {_size(phase[-1])}")
    if phases[-1][-1] is not one.judged[-1]:
        lines.append("no difference can be told")
    return ", then ".join(lines)


def _why_not(one: Comparison, margin: float, name: str) -> str:
    """Why nothing can be said of a contender, called ``name`` in the sentence."""
    published = one.facets["origin"] == "published"
    ratio = "its ratio of efficiencies" if name == "it" else f"{name}'s ratio of efficiencies"
    if one.reason == "one size":
        if not one.sizes:
            return f"{name} and the parameter servers were not measured at a common size"
        return f"{name} and the parameter servers have only {_size(one.sizes[0])} in common"
    if one.reason == "other training":
        return f"{name} was only measured with {one.facets['training']}, which is another training"
    if one.reason == "no spread":
        last = one.sizes[-1]
        why = "no repeats were published" if published else "there are no repeats"
        return (
            f"{ratio} is {last.efficiency_ratio:.3f} at {_size(last)} ({_kept(last)} "
            f"relative to {_size(one.sizes[0])}), but {why}, so nobody knows whether that is more than chance"
        )
    if one.reason == "too wide":
        widest = max(one.judged, key=_width)
        had = min(len(point.best.sample.values) for size in one.judged for point in (size.toolkit, size.servers))
        needed = ""
        if one.repeats and one.repeats > had:
            needed = f"; at the noise seen an interval of ± {100 * margin:g} % takes {one.repeats} repeats"
        return (
            f"{ratio} is {_ratio(widest.efficiency_ratio, widest.efficiency_interval)} at "
            f"{_size(widest)}, which neither differs from 1 nor lies within 1 ± {100 * margin:g} %{needed}"
        )
    return f"no parameter servers were measured like {name}: {_nearest(one)}"


def _width(size: AtSize) -> float:
    assert size.efficiency_interval
    return math.log(size.efficiency_interval[1] / size.efficiency_interval[0])


def _nearest(one: Comparison) -> str:
    if one.indication is None:
        return "there are none among these results"
    differs = one.indication.differs
    if "system" in differs:
        return f"there are none on {one.facets['system']}"
    if "training" in differs and len(differs) == 1:
        return f"they were only measured with {differs['training'][1]}, which is another training"
    return f"the nearest ones differ in {_differing(differs)}"


def _differing(differs: Mapping[str, tuple[Any, Any]]) -> str:
    return ", ".join(
        f"{_TERMS.get(name, name)} ({_known(one)} against {_known(other)})" for name, (one, other) in differs.items()
    )


def _known(value: Any) -> str:
    return str(value) if value not in ("", 0) else "not known"


def _indicated(one: Comparison) -> str:
    found = one.indication
    if found is None or math.isnan(found.toolkit_efficiency):
        return ""
    theirs = found.servers.facets
    versions = sorted({point.best.software for point in found.servers.points})
    return (
        f"{one.facets['model']} with {contender(one.facets)} keeps {100 * found.toolkit_efficiency:.1f} % at "
        f"{found.workers} workers relative to {found.base}, {theirs['model']} with parameter servers of "
        f"{' and '.join(versions)} {100 * found.servers_efficiency:.1f} %. "
        f"Not like for like: {_differing(found.differs)}"
    )


# --- parts of sentences ---------------------------------------------------------------------------


def contender(facets: Mapping[str, Any]) -> str:
    """``Horovod 0.28.1 on TensorFlow 2.16.1 over MPI``."""
    software, backend = str(facets["software"]), str(facets["backend"])
    framework, _, own = software.partition(", ")
    transport = facets["transport"]
    over = f" over {_TRANSPORTS.get(transport, transport)}" if transport else ""
    # PyTorch, Caffe2 and Horovod's own tables name the backend already.
    if not own and backend in framework.lower():
        return f"{framework}{over}"
    return f"{own or backend} on {framework}{over}" if framework else f"{own or backend}{over}"


def _size(one: AtSize) -> str:
    """``128 nodes``, or ``128 workers (16 nodes)``."""
    if one.workers == one.nodes:
        return plural(one.nodes, "node")
    return f"{one.workers} workers" + (f" ({plural(one.nodes, 'node')})" if one.nodes else "")


def _number(one: AtSize) -> str:
    return f"{one.workers}" if one.workers == one.nodes else _size(one)


def _ratio(value: float, limits: Interval | None) -> str:
    return f"{value:.2f} × {interval(limits)}".rstrip() if limits else f"{value:.2f} ×"


def _kept(one: AtSize) -> str:
    return f"{100 * one.toolkit.efficiency:.1f} % against {100 * one.servers.efficiency:.1f} %"


def _held(equal: Mapping[str, str]) -> str:
    return ", ".join(f"{_TERMS.get(name, name)} {value}" for name, value in equal.items())


def _unequal(one: Comparison) -> str:
    if one.terms is None:
        return ""
    told = []
    for name, (toolkit, servers) in one.terms.unequal.items():
        if name == "framework":
            continue  # its version says it
        what = f"{_known(toolkit)} against {_known(servers)}"
        if name == "software":
            same = "framework" in one.terms.equal
            told.append(f"{what}: not the same framework{' version' if same else ''}")
        elif name == "options":
            told.append(f"each with its own options, tuned or not ({what})")
        else:
            told.append(f"{_TERMS.get(name, name)}: {what}")
    if one.terms.unknown:
        told.append(f"not known: {', '.join(_TERMS.get(name, name) for name in one.terms.unknown)}")
    return f"{contender(one.facets)}: {'; '.join(told)}" if told else ""


def _would_decide(one: Comparison, margin: float) -> str:
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


# --- the table and JSON ---------------------------------------------------------------------------


def _rows(one: Comparison) -> list[tuple[str, ...]]:
    where = f"{one.facets['system']}, {one.facets['model']}, {one.facets['data']}"
    rows: list[tuple[str, ...]] = []
    for number, size in enumerate(one.sizes):
        ratio = f"{size.efficiency_ratio:.3f} {interval(size.efficiency_interval, 3)}".rstrip()
        rows.append(
            (
                contender(one.facets),
                where,
                str(size.workers),
                f"{size.toolkit.img_per_s:.2f}",
                f"{100 * size.toolkit.efficiency:.1f} %",
                f"{size.servers.img_per_s:.2f}",
                f"{100 * size.servers.efficiency:.1f} %",
                # A publication names its best one only.
                "" if one.facets["origin"] == "published" else str(len(size.servers.tried)),
                ratio if number else "",
                f"{size.throughput_ratio:.3f} {interval(size.throughput_interval, 3)}".rstrip(),
                mark(size, number == 0),
            )
        )
    return rows


def mark(size: AtSize, first: bool) -> str:
    """How the toolkit differs at this size, in a word or two."""
    if first:
        return "(baseline)"
    if size.p is None:
        return "no repeats"
    return size.direction or "not significant"


def as_json(found: Verdict) -> dict[str, Any]:
    """The verdict for scripts: figures as they are, and the sentences."""
    parts = told(found)
    return {
        "answer": found.answer,
        "margin": found.margin,
        "headline": parts.headline,
        "comparisons": [_comparison(one, found.margin) for one in (*found.comparisons, *found.controls)],
        "left_out": [vars(one) for one in found.left_out],
        "would_decide": list(parts.would_decide),
    }


def _comparison(one: Comparison, margin: float) -> dict[str, Any]:
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
        "indication": _indicated(one) or None,
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


def _side(point: Point) -> dict[str, Any]:
    best = point.best
    return {
        "img_per_s": point.img_per_s,
        "efficiency": point.efficiency,
        "backend": best.backend,
        "ps": best.ps,
        "best_of": len(point.tried),
        "repeats": len(best.sample.values) or None,
    }
