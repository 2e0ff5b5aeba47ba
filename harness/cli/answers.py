"""Answers from results: table, best and report; and results, which exports, imports and verifies them."""

import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from harness import export as exporters
from harness.cli.loading import RESULTS, any_of, left_out, some_of
from harness.cli.values import ANY_PATH, AS_JSON, PATH, SHARE, TEXT
from harness.core.plain import json_text
from harness.core.progress import CountLine
from harness.core.text import plural
from harness.errors import HarnessError, InvalidInput, writing
from harness.files import whole_file, write_atomically
from harness.records.record import search
from harness.results.result import LOCAL, Result
from harness.results.selection import Selected, parted
from harness.results.sources import accuracies, kernels, place, trainings
from harness.running.kinds import KINDS

RECORDS = {kind.RECORD.file_name: kind.RECORD for kind in KINDS}


@click.command("table")
@RESULTS
@click.option(
    "--baseline",
    type=click.IntRange(min=1),
    metavar="WORKERS",
    help="base of scaling efficiency, in workers  [default: the smallest size that several contenders have in common]",
)
@click.option(
    "--format",
    "written",
    type=click.Choice(["text", "csv", "markdown", "latex"]),
    default="text",
    help="csv: figures as plain numbers; latex: for the package booktabs",
)
@AS_JSON
def table(sources: tuple[str, ...], baseline: int | None, written: str, as_json: bool) -> None:
    """Print the table of RESULTS: folders with records, CSV files, baselines, reference:TEXT. As in all commands that take
    results, 'runs/ @ now-7d: tag=NAME site=NAME' is some of them (docs/results.md).

    Kernels have a table of their own, and so have trainings to an accuracy. With --json: the points of all scaling curves,
    with the best configuration at each size, then those of kernels, which have a "kernel", and trainings with a "target".
    """
    if as_json and written != "text":
        raise InvalidInput(f"--format {written}: is not for --json; leave one of them out")
    results = any_of(sources, with_accuracies=True)
    from harness.report.text import kernel_table
    from harness.report.text import runs as of_trainings
    from harness.report.text.table import FORMATS

    runs, of_kernels, to_accuracy = trainings(results), kernels(results), accuracies(results)
    if of_kernels and not runs:
        of_trainings.check_baseline([kernel for kernel in of_kernels if kernel.completed], baseline, "kernel")
    if as_json:
        points = of_trainings.points(runs, baseline) if runs else []
        points += kernel_table.points(of_kernels, baseline)
        click.echo(json_text(points + of_trainings.accuracy_points(to_accuracy)))
        return
    tables = [of_trainings.table_of_runs(runs, baseline)] if runs else []
    if of_kernels:
        tables.append(kernel_table.table_of(of_kernels, baseline))
        tables += [] if written == "csv" else kernel_table.published_elsewhere(of_kernels)
    if to_accuracy:
        tables.append(of_trainings.table_of_accuracies(to_accuracy))
    click.echo(FORMATS[written](tables))


@click.command("best")
@RESULTS
@click.option("--margin", type=SHARE, default="5%", metavar="SHARE", help="figures closer than this are no different")
@click.option("--details", is_flag=True, help="show every comparison, and the settings that differ between its sides")
@AS_JSON
def best(sources: tuple[str, ...], margin: float, details: bool, as_json: bool) -> None:
    """Say who is fastest in RESULTS at each size, by how much, who scales best, and whether MPI-based toolkits
    scale better than parameter servers.

    Only runs that are alike are compared, and a winner is named only if it is more than chance (docs/verdict.md). The exit
    code is 0 whatever the answer is.
    """
    runs = some_of(sources)
    from harness.analysis.fastest import races
    from harness.analysis.verdict import verdict
    from harness.report.text import fastest
    from harness.report.text import runs as of_trainings
    from harness.report.text import verdict as verdicts

    entered, judged, notes = races(runs, margin=margin), verdict(runs, margin), of_trainings.notes(runs)
    if as_json:
        sentences = {"headline": verdicts.headline(judged), "lists": verdicts.lists(judged), "notes": notes}
        document = {"answer": fastest.answer(entered, judged), "races": entered, "verdict": judged}
        click.echo(json_text(document | sentences))
    else:
        text = fastest.text(entered, judged, details)
        click.echo("\n\n".join(filter(None, [text, "\n".join(notes)])))


FORMATS = ("png", "svg", "pdf")


@click.command("report")
@RESULTS
@click.option("-o", "--output", type=TEXT, default="report.html", metavar="FILE", help="- is stdout")
@click.option("--title", type=TEXT, metavar="TEXT", help="the page's title  [default: what was measured]")
@click.option("--figures", type=PATH, metavar="DIR", help="write every figure into files, too")
@click.option(
    "--format",
    "formats",
    type=click.Choice(FORMATS),
    multiple=True,
    help="of the figures; may be given several times  [default: png and svg]",
)
@click.option(
    "--width",
    type=click.FloatRange(60, 1000),  # text of 7 points needs that room
    metavar="MM",
    help="of the figures, such as 84 (one column)  [default: 183]",
)
def report(
    sources: tuple[str, ...],
    output: str,
    title: str | None,
    figures: Path | None,
    formats: Sequence[str],
    width: float | None,
) -> None:
    """Make one HTML page of results: interactive plots, tables, and where every number comes from.

    RESULTS are folders with records, tables of published results, saved baselines, `reference` or `reference:TEXT`. The
    page needs no network and holds all its data, host names, paths and options among them.
    """
    from harness.report.page import assemble, document, static

    for name, value in (("format", formats), ("width", width)):
        if value and not figures:
            raise InvalidInput(f"--{name}: is for --figures, which is missing")
    if Path(output).suffix.lower().removeprefix(".") in FORMATS:
        raise InvalidInput(f"--output {output}: a report is a page of HTML; --figures DIR writes pictures")
    results = any_of(sources)
    made = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    page = assemble.page(results, sources, made, title, left_out(click.get_current_context()))
    drawn = [figure for section in page.sections for figure in section.figures]
    if figures:  # before the page is there
        with writing(figures):
            figures.mkdir(parents=True, exist_ok=True)
    if output == "-":
        click.echo(document.render(page))
    else:
        folder = Path(output).resolve().parent
        with writing(Path(output)):
            write_atomically(Path(output), document.render(page, os.path.relpath(Path.cwd(), folder)))
        count = len(trainings(results)) + len({each.id for each in kernels(results)})
        click.echo(f"{output}: {count:,} runs in {len(drawn)} figures")
    if figures:
        files = static.write(drawn, figures, formats or ("png", "svg"), width or static.WIDTH_MM)
        click.echo(f"{figures}: {len(files)} files", err=output == "-")


@click.group("results")
def results() -> None:
    """Export results, import those of MLPerf, or verify records."""


@results.command("import", short_help="Make a table of MLPerf's logs")
@click.argument("logs", nargs=-1, required=True, type=ANY_PATH, metavar="LOGS...")
@click.option("--backend", required=True, help="way of distributing the training, such as horovod")
@click.option("--devices", type=click.IntRange(1), required=True, help="that trained together, which logs do not say")
@click.option("--devices-per-node", "per_node", type=click.IntRange(1), default=1, help="of these")
def import_(logs: tuple[Path, ...], backend: str, devices: int, per_node: int) -> None:
    """Print a table (CSV) of LOGS of MLPerf, or of folders with such *.txt, for all commands that take results.

    Runs of one benchmark on one system make a row: samples/s of an epoch without its evaluation, with their deviation. A
    first epoch does not count where there are others.

    `harness results import logs/ --backend horovod --devices 128 > mlperf.csv`
    """
    from harness.results import imported

    click.echo(imported.mlperf(logs, backend, devices, per_node), nl=False)


@results.command("export", short_help="Write results for other tools")
@RESULTS
@click.option("--format", "name", type=click.Choice(exporters.FORMATS), help="[default: what the FILE's suffix names]")
@click.option("--output", "-o", "file", type=PATH, metavar="FILE", help="file to write  [default: print]")
@click.option("--all", "everything", is_flag=True, help="with runs that have no number, such as failed ones")
@click.option("--kernels", "of_kernels", is_flag=True, help="kernels, a row for each size, not img/s")
def export(
    sources: tuple[str, ...],
    name: str | None,
    file: Path | None,
    everything: bool,
    of_kernels: bool,
) -> None:
    """Write results for other tools.

    RESULTS are folders with records, CSV files, `reference`, `reference:TEXT`, or names of baselines.
    """
    chosen = exporters.chosen(name, file)
    results = exporters.exported(any_of(sources), sources, everything, of_kernels)
    if file is None:
        exporters.write(results, chosen, sys.stdout.buffer)
        return
    with writing(file), whole_file(file) as stream:
        exporters.write(results, chosen, stream)
    click.echo(f"{plural(len(results), 'row' if of_kernels else 'result')}: {file}")


@results.command("check", short_help="Verify records in full")
@RESULTS
def check(sources: tuple[str, ...]) -> None:
    """Verify records in full: derive every figure again from the raw times, and judge all evidence again.

    RESULTS are records, folders with records, or names of baselines. Prints a line for each record that cannot be believed;
    then the exit code is 1. Other commands do this only for records whose seal, a checksum, does not fit.
    """
    files = sorted({file for source in sources for file in _files(source)})
    if not files:
        raise InvalidInput(f"{', '.join(sources)}: no record")
    problems, without, line = list[str](), 0, CountLine("records")
    for done, file in enumerate(files, start=1):
        problem, has_number = verified(file)
        problems += [problem] if problem else []
        without += not has_number
        line.count(done, len(files))
    for problem in problems:
        click.echo(problem)
    if problems:
        raise HarnessError(f"{len(problems):,} of {plural(len(files), 'record')} cannot be believed")
    more = f"; {without:,} {'has' if without == 1 else 'have'} no number" if without else ""
    follows = "every figure follows from its raw times, and every judgement from its evidence"
    click.echo(f"{plural(len(files), 'record')}: {follows}{more}")


def _files(source: str) -> list[str]:
    """The records of every kind in a source. One that a selection can ask nothing of is among them: it has a problem."""
    name, selection = parted(source)
    files = [*search(place(name), list(RECORDS))]
    if selection is None:
        return files
    readable = [result for result in map(_selectable, files) if result]
    selected = Selected()
    chosen = selected.of(readable, source, selection)
    selected.check()
    return [*(each.source for each in chosen), *({*files} - {each.source for each in readable})]


def _selectable(file: str) -> Result | None:
    """The fields of a record of any kind that selections ask for, not verified; None if it does not have them."""
    try:
        record = json.loads(Path(file).read_bytes())
        identity, started, tag = (str(record[name]) for name in ("id", "started", "tag"))
        return Result(source=file, id=identity, started=started, tag=tag, site=record["site"] or LOCAL)
    except (OSError, ValueError, LookupError, TypeError):
        return None


def verified(file: str) -> tuple[str, bool]:
    """The problem of a record, "" if it has none, and whether its run has a number.

    Its seal does not count: everything is derived and judged again.
    """
    try:
        record = RECORDS.get(Path(file).name, RECORDS["record.json"]).read(Path(file), believing_seals=False)
    except InvalidInput as error:
        return str(error), False
    return "", record.status == "completed"
