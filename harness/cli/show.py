"""What there is: list, and the profiles of sites."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from harness.cli.common import AS_JSON, not_empty
from harness.core.text import plural
from harness.errors import InvalidInput

if TYPE_CHECKING:
    from harness.launch.trial import Trial


@click.group("list")
def list_() -> None:
    """Show what there is."""


@list_.command("backends")
@AS_JSON
def list_backends(as_json: bool) -> None:
    """The backends, which of them can run here, and what the others lack."""
    from harness.report.text import inventory
    from harness.running import readiness

    found = readiness.survey()
    click.echo(json.dumps([vars(one) for one in found], indent=1) if as_json else inventory.backends(found))


@list_.command("models")
def list_models() -> None:
    """The models, with their parameters and sizes."""
    from harness.report.text import inventory

    click.echo(inventory.models())


@list_.command("environments")
def list_environments() -> None:
    """The backends' environments, for each kind of device that they train on, with their state and folder."""
    from harness.report.text import inventory

    click.echo(inventory.environments())


@list_.command("sites")
@AS_JSON
def list_sites(as_json: bool) -> None:
    """The site profiles, built in and yours: their partitions, schedulers and nodes."""
    from harness.sites import site

    rows, broken = site.survey()
    if as_json:
        click.echo(json.dumps(rows, indent=1))
    else:
        width = max((len(row["name"]) for row in rows), default=0)
        for row in rows:
            line = "{name:{width}}  {scheduler:7}{origin:10}{node:24}  {descr}"
            click.echo(line.format(width=width, **row).rstrip())
    for file in broken:
        click.echo(f"harness: {file.path} is broken; see `harness site check`", err=True)


@list_.command("references")
@AS_JSON
def list_references(as_json: bool) -> None:
    """The published measurements that come with harness, by system, software and source."""
    from harness.report.text import inventory
    from harness.results import published

    groups = published.groups(published.select())
    click.echo(json.dumps(groups, indent=1) if as_json else inventory.references(groups))


@click.group("site")
def site_() -> None:
    """Check and show site profiles."""


@site_.command("check")
@click.argument("names", nargs=-1, metavar="[NAME|FILE]...")
@click.option("--offline", is_flag=True, help="do not ask Slurm")
@AS_JSON
def site_check(names: tuple[str, ...], offline: bool, as_json: bool) -> None:
    """Check site files, all of them unless told which, and ask Slurm whether it would take their jobs.

    Slurm is asked with `sbatch --test-only`: nothing is submitted.
    """
    from harness.launch import trial as site_trial
    from harness.sites import site

    found, reports = 0, []
    for file in site.checked_files(names):
        trials = site_trial.trials(file, offline, named=bool(names))
        problems = [*site.mistakes(file), *(mistake for trial in trials for mistake in trial.mistakes)]
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
        raise InvalidInput(f"{plural(found, 'problem')} in site profiles")


def _tried(trial: Trial) -> dict[str, str]:
    return {"name": trial.site, "remark": trial.remark}


@site_.command("show")
@click.argument("name")
@click.option("--environ", metavar="NAME", callback=not_empty, help="with this one of its environments")
@AS_JSON
def site_show(name: str, environ: str | None, as_json: bool) -> None:
    """Show what a run gets from the site NAME: its system, partition and environment, merged."""
    from harness.sites import site

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
    from harness.sites import site

    click.echo(site.find(name).file)
