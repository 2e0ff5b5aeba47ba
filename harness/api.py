"""harness from Python: the functions of ``import harness``, which do what commands of the same names do.

All raise ``harness.errors.InvalidInput`` with one line for a request that cannot work, before anything is begun, and
``harness.errors.RunFailed`` for a run that has no number; its record and its logs are kept.
"""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import pandas

from harness.analysis import regression
from harness.analysis import verdict as verdicts
from harness.analysis.verdict import Verdict
from harness.core import backend as backends
from harness.core.plan import LaunchPlan
from harness.core.spec import KernelSizes
from harness.core.subject import TRAINING, Subject
from harness.core.validation import checked
from harness.core.written import numbers, servers, share, understood
from harness.errors import InvalidInput
from harness.prediction import forecast
from harness.prediction.basis import workload_and_basis
from harness.records.measurement import Record
from harness.records.record import Status
from harness.report.text import verdict as verdict_text
from harness.results import frame as frames
from harness.results import sources
from harness.results.result import Result
from harness.results.selection import Selected, at_time
from harness.running import rates, sides
from harness.running.prepare import Place, place_of_runs
from harness.running.request import Outcome, carry_out

# Options that say where, and then those of `harness run` that no function has.
OF_PLACE = ("environ", "account", "time_limit", "jobs", "hosts", "port", "environment", "tag", "force")
OF_COMMAND = {"preflight", "job_option", "no_wait", "no_submit", "dry_run", "json", "quiet"}


def run(
    backend: str | Sequence[str],
    *,
    nodes: int | str | Sequence[int] = 1,
    site: str | None = None,
    output: str | Path | None = None,
    **fields: object,
) -> pandas.DataFrame:
    """Measure a backend on a number of nodes, or several of both with their repeats in turn: ``harness run``.

    A ``backend`` may have its framework and its transport, as in ``"horovod:torch:gloo"``; ``"all"`` is every one.
    ``nodes`` are a number, several, or what the command takes, as in ``"1..128"``. With several libraries of ``mpi``,
    what goes over MPI is measured under each. ``fields`` are the other options of ``harness run`` with ``_`` for
    ``-``, such as ``model="resnet50"``, ``batch_size=8``, ``transport="mpi"``, ``ps=2``. The place is given by
    ``account``, ``environ``, ``time_limit``, ``jobs``, ``hosts``, ``port``, ``environment`` and ``force``; the
    records keep the ``tag``. Without a ``site`` it is the one that the command would take (``HARNESS_SITE``, your
    config's, this cluster), which is said on stderr; ``"local"`` is this machine. Without an ``output`` or an
    ``account`` your config's count. Where there is a batch system it waits for the jobs.

    Returns one row per repeat: the columns ``backend``, ``framework``, ``transport``, ``model``, ``nodes``, ``workers``,
    ``batch_size`` (per device), ``repeat`` (from 1), ``img_per_s``, ``started`` and ``ended`` (ISO 8601, UTC), and
    ``record`` (the path of the record that holds it).
    """
    outcome = _measured(TRAINING, backend, nodes, site, output, fields)
    rows = []
    for planned, record in zip(outcome.runs, outcome.records, strict=True):
        assert isinstance(record, Record) and record.derived
        columns = ("backend", "framework", "transport", "model", "nodes", "workers", "batch_size")
        of_run = {name: getattr(record.spec, name) for name in columns}
        for repeat, img_per_s in zip(record.repeats, record.derived.img_per_s.values, strict=True):
            row = {"repeat": repeat.number, "img_per_s": img_per_s, "started": repeat.started, "ended": repeat.ended}
            rows.append(of_run | row | {"record": planned.record_file})
    return pandas.DataFrame(rows)


def kernel(
    name: str,
    backend: str | Sequence[str],
    *,
    nodes: int | str | Sequence[int] = 1,
    sizes: Sequence[int] | None = None,
    site: str | None = None,
    output: str | Path | None = None,
    **fields: object,
) -> pandas.DataFrame:
    """Measure what a transport does by itself: ``harness kernel``.

    ``sizes`` are bytes of a message or, of a kernel that computes, numbers or rows; by default the kernel's own. All
    else is as in ``run``. Returns one row per size of each run, as ``load_kernels`` does.
    """
    outcome = _measured(Subject(KernelSizes.of(name, sizes)), backend, nodes, site, output, fields)
    return load_kernels(*(planned.record_file for planned in outcome.runs))


def ab(
    backend: str | None = None,
    *,
    a: str = "",
    b: str = "",
    kernel: str | None = None,
    sizes: Sequence[int] | None = None,
    command: Sequence[str] = (),
    nodes: int = 1,
    difference: float = sides.DIFFERENCE,
    site: str | None = None,
    output: str | Path | None = None,
    **fields: object,
) -> pandas.DataFrame:
    """Which of two sides is faster, repeats in turn: ``harness ab``. ``a`` and ``b`` are what ``--a`` and ``--b`` say.

    It measures img/s of a ``backend``, a ``kernel`` over it with ``sizes`` as in ``kernel``, or what a ``command`` of your
    own prints (``pattern="img/s: ([0-9.]+)"``). All else is as in ``run``.

    Returns one row or, of a kernel, one per size: ``size`` (0 for img/s), ``answer`` (such as "A is faster"), ``change``
    (B / A − 1) with its interval ``low`` and ``high``, ``matters`` and ``slower``, as ``docs/ab.md`` defines them, the mean
    rates ``a`` and ``b`` (img/s, bytes/s or flop/s), the ``noise``, ``units_to_decide`` what is undecided
    (jobs if there are several, else repeats) and
    ``repeats_for_difference`` (of each side; NaN for more than 1000), and the paths ``a_record`` and ``b_record``.
    """
    place, options = _place(site, output, fields)
    comparison = checked(sides.Comparison, {"schema": "harness.ab/1", "a": a, "b": b, "difference": difference})
    if sizes is not None and not kernel:
        raise InvalidInput("sizes: are for kernels; give kernel=NAME")
    subject = Subject(KernelSizes.of(kernel, sizes) if kernel else None, tuple(command))
    options |= {"backend": backend, "nodes": nodes}
    subject.check(name for name, value in options.items() if value is not None)
    planned = sides.planned(comparison, subject, options, place)
    with planned.laid_out():
        outcome = carry_out(planned.runs, place)
    records = {f"{side}_record": run.record_file for side, run in zip("ab", planned.runs, strict=True)}
    rows = [
        {
            "size": size,
            "answer": verdict.answer,
            "change": verdict.ratio - 1,
            "low": verdict.ci95[0] - 1,
            "high": verdict.ci95[1] - 1,
            "matters": verdict.matters,
            "slower": verdict.slower,
            "a": verdict.a.mean,
            "b": verdict.b.mean,
            "noise": verdict.noise.deviation,
            "units_to_decide": verdict.units,
            "repeats_for_difference": verdict.repeats_for_difference,
            **records,
        }
        for size, verdict in rates.judged(comparison, planned.runs, outcome.records).items()
    ]
    return pandas.DataFrame(rows)


def plan(backend: str, *, nodes: int = 1, site: str | None = None, **fields: object) -> LaunchPlan:
    """Every process that ``run`` would start, without starting any: ``harness run --dry-run``."""
    place, options = _place(site, None, fields | {"backend": backend, "nodes": nodes}, dry_run=True)
    TRAINING.check(options)
    return place.prepare(TRAINING.spec(options, place.device(options.get("device")))).plan


def load(*results: str | Path, status: Status | None = "completed") -> pandas.DataFrame:
    """Results as a DataFrame with one row per run; ``harness/results/frame.py`` lists the columns.

    ``results`` are record files, folders, names of baselines, tables of published measurements, ``"reference"`` or
    ``"reference:TEXT"``; ``"runs/ @ now-7d: tag=nightly"`` selects some of what is there. Only runs with a number, unless
    ``status`` is None. Raises InvalidInput where there is no record, not even of a kernel.
    """
    return frames.trainings(_loaded(*results, status=status))


def _loaded(*results: str | Path, status: Status | None = None) -> list[Result]:
    """Results of any kind, of one status or of all. Raises InvalidInput if there are none, not even of another status."""
    loaded = sources.load(results)
    sources.check_any(loaded, results)
    return [result for result in loaded if status in (None, result.status)]


def load_kernels(*results: str | Path, status: Status | None = "completed") -> pandas.DataFrame:
    """Results of kernels as a DataFrame with one row per size of each run; ``harness/results/frame.py`` lists the columns.

    ``results`` are those of ``load``. Only runs with a number, unless ``status`` is None.
    """
    return frames.kernels(_loaded(*results, status=status))


def compare(old: str | Path, new: str | Path, *, threshold: float = regression.THRESHOLD) -> pandas.DataFrame:
    """Compare two measurements: ``harness compare``. ``old`` and ``new`` are results as in ``load``.

    Returns one row per pair of equal measurements, of trainings and of each size of a kernel, the worst first:
    ``measurement``, ``verdict`` (such as "slower"), ``change`` (NEW / OLD − 1 of the rate) with its 95 % interval ``low``
    and ``high``, the adjusted ``p``, ``unit`` of the rates ``old`` and ``new`` (img/s, bytes/s or flop/s),
    ``old_repeats``, ``new_repeats``, ``reason`` where nothing could be judged, and ``work``: whether the losses of both
    are of the "same work".
    """
    rule = regression.Rule(threshold=understood(f"threshold={threshold!r}", threshold, partial(share, zero=True)))
    now = datetime.now(UTC)  # of both, so that windows that meet leave no gap
    selected = Selected()  # both may be of one folder, which is read once
    before, after = (sources.load([at_time(str(side), now)], selected=selected) for side in (old, new))
    selected.check()
    rows = []
    for pair in regression.compare(before, after, rule).pairs:
        low, high = pair.judgement.ci95 or (None, None)
        row = {"measurement": pair.label, "verdict": pair.verdict, "change": pair.judgement.change}
        row |= {"low": low, "high": high, "p": pair.judgement.p}
        row |= {"unit": pair.unit, "old": pair.old.rate, "new": pair.new.rate}
        row |= {"old_repeats": pair.old.repeats, "new_repeats": pair.new.repeats, "reason": pair.judgement.reason}
        rows.append(row | {"work": pair.work.answer if pair.work else ""})
    return pandas.DataFrame(rows)


class ShownVerdict(Verdict):
    """A verdict that shows itself as ``harness best --details`` prints it."""

    def __repr__(self) -> str:
        return "\n\n".join([verdict_text.headline(self), *verdict_text.details(self)])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


def verdict(*results: str | Path, margin: float = verdicts.MARGIN) -> ShownVerdict:
    """Judge whether MPI-based toolkits scale better than parameter servers: a part of ``harness best``.

    The ``answer`` is a few words; ``comparisons`` hold each contender with its sizes, ratios and intervals. A ratio within
    1 ± ``margin`` counts as no difference.
    """
    limit = understood(f"margin={margin!r}", margin, share)
    return ShownVerdict(**vars(verdicts.verdict(sources.trainings(_loaded(*results)), limit)))


def predict(
    backend: str,
    *,
    nodes: int | str | Sequence[int],
    ps: int | str | Sequence[int] | None = None,
    site: str | None = None,
    results: Sequence[str | Path] | None = None,
    single: float | str | Path | None = None,
    network: float | str | Path | None = None,
    read_rate: float | str | None = None,
    **fields: object,
) -> pandas.DataFrame:
    """Predict throughput on so many ``nodes``: ``harness model predict``.

    Start from what was published about a ``site``, from ``results``, or from ``single`` (img/s of one worker, or its
    record) with the ``network``: its line rate in bytes/s or such as ``"rdma:25Gbit/s"``, or what ``harness kernel
    network`` has measured. ``read_rate`` is how fast a node reads real images (img/s), or all together, as in
    ``"shared:9000img/s"``. ``ps`` are numbers of parameter servers, by default the best one. ``fields`` are ``model``,
    ``batch_size``, ``image_size``, ``devices_per_node``, ``transport``, ``device`` and the backend's own options; the first
    four and ``device`` are by default those of the results.

    Returns one row per size and number of servers: ``nodes``, ``workers``, ``ps``,
    ``step_s``, ``img_per_s`` with its 90 % interval ``low`` and ``high`` (NaN where nothing is known of the spread),
    ``efficiency``, relative to one worker, ``two_lines_s``, the step by the simplest law, ``read_wait_s``, what a step
    waits for images, ``read_by``, the rate that makes it wait (``node`` or ``shared``), and ``extrapolates``, which says
    what is far beyond the measurements ("" if nothing is). ``attrs["left_out"]`` says which servers have no place.
    """
    sizes = understood(f"nodes={nodes!r}", nodes, numbers)
    counts = None if ps is None else understood(f"ps={ps!r}", ps, servers)
    TRAINING.check(fields)
    described = {"backend": backend} | fields
    basis_of = {"site": site, "sources": results, "single": single, "network": network, "read_rate": read_rate}
    given: dict[str, object] = {**basis_of, **fields}
    workload, basis = workload_and_basis(
        lambda more: TRAINING.spec(more | described), given, lambda names: _loaded(*names)
    )
    predictions = forecast.predictions(workload, basis, sizes, counts)
    columns = ["nodes", "workers", "ps", "step_s", "img_per_s", "low", "high", "efficiency"]
    columns += ["two_lines_s", "read_wait_s", "read_by", "extrapolates"]
    frame = pandas.DataFrame(predictions, columns=columns)
    frame.attrs["left_out"] = forecast.without_place(workload, sizes, counts)
    return frame


def _place(
    site: str | None, output: str | Path | None, fields: dict[str, object], dry_run: bool = False
) -> tuple[Place, dict[str, Any]]:
    """The place of a run, and the fields that are not about it, by the names that a spec has for them."""
    options: dict[str, Any] = {}
    names = {"env": "environment"} | backends.option_fields()  # of fields, by their names on the command line
    for name, value in fields.items():
        field = names.get(name, name)
        if field in options:
            both = [other for other in fields if names.get(other, other) == field]
            raise InvalidInput(f"{' and '.join(both)} are the same option; give one of them")
        options[field] = value
    if strange := sorted(OF_COMMAND & options.keys()):
        raise InvalidInput(f"'{strange[0]}' is an option of the command `harness run` only, not of Python's functions")
    given = {name: options.pop(name) for name in OF_PLACE if name in options}
    given |= {name: Path(given[name]) for name in ("hosts", "environment") if given.get(name) is not None}
    given |= {"output": None if output is None else Path(output), "dry_run": dry_run}
    return place_of_runs(site, None, partial(print, file=sys.stderr), **given), options


def _measured(
    subject: Subject,
    backend: object,
    nodes: object,
    site: str | None,
    output: str | Path | None,
    fields: dict[str, object],
) -> Outcome:
    """The runs that measure the ``subject``, and their records. Raises InvalidInput; RunFailed for one without a number."""
    counts_of_nodes = understood(f"nodes={nodes!r}", nodes, numbers)
    place, options = _place(site, output, fields | {"backend": backend, "nodes": counts_of_nodes})
    subject.check(options)
    outcome = carry_out(subject.specs(options, place.device(options.get("device")), **subject.protocol), place)
    outcome.check()
    return outcome
