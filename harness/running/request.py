"""A request, and carrying it out: the one way from what is wanted, and where, to records.

From Python: ``carry_out([RunSpec.validated(backend="pytorch", nodes=2)], Place(site="daint", account="s123"))``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from harness.core.spec import RunSpec
from harness.errors import HarnessError, Interrupted, RunFailed
from harness.records.record import AnyRecord
from harness.running import collect, submit
from harness.running.prepare import Place
from harness.running.run import Listener, Run


@dataclass(frozen=True)
class Outcome:
    """What has become of a request: its runs as they were planned, and their records in the same order.

    There are no records after a dry run, or when nobody has waited for the jobs. ``scripts`` are those of a dry run,
    ``jobs`` those that were written and submitted: (script, job id), the id "" if it was not submitted.
    """

    runs: list[Run]
    records: list[AnyRecord] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    jobs: list[tuple[Path, str]] = field(default_factory=list)


def carry_out(
    specs: Sequence[RunSpec],
    place: Place,
    listener: Listener | None = None,
    wait: bool = True,
    submitting: bool = True,
) -> Outcome:
    """Measure or train here, or have it done by a batch system; after a dry run say what would be done.

    Where there is a batch system one need not ``wait`` for the jobs, which are written only, unless ``submitting``.

    A run that fails has a record that says why. Raises InvalidInput before anything is begun for whatever cannot work;
    Interrupted, which says how to go on, when the user has interrupted it.
    """
    listener = listener or Listener()
    runs = [place.prepare(spec) for spec in specs]
    if place.dry_run:
        scripts = [script for _, script in submit.planned(runs, place.options)] if place.queued else []
        return Outcome(runs, scripts=scripts)
    if not place.queued and not (wait and submitting):
        raise place.no_batch_system("--no-submit" if wait else "--no-wait")
    for run in runs:
        run.check()
    if not place.queued:
        return Outcome(runs, execute(runs, listener))
    jobs = submit.send(runs, place.options, submitting)
    records = collect.wait(runs, listener) if wait and submitting else []
    return Outcome(runs, records, jobs=jobs)


def failed(record: AnyRecord, folder: Path) -> RunFailed:
    """The error for a run that does not have what was wanted; ``folder`` is its run directory."""
    number = "" if record.status == "completed" else "no number; "
    return RunFailed(f"{record.spec.backend}: {record.problem}\n{number}logs and record: {folder}")


def execute(runs: Sequence[Run], listener: Listener, advice: str = "") -> list[AnyRecord]:
    """Carry runs out on this machine with their repeats interleaved, so that a slow hour of it hits all of them alike.

    A run that fails is recorded as failed and left out of the later rounds; the others go on. An interruption (Ctrl-C)
    records all unfinished runs as interrupted and raises Interrupted, which says how to go on: with ``advice``, or as the
    runs can.
    """
    records: dict[Path, AnyRecord] = {}
    try:
        for run in runs:
            run.begin()
        for repeat in range(1, max(run.spec.repeats for run in runs) + 1):
            for run in runs:
                if run.folder in records:
                    continue
                try:
                    run.repeat(repeat, partial(listener.progress, run, repeat))
                except HarnessError as error:
                    records[run.folder] = run.finish(error)
                else:
                    if repeat == run.spec.repeats:
                        records[run.folder] = run.finish()
    except BaseException as error:
        for run in runs:
            if run.started and run.folder not in records:
                with suppress(RunFailed):  # a full disk; the error that is raised again tells more
                    run.finish(error)
        if not isinstance(error, KeyboardInterrupt):
            raise
        ways = [advice, *(run.continuation() for run in runs)]
        lines = [f"{str(error) or 'interrupted'}; no process is left running", *filter(None, ways)]
        raise Interrupted("\n".join(lines)) from None
    return [records[run.folder] for run in runs]
