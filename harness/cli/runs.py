"""Measuring, training and starting: run, train and launch; and jobs, for runs on a cluster."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from harness.cli.interrupts import signals_interrupt
from harness.cli.options import (
    COMPLETED,
    HOW,
    HOW_TO_RUN,
    WHAT,
    WHERE_TO_RUN,
    GroupedCommand,
    field_options,
    flag,
    grouped,
    option,
    place_of,
    spec_of,
    spec_options,
    specs_of,
)
from harness.cli.values import ANY_PATH, AS_JSON, QUIET, Given, ParsedText, completing, parts
from harness.core import backend as backends
from harness.core.program import OF_PROGRAM, UNUSED
from harness.core.spec import MPI_LIBRARIES, SYNTHETIC, Accuracy, Program, RunSpec, Training
from harness.core.subject import Subject
from harness.core.validation import checked
from harness.core.written import numbers, share
from harness.errors import InvalidInput, RunFailed
from harness.report.text import launches, outcomes, plans
from harness.report.text.progress import RunLine
from harness.running import collect as collecting
from harness.running import status as statuses
from harness.running.campaign import PointStatus
from harness.running.kinds import find_checkpoint
from harness.running.notes import known_jobs
from harness.running.prepare import DEFAULT_OUTPUT, Place, chosen_site
from harness.running.request import Outcome, carry_out, failed
from harness.running.run import Run
from harness.sites import config
from harness.sites import site as sites
from harness.worker.agent.seating import SPEC, SUBMISSION

Row = TypeVar("Row", statuses.RunStatus, PointStatus)

# Fields of RunSpec that say nothing about a training, and those whose defaults are others there.
MEASURING = ("data", "data_cache", "warmup_steps", "steps", "repeats", "straggler_limit", "dilation", "bytes_scale")
TRAINING_DEFAULTS = {"learning_rate": 0.1, "timeout_s": 7 * 86400.0}
LAUNCH_DEFAULTS = {"repeats": 1}
RUNNING = (*WHERE_TO_RUN, *HOW_TO_RUN)


@contextmanager
def followed(quiet: bool, prefix: Callable[[], str] = lambda: "") -> Iterator[RunLine]:
    """A line that shows how runs go on; meanwhile signals interrupt them."""
    line = RunLine(not quiet, prefix=prefix)
    with signals_interrupt():
        try:
            yield line
        finally:
            line.clear()


def carried_out(requests: Sequence[RunSpec | Run], place: Place, given: Given) -> Outcome:
    """Carry out a request and follow it on the terminal. Without records, print the plans or jobs."""
    with followed(given["quiet"]) as line:
        wait, submitting, preflight = not given["no_wait"], not given["no_submit"], bool(given.get("preflight"))
        outcome = carry_out(requests, place, line, wait, submitting, preflight)
    if place.dry_run:
        print_refusals(outcome.refusals)
        click.echo(_plans(outcome, given["as_json"]))
    elif not outcome.records:
        submitted = [{"run": str(run.folder), "jobs": known_jobs(run.folder)} for run in outcome.runs]
        click.echo(json.dumps(submitted) if given["as_json"] else plans.submitted(outcome.jobs, given["no_submit"]))
    return outcome


def print_refusals(refusals: Sequence[str]) -> None:
    """Warn on stderr, before a plan, that without --dry-run it would be refused."""
    if refusals:
        several = f" ({len(refusals)} runs are too large)" if len(refusals) > 1 else ""
        click.echo(f"harness: without --dry-run this is refused: {refusals[0]}{several}", err=True)


def _plans(outcome: Outcome, as_json: bool) -> str:
    """The plans of a dry run. As JSON: an object for a single run, for several a list of them and one of jobs' scripts."""
    if as_json:
        of_runs = [
            {"spec": run.spec.model_dump(), "plan": run.plan.as_dict()}
            | ({"processes": launches.processes(run)} if run.spec.program else {})
            for run in outcome.runs
        ]
        if len(of_runs) > 1:
            return json.dumps({"runs": of_runs, "scripts": outcome.scripts}, indent=1)
        return json.dumps(of_runs[0] | ({"script": outcome.scripts[0]} if outcome.scripts else {}), indent=1)
    return "\n\n".join([*outcome.scripts, *(plans.plan(run) for run in outcome.runs)])


def measure(
    specs: Sequence[RunSpec],
    place: Place,
    given: dict[str, object],
    in_full: Callable[[Any, Path], str],
    table: Callable[[Sequence[Any]], str] | None = None,
) -> None:
    """Carry out ``specs`` and print their records: a single one ``in_full``, several as a ``table``, or their JSON.

    Raises RunFailed for the first run that has failed, or missed its target, after the others are printed.
    """
    outcome = carried_out(specs, place, given)
    records, first = outcome.records, outcome.runs[0]
    if len(records) == 1 and records[0].status != "completed":
        outcome.check()
    if records and given["as_json"]:
        texts = [record.to_json() for record in records]
        click.echo(texts[0] if len(texts) == 1 else f"[{','.join(texts)}]")
    elif len(records) > 1 and table:
        click.echo(f"{table(records)}\nrecords: {place.folder}/*/{first.record_file.name}")
    elif records:
        click.echo(in_full(records[0], first.record_file))
    outcome.check()


CHECKED_BEFORE = grouped(
    HOW, flag("--preflight", "check each node and each pair first; in the same job, and name the slow ones")
)


backends_in = partial(parts, example=",".join(backends.names()))


def several_of_each(every: str, nodes: str = "1") -> list[click.Option]:
    """Options for backends (``all`` are ``every``), numbers of nodes (by default ``nodes``) and MPI libraries, in turn."""
    return grouped(
        WHAT,
        option(
            "--backend",
            f"backends, such as pytorch:mpi; each with :FRAMEWORK and :TRANSPORT if wanted; all: {every}; "
            "see `harness list backends`",
            "A,B:C,…",
            ParsedText(backends_in),
            shell_complete=completing(backends.names),
        ),
        option(
            "-n --nodes",
            f"nodes with workers: 2, or 1,2,4; or 1..8 (doubling), or 1..4+1 (1, 2, 3, 4)  [default: {nodes}]",
            "SIZES",
            ParsedText(numbers),
        ),
        option(
            "--mpi",
            "the MPI library, where MPI carries something; of several each is measured  [default: that of the environment]",
            "A,B,…",
            ParsedText(partial(parts, example=",".join(MPI_LIBRARIES))),
            shell_complete=completing(COMPLETED["mpi"]),
        ),
    )


@click.command(
    "run",
    cls=GroupedCommand,
    params=[
        click.Argument(["first"], metavar="[BACKEND]", required=False, shell_complete=completing(backends.names)),
        *several_of_each("every backend on each framework over each transport"),
        *spec_options(leave_out=("backend", "nodes", "mpi")),
        *RUNNING,
        *CHECKED_BEFORE,
    ],
)
def run(first: str | None, **given: Any) -> None:
    """Measure backends: print img/s with its confidence interval, and write a record. Repeats of several take turns.

    `harness run --backend parameter_server,horovod:torch:gloo,pytorch:mpi --nodes 1,2`
    """
    if first:
        if given["backend"]:
            raise InvalidInput(f"{first}: --backend gives the backends already; leave one of them out")
        given["backend"] = backends_in(first)
    place = place_of(given)
    measure(specs_of(given, place), place, given, outcomes.summary, outcomes.comparison)


def _accuracy(text: str) -> Accuracy:
    metric, _, value = text.partition("=")
    if metric not in ("top1", "top5"):
        raise ValueError("must be an accuracy such as top1=0.76 or top5=93%")
    return Accuracy.model_validate({"metric": metric, "value": share(value)})


def _epochs(text: str) -> list[int]:
    """The epochs in ``30,60,80``; ``none`` for a rate that never falls."""
    try:
        return [] if text == "none" else [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError("must be whole epochs such as 30,60,80, or none") from None


TRAINING = {
    "until": ("top1=0.76", ParsedText(_accuracy)),
    "validation": ("PATH", click.STRING),
    "decay_epochs": ("N,M,…", ParsedText(_epochs)),
    "resume": ("RUN_DIR|FILE", ParsedText(lambda text: str(find_checkpoint(Path(text))))),
}
HOW_TO_TRAIN = grouped(
    "How to train",
    option("--data", "images to learn from: a folder in ImageNet's layout, or of TFRecord shards  [required]", "PATH"),
    *field_options(Training, TRAINING),
)


@click.command(
    "train",
    cls=GroupedCommand,
    params=[*HOW_TO_TRAIN, *spec_options(MEASURING, TRAINING_DEFAULTS, emulated=False), *RUNNING],
)
def train(**given: object) -> None:
    """Train until the validation images are classified well enough, and print the time that took.

    SGD with momentum, linear scaling of the learning rate and a gradual warm-up (Goyal et al. 2017, arXiv:1706.02677).
    After each epoch the validation images are classified and a checkpoint is written; any backend can go on from it.
    Exits with 1 if the accuracy of --until is not reached.

    `harness train --backend pytorch --nodes 2 --data PATH --until top1=0.76`
    """
    if given["data"] in (None, SYNTHETIC):
        raise InvalidInput("--data PATH is required: nothing can be learned from synthetic images, which are noise")
    fields = {name: given[name] for name in Training.model_fields if given[name] is not None}
    how = checked(Training, {"validation": given["data"]} | fields)
    spec = spec_of(given, **TRAINING_DEFAULTS, repeats=1, training=how)
    measure([spec], place_of(given), given, outcomes.training)


def program_options(*left_out: str) -> list[click.Option]:
    """An option for each field of a program that is not given as a command."""
    every = field_options(Program, {"pattern": ("REGEX", click.STRING)})
    return [option for option in every if option.name in OF_PROGRAM - {*left_out}]


@click.command(
    "launch",
    cls=GroupedCommand,
    context_settings={"allow_interspersed_args": False},
    params=[
        click.Argument(["command"], nargs=-1, required=True, metavar="-- COMMAND...", type=click.UNPROCESSED),
        *grouped(
            "What to start",
            *program_options(),
            *spec_options(UNUSED, LAUNCH_DEFAULTS, having=lambda backend: False, emulated=False),
        ),
        *(option for option in RUNNING if option.name != "environment"),
    ],
)
def launch(command: tuple[str, ...], **given: object) -> None:
    """Start COMMAND on every node as our own processes are started, and wait until all of them have ended.

    Each process finds its place in TF_CONFIG, or MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE and LOCAL_RANK, or as a rank of
    MPI (--mpi), or in its arguments, where {rank}, {task_index}, {job_name}, {ps_hosts}, {worker_hosts} and others are
    replaced (docs/launch.md). Exits with 1 if a process fails.

    `harness launch --nodes 2 --pattern 'total images/sec: ([0-9.]+)' -- python train.py --lr 0.1`
    """
    place = place_of(given)
    measure(specs_of(given, place, Subject(command=command), **LAUNCH_DEFAULTS), place, given, launches.summary)


RUN_DIRS = click.argument("paths", nargs=-1, metavar="[RUN_DIR]...", type=ANY_PATH)


def _runs(paths: Sequence[Path], note: str = SPEC) -> list[Run]:
    """The runs at or below ``paths``, or else in the usual --output, which is the config's, the site's, or runs/.

    Runs that make no sense are left out, and named on stderr.
    """
    if not paths:
        usual = config.read().folder
        if not usual and (site := chosen_site(None)[0]):
            usual = sites.find(site).output
        paths = (usual or DEFAULT_OUTPUT,)
    runs, problems = statuses.find(paths, note)
    for problem in problems:
        click.echo(f"harness: left out: {problem}", err=True)
    return runs


@click.group("jobs")
def jobs() -> None:
    """Show how far runs are, collect their records, or cancel them."""


@jobs.command("status", short_help="Show how far runs are, here and on a cluster")
@RUN_DIRS
@AS_JSON
def status(paths: tuple[Path, ...], as_json: bool) -> None:
    """How far runs are, here and on a cluster: the repeats or epochs that have ended, their jobs' states, their img/s.

    RUN_DIR is a run directory or a folder with some, such as that of a study.  [default: all in the usual --output]
    """
    rows = statuses.status(_runs(paths))
    print_status(rows, as_json, outcomes.runs)


@jobs.command("collect", short_help="Make the records of runs whose jobs have ended")
@RUN_DIRS
@click.option("--wait", is_flag=True, help="wait for the jobs first")
@QUIET
@AS_JSON
def collect(paths: tuple[Path, ...], wait: bool, quiet: bool, as_json: bool) -> None:
    """Make the records of runs on a cluster whose jobs have ended.  [default: all in the usual --output]

    Exits with 1 if a run has failed; one that is still queued or running is left alone.
    """
    runs = _runs(paths, SUBMISSION)
    if wait:
        with followed(quiet) as line:
            collecting.wait([run for run in runs if not run.record_file.exists()], line)
    collected = collecting.collect_all(runs)
    print_status(collected, as_json, outcomes.runs)
    for run_status in collected:
        if run_status.record and run_status.record.problem:
            raise failed(run_status.record, run_status.run)
        if run_status.state == "unreadable":
            raise RunFailed(f"{run_status.run.folder}: {run_status.problem}")


def print_status(rows: Sequence[Row], as_json: bool, table: Callable[[Sequence[Row]], str]) -> None:
    click.echo(json.dumps([row.as_dict() for row in rows]) if as_json else table(rows))


@jobs.command("cancel", short_help="Cancel the jobs of runs")
@click.argument("paths", nargs=-1, required=True, metavar="RUN_DIR...", type=ANY_PATH)
def cancel(paths: tuple[Path, ...]) -> None:
    """Cancel the jobs of runs on a cluster. Their measurements so far are kept, without a number."""
    print_cancelled(statuses.cancel(statuses.folders(paths, SUBMISSION)))


def print_cancelled(cancelled: Sequence[str]) -> None:
    click.echo(f"cancelled: {', '.join(cancelled)}" if cancelled else "nothing to cancel")
