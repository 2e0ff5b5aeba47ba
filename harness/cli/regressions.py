"""Did it get slower since last time: compare, baseline, history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli.common import AS_JSON, RESULTS, reading, share_of
from harness.errors import HarnessError, InvalidInput

if TYPE_CHECKING:
    from harness.analysis.two_samples import Test


class GotSlower(HarnessError):
    """Something got slower, or has no number any more. Scripts rely on the exit code, 1."""


def _compare(
    old: str,
    new: str,
    threshold: str,
    alpha: str,
    test: Test,
    everything: bool,
    as_json: bool,
    junit: Path | None,
    markdown: Path | None,
    github: bool,
) -> None:
    """Say whether anything in NEW is slower than in OLD: folders with records, record.json files, or baselines' names.

    Equal measurements are compared by their repeats. A slowdown is reported if it is statistically significant, unless the
    data show that it is smaller than --threshold. Exit code: 0 nothing got slower, 1 something did, or has no number any
    more, 2 nothing could be compared.

    `harness baseline save before-upgrade runs/` … `harness compare before-upgrade runs/`
    """
    from harness import results
    from harness.analysis import regression
    from harness.report.text import regression as report

    rule = regression.Rule(test, share_of("--alpha", alpha, below=0.5, zero=False), share_of("--threshold", threshold))
    for option, file in (("--junit", junit), ("--markdown", markdown)):
        if file and not file.absolute().parent.is_dir():
            raise InvalidInput(f"{option} {file}: there is no folder {file.absolute().parent}")
    before, after = (results.load([source], status=None, progress=reading()) for source in (old, new))
    found = regression.compare(before, after, rule)
    click.echo(report.as_json(found, [old], [new]) if as_json else report.terminal(found, old, new, everything))
    if github:
        click.echo(report.github(found), err=as_json)
    for file, text in ((junit, report.junit), (markdown, report.markdown)):
        if file:
            try:
                file.write_text(text(found, old, new), encoding="utf-8")
            except OSError as error:
                raise InvalidInput(f"{file}: {error.strerror}") from None
    if found.regressions:
        raise GotSlower(report.failure(found))
    if found.counts.get("cannot say", 0) == len(found.pairs):
        raise InvalidInput(f"nothing could be judged: {found.pairs[0].judgement.reason}")


FILE = click.Path(dir_okay=False, path_type=Path)
compare = click.Command(
    "compare",
    params=[
        click.Argument(["old"]),
        click.Argument(["new"]),
        click.Option(
            ["--threshold"],
            metavar="SHARE",
            default="5%",
            show_default=True,
            help="slowdown that is excused where the data show that it is smaller: 5% or 0.05",
        ),
        click.Option(
            ["--alpha"],
            metavar="SHARE",
            default="0.04",
            show_default=True,
            help="level of the one-sided test, adjusted for the number of measurements",
        ),
        click.Option(
            ["--test"],
            type=click.Choice(["welch", "mann-whitney"]),
            default="welch",
            show_default=True,
            help="welch: t-test on log(img/s); mann-whitney: on ranks, for data with wild outliers",
        ),
        click.Option(["--all", "everything"], is_flag=True, help="show every measurement in a long table"),
        click.Option(["--json", "as_json"], is_flag=True, help="print JSON for scripts instead of the table"),
        click.Option(
            ["--junit"], metavar="FILE", type=FILE, help="write JUnit XML as well, for GitLab, Jenkins and others"
        ),
        click.Option(
            ["--markdown"],
            metavar="FILE",
            type=FILE,
            help="write a Markdown table as well, such as for $GITHUB_STEP_SUMMARY",
        ),
        click.Option(
            ["--github"], is_flag=True, help="print annotations for GitHub Actions as well (with --json: on stderr)"
        ),
    ],
    callback=_compare,
    help=_compare.__doc__,
)


@click.command("history")
@RESULTS
@AS_JSON
def history(sources: tuple[str, ...], as_json: bool) -> None:
    """Find when measurements changed: change points in what each of them gave, run after run, in RESULTS.

    RESULTS are folders with records, record.json files, and names of baselines. A measurement needs 6 runs.
    """
    from harness import results
    from harness.analysis import history as histories
    from harness.report.text import history as report

    found = histories.find(results.load(sources, status=None, progress=reading()))
    click.echo(report.as_json(found, sources) if as_json else report.terminal(found))


@click.group("baseline")
def baseline() -> None:
    """Keep records under a name, to compare with later.

    They are in $HARNESS_BASELINES, a folder that a team can share, or in ~/.local/share/harness/baselines.
    """


@baseline.command("save")
@click.argument("name")
@RESULTS
@click.option("--note", metavar="TEXT", default="", help="what it is, for those who find it later")
@click.option("--replace", is_flag=True, help="put it in the place of one that has this name")
@AS_JSON
def save(name: str, sources: tuple[str, ...], note: str, replace: bool, as_json: bool) -> None:
    """Copy the records with a number in RESULTS into the baseline NAME."""
    from harness import results
    from harness.core.text import plural
    from harness.results import baselines

    baselines.check_free(name, replace)
    saved = baselines.save(name, results.load(sources, status=None, progress=reading()), sources, note, replace)
    if as_json:
        click.echo(saved.model_dump_json(by_alias=True))
        return
    left = f"; {saved.without_number} without a number left out" if saved.without_number else ""
    click.echo(f"baseline {name}: {plural(saved.records, 'record')}{left}\n{baselines.folder() / name}")


@baseline.command("list")
@AS_JSON
def list_baselines(as_json: bool) -> None:
    """The baselines, with what they hold."""
    from harness.report.text import inventory
    from harness.results import baselines

    saved = baselines.all_saved()
    if as_json:
        click.echo(json.dumps([one.model_dump(by_alias=True) for one in saved], indent=1))
    else:
        click.echo(inventory.baselines(saved) if saved else f"no baselines in {baselines.folder()}")


@baseline.command("show")
@click.argument("name")
@AS_JSON
def show(name: str, as_json: bool) -> None:
    """Show where the baseline NAME comes from, and the table of its records."""
    from harness import results
    from harness.report.text import comparison
    from harness.results import baselines

    found = baselines.get(name)
    if as_json:
        click.echo(found.model_dump_json(by_alias=True))
        return
    for field, value in found.model_dump(exclude={"schema_"}).items():
        click.echo(f"{field:15} {' '.join(value) if isinstance(value, list) else value}".rstrip())
    click.echo(f"{'folder':15} {baselines.folder() / name}\n")
    click.echo(comparison.runs(results.load([baselines.folder() / name])))


@baseline.command("remove")
@click.argument("name")
def remove(name: str) -> None:
    """Delete the baseline NAME and its copies of records."""
    from harness.results import baselines

    click.echo(f"removed {baselines.remove(name)}")
