"""Results as a table with one line per run, the points of scaling curves for scripts, and stragglers.

Pure but for ``stragglers``, which reads the records it names. Everything else is made from rows of ``results.load``.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.analysis import scaling
from harness.analysis.scaling import Configuration, Curve, CurvePoint
from harness.core.statistics import scaling_efficiency
from harness.core.text import interval, percent, plural
from harness.errors import InvalidInput
from harness.report.text.table import table

if TYPE_CHECKING:
    import pandas

HEADINGS = (
    *("backend", "framework", "transport", "configuration", "nodes"),
    *("img/s", "± 95 % CI", "MB sent/step", "scaling efficiency"),
)
STRAGGLER = 1.1  # a rank that takes so many times the median rank's time is worth a look
_SHOWN = 20  # stragglers
# What else tells runs apart, and how it is written. It is named only where a table holds several systems or origins, or
# several versions, sizes and so on of one backend, framework and transport.
_WHERE = {"system": "{}", "origin": "{}"}
_HOW = {
    "software": "{}",
    "image_size": "{} px",
    "batch_size": "batch {}",
    "precision": "{}",
    "threads": "threads={}",
    "warmup_steps": "{} warm-up steps",
    "steps": "{} steps",
    "training": "{}",
}


def runs(frame: pandas.DataFrame, baseline: int | None = None) -> str:
    """The table of runs, those without a number included, and what their efficiencies are relative to.

    Efficiency is relative to the best configuration at the curve's smallest number of workers, or at ``baseline`` workers.
    Raises InvalidInput if no curve has that size.
    """
    curves = scaling.curves(with_number(frame, baseline), baseline=baseline or 0)
    weak, strong = ([curve for curve in curves if curve.scaling == scaling_] for scaling_ in ("weak", "strong"))
    parts = [_runs(frame, _related(frame, weak, strong))]
    if baseline is not None:
        parts.append("\n".join(["scaling efficiency is relative to:", *map(_baseline, weak)]))
    if strong:
        parts.append(_strong(strong))
    if slow := int((frame["slowest_over_median"] > STRAGGLER).sum()):
        parts.append(
            f"{plural(slow, 'run')} with a rank slower than {STRAGGLER} × the median rank: see `harness table --stragglers`"
        )
    return "\n\n".join(parts)


def with_number(frame: pandas.DataFrame, baseline: int | None) -> pandas.DataFrame:
    """The runs that have a number. Raises InvalidInput if none of them is on ``baseline`` workers."""
    completed = frame[frame["status"] == "completed"]
    sizes = set(completed.loc[completed["img_per_s"].notna(), "workers"])
    if baseline is not None and baseline not in sizes:
        there = ", ".join(str(size) for size in sorted(sizes)) or "none"
        raise InvalidInput(
            f"--baseline {baseline}: no run on {plural(baseline, 'worker')} has a number; runs are on {there}"
        )
    return completed


# --- one line per run -----------------------------------------------------------------------------

_Base = tuple[CurvePoint, bool]


def _related(frame: pandas.DataFrame, weak: Sequence[Curve], strong: Sequence[Curve]) -> dict[int, _Base]:
    """For each row its weak-scaling curve's baseline, and whether it is one of the runs that make it.

    Runs on one node may begin several curves: then that of their own number of devices per node counts. Sizes of a
    strong-scaling curve that are alone in weak scaling have no efficiency here.
    """
    strongly = {row for curve in strong for row in _rows(curve)}
    per_node = frame["devices_per_node"].to_dict()
    related: dict[int, _Base] = {}
    own: dict[int, _Base] = {}
    for curve in weak:
        if curve.baseline is None or (len(curve.points) == 1 and strongly.issuperset(_rows(curve))):
            continue
        base = set(curve.baseline.best.rows)
        for row in _rows(curve):
            mine = per_node[row] == curve.facets["devices_per_node"]
            (own if mine else related).setdefault(row, (curve.baseline, row in base))
    return related | own


def _rows(curve: Curve) -> list[int]:
    return [row for point in curve.points for one in point.tried for row in one.rows]


def _runs(frame: pandas.DataFrame, bases: Mapping[int, _Base]) -> str:
    several = frame.groupby(["backend", "framework", "transport"], dropna=False)[list(_HOW)].nunique().max()
    apart = {name: form for name, form in _WHERE.items() if frame[name].nunique() > 1}
    apart |= {name: form for name, form in _HOW.items() if several[name] > 1}
    searched = set(frame.loc[frame["ps"] > 1, "backend"].unique())
    options = {text: str(json.loads(text or "{}").get("sync", "")) for text in frame["options"].unique()}
    lines = []
    for position, row in _records(frame):
        first = ["" if row["data"] == "synthetic" else "images", options[row["options"]]]
        told = [form.format(row[name]) for name, form in apart.items() if row[name] not in ("", 0)]
        configuration = (row["model"], row["device"], *first)
        key = (row["backend"], row["framework"], row["transport"], *configuration)
        servers = f"ps={row['ps']}" if row["backend"] in searched and row["ps"] else ""
        who = (
            *(row["backend"], row["framework"], row["transport"]),
            " ".join(part for part in (*configuration, *told, servers) if part),
            _nodes(row),
        )
        # On one machine the usual number of threads changes with that of workers, which does not make it another curve.
        order = (*key, *(row[name] for name in apart if name != "threads"))
        order += (row["nodes"], row["workers"], row["ps"], row["threads"], position)
        lines.append((order, (*who, *_figures(row, bases.get(position)))))
    lines.sort(key=lambda line: line[0])
    return table([HEADINGS, *(cells for _, cells in lines)], right={4, 5, 6, 7})


# What a line is made of, besides what tells runs apart.
_COLUMNS = (
    *("status", "reason", "backend", "framework", "transport", "model", "device", "data", "options"),
    *("nodes", "devices_per_node", "workers", "ps", "img_per_s", "ci95", "sent_bytes_per_step", "published_efficiency"),
)


def _records(frame: pandas.DataFrame) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows as dictionaries by column, a few times as fast as ``DataFrame.to_dict``."""
    names = (*_COLUMNS, *_WHERE, *_HOW)
    for position, values in zip(
        frame.index.tolist(), zip(*(frame[name].tolist() for name in names), strict=True), strict=True
    ):
        yield position, dict(zip(names, values, strict=True))


def _nodes(row: Mapping[Any, Any]) -> str:
    if not row["nodes"]:
        return f"({plural(row['workers'], 'worker')})"  # a publication that says no more
    several = row["devices_per_node"] > 1
    return str(row["nodes"]) + (f" × {row['workers'] // row['nodes']}" if several else "")


def _figures(row: Mapping[Any, Any], base: _Base | None) -> tuple[str, str, str, str]:
    if row["status"] != "completed":
        return row["status"], "", "", (row["reason"].splitlines() or [""])[0]
    if math.isnan(row["img_per_s"]):
        return "", "", "", f"{100 * row['published_efficiency']:.1f} % (published)"
    efficiency = ""
    if base is not None:
        point, is_base = base
        value = scaling_efficiency(row["img_per_s"], row["workers"], point.img_per_s, point.workers)
        efficiency = f"{100 * value:.1f} %" + (" (baseline)" if is_base else "")
    interval_ = "" if math.isnan(row["ci95"]) else f"{row['ci95']:.2f}"
    sent = "" if math.isnan(row["sent_bytes_per_step"]) else f"{row['sent_bytes_per_step'] / 1e6:.1f}"
    return f"{row['img_per_s']:.2f}", interval_, sent, efficiency


def _baseline(curve: Curve) -> str:
    """What the efficiencies of a curve are relative to."""
    base = curve.baseline
    names = ("backend", "software", "transport", "model", "data", "system")
    title = [str(curve.facets[name]) for name in names if curve.facets.get(name)]
    if batch := curve.facets.get("batch_size", 0):
        title.append(f"batch {batch} per device")
    if base is None:
        return f"  no run on that many workers of {', '.join(title)}"
    best = f" (best of {len(base.tried)})" if len(base.tried) > 1 else ""
    return f"  {plural(base.workers, 'worker')}, {base.img_per_s:.2f} img/s{best}, of {', '.join(title)}"


def _strong(curves: Sequence[Curve]) -> str:
    rows: list[tuple[str, ...]] = [
        ("backend", "software", "transport", "configuration", "workers", "img/s", "95 % CI", "speedup", "efficiency")
    ]
    for curve in curves:
        facets = curve.facets
        who = tuple(str(facets[name]) for name in ("backend", "software", "transport"))
        what = f"{facets['model']} {facets['device']} global batch {facets['global_batch']}"
        for point in curve.points:
            speedup = "" if math.isnan(point.speedup) else f"{point.speedup:.2f}"
            efficiency = percent(point.efficiency, None, 1) + (" (baseline)" if point is curve.baseline else "")
            rate = f"{point.img_per_s:.2f}", interval(point.interval)
            rows.append((*who, f"{what} {point.best.label}".rstrip(), str(point.workers), *rate, speedup, efficiency))
    return f"strong scaling (the global batch is constant):\n{table(rows, right={4, 5, 7})}"


# --- points for scripts ---------------------------------------------------------------------------


def points(frame: pandas.DataFrame, baseline: int | None = None) -> list[dict[str, Any]]:
    """The points of all curves, each with its curve's columns. A figure that is not known is None."""
    return [
        {
            "scaling": curve.scaling,
            **curve.facets,
            **_point(point),
            "baseline_workers": curve.baseline.workers if curve.baseline else None,
            "baseline_img_per_s": curve.baseline.img_per_s if curve.baseline else None,
        }
        for curve in scaling.curves(with_number(frame, baseline), baseline=baseline or 0)
        for point in curve.points
    ]


def _point(point: CurvePoint) -> dict[str, Any]:
    sample = point.best.sample
    return {
        "workers": point.workers,
        "nodes": point.nodes,
        "img_per_s": _or_none(point.img_per_s),
        "img_per_s_ci95": point.interval,
        "median": sample.median,
        "stdev": sample.stdev,
        "repeats": len(sample.values) or None,
        "speedup": _or_none(point.speedup),
        "efficiency": _or_none(point.efficiency),
        "efficiency_ci95": point.efficiency_interval,
        "best": _configuration(point.best),
        "best_of": len(point.tried),
        "tried": [_configuration(one) | {"img_per_s": _or_none(one.sample.mean)} for one in point.tried],
    }


def _configuration(one: Configuration) -> dict[str, Any]:
    return {"backend": one.backend, "ps": one.ps, "options": dict(one.options), "threads": one.threads}


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


# --- stragglers -----------------------------------------------------------------------------------


def stragglers(frame: pandas.DataFrame) -> str:
    """Runs with a rank that is much slower than the median one, and hosts that such ranks were on more than once.

    Reads the records of the runs that it shows, as rows do not hold hosts.
    """
    from harness.records import measurement

    slow = frame[frame["slowest_over_median"] > STRAGGLER].sort_values("slowest_over_median", ascending=False)
    if slow.empty:
        return f"no run has a rank slower than {STRAGGLER} × the median rank"
    rows: list[tuple[str, ...]] = [("run", "slowest rank", "host", "× the median rank")]
    on: Counter[str] = Counter()
    for row in slow.head(_SHOWN).to_dict("records"):
        repeats = measurement.read(Path(row["source"])).repeats
        hosts = sorted({one.host for repeat in repeats for one in repeat.ranks if one.rank == row["slowest_rank"]})
        on.update(hosts)
        rows.append((row["id"], str(row["slowest_rank"]), ", ".join(hosts), f"{row['slowest_over_median']:.2f}"))
    parts = [f"runs with a rank slower than {STRAGGLER} × the median rank:", table(rows, right={1, 3})]
    if len(slow) > _SHOWN:
        parts.append(f"and {plural(len(slow) - _SHOWN, 'run')} more, less slow")
    if often := [f"{host} ({count} runs)" for host, count in on.most_common() if count > 1]:
        parts.append(f"slowest more than once: {', '.join(often)}")
    return "\n".join(parts)
