"""What kernels were measured to do, as a DataFrame: a row for each size of each run, apart from all img/s.

Sources are those of ``sources.py``; the records are ``kernel.json``. docs/kernels.md derives the figures.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import InvalidInput
from harness.kernels.kernel import FLOP_PER_S
from harness.records.kernel import KernelRecord, SizeFigures, kernel_of, sizes_of
from harness.results import rows
from harness.results.selection import Selected
from harness.results.sources import Kind, Progress, Unreadable, of_each, refuse, silent
from harness.results.sources import load as load_runs

if TYPE_CHECKING:
    import pandas

# What each column holds. Text is "" and a count 0 where it does not apply or is not known, a figure NaN.
COLUMNS: dict[str, type] = {
    **dict.fromkeys(("origin", "source", "id", "status", "reason"), str),  # these are as in rows.COLUMNS
    **dict.fromkeys(("system", "site", "tag", "processor"), str),
    "kernel": str,
    **dict.fromkeys(("backend", "framework", "software", "transport", "mpi"), str),
    **dict.fromkeys(("nodes", "devices_per_node", "workers", "ps"), int),
    "size": int,  # bytes of a message, or N of what is computed
    "device": str,
    **dict.fromkeys(("threads", "warmup_steps", "steps"), int),
    "options": str,  # JSON: the backend's own options without ps
    "spec": str,  # JSON: everything that makes two rows the same measurement
    "unit": str,  # of the rate: "bytes/s" or "flop/s"
    "rate": float,
    "stdev": float,
    "ci95": float,  # half-width of the rate's interval
    "values": list,  # the rate of each repeat
    "jobs": list,  # as in rows.COLUMNS
    "bus_bytes_per_s": float,  # of messages only
    "p50_s": float,  # of a message, or of a step
    "p99_s": float,
    "sent_bytes": float,  # per rank and step
    "joules": float,  # of a repeat's window
    "work_per_joule": float,  # bytes or floating point operations
    "joules_values": list,  # joules per byte or operation of each repeat
    **dict.fromkeys(("energy", "energy_note"), str),  # as in rows.COLUMNS
    "transport_seen": str,
    "started": str,  # ISO 8601, UTC
    "ended": str,
    "environment": str,  # JSON: packages, machine, variables, nodes; what may explain a difference
}
# What changes with the number of nodes, of a computation that is otherwise the same: on one machine, threads do, too.
_WITH_SIZE = ("nodes", "threads")


def load(
    sources: Sequence[str | Path],
    progress: Progress = silent,
    unreadable: Unreadable = refuse,
    selected: Selected | None = None,
) -> pandas.DataFrame:
    """A DataFrame with the columns of ``COLUMNS``, by start, id and size; runs without a number are in it.

    A record that cannot be read is left out if ``unreadable`` returns. A caller that passes ``selected`` checks itself what
    it has left. Raises InvalidInput for a source that is not there, or whose selection leaves nothing.
    """
    of_all = selected or Selected()
    frames = of_each(sources, KERNELS, progress, unreadable, of_all)
    if selected is None:
        of_all.check()
    import pandas  # now, so that a source that does not exist is refused at once

    results = pandas.concat(frames, ignore_index=True) if frames else rows.frame([], COLUMNS)
    results = results[~results.duplicated(["id", "size"])]  # in a folder, and in the baseline that was saved from it
    return rows.with_libraries(results.sort_values(["started", "id", "size"], kind="stable", ignore_index=True))


def _rows(path: str) -> list[dict[str, Any]] | str:
    """The rows of a record, or why it cannot be read."""
    try:
        return of_record(KernelRecord.read(Path(path), figures=True), path)
    except InvalidInput as error:
        return str(error)


KERNELS = Kind(KernelRecord.file_name, _rows, COLUMNS)


def of_record(record: KernelRecord, source: Path | str) -> list[dict[str, Any]]:
    """A row for each size, also of a run that has no number."""
    spec, kernel = record.spec, kernel_of(record.spec)
    seen = record.seen
    own = rows.of_any_run(record, source, seen.hosts, seen.transports, seen.throttled)
    common = rows.joined_row(rows.of_any_record(record, seen.transports), own)
    common |= {"kernel": spec.subject, "unit": kernel.unit}
    dumped = spec.model_dump(exclude=rows.IRRELEVANT) | {"kernel": spec.subject}

    def row(size: int, figures: dict[str, Any]) -> dict[str, Any]:
        return common | {"size": size, "spec": rows.sorted_json(dumped | {"size": size})} | figures

    if record.derived is None:
        return [row(size, {}) for size in kernel.sizes(sizes_of(spec).sizes, record.plan["world_size"])]
    noted = [repeat.job for repeat in record.repeats]
    jobs = rows.jobs_of(record.id, noted, record.variables.get("SLURM_JOB_ID"))
    told = {"transport_seen": seen.transports[0], "jobs": jobs}
    return [row(figures.size, told | _figures(figures)) for figures in record.derived]


def _figures(figures: SizeFigures) -> dict[str, Any]:
    bus, energy = figures.bus_bytes_per_s, figures.energy
    joules, per_joule = energy.joules, figures.work_per_joule
    return {
        "rate": figures.rate.mean,
        "stdev": figures.rate.stdev,
        "ci95": figures.rate.ci95,
        "values": list(figures.rate.values),
        "bus_bytes_per_s": None if bus is None else bus.mean,
        **{name: getattr(figures, name) for name in ("p50_s", "p99_s", "sent_bytes", "work_per_joule")},
        "joules": joules and joules.mean,
        "joules_values": [each / joules.mean / per_joule for each in joules.values] if joules and per_joule else [],
        "energy": energy.covers,
        "energy_note": "; ".join(energy.notes),
    }


def efficiencies(frame: pandas.DataFrame, baseline: int | None = None) -> pandas.Series:
    """Strong scaling efficiency of each row: rate(n) / (n/n₀ · rate(n₀)), for what computes, of the same N.

    n are workers. n₀ is ``baseline``, or the smallest number on which the same was measured; rate(n₀) is the mean of all
    its runs. NaN for messages, and for what was not measured on n₀ and on another number of workers.
    """
    import pandas

    computed = frame[(frame["unit"] == FLOP_PER_S) & (frame["status"] == "completed")]
    shares = pandas.Series(float("nan"), frame.index)
    for _, alike in computed.groupby([computed["system"], computed["spec"].map(_on_any_number)]):
        base = baseline or alike["workers"].min()
        rate = alike.loc[alike["workers"] == base, "rate"].mean()  # NaN if there is none
        if alike["workers"].nunique() > 1:
            shares[alike.index] = alike["rate"] / (alike["workers"] / base * rate)
    return shares


def with_efficiencies(frame: pandas.DataFrame, baseline: int | None = None) -> pandas.DataFrame:
    """Each row that has a number, and one of each run that has none, with the ``efficiencies`` in another column."""
    shown = (frame["status"] == "completed") | ~frame["id"].duplicated()
    return frame.assign(efficiency=efficiencies(frame, baseline))[shown]


def with_runs(
    sources: Sequence[str | Path],
    progress: Progress = silent,
    unreadable: Unreadable = refuse,
    selected: Selected | None = None,
) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """The rows of ``results.load``, and apart from them those of ``load``, of any status. Each source has some of either.

    What is read of several times with the same ``selected`` is read once. Raises InvalidInput as both do.
    """
    of_all = selected or Selected()
    of_kernels = load(sources, progress, unreadable, of_all)
    runs = load_runs(sources, None, progress, unreadable, others=not of_kernels.empty, selected=of_all)
    of_all.check()
    return runs, of_kernels


def either(
    sources: Sequence[str | Path], progress: Progress = silent, unreadable: Unreadable = refuse
) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """What ``with_runs`` gives. Raises InvalidInput also if that is nothing."""
    runs, of_kernels = with_runs(sources, progress, unreadable)
    if runs.empty and of_kernels.empty:
        raise InvalidInput(f"no record.json at or below {', '.join(map(str, sources))}, and no kernel.json")
    return runs, of_kernels


def beside(runs: pandas.DataFrame, of_kernels: pandas.DataFrame) -> pandas.DataFrame:
    """Both in one frame with the columns of ``rows.COLUMNS``, for what compares each with its own kind, by its spec.

    Whoever counts img/s has no use for it: kernels have none, and no model.
    """
    import pandas

    return pandas.concat([runs, rows.frame(of_kernels.to_dict("records"))], ignore_index=True)


def _on_any_number(spec: str) -> str:
    return rows.sorted_json({name: value for name, value in json.loads(spec).items() if name not in _WITH_SIZE})
