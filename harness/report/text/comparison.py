"""Results as a table with one line per run or as the tables of 2017, the points of scaling curves, and stragglers.

Made from rows of ``results.load``; ``stragglers`` reads the records of the runs that it shows as well.
"""

import json
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas

from harness.analysis import scaling
from harness.analysis.scaling import Configuration, Curve, CurvePoint, Overhead
from harness.core.statistics import scaling_efficiency
from harness.core.text import interval, percent, plural
from harness.errors import InvalidInput
from harness.report.text.table import table

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
    **{"software": "{}", "image_size": "{} px", "batch_size": "batch {}", "precision": "{}", "threads": "threads={}"},
    **{"warmup_steps": "{} warm-up steps", "steps": "{} steps", "training": "{}"},
}


def runs(frame: pandas.DataFrame, baseline: int | None = None) -> str:
    """The table of runs, those without a number included, in which baselines of efficiencies are marked.

    Efficiency is relative to the best configuration at the curve's smallest number of workers, or at ``baseline`` workers.
    Raises InvalidInput if no curve has that size.
    """
    curves = scaling.curves(with_number(frame, baseline), baseline=baseline or 0)
    parts = [_runs(frame, _baselines(frame, curves))]
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
        measured = ", ".join(map(str, sorted(sizes))) or "none"
        raise InvalidInput(
            f"--baseline {baseline}: no run on {plural(baseline, 'worker')} has a number; runs are on {measured}"
        )
    return completed


_Base = tuple[CurvePoint, bool]


def _baselines(frame: pandas.DataFrame, curves: Sequence[Curve]) -> dict[int, _Base]:
    """For each row its curve's baseline, and whether it is one of the runs that make it.

    Curves of several sizes come first, of those weak scaling. Runs on one node may begin several curves: then that of their
    own number of devices per node counts.
    """
    per_node = frame["devices_per_node"].to_dict()
    of_any_curve: dict[int, _Base] = {}
    of_own_curve: dict[int, _Base] = {}
    for curve in sorted(curves, key=lambda curve: (len(curve.points) == 1, curve.scaling == "strong")):
        if curve.baseline is None:
            continue
        base_rows = set(curve.baseline.best.rows)
        for row in (row for point in curve.points for tried in point.tried for row in tried.rows):
            own = per_node[row] == curve.facets["devices_per_node"]
            (of_own_curve if own else of_any_curve).setdefault(row, (curve.baseline, row in base_rows))
    return of_any_curve | of_own_curve


def _runs(frame: pandas.DataFrame, bases: Mapping[int, _Base]) -> str:
    several = frame.groupby(["backend", "framework", "transport"], dropna=False)[list(_HOW)].nunique().max()
    apart = {name: form for name, form in _WHERE.items() if frame[name].nunique() > 1}
    apart |= {name: form for name, form in _HOW.items() if several[name] > 1}
    searched = set(frame.loc[frame["ps"] > 1, "backend"])
    sync = {text: str(json.loads(text or "{}").get("sync", "")) for text in frame["options"].unique()}
    lines = []
    run: Any
    for run in frame.astype(object).itertuples():  # texts of Arrow are slow to get one by one
        who = run.backend, run.framework, run.transport
        what = run.model, run.device, "" if run.data == "synthetic" else "images", sync[run.options]
        differing = {name: getattr(run, name) for name in apart}
        shown = [apart[name].format(value) for name, value in differing.items() if value not in ("", 0)]
        servers = f"ps={run.ps}" if run.backend in searched and run.ps else ""
        nodes = str(run.nodes) if run.nodes else f"({plural(run.workers, 'worker')})"  # all that some publications say
        if run.nodes and run.devices_per_node > 1:
            nodes += f" × {run.workers // run.nodes}"
        # On one machine the usual number of threads changes with that of workers, which does not make it another curve.
        kind = *who, *what, *(value for name, value in differing.items() if name != "threads")
        order = *kind, run.nodes, run.workers, run.ps, run.threads, run.Index
        configuration = " ".join(filter(None, (*what, *shown, servers)))
        lines.append((order, (*who, configuration, nodes, *_figures(run, bases.get(run.Index)))))
    return table([HEADINGS, *(cells for _, cells in sorted(lines))], right={4, 5, 6, 7})


def _figures(run: Any, base: _Base | None) -> tuple[str, str, str, str]:
    if run.status != "completed":
        return run.status, "", "", run.reason.split("\n")[0]
    if math.isnan(run.img_per_s):
        return "", "", "", f"{percent(run.published_efficiency, None, 1)} (published)"
    efficiency = ""
    if base is not None:
        point, is_base = base
        share = scaling_efficiency(run.img_per_s, run.workers, point.img_per_s, point.workers)
        efficiency = percent(share, None, 1) + (" (baseline)" if is_base else "")
    spread = "" if math.isnan(run.ci95) else f"{run.ci95:.2f}"
    sent = "" if math.isnan(run.sent_bytes_per_step) else f"{run.sent_bytes_per_step / 1e6:.1f}"
    return f"{run.img_per_s:.2f}", spread, sent, efficiency


_DATA = ("synthetic", "real")
_HEADINGS_2017 = (
    *("workers", "method", "PS", "best of", "img/s synthetic", "img/s real", "speedup"),
    *("efficiency synthetic", "efficiency real", "I/O overhead"),
)


def tables_of_2017(frame: pandas.DataFrame, baseline: int | None = None) -> str:
    """The tables of the CSCS internship report of 2017, with 95 % confidence intervals where they are known.

    Parameter servers are one contender with two strategies, of which the better one is named, as it was in 2017. I/O
    overhead is (synthetic − real) / synthetic. Efficiency is relative to each curve's smallest number of workers, or to
    ``baseline`` workers. Raises InvalidInput if no curve has that size.
    """
    measured = with_number(frame, baseline)
    measured = measured[measured["training"] == ""]
    servers = measured["family"] == "parameter_servers"
    curves = [
        *scaling.curves(measured[servers], by="family", baseline=baseline or 0),
        *scaling.curves(measured[~servers], by="contender", baseline=baseline or 0),
    ]
    weak = [curve for curve in curves if curve.scaling == "weak"]
    overheads = {id(curve): {each.workers: each for each in costs} for curve, costs in scaling.io_overheads(weak)}
    groups: dict[tuple[Any, ...], dict[str, Curve]] = defaultdict(dict)
    for curve in weak:
        groups[tuple(value for name, value in curve.facets.items() if name != "data")][curve.facets["data"]] = curve
    tables = []
    for group in groups.values():
        # Synthetic data with each kind of real data that there is: one table for cold caches, one for warm ones.
        synthetic = {data: curve for data, curve in group.items() if data == "synthetic"}
        pairs = [synthetic | {"real": curve} for data, curve in group.items() if data != "synthetic"]
        tables += [_table_of_2017(pair, overheads.get(id(pair.get("real")), {})) for pair in pairs or [synthetic]]
    return "\n\n".join(tables) or "no run with a number and the usual training"


def _table_of_2017(pair: Mapping[str, Curve], overheads: Mapping[int, Overhead]) -> str:
    synthetic, real = ({each.workers: each for each in pair[data].points} if data in pair else {} for data in _DATA)
    rows = []
    for workers in sorted({*synthetic, *real}):
        both = synthetic.get(workers), real.get(workers)
        points = [point for point in both if point]
        measured = [point for point in points if not math.isnan(point.img_per_s)]
        published = next(iter(pair.values())).facets["origin"] == "published"
        cost = overheads.get(workers)
        rows.append(
            (
                str(workers),
                _both(point.best.backend for point in points),
                _both(str(point.best.ps or "") for point in points),
                "" if published else _both(str(len(point.tried)) for point in points),
                *(
                    f"{each.img_per_s:.2f} {interval(each.interval)}".rstrip() if each in measured else ""
                    for each in both
                ),
                "" if math.isnan(points[0].speedup) else f"{points[0].speedup:.2f}",
                *("" if each is None else percent(each.efficiency, each.efficiency_interval, 2) for each in both),
                percent(cost.overhead, cost.interval, 2) if cost else "",
            )
        )
    used = [column for column in zip(_HEADINGS_2017, *rows, strict=True) if any(column[1:])]
    right = {number for number, column in enumerate(used) if column[0] != "method"}
    return f"{_title(pair)}\n{table(list(zip(*used, strict=True)), right)}"


def _title(pair: Mapping[str, Curve]) -> str:
    facets = next(iter(pair.values())).facets
    points = [point for curve in pair.values() for point in curve.points]
    software = " and ".join(sorted({point.best.software for point in points}))
    transports = "/".join(sorted({point.best.transport for point in points} - {""}))
    per_node = facets["devices_per_node"]
    real = pair["real"].facets["data"] if "real" in pair else "real"
    parts = (
        facets["system"],
        facets["model"],
        f"{facets.get('backend', 'parameter servers')} ({', '.join(filter(None, (software, transports)))})",
        f"batch {facets['batch_size']} per device" if facets["batch_size"] else "",
        f"{per_node} devices per node" if per_node > 1 else "",
        facets["precision"],
        f"{facets['steps']} steps" if facets["steps"] else "",
        real if real != "real" else "",
    )
    return " · ".join(filter(None, parts))


def _both(values: Iterable[str]) -> str:
    """The value with synthetic data, and that with real data if it is another."""
    return " / ".join(dict.fromkeys(values))


def points(frame: pandas.DataFrame, baseline: int | None = None) -> list[dict[str, Any]]:
    """The points of all curves, each with its curve's columns. A figure that is not known is None."""
    document = []
    for curve in scaling.curves(with_number(frame, baseline), baseline=baseline or 0):
        for point in curve.points:
            sample = point.best.sample
            figures = {
                "scaling": curve.scaling,
                **curve.facets,
                **{name: getattr(point, name) for name in ("workers", "nodes", "img_per_s", "speedup", "efficiency")},
                "img_per_s_ci95": point.interval,
                "median": statistics.median(sample.values) if sample.values else None,
                "stdev": sample.stdev,
                "repeats": len(sample.values) or None,
                "efficiency_ci95": point.efficiency_interval,
                "best": _configuration(point.best),
                "best_of": len(point.tried),
                "tried": [_configuration(each) | _known({"img_per_s": each.sample.mean}) for each in point.tried],
                "baseline_workers": curve.baseline.workers if curve.baseline else None,
                "baseline_img_per_s": curve.baseline.img_per_s if curve.baseline else None,
            }
            document.append(_known(figures))
    return document


def _configuration(tried: Configuration) -> dict[str, Any]:
    return {"backend": tried.backend, "ps": tried.ps, "options": dict(tried.options), "threads": tried.threads}


def _known(figures: dict[str, Any]) -> dict[str, Any]:
    """``figures`` with None for NaN, which JSON does not have."""
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in figures.items()}


def stragglers(frame: pandas.DataFrame) -> str:
    """Runs with a rank that is much slower than the median one, and hosts that such ranks were on more than once."""
    from harness.records import measurement

    slow = frame[frame["slowest_over_median"] > STRAGGLER].sort_values("slowest_over_median", ascending=False)
    if slow.empty:
        return f"no run has a rank slower than {STRAGGLER} × the median rank"
    rows: list[tuple[str, ...]] = [("run", "slowest rank", "host", "× the median rank")]
    runs_on: Counter[str] = Counter()
    run: Any
    for run in slow.head(_SHOWN).itertuples():
        ranks = (rank for repeat in measurement.read(Path(run.source)).repeats for rank in repeat.ranks)
        hosts = sorted({rank.host for rank in ranks if rank.rank == run.slowest_rank})
        runs_on.update(hosts)
        rows.append((run.id, str(run.slowest_rank), ", ".join(hosts), f"{run.slowest_over_median:.2f}"))
    parts = [f"runs with a rank slower than {STRAGGLER} × the median rank:", table(rows, right={1, 3})]
    if len(slow) > _SHOWN:
        parts.append(f"and {plural(len(slow) - _SHOWN, 'run')} more, less slow")
    if often := [f"{host} ({count} runs)" for host, count in runs_on.most_common() if count > 1]:
        parts.append(f"slowest more than once: {', '.join(often)}")
    return "\n".join(parts)
