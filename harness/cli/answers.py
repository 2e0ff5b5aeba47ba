"""Answers from results: the table of runs, and the verdict."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from harness.cli.common import AS_JSON, RESULTS, reading, share_of
from harness.errors import InvalidInput

if TYPE_CHECKING:
    import pandas


@click.command("table")
@RESULTS
@click.option(
    "--baseline",
    type=click.IntRange(min=1),
    metavar="WORKERS",
    help="what scaling efficiency is relative to  [default: each configuration's smallest number of workers]",
)
@click.option(
    "--style",
    type=click.Choice(["runs", "report2017"]),
    default="runs",
    show_default=True,
    help="one line per run, or the tables of the CSCS report of 2017: the best configuration at each size",
)
@click.option("--stragglers", is_flag=True, help="show runs with a slow rank, and the hosts that such ranks were on")
@AS_JSON
def table(sources: tuple[str, ...], baseline: int | None, style: str, stragglers: bool, as_json: bool) -> None:
    """Print the table of RESULTS: folders with records, CSV files, baselines, reference:TEXT.

    With --json: the points of all scaling curves, with the best configuration at each size.
    """
    from harness.report.text import comparison, report2017

    frame = _loaded(sources)
    if as_json:
        click.echo(json.dumps(comparison.points(frame, baseline)))
    elif style == "report2017":
        click.echo(report2017.tables(frame, baseline))
    else:
        click.echo(comparison.runs(frame, baseline))
    if stragglers and not as_json:
        click.echo(f"\n{comparison.stragglers(frame)}")


@click.command("verdict")
@RESULTS
@click.option(
    "--margin",
    default="5%",
    show_default=True,
    metavar="SHARE",
    help="efficiencies closer than this are no different",
)
@AS_JSON
def verdict(sources: tuple[str, ...], margin: str, as_json: bool) -> None:
    """Say whether MPI-based toolkits scale better than parameter servers in RESULTS, and between which sizes they part.

    Only runs that are alike are compared (docs/verdict.md). The exit code is 0 whatever the answer is.
    """
    from harness.analysis import verdict as verdicts
    from harness.report.text import verdict as report

    share = share_of("--margin", margin, zero=False)
    found = verdicts.verdict(_loaded(sources), share)
    click.echo(json.dumps(report.as_json(found)) if as_json else report.text(found))


def _loaded(sources: tuple[str, ...]) -> pandas.DataFrame:
    """The rows of ``sources``, of any status. Raises InvalidInput if there are none."""
    from harness import results
    from harness.records.measurement import FILE_NAME

    frame = results.load(sources, status=None, progress=reading())
    if frame.empty:
        raise InvalidInput(f"no {FILE_NAME} at or below {', '.join(sources)}")
    return frame
