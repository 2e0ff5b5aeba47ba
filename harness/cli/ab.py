"""Two sides of one measurement, in turn on the same nodes: which of them is faster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from harness import kernels
from harness.analysis.ab import Noise
from harness.cli.common import PATH, SHARE, completing
from harness.cli.config import of_config
from harness.cli.kernels import BYTES, SIZE, kernel_of
from harness.cli.launching import program_options, without_config
from harness.cli.options import COMPLETED, WRITTEN, MeasuringCommand, grouped, option, place_of, spec_of, spec_options
from harness.cli.runs import CHECKED_BEFORE, RUNNING, carried_out
from harness.core import backend as backends
from harness.core.program import OF_PROGRAM, UNUSED, program_spec
from harness.core.spec import RunSpec
from harness.core.validation import option_name
from harness.errors import HarnessError, InvalidInput
from harness.records.record import AnyRecord
from harness.report.text import ab as texts
from harness.report.text.pairs import preflight
from harness.report.text.progress import RunLine
from harness.running import sides
from harness.running.pace import Pace
from harness.running.preflight import outcome as checked_before
from harness.running.run import Run
from harness.running.sides import DIFFERENCE, Comparison

PILOT = 3  # repeats of each side that say how much they vary where nothing was measured before
EXAMPLE = "KEY=VALUE,…"
TWO_SIDES = grouped(
    "What to compare",
    option("--a", "what sets A apart: env=PATH, var:NAME=VALUE, or options", EXAMPLE, click.STRING),
    option("--b", "what sets B apart; all else is given as for `harness run` or `launch`", EXAMPLE, click.STRING),
    option("--difference", "how much faster a side has to be to matter", "SHARE", SHARE, default=f"{DIFFERENCE:.0%}"),
    option("--of", "say again what came of a comparison, whose folder this is, and measure nothing", "DIR", PATH),
)
# Of a backend its library; of a program, which brings its own, that its processes are ranks of one MPI world.
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


class Turns(RunLine):
    """Hears of the repeats of both sides, and ``says`` how much they vary when each has so many as a pilot takes."""

    def __init__(
        self, enabled: bool, names: Mapping[Path, str], pilot: int, says: Callable[[Mapping[int, Noise]], None]
    ) -> None:
        super().__init__(enabled)
        self._names, self._pilot, self._says = names, pilot, says
        self._rates: dict[Path, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._heard = 0

    def ended(self, run: Run, repeat: int, pace: Pace, error: HarnessError | None = None) -> None:
        super().ended(run, repeat, replace(pace, names=self._names), error)
        if error:
            return
        for size, rate in sides.last_rates(run).items():
            self._rates[run.folder][size].append(rate)
        self._heard += 1
        # Said once: the repeat that completes the pilot is the last of the first so many.
        if len(self._rates) == 2 and self._heard == 2 * self._pilot:
            self.clear()
            if noises := sides.noises(list(self._rates.values()), sides.sizes(run)):
                self._says(noises)


@click.command(
    "ab",
    cls=MeasuringCommand,
    context_settings={"allow_interspersed_args": False},
    params=[
        click.Argument(["command"], nargs=-1, metavar="[-- COMMAND...]", type=click.UNPROCESSED),
        *TWO_SIDES,
        *spec_options(("mpi",)),
        *grouped("What to measure", MPI, KERNEL, BYTES, SIZE),
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
    show a --difference, at the end which side is faster and by how much. Exits with 1 if B, the new one, is slower.

    `harness ab --backend pytorch --nodes 2 --a transport=gloo --b transport=mpi`

    `harness ab --kernel allreduce --bytes 1KiB,1MiB --backend pytorch --nodes 2 --b transport=mpi`

    `harness ab --nodes 2 --pattern 'img/s: ([0-9.]+)' --b env=/opt/new -- python train.py`
    """
    if of:
        if a or b or command or kernel:
            raise InvalidInput(f"--of {of}: measures nothing; leave out --a, --b, --kernel and the command")
        comparison, runs, records = sides.reopen(of)
        _tell(comparison, runs, records, given["as_json"])
        return
    if not (a or b):
        raise InvalidInput("--b is required: KEY=VALUE that sets B apart from A, such as --b transport=mpi")
    _refuse_strangers(command, kernel, given)
    place, as_json = place_of(given), given["as_json"]
    comparison = Comparison(schema="harness.ab/1", a=a or "", b=b or "", difference=difference)
    if command and of_config("environment"):  # which is for backends
        place = replace(place, environment=None)
    spec = _specs(command, kernel, given)
    folder, known = sides.new_folder(place.folder), sides.options_of(bool(command), bool(kernel))
    both = sides.both(comparison, known, spec, place, folder)
    runs = [side.run for side in both.values()]
    repeats = runs[0].spec.repeats

    def say(text: str) -> None:
        click.echo(text, err=as_json)

    say(texts.sides(comparison.a, comparison.b))
    pilot = 0
    if noises := sides.noises(sides.earlier(runs, place.folder), sides.sizes(runs[0])):
        say(texts.power(noises, runs[0].spec, difference, repeats))
    else:
        pilot = min(PILOT, repeats)
        say(texts.unknown(place.folder, pilot))
    line = Turns(
        not given["quiet"],
        {run.folder: name for run, name in zip(runs, "AB", strict=True)},
        pilot,
        lambda noises: say(texts.power(noises, runs[0].spec, difference, repeats, "both sides so far")),
    )
    # The check of the nodes comes before A's first repeat, and takes A's environment.
    as_a = replace(place, environment=both["a"].settings.environment or place.environment)
    with nullcontext() if place.dry_run else sides.laid_out(folder, comparison, both):
        outcome = carried_out(runs, as_a, given, line)
    if outcome.records:
        _tell(comparison, runs, outcome.records, as_json)
    elif not place.dry_run and not as_json:
        click.echo(f"when they have ended: harness collect {folder}; harness ab --of {folder}")


def _refuse_strangers(command: Sequence[str], kernel: str | None, given: Mapping[str, object]) -> None:
    """Raise InvalidInput for an option that is not for what is measured: a program, a kernel or a training."""
    unfit = f"--kernel {kernel}" if kernel else "--preflight" if given["preflight"] else ""
    if command and unfit:
        raise InvalidInput(f"{unfit}: is for backends; leave it out, or the command")
    owners = backends.option_owners().keys()
    if command:
        whose = dict.fromkeys({*UNUSED, *owners} - OF_PROGRAM, "backends, not for a program")
    else:
        of_program = OF_PROGRAM - owners - RunSpec.model_fields.keys()
        whose = dict.fromkeys(of_program, "a program of your own, which comes after --")
    if kernel:
        whose |= dict.fromkeys(backends.unused_by_kernels(), "trainings, not for a kernel")
    else:
        whose |= dict.fromkeys(("bytes", "size"), "kernels; give --kernel NAME")
    for name, value in given.items():
        if name in whose and value is not None and not of_config(name):
            raise InvalidInput(f"{option_name(name)}: is for {whose[name]}")


def _specs(
    command: Sequence[str], kernel: str | None, given: dict[str, object]
) -> Callable[[Mapping[str, str]], RunSpec]:
    """What makes the spec of a side from its own options. Raises InvalidInput."""
    if command:
        common = without_config(given)
        return lambda own: program_spec(command, Path.cwd(), common | dict(own))
    if not kernel:
        return lambda own: spec_of(given, own)
    of_kernel, protocol = kernel_of(kernel, given), sides.protocol_of(kernel)
    fitting = given | dict.fromkeys(backends.unused_by_kernels() & given.keys())  # of the config
    return lambda own: spec_of(fitting, own, **protocol, kernel=of_kernel)


def _tell(comparison: Comparison, runs: Sequence[Run], records: Sequence[AnyRecord], as_json: bool) -> None:
    """Print the verdicts, and exit with 1 if B is slower. Raises RunFailed for a side that has no number."""
    found, spec = sides.judged(comparison, runs, records), runs[0].spec
    files, checked = [run.record_file for run in runs], checked_before(runs[0].folder)
    if as_json:
        click.echo(texts.as_json(found, spec, comparison, files, checked))
    else:
        lines = [f"preflight  {line}" for line in preflight(checked)] + [f"record  {file}" for file in files]
        click.echo("\n".join([texts.verdicts(found, spec), *lines]))
    if any(each.slower for each in found.values()):
        click.get_current_context().exit(1)
