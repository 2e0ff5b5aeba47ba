"""Measuring: run and compare-backends; status, collect and cancel for runs on a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from harness.analysis.evidence import io_overhead
from harness.cli.common import AS_JSON, list_of, signals_interrupt
from harness.cli.options import (
    GroupedCommand,
    flag,
    grouped,
    place_of,
    run_options,
    site_options,
    spec_of,
    spec_options,
)
from harness.core import backend
from harness.core.contenders import contenders
from harness.core.spec import SYNTHETIC, RunSpec
from harness.errors import InvalidInput
from harness.records.measurement import Record
from harness.report.text import outcomes, plans
from harness.report.text.progress import RunLine
from harness.running import collect as collecting
from harness.running.notes import known_jobs
from harness.running.prepare import Place
from harness.running.request import Outcome, Request, carry_out, compared, failed


def _run(**given: Any) -> None:
    """Measure one backend: 10 warm-up and 100 measured steps, 5 times in fresh processes, unless told otherwise.

    Prints img/s with its confidence interval and writes a record. `harness run --backend pytorch --nodes 2` is enough.
    """
    specs = [spec_of(given)]
    if given["compare_synthetic"]:
        if specs[0].data == SYNTHETIC:
            raise InvalidInput(
                "--compare-synthetic: give --data PATH, whose images are to be compared with synthetic ones"
            )
        specs.append(specs[0].model_copy(update={"data": SYNTHETIC, "data_cache": "as_found"}))
    outcome = carried_out(specs, place_of(given), given)
    records = [record for record in outcome.records if isinstance(record, Record)]
    files = [run.record_file for run in outcome.runs]
    for record, file in zip(records, files, strict=False):
        if record.problem:
            raise failed(record, file.parent)
    if len(records) == 2:
        _print_overhead(records, files, given["as_json"])
    elif records:
        click.echo(records[0].to_json() if given["as_json"] else outcomes.summary(records[0], str(files[0])))


def _print_overhead(records: list[Record], files: list[Path], as_json: bool) -> None:
    """Print what real images (the first record) cost beside synthetic ones (the second)."""
    real, synthetic = records
    overhead = io_overhead(real, synthetic)
    if as_json:
        both = {"real": real, "synthetic": synthetic}
        documents = {name: json.loads(record.to_json()) for name, record in both.items()}
        click.echo(json.dumps(documents | {"io_overhead": asdict(overhead)}))
    else:
        click.echo(outcomes.io_overhead(overhead, synthetic, str(files[1])))
        click.echo(outcomes.summary(real, str(files[0])))


def _compare(**given: Any) -> None:
    """Measure several backends at several sizes, repeats interleaved, and print one table.

    `harness compare-backends --backends parameter_server,horovod:torch:gloo,pytorch:mpi --nodes 1,2`
    """
    backends, sizes = given.pop("backends"), list_of("--nodes", given.pop("nodes"), ["1", "2"])
    names = None if backends is None else list_of("--backends", backends, backend.names())
    place = place_of(given)
    chosen = contenders(names, place.device(given["device"] or "auto"))
    fields, options = backend.spec_fields(given, [contender.backend.name for contender in chosen])
    outcome = carried_out(compared(chosen, sizes, fields, options), place, given)
    records = [record for record in outcome.records if isinstance(record, Record)]
    if not records:
        return
    if given["as_json"]:
        click.echo("[" + ",".join(record.to_json() for record in records) + "]")
    else:
        click.echo(f"{plans.equal_terms(records[0].spec)}\n")
        click.echo(outcomes.comparison(records))
        click.echo(f"\nrecords: {place.folder}/*/record.json")
    for record, run in zip(records, outcome.runs, strict=True):
        if record.problem:
            raise failed(record, run.folder)


@contextmanager
def followed(quiet: bool, prefix: Callable[[], str] = lambda: "") -> Iterator[RunLine]:
    """A line that shows how runs go on; meanwhile signals interrupt them."""
    line = RunLine(not quiet, prefix=prefix)
    with signals_interrupt():
        try:
            yield line
        finally:
            line.clear()


def carried_out(specs: Sequence[RunSpec], place: Place, given: dict[str, Any]) -> Outcome:
    """Carry out a request and follow it on the terminal. Without records, print the plans or jobs."""
    request = Request(specs, place, wait=not given["no_wait"], submit=not given["no_submit"])
    with followed(given["quiet"]) as line:
        outcome = carry_out(request, line)
    if place.dry_run:
        click.echo(_plans(outcome, given["as_json"]))
    elif not outcome.records:
        jobs = [{"run": str(run.folder), "jobs": known_jobs(run.folder)} for run in outcome.runs]
        by_hand = not request.submit
        click.echo(json.dumps(jobs) if given["as_json"] else plans.submitted(outcome.jobs, by_hand))
    return outcome


def _plans(outcome: Outcome, as_json: bool) -> str:
    """What would be done; of a single run as JSON for scripts, if they ask for it."""
    if as_json and len(outcome.runs) == 1:
        (run,) = outcome.runs
        document: dict[str, Any] = {"spec": run.spec.model_dump(), "plan": run.plan.as_dict()}
        if outcome.scripts:
            document["script"] = outcome.scripts[0]
        return json.dumps(document, indent=1)
    return "\n\n".join([*outcome.scripts, *map(plans.plan, outcome.runs)])


COMPARE_SYNTHETIC = flag(
    "--compare-synthetic", "measure on synthetic images too, repeats interleaved, and say what those of --data cost"
)
run = GroupedCommand(
    "run",
    params=[
        *spec_options(),
        *grouped([COMPARE_SYNTHETIC], "What to measure"),
        *site_options(),
        *run_options(),
    ],
    callback=_run,
    help=_run.__doc__,
)
BACKENDS = "backends, each with :FRAMEWORK and :TRANSPORT if wanted  [default: all of all]"
COMPARED = [
    click.Option(["--backends"], metavar="A,B:C,…", help=BACKENDS),
    click.Option(["--nodes"], metavar="N,M,…", help="numbers of nodes  [default: 1,2]"),
]
compare_backends = GroupedCommand(
    "compare-backends",
    params=[
        *grouped(COMPARED, "What to compare"),
        *spec_options(leave_out=frozenset({"backend", "nodes"})),
        *site_options(),
        *run_options(),
    ],
    callback=_compare,
    help=_compare.__doc__,
)


RUN_DIRS = click.argument("paths", nargs=-1, metavar="[RUN_DIR]...", type=click.Path(path_type=Path))
RUNS = (Path("runs"),)


@click.command("status")
@RUN_DIRS
@AS_JSON
def status(paths: tuple[Path, ...], as_json: bool) -> None:
    """How far runs on a cluster are: their jobs' states, the repeats or epochs that have ended.  [default: all in runs/]"""
    _print_status(collecting.status(collecting.find(paths or RUNS)), as_json)


@click.command("collect")
@RUN_DIRS
@click.option("--wait", is_flag=True, help="wait for the jobs first")
@click.option("--quiet", is_flag=True, help="no progress")
@AS_JSON
def collect(paths: tuple[Path, ...], wait: bool, quiet: bool, as_json: bool) -> None:
    """Make the records of runs on a cluster whose jobs have ended.  [default: all in runs/]

    Exits with 1 if a run has failed; one that is still queued or running is left alone.
    """
    runs = collecting.find(paths or RUNS)
    if wait:
        with followed(quiet) as line:
            collecting.wait([run for run in runs if not run.record_file.exists()], line)
    collected = collecting.collect_all(runs)
    _print_status(collected, as_json)
    for each in collected:
        if each.record and each.record.problem:
            raise failed(each.record, each.run.folder)


def _print_status(runs: Sequence[collecting.RunStatus], as_json: bool) -> None:
    click.echo(json.dumps([each.as_dict() for each in runs]) if as_json else outcomes.runs(runs))


@click.command("cancel")
@click.argument("paths", nargs=-1, required=True, metavar="RUN_DIR...", type=click.Path(path_type=Path))
def cancel(paths: tuple[Path, ...]) -> None:
    """Cancel the jobs of runs on a cluster. What they have measured so far is kept, without a number."""
    ids = collecting.cancel(run.folder for run in collecting.find(paths))
    click.echo(f"cancelled: {', '.join(ids)}" if ids else "nothing to cancel")
