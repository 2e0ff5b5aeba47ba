"""Studies: run, status, collect and cancel."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from harness.cli.options import GroupedCommand, flag, grouped, place_of, run_options, site_options
from harness.cli.runs import followed
from harness.report.text import outcomes, plans
from harness.running.campaign import Campaign, PointStatus, problem
from harness.running.prepare import Place
from harness.running.study import Study, read


@click.group()
def study() -> None:
    """Measure a matrix of runs that a file describes; whatever is interrupted goes on where it was."""


def _study_run(**given: Any) -> None:
    """Measure the points of the study FILE that have not been measured yet, and print the table of all.

    Exits with 1 if a point has no number in the end; the others go on without it.
    """
    file, place = _described(given)
    if place.dry_run:
        click.echo(_study_plan(Campaign.of(file, place), given))
        return
    with Campaign.at_work(file, place) as campaign:
        campaign.collect()
        work = campaign.work(given["retry_failed"])
        with followed(given["quiet"], campaign.progress) as line:
            campaign.carry_out(work, line, _called(given), given["max_jobs"], wait=not given["no_wait"])
        points = campaign.status()
    _print(points, given, outcomes.study(points) if given["no_wait"] else outcomes.of_study(points))
    if error := problem(points, len(work), _called(given)):
        raise error


def _study_plan(campaign: Campaign, given: dict[str, Any]) -> str:
    points, work = campaign.status(), campaign.work(given["retry_failed"], check=False)
    scripts = campaign.jobs([run for _, run in work]) if campaign.place.queued else []
    jobs, script = [job for job, _ in scripts], scripts[0][1] if scripts else ""
    lanes = campaign.max_jobs(given["max_jobs"])
    if given["as_json"]:
        listed = [{"name": job.name, "nodes": job.nodes, "lane": n % lanes} for n, job in enumerate(jobs)]
        return json.dumps({"points": [point.as_dict() for point in points], "jobs": listed, "script": script})
    return plans.study(points, jobs, lanes, script)


def _described(given: dict[str, Any]) -> tuple[Study, Place]:
    """The study of ``given["file"]`` and where it takes place: --site is asked before the file."""
    file = read(given["file"])
    return file, place_of(given | {"site": given["site"] or file.content.site})


def _called(given: dict[str, Any]) -> str:
    """The study as the next command has to name it: its file, and the options that say where it is."""
    options = [
        text for name in ("site", "environ", "output") if given[name] for text in (f"--{name}", str(given[name]))
    ]
    return shlex.join([str(given["file"]), *options])


STUDY_FILE = click.Argument(["file"], metavar="FILE", type=click.Path(path_type=Path))
WHICH_POINTS = [
    flag("--retry-failed", "measure failed and interrupted points again"),
    click.Option(
        ["--max-jobs"],
        type=click.IntRange(1, 10_000),
        metavar="NUMBER",
        help="jobs that may run at once  [default: the study's, else the site's, else 8]",
    ),
]
study.add_command(
    GroupedCommand(
        "run",
        params=[
            STUDY_FILE,
            *grouped(WHICH_POINTS, "What to measure"),
            *[option for option in site_options() if option.name != "no_submit"],
            *run_options(),
        ],
        callback=_study_run,
        help=_study_run.__doc__,
    )
)


def _study_status(**given: Any) -> None:
    """How far the points of the study FILE are. Changes nothing."""
    points = Campaign.of(*_described(given)).status()
    _print(points, given, outcomes.study(points))


def _study_collect(**given: Any) -> None:
    """Make the records of the study FILE's jobs that have ended. Exits with 1 if a point has failed or is refused."""
    campaign = Campaign.of(*_described(given))
    campaign.collect()
    points = campaign.status()
    _print(points, given, outcomes.study(points))
    if error := problem(points, 0, _called(given)):
        raise error


def _study_cancel(**given: Any) -> None:
    """Cancel all jobs of the study FILE. What is measured already is kept."""
    ids = Campaign.of(*_described(given)).cancel()
    click.echo(f"cancelled: {', '.join(ids)}" if ids else "nothing to cancel")


def _print(points: Sequence[PointStatus], given: dict[str, Any], text: str) -> None:
    click.echo(json.dumps([point.as_dict() for point in points]) if given["as_json"] else text)


for _name, _callback in {"status": _study_status, "collect": _study_collect, "cancel": _study_cancel}.items():
    _chosen = ("site", "environ", "output", *(() if _name == "cancel" else ("as_json",)))
    study.add_command(
        click.Command(
            _name,
            params=[STUDY_FILE, *(option for option in [*site_options(), *run_options()] if option.name in _chosen)],
            callback=_callback,
            help=_callback.__doc__,
        )
    )
