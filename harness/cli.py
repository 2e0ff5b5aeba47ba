"""The commands. Thin: each one reads its options, calls one function, prints what it returns."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from harness import __version__
from harness.errors import HarnessError, InvalidInput, RunFailed
from harness.options import GroupedCommand, grouped, spec_fields, spec_options
from harness.plan import LAST_PORT

if TYPE_CHECKING:
    from harness.campaign import Campaign, Standing, Work
    from harness.environments import EnvironmentSpec, Variant
    from harness.record import Record
    from harness.report.terminal import ProgressLine
    from harness.run import Prepared, Run
    from harness.site_trial import Trial
    from harness.study import Study
    from harness.where import Where

INTERRUPTED = 130  # what shells report for a program that Ctrl-C ended


def main() -> NoReturn:
    """Entry point of ``harness``: errors become one line and an exit code (2: the request, 1: the run)."""
    try:
        code = cli.main(standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        code = _complain(f"{_in_one_line(error.format_message())} (see `harness --help`)", 2)
    except InvalidInput as error:
        code = _complain(_in_one_line(str(error)), error.exit_code)
    except HarnessError as error:
        code = _complain(str(error), error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        code = _complain("interrupted; no process is left running", INTERRUPTED)
    except BrokenPipeError:
        _abandon_stdout()  # its reader has gone and wants to hear nothing more
        code = 1
    except OSError as error:
        _abandon_stdout()
        code = _complain(f"{error.filename or 'cannot write the output'}: {error.strerror}", 1)
    sys.exit(code if isinstance(code, int) else 0)


def _complain(message: str, code: int) -> int:
    print(f"harness: {message}", file=sys.stderr)
    return code


def _in_one_line(message: str) -> str:
    """A complaint about a request is one line, whatever the values that it quotes hold."""
    return " ".join(message.split("\n"))


def _abandon_stdout() -> None:
    """Point stdout elsewhere, so that Python's own flush at exit cannot fail as well."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="harness")
def cli() -> None:
    """Measure and compare ways of distributing training on this machine or cluster."""


# --- run ---------------------------------------------------------------------------------------------------------------


def _run_options() -> list[click.Option]:
    return grouped(
        [
            click.Option(
                ["--output"], metavar="DIR", callback=_not_empty, help="folder for run directories  [default: runs]"
            ),
            click.Option(
                ["--env", "environment"],
                metavar="PATH",
                callback=_not_empty,
                help="Python environment to use instead of the built one",
            ),
            click.Option(
                ["--port"],
                type=click.IntRange(1, LAST_PORT),
                metavar="NUMBER",
                help="first port to listen on  [default: free ports are found]",
            ),
            click.Option(
                ["--dry-run"], is_flag=True, help="show every process with its host, role, command and environment"
            ),
            click.Option(["--json", "as_json"], is_flag=True, help="print JSON for scripts"),
            click.Option(["--quiet"], is_flag=True, help="no progress"),
        ],
        "How to run",
    )


def _site_options() -> list[click.Option]:
    return grouped(
        [
            click.Option(
                ["--site"],
                metavar="NAME|FILE",
                callback=_not_empty,
                help="cluster to run on, as SYSTEM or SYSTEM:PARTITION; see `harness list sites`  [default: this machine]",
            ),
            click.Option(
                ["--environ"],
                metavar="NAME",
                callback=_not_empty,
                help="one of the site's environments  [default: the first]",
            ),
            click.Option(
                ["-J", "--job-option", "job_options"],
                metavar="OPTION",
                multiple=True,
                help="option for the scheduler, such as reservation=maintenance; may be given several times",
            ),
            click.Option(
                ["--account"], metavar="NAME", callback=_not_empty, help="project that pays; short for -J account=NAME"
            ),
            click.Option(
                ["--time-limit"],
                metavar="1h30m",
                callback=_not_empty,
                help="of the job  [default: the sum of its repeats' --timeout, at most the site's]",
            ),
            click.Option(
                ["--hosts"], metavar="FILE", callback=_not_empty, help="host file, for sites that are reached with ssh"
            ),
            click.Option(
                ["--no-wait"], is_flag=True, help="submit and return; see `harness status` and `harness collect`"
            ),
            click.Option(
                ["--no-submit"],
                is_flag=True,
                help="write the run directory and the job script only, to submit it by hand",
            ),
        ],
        "Where to run",
    )


def _not_empty(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """An empty text is a shell variable that was not set, not a wish for the default."""
    if value == "":
        raise InvalidInput(f"{option.opts[0]} '': must not be empty")
    return value


def _run(**given: Any) -> None:
    """Measure one backend: 10 warm-up and 100 measured steps, 5 times in fresh processes, unless told otherwise.

    Prints img/s with its confidence interval and writes a record. `harness run --backend pytorch --nodes 2` is enough.
    """
    from harness import run
    from harness.report import terminal
    from harness.spec import RunSpec

    if given["backend"] is None:
        raise InvalidInput("--backend is required; see `harness list backends`")
    fields, own = spec_fields(given, [given["backend"]])
    spec = RunSpec.validated(**fields, options=own[given["backend"].replace("-", "_")])
    where = _where(given)
    prepared = where.prepare(spec)
    if given["dry_run"]:
        click.echo(_dry_run(prepared, where, given["as_json"]))
        return
    records = _carry_out([run.Run.checked(prepared)], where, given)
    if records is None:
        return
    record, path = records[0], prepared.run_dir / "record.json"
    if record.derived is None:
        raise _failed(record, path)
    click.echo(record.model_dump_json(by_alias=True) if given["as_json"] else terminal.summary(record, str(path)))


def _compare(**given: Any) -> None:
    """Measure several backends at several sizes, repeats interleaved, and print one table.

    `harness compare-backends --backends parameter_server,horovod:torch:gloo,pytorch:mpi --nodes 1,2`
    """
    from harness import backend, run
    from harness.comparison import contenders
    from harness.report import terminal
    from harness.spec import RunSpec

    text, sizes = given.pop("backends"), _list("--nodes", given.pop("nodes"), ["1", "2"])
    names = None if text is None else _list("--backends", text, backend.names())
    where = _where(given)
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
    records = _carry_out([run.Run.checked(one) for one in prepared], where, given)
    if records is None:
        return
    if given["as_json"]:
        click.echo("[" + ",".join(record.model_dump_json(by_alias=True) for record in records) + "]")
    else:
        click.echo(f"{terminal.equal_terms(records[0].spec)}\n")
        click.echo(terminal.comparison(records))
        click.echo(f"\nrecords: {where.output}/*/record.json")
    failed = [(record, one) for record, one in zip(records, prepared, strict=True) if record.derived is None]
    if failed:
        raise _failed(failed[0][0], failed[0][1].run_dir / "record.json")


def _where(given: dict[str, Any]) -> Where:
    from harness.where import Where

    return Where.chosen(
        site=given["site"],
        environ=given["environ"],
        job_options=[*given["job_options"], *([f"account={given['account']}"] if given["account"] else [])],
        time_limit=given["time_limit"],
        hosts=_path(given["hosts"]),
        output=_path(given["output"]),
        port=given["port"],
        environment=_path(given["environment"]),
        dry_run=given["dry_run"],
    )


def _carry_out(runs: list[Run], where: Where, given: dict[str, Any]) -> list[Record] | None:
    """Measure here or have it measured by a batch system; None when nobody waits for that."""
    from harness import batch, run
    from harness.report import terminal

    line = terminal.ProgressLine(enabled=not given["quiet"])
    if not runs[0].prepared.queued:
        if given["no_wait"] or given["no_submit"]:
            raise InvalidInput(
                f"--no-{'wait' if given['no_wait'] else 'submit'}: there is no batch system without --site"
            )
        with _signals_interrupt():
            try:
                return run.execute(runs, line)
            finally:
                line.clear()
    submitted = batch.send(runs, where.request, submitting=not given["no_submit"])
    if given["no_wait"] or given["no_submit"]:
        told = [{"run": str(run.folder), "jobs": batch.known_jobs(run.folder)} for run in runs]
        click.echo(json.dumps(told) if given["as_json"] else terminal.submitted(submitted, bool(given["no_submit"])))
        return None
    return _wait(runs, line)


def _wait(runs: list[Run], line: ProgressLine, study: str | None = None) -> list[Record]:
    """Wait for the records of ``runs``, the runs of a study if ``study`` is what commands call it."""
    from harness import batch

    with _signals_interrupt():
        try:
            return batch.wait(runs, line)
        except KeyboardInterrupt as signal_name:
            ids = list(dict.fromkeys(job for run in runs for job in batch.known_jobs(run.folder)))
            jobs = f"the jobs ({', '.join(ids)})" if len(ids) < 20 else f"its {len(ids)} jobs"
            which, of = ("study ", study) if study else ("", " ".join(str(run.folder) for run in runs))
            raise batch.GoesOn(
                f"{signal_name or 'interrupted'}; {jobs} go on and nothing is lost\n"
                f"    harness {which}status {of}\n    harness {which}collect {of}\n    harness {which}cancel {of}"
            ) from None
        finally:
            line.clear()


def _failed(record: Record, path: Path) -> RunFailed:
    return RunFailed(f"{record.spec.backend}: {record.reason}\nno number; logs and record: {path.parent}")


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """While a run is on, SIGTERM and SIGHUP end it as Ctrl-C does: cleanly, with a record. Later ones are ignored."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt(number: int, frame: object) -> None:
        for one in numbers:
            signal.signal(one, signal.SIG_IGN)  # the end is short, and must not be cut off
        raise KeyboardInterrupt(f"interrupted by {signal.Signals(number).name}")

    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _dry_run(prepared: Prepared, where: Where, as_json: bool) -> str:
    from harness.report import terminal

    scripts = where.scripts([prepared])
    if as_json:
        document = {"spec": prepared.spec.model_dump(), "plan": prepared.plan.as_dict()}
        return json.dumps(document | ({"script": scripts[0]} if scripts else {}), indent=1)
    return "\n\n".join([*scripts, terminal.plan(prepared)])


def _dry_run_of_all(prepared: list[Prepared], where: Where) -> str:
    from harness.report import terminal

    return "\n\n".join([*where.scripts(prepared), *map(terminal.plan, prepared)])


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _list(option: str, text: str | None, default: list[str]) -> list[str]:
    if text is None:
        return default
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise InvalidInput(f"{option} '{text}': must be a list such as {','.join(default)}")
    return parts


cli.add_command(
    GroupedCommand("run", params=[*spec_options(), *_site_options(), *_run_options()], callback=_run, help=_run.__doc__)
)
cli.add_command(
    GroupedCommand(
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
            *_site_options(),
            *_run_options(),
        ],
        callback=_compare,
        help=_compare.__doc__,
    )
)


@cli.command("table")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
def table(paths: tuple[Path, ...]) -> None:
    """Print the table of the records at or below PATHS."""
    from harness import record
    from harness.report import terminal

    records = [record.read(path) for path in record.find(paths)]
    if not records:
        raise InvalidInput(f"no {record.FILE_NAME} at or below {', '.join(map(str, paths))}")
    click.echo(terminal.comparison(records))


# --- batch jobs --------------------------------------------------------------------------------------------------------

RUN_DIRS = click.argument("paths", nargs=-1, metavar="[RUN_DIR]...", type=click.Path(path_type=Path))
AS_JSON = click.option("--json", "as_json", is_flag=True, help="print JSON for scripts")


@cli.command("status")
@RUN_DIRS
@AS_JSON
def status(paths: tuple[Path, ...], as_json: bool) -> None:
    """How far runs on a cluster are: their jobs' states, the repeats that have ended.  [default: all in runs/]"""
    from harness import batch
    from harness.report import terminal

    found = batch.standings([batch.reopen(folder) for folder in batch.find(paths or [Path("runs")])])
    click.echo(json.dumps([batch.as_json(one) for one in found]) if as_json else terminal.standings(found))


@cli.command("collect")
@RUN_DIRS
@click.option("--wait", is_flag=True, help="wait for the jobs first")
@click.option("--quiet", is_flag=True, help="no progress")
@AS_JSON
def collect(paths: tuple[Path, ...], wait: bool, quiet: bool, as_json: bool) -> None:
    """Make the records of runs on a cluster whose jobs have ended.  [default: all in runs/]

    Exits with 1 if a run has failed; one that is still queued or running is left alone.
    """
    from harness import batch
    from harness.record import FILE_NAME
    from harness.report import terminal

    runs = [batch.reopen(folder) for folder in batch.find(paths or [Path("runs")])]
    if wait:
        _wait([run for run in runs if not (run.folder / FILE_NAME).exists()], terminal.ProgressLine(enabled=not quiet))
    found = batch.collect_all(runs)
    click.echo(json.dumps([batch.as_json(one) for one in found]) if as_json else terminal.standings(found))
    for one in found:
        if one.record and one.record.derived is None:
            raise _failed(one.record, one.run.folder / FILE_NAME)


@cli.command("cancel")
@click.argument("paths", nargs=-1, required=True, metavar="RUN_DIR...", type=click.Path(path_type=Path))
def cancel(paths: tuple[Path, ...]) -> None:
    """Cancel the jobs of runs on a cluster. What they have measured so far is kept, without a number."""
    from harness import batch

    runs = [batch.reopen(folder) for folder in batch.find(paths)]
    ids = batch.cancel(runs)
    click.echo(f"cancelled: {', '.join(ids)}" if ids else "nothing to cancel")


# --- studies -----------------------------------------------------------------------------------------------------------


@cli.group()
def study() -> None:
    """Measure a matrix of runs that a file describes; whatever is interrupted goes on where it was."""


def _study_run(**given: Any) -> None:
    """Measure the points of the study FILE that have not been measured yet, and print the table of all.

    Exits with 1 if a point has no number in the end; the others go on without it.
    """
    from harness import campaign
    from harness.report import terminal

    described, where = _described(given)
    if given["dry_run"]:
        click.echo(_study_plan(campaign.Campaign.of(described, where), given))
        return
    with campaign.Campaign.at_work(described, where) as current:
        current.collect()
        work = current.work(given["retry_failed"])
        _measure(current, work, given)
        found = current.standings()
    tell = terminal.study if given["no_wait"] else terminal.study_outcome
    click.echo(json.dumps([one.as_dict() for one in found]) if given["as_json"] else tell(found))
    if problem := campaign.problem(found, len(work), _named(given)):
        raise problem


def _measure(current: Campaign, work: list[Work], given: dict[str, Any]) -> None:
    """Measure ``work`` here or have it measured by a batch system, and wait for that unless nobody wants to."""
    from harness import campaign, run
    from harness.report import terminal

    line = terminal.ProgressLine(not given["quiet"], prefix=current.progress)
    if not current.where.queued:
        if given["no_wait"]:
            raise InvalidInput("--no-wait: there is no batch system without --site")
        if not work:
            return
        current.note(work)
        with _signals_interrupt():
            try:
                run.execute([one.run for one in work], line)
            except KeyboardInterrupt as signal_name:
                raise campaign.Stopped(
                    f"{signal_name or 'interrupted'}; no process is left running\n"
                    f"    harness study run {_named(given)} --retry-failed"
                ) from None
            finally:
                line.clear()
        return
    try:
        current.submit(work, current.max_jobs(given["max_jobs"]))
    except KeyboardInterrupt:
        raise campaign.Stopped(
            f"interrupted while jobs were submitted; those that are go on\n    harness study run {_named(given)}"
        ) from None
    if not given["no_wait"]:
        _wait(current.waiting(), line, _named(given))


def _named(given: dict[str, Any]) -> str:
    """The study as the next command has to name it: its file, and the options that say where it is."""
    options = [text for name in ("site", "environ", "output") if given[name] for text in (f"--{name}", given[name])]
    return shlex.join([str(given["file"]), *options])


def _study_plan(current: Campaign, given: dict[str, Any]) -> str:
    from harness import batch
    from harness.report import terminal

    found, work = current.standings(), current.work(given["retry_failed"], checked=False)
    jobs = current.jobs(work) if current.where.queued else []
    script = batch.job_script(jobs[0], [one.run.prepared for one in work], current.where.request) if jobs else ""
    lanes = current.max_jobs(given["max_jobs"])
    if given["as_json"]:
        listed = [{"name": job.name, "nodes": job.nodes, "lane": n % lanes} for n, job in enumerate(jobs)]
        return json.dumps({"points": [one.as_dict() for one in found], "jobs": listed, "script": script})
    return terminal.study_plan(found, jobs, lanes, script)


def _described(given: dict[str, Any]) -> tuple[Study, Where]:
    """The study of ``given["file"]`` and where it takes place: --site is asked before the file."""
    from harness import study as studies

    described = studies.read(given["file"])
    return described, _where(NOWHERE | given | {"site": given["site"] or described.content.site})


# What the options that say where to run are, for commands that have only some of them.
NOWHERE: dict[str, Any] = dict.fromkeys(
    ("site", "environ", "account", "time_limit", "hosts", "output", "port", "environment")
) | {"job_options": (), "dry_run": False}
STUDY_FILE = click.Argument(["file"], metavar="FILE", type=click.Path(path_type=Path))

study.add_command(
    GroupedCommand(
        "run",
        params=[
            STUDY_FILE,
            *grouped(
                [
                    click.Option(["--retry-failed"], is_flag=True, help="measure failed and interrupted points again"),
                    click.Option(
                        ["--max-jobs"],
                        type=click.IntRange(1, 10_000),
                        metavar="NUMBER",
                        help="jobs that may run at once  [default: the study's, else the site's, else 8]",
                    ),
                ],
                "What to measure",
            ),
            *[option for option in _site_options() if option.name != "no_submit"],
            *_run_options(),
        ],
        callback=_study_run,
        help=_study_run.__doc__,
    )
)


def _study_status(**given: Any) -> None:
    """How far the points of the study FILE are. Changes nothing."""
    _show(_campaign(given), given)


def _study_collect(**given: Any) -> None:
    """Make the records of the study FILE's jobs that have ended. Exits with 1 if a point has failed or is refused."""
    from harness import campaign

    current = _campaign(given)
    current.collect()
    if problem := campaign.problem(_show(current, given), 0, _named(given)):
        raise problem


def _study_cancel(**given: Any) -> None:
    """Cancel all jobs of the study FILE. What is measured already is kept."""
    ids = _campaign(given).cancel()
    click.echo(f"cancelled: {', '.join(ids)}" if ids else "nothing to cancel")


def _campaign(given: dict[str, Any]) -> Campaign:
    from harness import campaign

    return campaign.Campaign.of(*_described(given))


def _show(current: Campaign, given: dict[str, Any]) -> list[Standing]:
    from harness.report import terminal

    found = current.standings()
    click.echo(json.dumps([one.as_dict() for one in found]) if given["as_json"] else terminal.study(found))
    return found


for _name, _callback in {"status": _study_status, "collect": _study_collect, "cancel": _study_cancel}.items():
    _chosen = ("site", "environ", "output", *(() if _name == "cancel" else ("as_json",)))
    study.add_command(
        click.Command(
            _name,
            params=[STUDY_FILE, *(one for one in [*_site_options(), *_run_options()] if one.name in _chosen)],
            callback=_callback,
            help=_callback.__doc__,
        )
    )


# --- list --------------------------------------------------------------------------------------------------------------


@cli.group("list")
def list_() -> None:
    """Show what there is."""


@list_.command("backends")
@click.option("--json", "as_json", is_flag=True, help="print JSON for scripts")
def list_backends(as_json: bool) -> None:
    """The backends, which of them can run here, and what the others lack."""
    from harness import readiness
    from harness.report import terminal

    found = readiness.survey()
    click.echo(json.dumps([vars(one) for one in found], indent=1) if as_json else terminal.readiness(found))


@list_.command("models")
def list_models() -> None:
    """The models, with their parameters and sizes."""
    from harness import models

    for name in models.names():
        model = models.specification(name)
        largest = max(model.tensors, key=lambda tensor: tensor.elements)
        click.echo(
            f"{name:12} {model.parameters / 1e6:6.2f} M parameters  "
            f"{model.bytes / 1e6:6.1f} MB in {len(model.tensors)} tensors, largest {largest.bytes / 1e6:.2f} MB  "
            f"{model.image_size} px  {model.description}"
        )


@list_.command("environments")
def list_environments() -> None:
    """The backends' environments, CPU and CUDA, with their state and folder."""
    from harness import backend, environments

    for found in backend.working():
        for framework in found.frameworks:
            for wanted in (found.environment(framework, "cpu"), found.environment(framework, "cuda")):
                state = environments.status(wanted)
                try:
                    where = str(environments.path(wanted))
                except environments.EnvironmentProblem as problem:
                    where = str(problem)
                click.echo(f"{found.name:22} {framework:10} {wanted.variant:5} {state:8} {where}")


@list_.command("sites")
@click.option("--json", "as_json", is_flag=True, help="print JSON for scripts")
def list_sites(as_json: bool) -> None:
    """The site profiles, built in and yours: their partitions, schedulers and nodes."""
    from harness import site

    found, broken = site.survey()
    if as_json:
        click.echo(json.dumps([vars(one) for one in found], indent=1))
    else:
        width = max((len(one.name) for one in found), default=0)
        for one in found:
            click.echo(f"{one.name:{width}}  {one.scheduler:7}{one.origin:10}{one.node:24}  {one.descr}".rstrip())
    for file in broken:
        click.echo(f"harness: {file.path} is broken; see `harness site check`", err=True)


# --- site --------------------------------------------------------------------------------------------------------------


@cli.group("site")
def site_() -> None:
    """Check and show site profiles."""


@site_.command("check")
@click.argument("names", nargs=-1, metavar="[NAME|FILE]...")
@click.option("--offline", is_flag=True, help="do not ask Slurm")
@click.option("--json", "as_json", is_flag=True, help="print JSON for scripts")
def site_check(names: tuple[str, ...], offline: bool, as_json: bool) -> None:
    """Check site files, all of them unless told which, and ask Slurm whether it would take their jobs.

    Slurm is asked with `sbatch --test-only`: nothing is submitted.
    """
    from harness import site, site_trial

    found, reports = 0, []
    for file in site.checked_files(names):
        trials = site_trial.trials(file, offline, named=bool(names))
        problems = [*site.problems(file), *(problem for trial in trials for problem in trial.problems)]
        found += len(problems)
        reports.append(
            {"file": str(file.path), "problems": list(map(vars, problems)), "sites": list(map(_tried, trials))}
        )
        if not as_json:
            for problem in problems:
                click.echo(problem)
            for trial in [] if problems else trials:
                click.echo(f"ok  {trial.site}  {file.path}{f'  ({trial.remark})' if trial.remark else ''}")
    if as_json:
        click.echo(json.dumps(reports, indent=1))
    if found:
        raise InvalidInput(f"{found} problem{'s' * (found > 1)} in site profiles")


def _tried(trial: Trial) -> dict[str, str]:
    return {"name": trial.site, "remark": trial.remark}


@site_.command("show")
@click.argument("name")
@click.option("--environ", metavar="NAME", callback=_not_empty, help="with this one of its environments")
@click.option("--json", "as_json", is_flag=True, help="print JSON for scripts")
def site_show(name: str, environ: str | None, as_json: bool) -> None:
    """Show what a run gets from the site NAME: its system, partition and environment, merged."""
    from harness import site

    target = site.find(name, environ)
    if as_json:
        click.echo(json.dumps(target.as_dict(), indent=1))
        return
    for field, value in site.values(target).items():
        click.echo(f"{field:24} {value}")


@site_.command("path")
@click.argument("name")
def site_path(name: str) -> None:
    """Print the file that describes the site NAME."""
    from harness import site

    click.echo(site.find(name).file)


# --- env ---------------------------------------------------------------------------------------------------------------


@cli.group()
def env() -> None:
    """Build, check and find the backends' environments."""


VARIANT = click.option("--variant", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
FRAMEWORK = click.option("--framework", metavar="NAME", help="for one of the backend's frameworks")


@env.command("build")
@click.argument("backends", nargs=-1, required=True, metavar="BACKEND...")
@VARIANT
@FRAMEWORK
def env_build(backends: tuple[str, ...], variant: Variant, framework: str | None) -> None:
    """Build the environments of each BACKEND, one for each of its frameworks, unless they are there already."""
    from harness import environments
    from harness.backend import backend

    wanted = [environment for name in backends for environment in backend(name).environments(variant, framework)]
    for environment in wanted:
        label = f"{environment.backend}{f' ({environment.framework})' if environment.framework else ''}"
        with _environment_problems():
            folder = environments.build(environment, lambda line, label=label: click.echo(f"{label}: {line}", err=True))  # type: ignore[misc]
        click.echo(f"{label}: ready at {folder}")


@env.command("check")
@click.argument("name", metavar="BACKEND")
@click.option("--env", "given", type=click.Path(path_type=Path), help="check this environment instead")
@VARIANT
@FRAMEWORK
def env_check(name: str, given: Path | None, variant: Variant, framework: str | None) -> None:
    """Import what BACKEND needs in its environment, and compare its packages with the pinned ones."""
    from harness.backend import backend

    # Of several frameworks a given environment is for one: the first, unless it is named.
    every = backend(name).environments(variant, framework)
    for wanted in every if given is None else every[:1]:
        _check(wanted, given)


def _check(wanted: EnvironmentSpec, given: Path | None) -> None:
    from harness import environments

    with _environment_problems():
        report = environments.check(wanted, None if given is None else environments.at(given, wanted))
    click.echo(f"{report.python}  Python {report.python_version}  checked in {report.seconds:.1f} s")
    for module, version in report.imported.items():
        click.echo(f"  {module} {version}")
    for module, reason in report.failed.items():
        click.echo(f"  {module} does not import: {reason}")
    for package, (pinned, installed) in report.mismatched.items():
        click.echo(f"  {package} is {installed or 'missing'}, pinned {pinned}")
    if report.failed or (report.mismatched and given is None):
        raise InvalidInput(f"the environment of {wanted.backend} is not as it should be: {report.python}")


@env.command("path")
@click.argument("name", metavar="BACKEND")
@VARIANT
@FRAMEWORK
def env_path(name: str, variant: Variant, framework: str | None) -> None:
    """Print the folder of BACKEND's environment. Fails if it is not built."""
    from harness import environments
    from harness.backend import backend

    with _environment_problems():
        wanted = backend(name).environments(variant, framework)[0]
        environments.require(wanted)
        click.echo(environments.path(wanted))


@contextmanager
def _environment_problems() -> Iterator[None]:
    """Environment errors as this program's: a failed build is a failed action (1), anything else a wrong request (2)."""
    from harness import environments

    try:
        yield
    except environments.BuildFailed as problem:
        raise RunFailed(str(problem)) from None
    except environments.EnvironmentProblem as problem:
        raise InvalidInput(str(problem)) from None


# --- data --------------------------------------------------------------------------------------------------------------


PIXELS = click.IntRange(1, 4096)


@cli.group()
def data() -> None:
    """Make data for trials."""


@data.command("make")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--images", type=int, default=256, show_default=True, help="number of JPEGs")
@click.option("--classes", type=int, default=8, show_default=True, help="number of classes, one folder each")
@click.option("--width", type=PIXELS, default=500, show_default=True, help="pixels")
@click.option("--height", type=PIXELS, default=375, show_default=True, help="pixels")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
def data_make(path: Path, images: int, classes: int, width: int, height: int, seed: int) -> None:
    """Write a small JPEG data set in ImageNet's layout to the new folder PATH."""
    from harness.inputs import index, make

    try:
        written = make.make(path, images, classes, (width, height), seed)
    except index.DataError as error:
        raise InvalidInput(str(error)) from None
    except OSError as error:
        raise RunFailed(f"cannot write {error.filename or path}: {error.strerror}") from None
    click.echo(f"{images} images of {classes} classes, {written / 1e6:.1f} MB, in {path}")
