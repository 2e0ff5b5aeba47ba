"""Whether records can be believed: check."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.common import RESULTS, reading
from harness.errors import HarnessError, InvalidInput
from harness.records.record import AnyRecord


@click.command("check")
@RESULTS
def check(sources: tuple[str, ...]) -> None:
    """Verify records in full: derive every figure again from the raw times, and judge all evidence again.

    RESULTS are records, folders with records, or names of baselines. Prints a line for each record that cannot be believed;
    then the exit code is 1. Other commands do this only for records whose seal, a checksum, does not fit.
    """
    from harness.core.text import plural
    from harness.records.record import search
    from harness.results.cache import each
    from harness.results.sources import place

    files = sorted({file.path for source in sources for file in search(place(source), list(_models()))})
    if not files:
        raise InvalidInput(f"{', '.join(sources)}: no record")
    problems = [text for text in each(problem, files, reading()) if text]
    for text in problems:
        click.echo(text)
    if problems:
        raise HarnessError(f"{len(problems):,} of {plural(len(files), 'record')} cannot be believed")
    click.echo(f"{plural(len(files), 'record')}: every figure follows from its raw times, and every check passes")


def _models() -> dict[str, type[AnyRecord]]:
    """The records of all kinds of work, by the names of their files."""
    from harness.running.prepare import KINDS

    return {kind.RECORD.file_name: kind.RECORD for kind in KINDS}


def problem(file: str) -> str:
    """What is wrong with a record, "" if nothing is: its seal does not count, everything is derived and judged again."""
    models = _models()
    try:
        models.get(Path(file).name, models["record.json"]).read(Path(file), believing_seals=False)
    except InvalidInput as error:
        return str(error)
    return ""
