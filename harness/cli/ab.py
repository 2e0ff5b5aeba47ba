"""Two sides of one measurement, in turn on the same nodes: which of them is faster."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from harness.analysis.ab import Noise, judge
from harness.cli.common import PATH, SHARE, completing
from harness.cli.config import of_config
from harness.cli.launching import UNUSED, program_options, program_spec, without_config
from harness.cli.options import (
    COMPLETED,
    HOW_TO_RUN,
    WHERE_TO_RUN,
    WRITTEN,
    MeasuringCommand,
    grouped,
    option,
    place_of,
    spec_of,
    spec_options,
)
from harness.cli.runs import IN_FULL, carried_out
from harness.core import backend as backends
from harness.core.spec import Program, RunSpec
from harness.core.validation import option_name
from harness.errors import HarnessError, InvalidInput
from harness.records.record import AnyRecord
from harness.report.text import ab as texts
from harness.report.text.progress import RunLine
from harness.running import sides
from harness.running.kinds import LaunchRun, Measurement
from harness.running.pace import Pace
from harness.running.prepare import Place
from harness.running.request import failed
from harness.running.run import Run
from harness.running.sides import Comparison, Settings, Side

PILOT = 3  # repeats of each side that say how much they vary where nothing was measured before
EXAMPLE = "KEY=VALUE,…"
TWO_SIDES = grouped(
    "What to compare",
    option("--a", "what sets A apart: env=PATH, var:NAME=VALUE, commit=REV, or options", EXAMPLE, click.STRING),
    option("--b", "what sets B apart; all else is given as for `harness run` or `launch`", EXAMPLE, click.STRING),
    option("--difference", "how much faster a side has to be to matter", "SHARE", SHARE, default="2%"),
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
OF_PROGRAM = Program.model_fields.keys() - {"command", "folder"}


class Turns(RunLine):
    """Hears of the repeats of both sides, and ``says`` how much they vary when each has so many as a pilot takes."""

    def __init__(self, enabled: bool, names: Mapping[Path, str], pilot: int, says: Callable[[Noise], None]) -> None:
        super().__init__(enabled)
        self._names, self._pilot, self._says = names, pilot, says
        self._values: dict[Path, list[float]] = defaultdict(list)

    def ended(self, run: Run, repeat: int, pace: Pace, error: HarnessError | None = None) -> None:
        super().ended(run, repeat, replace(pace, names=self._names), error)
        assert isinstance(run, Measurement | LaunchRun)
        if error or (img_per_s := run.img_per_s()) is None:
            return
        self._values[run.folder].append(img_per_s)
        # Said once: the repeat that completes the pilot is the last of the first so many.
        if len(self._values) == 2 and sum(map(len, self._values.values())) == 2 * self._pilot:
            self.clear()
            if noise := Noise.of(list(self._values.values())):
                self._says(noise)


@click.command(
    "ab",
    cls=MeasuringCommand,
    context_settings={"allow_interspersed_args": False},
    params=[
        click.Argument(["command"], nargs=-1, metavar="[-- COMMAND...]", type=click.UNPROCESSED),
        *TWO_SIDES,
        *spec_options(("mpi",)),
        *grouped("What to measure", MPI),
        *grouped("Of COMMAND", *program_options(*backends.option_owners(), "mpi")),
        *WHERE_TO_RUN,
        *HOW_TO_RUN,
        *IN_FULL,
    ],
)
def ab(
    command: tuple[str, ...], a: str | None, b: str | None, difference: float, of: Path | None, **given: Any
) -> None:
    """Say which of two sides of one measurement is faster: environments, options, variables, or commits of COMMAND.

    The repeats of A and B take turns on the same nodes, in one job of a batch system. Before the first one it says how many
    show a --difference, at the end which side is faster and by how much. Exits with 1 if B, the new one, is slower.

    `harness ab --backend pytorch --nodes 2 --a transport=gloo --b transport=mpi`

    `harness ab --nodes 2 --pattern 'img/s: ([0-9.]+)' --a commit=main -- python train.py`
    """
    if of:
        if a or b or command:
            raise InvalidInput(f"--of {of}: measures nothing; leave out --a, --b and the command")
        comparison, runs, records = sides.reopen(of)
        _tell(comparison, runs, records, given["as_json"])
        return
    if not (a or b):
        raise InvalidInput("--b is required: KEY=VALUE that sets B apart from A, such as --b transport=mpi")
    _refuse_strangers(command, given)
    place, as_json = place_of(given), given["as_json"]
    comparison = Comparison(schema="harness.ab/1", a=a or "", b=b or "", difference=difference)
    name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-ab-{secrets.token_hex(4)}"
    folder = (place.folder / name).absolute()
    texts_of = {"a": comparison.a, "b": comparison.b}
    both = {side: _side(side, text, command, given, place, folder) for side, text in texts_of.items()}
    sides.check(both["a"], both["b"])
    runs = [side.run for side in both.values()]
    repeats = runs[0].spec.repeats

    def say(text: str) -> None:
        click.echo(text, err=as_json)

    say(texts.sides(comparison.a, comparison.b))
    pilot = 0
    if noise := Noise.of(sides.earlier(runs, place.folder)):
        say(texts.power(noise, difference, repeats, texts.earlier(noise)))
    else:
        pilot = min(PILOT, repeats)
        say(texts.unknown(place.folder, pilot))
    line = Turns(
        not given["quiet"],
        {run.folder: name for run, name in zip(runs, "AB", strict=True)},
        pilot,
        lambda noise: say(texts.power(noise, difference, repeats, "both sides so far")),
    )
    with nullcontext() if place.dry_run else sides.laid_out(folder, comparison, both):
        outcome = carried_out(runs, place, given, line)
    if outcome.records:
        _tell(comparison, runs, outcome.records, as_json)
    elif not place.dry_run and not as_json:
        click.echo(f"when they have ended: harness collect {folder}; harness ab --of {folder}")


def _refuse_strangers(command: Sequence[str], given: Mapping[str, Any]) -> None:
    """Raise InvalidInput for an option that is not for what is measured, a program or a backend."""
    owners = backends.option_owners().keys()
    strange = {*UNUSED, *owners} - OF_PROGRAM if command else OF_PROGRAM - owners - RunSpec.model_fields.keys()
    for name in given:
        if name in strange and given[name] is not None and not of_config(name):
            whose = "backends, not for a program" if command else "a program of your own, which comes after --"
            raise InvalidInput(f"{option_name(name)}: is for {whose}")


def _side(name: str, text: str, command: Sequence[str], given: Mapping[str, Any], place: Place, folder: Path) -> Side:
    """A side, planned. Raises InvalidInput that names it."""
    known = backends.option_fields()
    try:
        if command:
            of_runs = RunSpec.model_fields.keys() - UNUSED
            known = {written: field for written, field in known.items() if field in of_runs}
            settings = Settings.read(text, known | {field: field for field in OF_PROGRAM})
            spec = program_spec(command, without_config(given) | dict(settings.options))
            if of_config("environment"):  # which is for backends
                place = replace(place, environment=None)
        else:
            settings = Settings.read(text, known)
            spec = spec_of(given, settings.options)
        return sides.planned(text, settings, spec, place, folder, name)
    except InvalidInput as error:
        raise InvalidInput(f"--{name} {text}: {error}" if text else str(error)) from None


def _tell(comparison: Comparison, runs: Sequence[Run], records: Sequence[AnyRecord], as_json: bool) -> None:
    """Print the verdict, and exit with 1 if B is slower. Raises RunFailed for a side that has no number."""
    for record, run in zip(records, runs, strict=True):
        if record.problem:
            raise failed(record, run.folder)
    a, b = map(sides.img_per_s, records)
    found = judge(a, b, comparison.difference)
    clock = " by the program's own clock" if records[0].spec.program else ""
    files = [run.record_file for run in runs]
    if as_json:
        click.echo(texts.as_json(found, comparison, files, clock))
    else:
        click.echo("\n".join([texts.verdict(found, clock), *(f"record  {file}" for file in files)]))
    if found.slower:
        click.get_current_context().exit(1)
