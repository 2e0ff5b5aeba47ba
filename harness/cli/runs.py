"""Measuring and training: run, measure, train; and status, collect and cancel for runs on a cluster."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from harness.analysis.evidence import io_overhead
from harness.cli import config
from harness.cli.common import (
    ANY_PATH,
    AS_JSON,
    QUIET,
    WATCH,
    ParsedText,
    completing,
    follow,
    numbers,
    parts,
    share,
    signals_interrupt,
)
from harness.cli.config import without_strangers
from harness.cli.options import (
    COMPLETED,
    HOW_TO_RUN,
    WHERE_TO_RUN,
    MeasuringCommand,
    field_options,
    flag,
    grouped,
    option,
    place_of,
    spec_of,
    spec_options,
)
from harness.core import backend
from harness.core.spec import MPI_LIBRARIES, SYNTHETIC, Accuracy, RunSpec, Training
from harness.core.validation import checked
from harness.errors import InvalidInput, RunFailed
from harness.records.measurement import Record
from harness.records.training import TrainingRecord
from harness.report.text import launches, outcomes, plans
from harness.report.text.progress import RunLine
from harness.running import collect as collecting
from harness.running import status as statuses
from harness.running.kinds import find_checkpoint
from harness.running.notes import known_jobs
from harness.running.prepare import DEFAULT_OUTPUT, Place, chosen_site
from harness.running.request import Outcome, carry_out, failed
from harness.running.run import Run
from harness.sites import site as sites
from harness.worker.agent.seating import SPEC, SUBMISSION

# Fields of RunSpec that say nothing about a training, and those whose defaults are others there.
MEASURING = ("data", "data_cache", "warmup_steps", "steps", "repeats", "straggler_limit", "dilation", "bytes_scale")
TRAINING_DEFAULTS = {"learning_rate": 0.1, "timeout_s": 7 * 86400.0}


IN_FULL = grouped(
    "How to run", flag("--all everything", "with --dry-run: every process, not five of each role and how many more")
)
RUNNING = (*WHERE_TO_RUN, *HOW_TO_RUN, *IN_FULL)


@contextmanager
def followed(quiet: bool, prefix: Callable[[], str] = lambda: "", line: RunLine | None = None) -> Iterator[RunLine]:
    """A line that shows how runs go on; meanwhile signals interrupt them."""
    line = line or RunLine(not quiet, prefix=prefix)
    with signals_interrupt():
        try:
            yield line
        finally:
            line.clear()


def carried_out(
    wanted: Sequence[RunSpec | Run], place: Place, given: dict[str, Any], line: RunLine | None = None
) -> Outcome:
    """Carry out a request and follow it on the terminal, in its own ``line``. Without records, print the plans or jobs."""
    if given["everything"] and not place.dry_run:
        raise InvalidInput("--all: is for --dry-run, which is missing")
    with followed(given["quiet"], line=line) as line:
        wait, submitting, preflight = not given["no_wait"], not given["no_submit"], bool(given.get("preflight"))
        outcome = carry_out(wanted, place, line, wait, submitting, preflight)
    if place.dry_run:
        print_refusals(outcome.refusals)
        click.echo(_plans(outcome, given["as_json"], given["everything"]))
    elif not outcome.records:
        jobs = [{"run": str(run.folder), "jobs": known_jobs(run.folder)} for run in outcome.runs]
        click.echo(json.dumps(jobs) if given["as_json"] else plans.submitted(outcome.jobs, given["no_submit"]))
    return outcome


def print_refusals(refusals: Sequence[str]) -> None:
    """Say on stderr, before a plan, that without --dry-run it would be refused."""
    if refusals:
        several = f" ({len(refusals)} runs are too large)" if len(refusals) > 1 else ""
        click.echo(f"harness: without --dry-run this is refused: {refusals[0]}{several}", err=True)


def _plans(outcome: Outcome, as_json: bool, everything: bool) -> str:
    """What would be done. As JSON: of a single run an object, of several a list of them and one of the jobs' scripts."""
    if as_json:
        of_runs = [
            {"spec": run.spec.model_dump(), "plan": run.plan.as_dict()}
            | ({"processes": launches.processes(run)} if run.spec.program else {})
            for run in outcome.runs
        ]
        if len(of_runs) > 1:
            return json.dumps({"runs": of_runs, "scripts": outcome.scripts}, indent=1)
        return json.dumps(of_runs[0] | ({"script": outcome.scripts[0]} if outcome.scripts else {}), indent=1)
    return "\n\n".join([*outcome.scripts, *(plans.plan(run, everything) for run in outcome.runs)])


CHECKED_BEFORE = grouped(
    "How to run", flag("--preflight", "before, in the same job, check each node and each pair, and name what is slow")
)
BOTH = "measure on synthetic images too, repeats interleaved, and say what those of --data cost"
COMPARE_SYNTHETIC = grouped("What to measure", flag("--compare-synthetic", BOTH))


@click.command(
    "run",
    cls=MeasuringCommand,
    params=[*spec_options(), *COMPARE_SYNTHETIC, *WHERE_TO_RUN, *HOW_TO_RUN, *CHECKED_BEFORE, *IN_FULL],
)
def run(**given: Any) -> None:
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
    outcome.check()
    records = [record for record in outcome.records if isinstance(record, Record)]
    files = [str(run.record_file) for run in outcome.runs]
    if len(records) == 2:
        real, synthetic = records
        overhead = io_overhead(real, synthetic)
        if given["as_json"]:
            documents = {"real": json.loads(real.to_json()), "synthetic": json.loads(synthetic.to_json())}
            click.echo(json.dumps(documents | {"io_overhead": asdict(overhead)}))
            return
        click.echo(outcomes.io_overhead(overhead, synthetic, files[1]))
    if records:
        click.echo(records[0].to_json() if given["as_json"] else outcomes.summary(records[0], files[0]))


BACKENDS = ParsedText(partial(parts, example=",".join(backend.names())))


def backends_option(default: str) -> click.Option:
    explained = f"backends, each with :FRAMEWORK and :TRANSPORT if wanted  [default: {default}]"
    return option("--backends", explained, "A,B:C,…", BACKENDS, shell_complete=completing(backend.names))


SEVERAL_NODES = option(
    "--nodes", "2, or 1,2,4, or 1..8 (doubling), or 1..4+1 (1, 2, 3, 4)", "SIZES", ParsedText(numbers), default="1,2"
)
UNDER_EACH = option(
    "--mpi",
    "MPI libraries: what goes over MPI is measured under each  [default: that of the environment]",
    "A,B,…",
    ParsedText(partial(parts, example=",".join(MPI_LIBRARIES))),
    shell_complete=completing(COMPLETED["mpi"]),
)
COMPARED = grouped(
    "What to compare", backends_option("every backend, framework and transport"), SEVERAL_NODES, UNDER_EACH
)


@click.command(
    "measure",
    cls=MeasuringCommand,
    params=[*COMPARED, *spec_options(leave_out=("backend", "nodes", "mpi")), *RUNNING],
)
def measure(backends: list[str] | None, nodes: list[int], mpi: list[str] | None, **given: Any) -> None:
    """Measure several backends at several sizes, repeats interleaved, and print one table.

    `harness measure --backends parameter_server,horovod:torch:gloo,pytorch:mpi --nodes 1,2`

    `harness measure --backends pytorch:mpi,horovod:torch:mpi --mpi mpich,intel --nodes 2`
    """
    place = place_of(given)
    device = place.device(given["device"] or "auto")
    chosen = backend.contenders(backends, device)
    sized = [contender | {"nodes": size} for contender in chosen for size in nodes]
    fitting = without_strangers(given, [contender["backend"] for contender in chosen])
    specs = backend.under_each(backend.specs_for(sized, fitting), mpi, device)
    outcome = carried_out(specs, place, given)
    records = [record for record in outcome.records if isinstance(record, Record)]
    if records and given["as_json"]:
        click.echo("[" + ",".join(record.to_json() for record in records) + "]")
    elif records:
        click.echo(outcomes.comparison(records))
        click.echo(f"\n{plans.equal_terms(records[0].spec)}\nrecords: {place.folder}/*/record.json")
    outcome.check()


def _accuracy(text: str) -> Accuracy:
    metric, _, value = text.partition("=")
    if metric not in ("top1", "top5"):
        raise ValueError("must be an accuracy such as top1=0.76 or top5=93%")
    return Accuracy.model_validate({"metric": metric, "value": share(value)})


def _epochs(text: str) -> list[int]:
    """``30,60,80``; ``none`` for a rate that never falls."""
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
    cls=MeasuringCommand,
    params=[*HOW_TO_TRAIN, *spec_options(MEASURING, TRAINING_DEFAULTS, emulated=False), *RUNNING],
)
def train(**given: Any) -> None:
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
    outcome = carried_out([spec], place_of(given), given)
    for record, run in zip(outcome.records, outcome.runs, strict=False):
        assert isinstance(record, TrainingRecord)
        if record.status == "completed":
            click.echo(record.to_json() if given["as_json"] else outcomes.training(record, run.record_file))
        if record.problem:
            error, way = failed(record, run.folder), run.continuation()
            raise type(error)(f"{error}\n{way}" if way and record.status != "completed" else str(error))


RUN_DIRS = click.argument("paths", nargs=-1, metavar="[RUN_DIR]...", type=ANY_PATH)


def _folders(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """``paths``; without any, where runs are written without --output: as the config or the site has it, or runs/."""
    if paths:
        return paths
    if output := config.defaults(HOW_TO_RUN).get("output"):
        return (Path(output),)
    site, _ = chosen_site(None)
    return ((sites.find(site).output if site else None) or DEFAULT_OUTPUT,)


@click.command("status")
@RUN_DIRS
@WATCH
@AS_JSON
def status(paths: tuple[Path, ...], watch: bool, as_json: bool) -> None:
    """How far runs are, here and on a cluster: the repeats or epochs that have ended, their jobs' states, their img/s.

    RUN_DIR is a run directory or a folder with some, such as that of a study.  [default: all in the usual --output]
    """
    runs = _found(_folders(paths))
    if watch:
        follow(lambda: statuses.status(runs), outcomes.runs, outcomes.run_lines, as_json)
    else:
        _print_status(statuses.status(runs), as_json)


@click.command("collect")
@RUN_DIRS
@click.option("--wait", is_flag=True, help="wait for the jobs first")
@QUIET
@AS_JSON
def collect(paths: tuple[Path, ...], wait: bool, quiet: bool, as_json: bool) -> None:
    """Make the records of runs on a cluster whose jobs have ended.  [default: all in the usual --output]

    Exits with 1 if a run has failed; one that is still queued or running is left alone.
    """
    runs = _found(_folders(paths), SUBMISSION)
    if wait:
        with followed(quiet) as line:
            collecting.wait([run for run in runs if not run.record_file.exists()], line)
    collected = collecting.collect_all(runs)
    _print_status(collected, as_json)
    for each in collected:
        if each.record and each.record.problem:
            raise failed(each.record, each.run.folder)
        if each.problem:
            raise RunFailed(f"{each.run.folder}: {each.problem}")


def _found(paths: Sequence[Path], note: str = SPEC) -> list[Run]:
    """The runs at or below ``paths``. Those that make no sense are left out, which is said on stderr."""
    runs, problems = statuses.find(paths, note)
    for problem in problems:
        click.echo(f"harness: left out: {problem}", err=True)
    return runs


def _print_status(runs: Sequence[statuses.RunStatus], as_json: bool) -> None:
    click.echo(json.dumps([each.as_dict() for each in runs]) if as_json else outcomes.runs(runs))


@click.command("cancel")
@click.argument("paths", nargs=-1, required=True, metavar="RUN_DIR...", type=ANY_PATH)
def cancel(paths: tuple[Path, ...]) -> None:
    """Cancel the jobs of runs on a cluster. What they have measured so far is kept, without a number."""
    print_cancelled(statuses.cancel(statuses.folders(paths, SUBMISSION)))


def print_cancelled(jobs: Sequence[str]) -> None:
    click.echo(f"cancelled: {', '.join(jobs)}" if jobs else "nothing to cancel")
