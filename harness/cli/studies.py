"""Studies: run, status, collect and cancel."""

import json
import shlex
from collections.abc import Callable
from typing import Any

import click

from harness.cli.options import WHAT, GroupedCommand, flag, grouped, option, place_of
from harness.cli.runs import RUNNING, followed, print_cancelled, print_refusals, print_status
from harness.cli.values import ANY_PATH, Given
from harness.core.text import plural
from harness.report.text import outcomes, plans
from harness.running.campaign import Campaign, problem
from harness.running.study import Study

FILE = click.Argument(["file"], type=ANY_PATH)
WHICH_POINTS = grouped(
    WHAT,
    flag("--retry-failed", "measure points again that have failed"),
    option(
        "--max-jobs",
        "jobs that may run at once  [default: the study's, else the site's, else 8]",
        "NUMBER",
        click.IntRange(1, 10_000),
    ),
)


@click.group()
def study() -> None:
    """Measure a matrix of runs that a file describes; whatever is interrupted goes on where it was."""


def _of_file(name: str, short_help: str, *options: str) -> Callable[[Callable[..., None]], click.Command]:
    """A command for the study in a file, with the ``options`` and those that say where the study is."""
    names = ("site", "environ", "output", *options)
    params = [FILE, *(option for option in RUNNING if option.name in names)]
    return study.command(name, short_help=short_help, cls=GroupedCommand, params=params)


@study.command(
    "run",
    short_help="Measure the points that have not been measured yet",
    cls=GroupedCommand,
    params=[FILE, *WHICH_POINTS, *(option for option in RUNNING if option.name != "no_submit")],
)
def study_run(**given: Any) -> None:
    """Measure the points of the study FILE that have not been measured yet, and print the table of all.

    Exits with 1 if a point has no number in the end; the others go on without it.
    """
    campaign = _campaign(given)
    if campaign.place.dry_run:
        click.echo(_study_plan(campaign, given))
        return
    with campaign.at_work():
        campaign.collect()
        work = campaign.work(given["retry_failed"])
        with followed(given["quiet"], campaign.progress) as line:
            campaign.carry_out(work, line, _called(given), given["max_jobs"], wait=not given["no_wait"])
        points = campaign.status()
    print_status(points, given["as_json"], outcomes.study if given["no_wait"] else outcomes.of_study)
    if error := problem(points, len(work), _called(given)):
        raise error


def _study_plan(campaign: Campaign, given: Given) -> str:
    points = campaign.status()
    runs = {entry.id: run for entry, run in campaign.work(given["retry_failed"], check=False)}
    print_refusals(campaign.place.refusals(list(runs.values())))
    scripts = campaign.jobs(list(runs.values())) if campaign.place.queued else []
    jobs, lanes = [job for job, _ in scripts], campaign.max_jobs(given["max_jobs"])
    if given["as_json"]:
        listed = [{"name": job.name, "nodes": job.nodes, "lane": n % lanes} for n, job in enumerate(jobs)]
        script = scripts[0][1] if scripts else ""
        return json.dumps({"points": [point.as_dict() for point in points], "jobs": listed, "script": script})
    at_once = f", {lanes} at once" if len(jobs) > lanes else ""
    queue = f"; {plural(len(jobs), 'job')}{at_once} (--json lists them)" if jobs else ""
    return plans.study_plan(points, runs, queue)


def _campaign(given: Given) -> Campaign:
    """The study of ``given["file"]`` where it takes place: --site counts before the file, the file before a config."""
    file = Study.read(given["file"])
    return Campaign(file, place_of(given, file.site))


def _called(given: dict[str, object]) -> str:
    """The study as the next command has to name it: its file, and the options that say where it is."""
    places = [word for name in ("site", "environ", "output") if given[name] for word in (f"--{name}", str(given[name]))]
    return shlex.join([str(given["file"]), *places])


@_of_file("status", "Show how far the points are", "as_json")
def study_status(as_json: bool, **given: Any) -> None:
    """How far the points of the study FILE are. Changes nothing."""
    points = _campaign(given).status()
    print_status(points, as_json, outcomes.study)


@_of_file("collect", "Make the records of points whose jobs have ended", "as_json")
def study_collect(as_json: bool, **given: object) -> None:
    """Make the records of the study FILE's jobs that have ended. Exits with 1 if a point has failed or is refused."""
    campaign = _campaign(given)
    campaign.collect()
    points = campaign.status()
    print_status(points, as_json, outcomes.study)
    if error := problem(points, 0, _called(given)):
        raise error


@_of_file("cancel", "Cancel all jobs of the study")
def study_cancel(**given: object) -> None:
    """Cancel all jobs of the study FILE. Measured points are kept."""
    print_cancelled(_campaign(given).cancel())
