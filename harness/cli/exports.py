"""Results for other tools: export."""

from __future__ import annotations

import sys
from functools import partial

import click

from harness import export
from harness.cli.common import RESULTS, not_empty, path_of, reading
from harness.core.text import plural
from harness.files import whole_file


@click.command("export")
@RESULTS
@click.option("--format", "name", type=click.Choice(export.names()), help="[default: what the FILE's suffix names]")
@click.option("--output", "-o", metavar="FILE", callback=not_empty, help="file to write  [default: print]")
@click.option("--all", "everything", is_flag=True, help="with runs that have no number, such as failed ones")
@click.option(
    "--repository",
    metavar="URL",
    callback=not_empty,
    help="conbench: the GitHub repository that the results belong to  [default: $CONBENCH_PROJECT_REPOSITORY]",
)
def export_(
    sources: tuple[str, ...], name: str | None, output: str | None, everything: bool, repository: str | None
) -> None:
    """Write results for other tools.

    RESULTS are folders with records, CSV files, `reference`, `reference:TEXT`, or names of baselines. mlperf: log lines for
    tools that read MLPerf logs (not a submission). conbench: the list of results to post to a Conbench server. Installed
    packages may add formats (entry points of the group `harness.exporters`).
    """
    file = path_of(output)
    write = partial(
        export.write,
        sources,
        export.chosen(name, file),
        status=None if everything else "completed",
        file=file,
        repository=repository,
        progress=reading(),
    )
    if file is None:
        write(sys.stdout.buffer)
        return
    with whole_file(file) as stream:
        count = write(stream)
    click.echo(f"{plural(count, 'result')}: {file}")
