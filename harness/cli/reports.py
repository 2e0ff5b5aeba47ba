"""Reports: one HTML page, and its figures as files."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.common import RESULTS, list_of, not_empty, reading
from harness.errors import InvalidInput

FORMATS = ["png", "svg", "pdf"]


@click.command("report")
@RESULTS
@click.option(
    "-o", "--output", default="report.html", show_default=True, metavar="FILE", callback=not_empty, help="- is stdout"
)
@click.option("--title", metavar="TEXT", callback=not_empty, help="the page's title  [default: what was measured]")
@click.option("--figures", metavar="DIR", callback=not_empty, help="write every figure into files, too")
@click.option(
    "--format",
    "formats",
    metavar="A,B",
    help=f"of the figures: {', '.join(FORMATS)}  [default: png,svg]",
)
def report(sources: tuple[str, ...], output: str, title: str | None, figures: str | None, formats: str | None) -> None:
    """Make one HTML page of results: interactive plots, tables, and where every number comes from.

    RESULTS are folders with records, tables of published results, saved baselines, `reference` or `reference:TEXT`. The
    page needs no network and holds all its data, host names, paths and options among them.
    """
    from datetime import UTC, datetime

    from harness import results
    from harness.report.page import assemble, document

    chosen = list_of("--format", formats, ["png", "svg"])
    if unknown := [one for one in chosen if one not in FORMATS]:
        raise InvalidInput(f"--format '{unknown[0]}': must be some of {','.join(FORMATS)}")
    if formats and not figures:
        raise InvalidInput("--format: is for --figures, which is missing")
    frame = results.load(sources, status=None, progress=reading())
    if frame.empty:
        raise InvalidInput(f"{', '.join(sources)}: no results in there; every run writes a record.json")
    made = assemble.page(frame, sources, f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", title)
    if output == "-":
        click.echo(document.render(made))
    else:
        document.write(document.render(made), Path(output))
        click.echo(f"{output}: {assemble.summary(made)}")
    if figures:
        from harness.report.page import static

        drawn = [figure for section in made.sections for figure in section.figures]
        written = static.write(drawn, Path(figures), chosen)
        click.echo(f"{figures}: {len(written)} files", err=output == "-")
