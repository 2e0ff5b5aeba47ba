"""Two sides of one measurement, in turn on the same nodes: which of them is faster."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from harness import kernels
from harness.cli.kernels import BYTES, SIZE, kernel_of
from harness.cli.options import COMPLETED, WHAT, WRITTEN, GroupedCommand, grouped, option, place_of, spec_options
from harness.cli.runs import CHECKED_BEFORE, RUNNING, carried_out, program_options
from harness.cli.values import PATH, SHARE, completing
from harness.core import backend as backends
from harness.core.program import OF_PROGRAM
from harness.core.subject import TRAINING, Subject
from harness.errors import InvalidInput
from harness.records.record import AnyRecord
from harness.report.text import ab as texts
from harness.report.text.pairs import preflight
from harness.running import rates, sides
from harness.running.preflight import outcome as checked_before
from harness.running.run import Run
from harness.running.sides import DIFFERENCE, Comparison

EXAMPLE = "KEY=VALUE,…"
TWO_SIDES = grouped(
    "What to compare",
    option("--a", "settings of A alone: env=PATH, var:NAME=VALUE, or options", EXAMPLE, click.STRING),
    option("--b", "settings of B alone; all others are given as for `harness run` or `launch`", EXAMPLE, click.STRING),
    option("--difference", "how much faster a side has to be to matter", "SHARE", SHARE, default=f"{DIFFERENCE:.0%}"),
    option("--of", "say again what came of a comparison, whose folder this is, and measure nothing", "DIR", PATH),
)
# The library of a backend. A program brings its own: for it the option makes its processes ranks of one MPI world.
MPI = option(
    "--mpi",
    "the MPI library, where MPI carries something; without a name: all processes of COMMAND are ranks of one MPI world",
    WRITTEN["mpi"],
    click.STRING,
    is_flag=False,
    flag_value="true",
    shell_complete=completing(COMPLETED["mpi"]),
)
KERNEL = option(
    "--kernel",
    "a kernel in place of a training; see `harness list kernels`",
    "NAME",
    shell_complete=completing(kernels.names),
)


@click.command(
    "ab",
    cls=GroupedCommand,
    context_settings={"allow_interspersed_args": False},
    params=[
        click.Argument(["command"], nargs=-1, metavar="[-- COMMAND...]", type=click.UNPROCESSED),
        *TWO_SIDES,
        *spec_options(("mpi",)),
        *grouped(WHAT, MPI, KERNEL, BYTES, SIZE),
        *grouped("Of COMMAND", *program_options(*backends.option_owners(), "mpi")),
        *RUNNING,
        *CHECKED_BEFORE,
    ],
)
def ab(
    command: tuple[str, ...],
    a: str | None,
    b: str | None,
    difference: float,
    of: Path | None,
    kernel: str | None,
    **given: Any,
) -> None:
    """Say which of two sides of one measurement is faster: environments, options or variables.

    The repeats of A and B take turns on the same nodes, in one job of a batch system. Before the first one it says how many
    show a --difference, as far as earlier runs tell, and at the end which side is faster and by how much. Exits with 1 if
    B, the new one, is slower.

    `harness ab --backend pytorch --nodes 2 --a transport=gloo --b transport=mpi`

    `harness ab --kernel allreduce --bytes 1KiB,1MiB --backend pytorch --nodes 2 --b transport=mpi`

    `harness ab --nodes 2 --pattern 'img/s: ([0-9.]+)' --b env=/opt/new -- python train.py`
    """
    if of:
        if a or b or command or kernel:
            raise InvalidInput(f"--of {of}: measures nothing; leave out --a, --b, --kernel and the command")
        _tell(*sides.reopen(of), given["as_json"])
        return
    subject = _subject(command, kernel, given)
    place, as_json = place_of(given), given["as_json"]
    comparison = Comparison(schema="harness.ab/1", a=a or "", b=b or "", difference=difference)
    planned = sides.planned(comparison, subject, given, place)
    runs = planned.runs
    repeats = runs[0].spec.repeats

    click.echo(texts.sides(comparison.a, comparison.b), err=as_json)
    if noises := rates.noises(rates.earlier(runs, place.folder), sides.sizes(runs[0])):
        click.echo(texts.power(noises, runs[0].spec, difference, repeats), err=as_json)
    # The check of the nodes comes before A's first repeat, and takes A's environment.
    as_a = replace(place, environment=planned.sides["a"].settings.environment or place.environment)
    with nullcontext() if place.dry_run else planned.laid_out():
        outcome = carried_out(runs, as_a, given)
    if outcome.records:
        _tell(comparison, runs, outcome.records, as_json)
    elif not place.dry_run and not as_json:
        click.echo(f"when they have ended: harness jobs collect {planned.folder}; harness ab --of {planned.folder}")


def _subject(command: tuple[str, ...], kernel: str | None, given: dict[str, object]) -> Subject:
    """The subject of the measurement. Raises InvalidInput for an option that is not for it."""
    if command and given["preflight"]:
        raise InvalidInput("--preflight: is for backends; leave it out, or the command")
    if not kernel and (sizes := next((name for name in ("bytes", "size") if given[name]), None)):
        raise InvalidInput(f"--{sizes}: is for kernels; give --kernel NAME")
    subject = Subject(kernel_of(kernel, given) if kernel else None, command)
    fields = {*TRAINING.names.values(), *OF_PROGRAM} & given.keys()
    subject.check(name for name in given if name in fields and given[name] is not None)
    return subject


def _tell(comparison: Comparison, runs: Sequence[Run], records: Sequence[AnyRecord], as_json: bool) -> None:
    """Print the verdicts, and exit with 1 if B is slower. Raises RunFailed for a side that has no number."""
    by_size, spec = rates.judged(comparison, runs, records), runs[0].spec
    files, checked = [run.record_file for run in runs], checked_before(runs[0].folder)
    if as_json:
        click.echo(texts.as_json(by_size, spec, comparison, files, checked))
    else:
        lines = [f"preflight  {line}" for line in preflight(checked)] + [f"record  {file}" for file in files]
        click.echo("\n".join([texts.verdicts(by_size, spec), *lines]))
    if any(verdict.slower for verdict in by_size.values()):
        click.get_current_context().exit(1)
