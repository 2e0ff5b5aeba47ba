"""Studies: run, status, collect and cancel."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.common import run_options, signals_interrupt, site_options, wait_for, where_of
from harness.cli.options import GroupedCommand, grouped

if TYPE_CHECKING:
    from harness.running.campaign import Campaign, Standing, Work
    from harness.running.study import Study
    from harness.running.where import Where


@click.group()
def study() -> None:
    """Measure a matrix of runs that a file describes; whatever is interrupted goes on where it was."""


def _study_run(**given: Any) -> None:
    """Measure the points of the study FILE that have not been measured yet, and print the table of all.

    Exits with 1 if a point has no number in the end; the others go on without it.
    """
    from harness.report.text import outcomes
    from harness.running import campaign

    file, where = described(given)
    if given["dry_run"]:
        click.echo(_study_plan(campaign.Campaign.of(file, where), given))
        return
    found, tried = measured(file, where, given)
    tell = outcomes.study if given["no_wait"] else outcomes.of_study
    click.echo(json.dumps([one.as_dict() for one in found]) if given["as_json"] else tell(found))
    if problem := campaign.problem(found, tried, _named(given)):
        raise problem


def measured(file: Study, where: Where, given: dict[str, Any]) -> tuple[list[Standing], int]:
    """Measure what is not measured yet. Returns how far every point is then, and how many were to be measured."""
    from harness.running import campaign

    with campaign.Campaign.at_work(file, where) as current:
        current.collect()
        work = current.work(given["retry_failed"])
        _measure(current, work, given)
        return current.standings(), len(work)


def _measure(current: Campaign, work: list[Work], given: dict[str, Any]) -> None:
    """Measure ``work`` here or have it measured by a batch system, and wait for that unless nobody wants to."""
    from harness.report.text.progress import RunLine
    from harness.running import campaign, run
    from harness.running.where import no_batch_system

    line = RunLine(not given["quiet"], prefix=current.progress)
    if not current.where.queued:
        if given["no_wait"]:
            raise no_batch_system("--no-wait", current.where.site)
        if not work:
            return
        current.note(work)
        with signals_interrupt():
            try:
                run.execute([one.run for one in work], line.progress)
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
        wait_for(current.waiting(), line, _named(given))


def _named(given: dict[str, Any]) -> str:
    """The study as the next command has to name it: its file, and the options that say where it is."""
    options = [text for name in ("site", "environ", "output") if given[name] for text in (f"--{name}", given[name])]
    return shlex.join([str(given["file"]), *options])


def _study_plan(current: Campaign, given: dict[str, Any]) -> str:
    from harness.report.text import plans
    from harness.running import submission

    found, work = current.standings(), current.work(given["retry_failed"], checked=False)
    jobs = current.jobs(work) if current.where.queued else []
    script = submission.job_script(jobs[0], [one.run.prepared for one in work], current.where.request) if jobs else ""
    lanes = current.max_jobs(given["max_jobs"])
    if given["as_json"]:
        listed = [{"name": job.name, "nodes": job.nodes, "lane": n % lanes} for n, job in enumerate(jobs)]
        return json.dumps({"points": [one.as_dict() for one in found], "jobs": listed, "script": script})
    return plans.study(found, jobs, lanes, script)


def described(given: dict[str, Any]) -> tuple[Study, Where]:
    """The study of ``given["file"]`` and where it takes place: --site is asked before the file."""
    from harness.running import study as studies

    found = studies.read(given["file"])
    return found, where_of(NOWHERE | given | {"site": given["site"] or found.content.site})


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
            *[option for option in site_options() if option.name != "no_submit"],
            *run_options(),
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
    from harness.running import campaign

    current = _campaign(given)
    current.collect()
    if problem := campaign.problem(_show(current, given), 0, _named(given)):
        raise problem


def _study_cancel(**given: Any) -> None:
    """Cancel all jobs of the study FILE. What is measured already is kept."""
    ids = _campaign(given).cancel()
    click.echo(f"cancelled: {', '.join(ids)}" if ids else "nothing to cancel")


def _campaign(given: dict[str, Any]) -> Campaign:
    from harness.running import campaign

    return campaign.Campaign.of(*described(given))


def _show(current: Campaign, given: dict[str, Any]) -> list[Standing]:
    from harness.report.text import outcomes

    found = current.standings()
    click.echo(json.dumps([one.as_dict() for one in found]) if given["as_json"] else outcomes.study(found))
    return found


for _name, _callback in {"status": _study_status, "collect": _study_collect, "cancel": _study_cancel}.items():
    _chosen = ("site", "environ", "output", *(() if _name == "cancel" else ("as_json",)))
    study.add_command(
        click.Command(
            _name,
            params=[STUDY_FILE, *(one for one in [*site_options(), *run_options()] if one.name in _chosen)],
            callback=_callback,
            help=_callback.__doc__,
        )
    )
