"""Measuring: run and compare-backends; status, collect and cancel for runs on a cluster."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.common import (
    AS_JSON,
    failed,
    list_of,
    run_options,
    signals_interrupt,
    site_options,
    wait_for,
    where_of,
)
from harness.cli.options import GroupedCommand, grouped, spec_fields, spec_options
from harness.errors import InvalidInput

if TYPE_CHECKING:
    from harness.records.measurement import AnyRecord
    from harness.running.run import AnyRun, Prepared
    from harness.running.where import Where

BOTH = ("real", "synthetic")


def _run(**given: Any) -> None:
    """Measure one backend: 10 warm-up and 100 measured steps, 5 times in fresh processes, unless told otherwise.

    Prints img/s with its confidence interval and writes a record. `harness run --backend pytorch --nodes 2` is enough.
    """
    from harness.core.spec import RunSpec
    from harness.records.measurement import FILE_NAME, Record
    from harness.report.text import outcomes
    from harness.running import run

    if given["backend"] is None:
        raise InvalidInput("--backend is required; see `harness list backends`")
    fields, own = spec_fields(given, [given["backend"]])
    spec = RunSpec.validated(**fields, options=own[given["backend"].replace("-", "_")])
    where = where_of(given)
    prepared = where.prepare(spec)
    if given["compare_synthetic"]:
        _run_both(prepared, where, given)
        return
    if given["dry_run"]:
        click.echo(dry_run(prepared, where, given["as_json"]))
        return
    records = carry_out([run.Run.checked(prepared)], where, given)
    if records is None:
        return
    record, path = records[0], prepared.run_dir / FILE_NAME
    assert isinstance(record, Record)
    if record.problem:
        raise failed(record, path)
    click.echo(record.to_json() if given["as_json"] else outcomes.summary(record, str(path)))


def _run_both(real: Prepared, where: Where, given: dict[str, Any]) -> None:
    """Measure on real images and on synthetic ones, repeats interleaved, and print what the real ones cost."""
    from harness.analysis.io_overhead import io_overhead
    from harness.core.spec import SYNTHETIC
    from harness.records.measurement import FILE_NAME, Record
    from harness.report.text import outcomes
    from harness.running import run

    if real.spec.data == SYNTHETIC:
        raise InvalidInput("--compare-synthetic: give --data PATH, whose images are to be compared with synthetic ones")
    both = [real, where.prepare(real.spec.model_copy(update={"data": SYNTHETIC, "data_cache": "as_found"}))]
    if given["dry_run"]:
        click.echo(_dry_run_of_all(both, where))
        return
    found = carry_out([run.Run.checked(one) for one in both], where, given)
    if found is None:
        return
    records = [record for record in found if isinstance(record, Record)]
    paths = [one.run_dir / FILE_NAME for one in both]
    for record, path in zip(records, paths, strict=True):
        if record.problem:
            raise failed(record, path)
    overhead = io_overhead(*records)
    if given["as_json"]:
        told = {name: json.loads(one.model_dump_json(by_alias=True)) for name, one in zip(BOTH, records, strict=True)}
        click.echo(json.dumps(told | {"io_overhead": asdict(overhead)}))
    else:
        click.echo(outcomes.io_overhead(overhead, records[1], str(paths[1])))
        click.echo(outcomes.summary(records[0], str(paths[0])))


def _compare(**given: Any) -> None:
    """Measure several backends at several sizes, repeats interleaved, and print one table.

    `harness compare-backends --backends parameter_server,horovod:torch:gloo,pytorch:mpi --nodes 1,2`
    """
    from harness.core import backend
    from harness.core.contenders import contenders
    from harness.core.spec import RunSpec
    from harness.records.measurement import FILE_NAME, Record
    from harness.report.text import outcomes, plans
    from harness.running import run

    text, sizes = given.pop("backends"), list_of("--nodes", given.pop("nodes"), ["1", "2"])
    names = None if text is None else list_of("--backends", text, backend.names())
    where = where_of(given)
    chosen = contenders(names, where.device(given["device"] or "auto"))
    fields, own = spec_fields(given, [one.backend.name for one in chosen])
    specs = [
        RunSpec.validated(
            **fields
            | {"backend": one.backend.name, "nodes": nodes, "options": own[one.backend.name]}
            | {key: value for key, value in (("framework", one.framework), ("transport", one.transport)) if value}
        )
        for one in chosen
        for nodes in sizes
    ]
    prepared = [where.prepare(spec) for spec in specs]
    if given["dry_run"]:
        click.echo(_dry_run_of_all(prepared, where))
        return
    records = carry_out([run.Run.checked(one) for one in prepared], where, given)
    if records is None:
        return
    if given["as_json"]:
        click.echo("[" + ",".join(record.to_json() for record in records) + "]")
    else:
        click.echo(f"{plans.equal_terms(records[0].spec)}\n")
        click.echo(outcomes.comparison([record for record in records if isinstance(record, Record)]))
        click.echo(f"\nrecords: {where.output}/*/record.json")
    for record, one in zip(records, prepared, strict=True):
        if record.problem:
            raise failed(record, one.run_dir / FILE_NAME)


def carry_out(runs: Sequence[AnyRun], where: Where, given: dict[str, Any]) -> list[AnyRecord] | None:
    """Measure or train here or have it done by a batch system; None when nobody waits for that."""
    from harness.report.text import plans
    from harness.report.text.progress import RunLine
    from harness.running import run, submission
    from harness.running.where import no_batch_system

    line = RunLine(not given["quiet"])
    if not runs[0].prepared.queued:
        if given["no_wait"] or given["no_submit"]:
            option = "--no-wait" if given["no_wait"] else "--no-submit"
            raise no_batch_system(option, where.site)
        with signals_interrupt():
            try:
                return run.execute(runs, line.progress)
            finally:
                line.clear()
    submitted = submission.send(runs, where.request, submitting=not given["no_submit"])
    if given["no_wait"] or given["no_submit"]:
        told = [{"run": str(run.folder), "jobs": submission.known_jobs(run.folder)} for run in runs]
        click.echo(json.dumps(told) if given["as_json"] else plans.submitted(submitted, bool(given["no_submit"])))
        return None
    return wait_for(runs, line)


def dry_run(prepared: Prepared, where: Where, as_json: bool) -> str:
    """What would be done, for people or scripts."""
    from harness.report.text import plans

    scripts = where.scripts([prepared])
    if as_json:
        document = {"spec": prepared.spec.model_dump(), "plan": prepared.plan.as_dict()}
        return json.dumps(document | ({"script": scripts[0]} if scripts else {}), indent=1)
    return "\n\n".join([*scripts, plans.plan(prepared)])


def _dry_run_of_all(prepared: list[Prepared], where: Where) -> str:
    from harness.report.text import plans

    return "\n\n".join([*where.scripts(prepared), *map(plans.plan, prepared)])


run = GroupedCommand(
    "run",
    params=[
        *spec_options(),
        *grouped(
            [
                click.Option(
                    ["--compare-synthetic"],
                    is_flag=True,
                    help="measure on synthetic images too, repeats interleaved, and say what those of --data cost",
                )
            ],
            "What to measure",
        ),
        *site_options(),
        *run_options(),
    ],
    callback=_run,
    help=_run.__doc__,
)
compare_backends = GroupedCommand(
    "compare-backends",
    params=[
        *grouped(
            [
                click.Option(
                    ["--backends"],
                    metavar="A,B:C,…",
                    help="backends, each with :FRAMEWORK and :TRANSPORT if wanted  [default: all of all]",
                ),
                click.Option(["--nodes"], metavar="N,M,…", help="numbers of nodes  [default: 1,2]"),
            ],
            "What to compare",
        ),
        *spec_options(leave_out=frozenset({"backend", "nodes"})),
        *site_options(),
        *run_options(),
    ],
    callback=_compare,
    help=_compare.__doc__,
)


RUN_DIRS = click.argument("paths", nargs=-1, metavar="[RUN_DIR]...", type=click.Path(path_type=Path))


@click.command("status")
@RUN_DIRS
@AS_JSON
def status(paths: tuple[Path, ...], as_json: bool) -> None:
    """How far runs on a cluster are: their jobs' states, the repeats or epochs that have ended.  [default: all in runs/]"""
    from harness.report.text import outcomes
    from harness.running import batch

    found = batch.standings([batch.reopen(folder) for folder in batch.find(paths or [Path("runs")])])
    click.echo(json.dumps([batch.as_json(one) for one in found]) if as_json else outcomes.standings(found))


@click.command("collect")
@RUN_DIRS
@click.option("--wait", is_flag=True, help="wait for the jobs first")
@click.option("--quiet", is_flag=True, help="no progress")
@AS_JSON
def collect(paths: tuple[Path, ...], wait: bool, quiet: bool, as_json: bool) -> None:
    """Make the records of runs on a cluster whose jobs have ended.  [default: all in runs/]

    Exits with 1 if a run has failed; one that is still queued or running is left alone.
    """
    from harness.report.text import outcomes
    from harness.report.text.progress import RunLine
    from harness.running import batch

    runs = [batch.reopen(folder) for folder in batch.find(paths or [Path("runs")])]
    if wait:
        wait_for([run for run in runs if not run.record_file.exists()], RunLine(not quiet))
    found = batch.collect_all(runs)
    click.echo(json.dumps([batch.as_json(one) for one in found]) if as_json else outcomes.standings(found))
    for one in found:
        if one.record and one.record.problem:
            raise failed(one.record, one.run.record_file)


@click.command("cancel")
@click.argument("paths", nargs=-1, required=True, metavar="RUN_DIR...", type=click.Path(path_type=Path))
def cancel(paths: tuple[Path, ...]) -> None:
    """Cancel the jobs of runs on a cluster. What they have measured so far is kept, without a number."""
    from harness.running import batch

    runs = [batch.reopen(folder) for folder in batch.find(paths)]
    ids = batch.cancel(runs)
    click.echo(f"cancelled: {', '.join(ids)}" if ids else "nothing to cancel")
