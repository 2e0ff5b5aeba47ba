"""A request, and carrying it out: the one way from what is wanted, and where, to records.

From Python, without a command line:

    place = Where(site="daint", account="s123").place()
    spec = RunSpec.validated(backend="pytorch", nodes=2)
    outcome = carry_out(Request([spec], place))

Then ``outcome.records`` and ``outcome.prepared[0].run_dir`` are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.core.contenders import Contender
from harness.core.spec import RunSpec
from harness.errors import Interrupted, RunFailed
from harness.records.record import AnyRecord
from harness.running import collect, submit
from harness.running.prepare import Place, Prepared
from harness.running.run import Listener, Run, checked, execute


@dataclass(frozen=True)
class Request:
    """The runs that are wanted, the place, and whether to submit their jobs (if it has a batch system) and to wait."""

    specs: Sequence[RunSpec]
    place: Place
    wait: bool = True
    submit: bool = True


@dataclass(frozen=True)
class Outcome:
    """What has become of a request: its runs as they were planned, and their records in the same order.

    There are no records after a dry run, or when nobody has waited for the jobs. ``scripts`` are those of a dry run,
    ``jobs`` those that were written and submitted: (script, job id), the id "" if it was not submitted.
    """

    prepared: list[Prepared]
    records: list[AnyRecord] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    jobs: list[tuple[Path, str]] = field(default_factory=list)


def carry_out(request: Request, listener: Listener | None = None) -> Outcome:
    """Measure or train here, or have it done by a batch system; after a dry run say what would be done.

    A run that fails has a record that says why. Raises InvalidInput before anything is begun for whatever cannot work;
    Interrupted, which says how to go on, when the user has interrupted it.
    """
    place, listener = request.place, listener or Listener()
    prepared = [place.prepare(spec) for spec in request.specs]
    if place.where.dry_run:
        scripts = [script for _, script in submit.planned(prepared, place.options)] if place.queued else []
        return Outcome(prepared, scripts=scripts)
    if not place.queued and not (request.wait and request.submit):
        raise place.where.no_batch_system("--no-submit" if request.wait else "--no-wait")
    runs = [checked(run) for run in prepared]
    if not place.queued:
        return Outcome(prepared, execute_here(runs, listener))
    jobs = submit.send(runs, place.options, request.submit)
    records = collect.wait(runs, listener) if request.wait and request.submit else []
    return Outcome(prepared, records, jobs=jobs)


def failed(record: AnyRecord, folder: Path) -> RunFailed:
    """The error for a run that does not have what was wanted; ``folder`` is its run directory."""
    number = "" if record.status == "completed" else "no number; "
    return RunFailed(f"{record.spec.backend}: {record.problem}\n{number}logs and record: {folder}")


def execute_here(runs: Sequence[Run], listener: Listener, advice: str = "") -> list[AnyRecord]:
    """Carry runs out on this machine. Raises Interrupted, which says how to go on: with ``advice``, or as the runs can."""
    try:
        return execute(runs, listener)
    except KeyboardInterrupt as interruption:
        ways = [advice, *(run.kind.continuation(run.folder) for run in runs)]
        lines = [f"{collect.reason(interruption)}; no process is left running", *(way for way in ways if way)]
        raise Interrupted("\n".join(lines)) from None


def compared(
    chosen: Sequence[Contender],
    sizes: Sequence[int | str],
    fields: Mapping[str, Any],
    options: Mapping[str, Mapping[str, Any]],
) -> list[RunSpec]:
    """The runs of a comparison: each of the chosen contenders on each number of nodes.

    ``fields`` are the same for all; ``options`` are each backend's own. Raises InvalidInput.
    """
    each = ((contender, {"nodes": nodes}) for contender in chosen for nodes in sizes)
    return [
        RunSpec.validated(**{**fields, **nodes, **contender.fields, "options": options.get(contender.backend.name, {})})
        for contender, nodes in each
    ]
