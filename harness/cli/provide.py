"""What a run needs beside it: environments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.errors import InvalidInput

if TYPE_CHECKING:
    from harness.environments import Variant


@click.group()
def env() -> None:
    """Build, check and find the backends' environments."""


VARIANT = click.option("--variant", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True)
FRAMEWORK = click.option("--framework", metavar="NAME", help="for one of the backend's frameworks")


@env.command("build")
@click.argument("backends", nargs=-1, required=True, metavar="BACKEND...")
@VARIANT
@FRAMEWORK
@click.option(
    "--python",
    "where",
    type=click.Path(path_type=Path),
    help="make those environments from this Python (or its prefix) that need another version than harness; "
    "found on this machine by default",
)
def env_build(backends: tuple[str, ...], variant: Variant, framework: str | None, where: Path | None) -> None:
    """Build the environments of each BACKEND, one for each of its frameworks, unless they are there already."""
    from harness.core.backend import backend
    from harness.environments.building import build
    from harness.environments.pythons import given_python

    wanted = [environment for name in backends for environment in backend(name).environments(variant, framework)]
    base = None if where is None else given_python(where, wanted)
    for environment in wanted:
        label = f"{environment.backend}{f' ({environment.framework})' if environment.framework else ''}"
        folder = build(
            environment,
            lambda line, label=label: click.echo(f"{label}: {line}", err=True),  # type: ignore[misc]
            base,
        )
        click.echo(f"{label}: ready at {folder}")


@env.command("check")
@click.argument("name", metavar="BACKEND")
@click.option("--env", "where", type=click.Path(path_type=Path), help="check this environment instead")
@VARIANT
@FRAMEWORK
def env_check(name: str, where: Path | None, variant: Variant, framework: str | None) -> None:
    """Import what BACKEND needs in its environment, and compare its packages with the pinned ones."""
    from harness.core.backend import backend
    from harness.environments.checking import check
    from harness.environments.pythons import at

    # Of several frameworks a provided environment is for one: the first, unless it is named.
    every = backend(name).environments(variant, framework)
    for wanted in every if where is None else every[:1]:
        report = check(wanted, None if where is None else at(where, wanted))
        click.echo(f"{report.python}  Python {report.python_version}  checked in {report.seconds:.1f} s")
        for module, version in report.imported.items():
            click.echo(f"  {module} {version}")
        for module, why in report.failed.items():
            click.echo(f"  {module} does not import: {why}")
        for package, (pinned, installed) in report.mismatched.items():
            click.echo(f"  {package} is {installed or 'missing'}, pinned {pinned}")
        if report.failed or (report.mismatched and where is None):
            raise InvalidInput(f"the environment of {wanted.backend} is not as it should be: {report.python}")


@env.command("path")
@click.argument("name", metavar="BACKEND")
@VARIANT
@FRAMEWORK
def env_path(name: str, variant: Variant, framework: str | None) -> None:
    """Print the folder of BACKEND's environment. Fails if it is not built."""
    from harness import environments
    from harness.core.backend import backend

    wanted = backend(name).environments(variant, framework)[0]
    environments.require(wanted)
    click.echo(environments.path(wanted))
