"""Changes since last time: compare, baseline, history."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import click

from harness.analysis import history as histories
from harness.analysis import regression as regressions
from harness.cli.loading import RESULTS, any_of
from harness.cli.values import AS_JSON, SHARE, SOURCE, ParsedText, files
from harness.core.text import minute, plural
from harness.core.written import share
from harness.errors import HarnessError, InvalidInput, writing
from harness.report.text import history as history_text
from harness.report.text import regression as text
from harness.report.text.table import table
from harness.results import baselines
from harness.results.selection import Selected


def _new_file(text: str) -> Path:
    file = Path(text)
    if file.is_dir() or not file.absolute().parent.is_dir():
        raise ValueError("must be a file in a folder that is there")
    return file


FILE = ParsedText(_new_file)


@click.command("compare")
@click.argument("old", type=SOURCE, shell_complete=files)
@click.argument("new", type=SOURCE, shell_complete=files)
@click.option(
    "--threshold",
    metavar="SHARE",
    type=ParsedText(partial(share, zero=True)),
    default="5%",
    help="slowdown that is excused where the data show that it is smaller: 5% or 0.05",
)
@click.option(
    "--alpha",
    metavar="SHARE",
    type=SHARE,
    default="0.04",
    help="level of the one-sided test, adjusted for the number of measurements",
)
@click.option(
    "--inconclusive-exit-code",
    "inconclusive",
    metavar="3-125",
    type=click.IntRange(3, 125),
    help="end with this where nothing is significantly slower, but a slowdown as large as --threshold is not excluded",
)
@click.option("--json", "as_json", is_flag=True, help="print JSON for scripts instead of the table")
@click.option("--junit", metavar="FILE", type=FILE, help="write JUnit XML as well, for GitLab, Jenkins and others")
@click.option(
    "--markdown", metavar="FILE", type=FILE, help="write a Markdown table as well, such as for $GITHUB_STEP_SUMMARY"
)
def compare(old: str, new: str, inconclusive: int | None, as_json: bool, **given: Any) -> None:
    """Say whether anything in NEW is slower than in OLD: folders with records, record.json files, baselines' names, tables
    (CSV), or reference:TEXT; or some of these, such as 'runs/ @ now-14d:now-7d' and 'runs/ @ now-7d:now' (docs/results.md).

    Equal measurements, of training and of kernels, are compared by their repeats. A slowdown is reported if it is
    statistically significant, unless the data show that it is smaller than --threshold. Exit code: 0 nothing is
    significantly slower, 1 something is, or has no number any more, 2 nothing could be compared. Data that are too noisy to
    exclude a slowdown are said to be, and end with --inconclusive-exit-code if it is given.

    `harness baseline save before-upgrade runs/` … `harness compare before-upgrade runs/`
    """
    written = [(given["junit"], text.junit), (given["markdown"], text.markdown)]
    rule = regressions.Rule(given["alpha"], given["threshold"])
    selected = Selected()  # both may be of one folder, which is read once
    before, after = (any_of([side], selected) for side in (old, new))
    selected.check()
    compared = regressions.compare(before, after, rule)
    click.echo(text.as_json(compared, old, new) if as_json else text.terminal(compared, old, new))
    for file, write in written:
        if file:
            with writing(file):
                file.write_text(write(compared, old, new), encoding="utf-8")
    if compared.regressions:
        raise HarnessError(text.failure(compared))
    if inconclusive and compared.undecided:
        click.get_current_context().exit(inconclusive)
    if compared.counts["cannot say"] == len(compared.pairs):
        raise InvalidInput(f"nothing could be judged: {compared.pairs[0].judgement.reason}")


@click.command("history")
@RESULTS
@AS_JSON
def history(sources: tuple[str, ...], as_json: bool) -> None:
    """Find when measurements changed: change points in what each of them gave, run after run, in RESULTS.

    RESULTS are folders with records, record.json files, and names of baselines. A measurement, of training or of one size
    of a kernel, needs 6 runs.
    """
    past = histories.find(any_of(sources))
    click.echo(history_text.as_json(past, sources) if as_json else history_text.terminal(past))


@click.group("baseline")
def baseline() -> None:
    """Keep records under a name, to compare with later.

    Each is a folder in $HARNESS_BASELINES, which a team can share, or in ~/.local/share/harness/baselines. `harness table`
    shows its records, and deleting the folder removes it.
    """


@baseline.command("save", short_help="Copy records into a baseline")
@click.argument("name")
@RESULTS
@click.option("--note", metavar="TEXT", default="", show_default=False, help="description, for people who see it later")
@click.option("--replace", is_flag=True, help="put it in the place of one that has this name")
@AS_JSON
def save(name: str, sources: tuple[str, ...], note: str, replace: bool, as_json: bool) -> None:
    """Copy the records with a number in RESULTS into the baseline NAME."""
    baselines.check_new(name, replace)  # before anything is read
    saved = baselines.save(name, any_of(sources), sources, note, replace)
    left = f"; {saved.without_number} without a number left out" if saved.without_number else ""
    text = f"baseline {name}: {plural(saved.records, 'record')}{left}\n{baselines.folder() / name}"
    click.echo(saved.model_dump_json(by_alias=True) if as_json else text)


@baseline.command("list", short_help="List the baselines, with what they hold")
@AS_JSON
def list_baselines(as_json: bool) -> None:
    """The baselines, with what they hold."""
    saved = baselines.all_saved()
    if as_json:
        click.echo(json.dumps([each.model_dump(by_alias=True) for each in saved], indent=1))
    else:
        rows = [("name", "records", "saved", "harness", "from", "note")]
        for each in saved:
            counts = str(each.records), minute(each.saved), each.harness
            rows.append((each.name, *counts, " ".join(each.sources), each.note))
        click.echo(table(rows, right={1}) if saved else f"no baselines in {baselines.folder()}")
