"""The profiles of sites, the backends' environments, and your own defaults."""

import json
import re
from pathlib import Path
from typing import get_args

import click

from harness import environments
from harness.cli.interrupts import signals_interrupt
from harness.cli.values import ANY_PATH, AS_JSON, HOSTS, SITE, TEXT, completing
from harness.core.backend import backend, names
from harness.core.text import plural
from harness.environments import Variant, building, mpi
from harness.environments.pythons import at
from harness.errors import InvalidInput, writing
from harness.files import write_atomically
from harness.sites import config
from harness.sites import site as sites
from harness.sites.file import NAME

EXAMPLE = """\
site = "mycluster:gpu"        # where runs take place; "local" is this machine
account = "s123"
output = "$SCRATCH/runs"      # the folder for run directories
"""


@click.group()
def site() -> None:
    """Make, show and check site profiles."""


@site.command("init", short_help="Ask Slurm what this cluster is, and write its profile")
@click.argument("name")
def site_init(name: str) -> None:
    """Ask Slurm what this cluster is, write that as your site profile NAME, and check it.

    To be called on the cluster's login node. Add by hand the fields that Slurm does not know, such as modules.
    """
    from harness.launch import describe

    path = sites.user_folder() / f"{name}.toml"
    if not re.fullmatch(NAME, name):
        raise InvalidInput(f"{name!r} is not a name: letters, digits, _ and -, beginning with a letter")
    if path.exists():
        raise InvalidInput(f"{path} is there already; delete it first, or choose another name")
    text = describe.profile(name)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
        if wrong := sites.checked_files([str(path)])[0].mistakes:
            path.unlink()
            raise InvalidInput(f"Slurm's answers make no profile: {wrong[0].field}: {wrong[0].message}")
    click.echo(f"wrote {path}")
    click.get_current_context().invoke(site_check, names=(str(path),), offline=False, opening=False, as_json=False)


@site.command("check", short_help="Check site profiles, and whether Slurm would take a job")
@click.argument("names", nargs=-1, metavar="[NAME|FILE]...", shell_complete=completing(sites.names))
@click.option("--offline", is_flag=True, help="do not ask Slurm")
@click.option("--open", "opening", is_flag=True, help="open the images of environments, each in a job on one node")
@AS_JSON
def site_check(names: tuple[str, ...], offline: bool, opening: bool, as_json: bool) -> None:
    """Check site files, all of them unless told which, and ask Slurm whether it would take a run's job.

    A partition is ok if `harness run` there would be taken, and valid if that cannot be tried from here. Slurm is asked
    with `sbatch --test-only`: nothing is submitted, but for images with --open.
    """
    from harness.running.trial import trials

    count, reports = 0, []
    for file in sites.checked_files(names):
        wrong = sites.mistakes(file)
        tried = [] if wrong else trials(file, offline, bool(names), opening)
        problems = [*wrong, *(mistake for trial in tried for mistake in trial.mistakes)]
        count += len(problems)
        results = [{"name": trial.site, "ok": trial.agreed, "remark": trial.remark} for trial in tried]
        report = {"file": str(file.path), "problems": list(map(vars, problems)), "left_out": file.left_out}
        reports.append(report | {"sites": results})
        if not as_json:
            for problem in problems:
                click.echo(problem)
            if file.left_out:
                click.echo(f"left out, as no run needs them: {', '.join(file.left_out)}")
            for trial in tried:
                if not trial.mistakes:
                    remark = f"  ({trial.remark})" if trial.remark else ""
                    click.echo(f"{'ok' if trial.agreed else 'valid':5}  {trial.site}  {file.path}{remark}")
    if as_json:
        click.echo(json.dumps(reports, indent=1))
    if count:
        raise InvalidInput(f"{plural(count, 'problem')} in site profiles")


@site.command("show", short_help="Show what a run gets from a site")
@click.argument("name", shell_complete=completing(sites.names))
@click.option("--environ", metavar="NAME", type=TEXT, help="with this one of its environments")
@AS_JSON
def site_show(name: str, environ: str | None, as_json: bool) -> None:
    """Show what a run gets from the site NAME: its system, partition and environment, merged."""
    target = sites.find(name, environ)
    lines = [f"{field:24} {value}" for field, value in sites.values(target).items()]
    click.echo(json.dumps(target.as_dict(), indent=1) if as_json else "\n".join(lines))


@site.command("path", short_help="Print the file that describes a site")
@click.argument("name", shell_complete=completing(sites.names))
def site_path(name: str) -> None:
    """Print the file that describes the site NAME."""
    click.echo(sites.find(name).file)


@click.group()
def env() -> None:
    """Build, check and find the backends' environments."""


def _built() -> list[str]:
    """The names of backends and MPI libraries, which have environments."""
    return [*names(), *mpi.LIBRARIES]


def _environments(name: str, variant: Variant, framework: str | None = None) -> list[environments.EnvironmentSpec]:
    """The environments of a backend, or that of an MPI library. Raises InvalidInput."""
    return [mpi.environment(name)] if name in mpi.LIBRARIES else backend(name).environments(variant, framework)


BACKEND = click.argument("name", metavar="BACKEND|MPI", shell_complete=completing(_built))
VARIANT = click.option(
    "--variant",
    type=click.Choice(get_args(Variant)),
    default="cpu",
    help="kind of environment: for CPUs, for GPUs (cuda), or for CPUs and compiled against Open MPI (openmpi)",
)
FRAMEWORK = click.option("--framework", metavar="NAME", help="for one of the backend's frameworks")


@env.command("build", short_help="Build the environments of backends")
@click.argument("names", nargs=-1, required=True, metavar="BACKEND|MPI...", shell_complete=completing(_built))
@VARIANT
@FRAMEWORK
@HOSTS
@SITE
def env_build(names: tuple[str, ...], variant: Variant, framework: str | None, hosts: Path | None, site: str) -> None:
    """Build the environments of each BACKEND, one for each of its frameworks, unless they are there already.

    MPI is a library for --mpi that no backend's own environment has: intel or openmpi. With --hosts they are copied to
    machines that ssh reaches, with harness itself, at the same paths. A machine gets only what it lacks.
    """
    machines: tuple[object, ...] = ()
    if hosts:
        from harness.running import copies

        at = copies.Place(site=site, hosts=hosts)
        machines = at.machines  # a host file that is wrong is refused before anything is built
    for environment in [each for name in names for each in _environments(name, variant, framework)]:
        label = f"{environment.backend}{f' ({environment.framework})' if environment.framework else ''}"

        def tell(line: str, label: str = label) -> None:
            click.echo(f"{label}: {line}", err=True)

        with signals_interrupt():
            folder = building.build(environment, tell)
            click.echo(f"{label}: ready at {folder}")
            if machines:
                imports = "\n".join(map("import {}".format, environment.imports))
                check = [str(environments.python(environment)), "-Ic", imports]
                copies.copy([folder, *copies.OURS], False, check, at, click.echo)


@env.command("check", short_help="Import what a backend needs, and compare versions")
@BACKEND
@click.option("--env", "where", type=ANY_PATH, help="check this environment instead")
@VARIANT
@FRAMEWORK
def env_check(name: str, where: Path | None, variant: Variant, framework: str | None) -> None:
    """Import what BACKEND needs in its environment, and compare its packages with the pinned ones."""
    # A provided environment is for one of several frameworks: the first, unless it is named.
    specs = _environments(name, variant, framework)
    for spec in specs if where is None else specs[:1]:
        report = building.check(spec, None if where is None else at(where, spec))
        click.echo(f"{report.python}  Python {report.python_version}")
        for module, version in report.imported.items():
            click.echo(f"  {module} {version}")
        for module, why in report.failed.items():
            click.echo(f"  {module} does not import: {why}")
        for package, (pinned, installed) in report.mismatched.items():
            click.echo(f"  {package} is {installed or 'missing'}, pinned {pinned}")
        if report.failed or (report.mismatched and where is None):
            raise InvalidInput(f"the environment of {spec.backend} is not as it should be: {report.python}")


@env.command("path", short_help="Print the folder of a backend's environment")
@BACKEND
@VARIANT
@FRAMEWORK
def env_path(name: str, variant: Variant, framework: str | None) -> None:
    """Print the folder of BACKEND's environment. Fails if it is not built."""
    spec = _environments(name, variant, framework)[0]
    environments.require(spec)
    click.echo(environments.path(spec))


@click.command("config")
@AS_JSON
def config_(as_json: bool) -> None:
    """Show and check your own defaults, and the site where runs take place."""
    from harness.running.prepare import chosen_site

    defaults, file = config.read(), config.path()
    values = defaults.model_dump(exclude_none=True) | ({"output": str(defaults.folder)} if defaults.folder else {})
    name, reason = chosen_site(None)
    site, reason = (sites.find(name).name, reason) if name else ("local:default", reason or "this machine")
    if as_json:
        click.echo(json.dumps({"file": str(file), "values": values, "site": site, "because": reason}, indent=1))
        return
    click.echo(f"runs take place at {site}: {reason}\n")
    if values:
        click.echo("\n".join([f"your defaults, in {file}:", *(f"    {key:7}  {values[key]}" for key in values)]))
    else:
        click.echo(f"You have no defaults. They would be in {file}, for example:\n\n{EXAMPLE}", nl=False)
