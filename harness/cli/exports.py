"""Results for other tools: export."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from harness import export
from harness.cli.common import RESULTS, not_empty, path_of, reading
from harness.files import whole_file

if TYPE_CHECKING:
    from harness.records.record import Status


@click.command("export")
@RESULTS
@click.option("--format", "wanted", type=click.Choice(export.FORMATS), help="[default: what the FILE's suffix says]")
@click.option("--output", "-o", metavar="FILE", callback=not_empty, help="file to write  [default: print]")
@click.option("--all", "everything", is_flag=True, help="with runs that have no number, such as failed ones")
@click.option(
    "--repository",
    metavar="URL",
    callback=not_empty,
    help="conbench: the GitHub repository that the results belong to  [default: $CONBENCH_PROJECT_REPOSITORY]",
)
def export_(
    sources: tuple[str, ...],
    wanted: export.Format | None,
    output: str | None,
    everything: bool,
    repository: str | None,
) -> None:
    """Write results for other tools.

    RESULTS are folders with records, CSV files, `reference`, `reference:TEXT`, or names of baselines. mlperf: log lines for
    tools that read MLPerf logs (not a submission). conbench: the list of results to post to a Conbench server.
    """
    file = path_of(output)
    chosen = export.chosen(wanted, file)
    status: Status | None = None if everything else "completed"
    if file is None:
        export.write(sources, chosen, sys.stdout.buffer, status, repository, reading())
        return
    with whole_file(file) as stream:
        count = export.write(sources, chosen, stream, status, repository, reading())
    click.echo(f"{count} result{'s' * (count != 1)}: {file}")
