"""From results to the sections of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness import __version__
from harness.analysis import verdict as verdicts
from harness.core.text import plural
from harness.report.page import curve_figures, lines, model_figures, modelled, run_figures, tables
from harness.report.page.document import Page, Section, Table
from harness.report.page.figures import Figure
from harness.report.page.provenance import days
from harness.report.text import verdict as report

if TYPE_CHECKING:
    import pandas

SYSTEMS_IN_TITLE = 3


def page(frame: pandas.DataFrame, sources: Sequence[str], made: str, title: str | None = None) -> Page:
    """The report on the rows of ``results.load(sources, status=None)``.

    ``made`` says when. Reads the records whose step times are shown; raises InvalidInput for one that cannot be read.
    """
    measured = frame[frame["origin"] == "measured"]
    published, numberless = len(frame) - len(measured), int((frame["status"] != "completed").sum())
    shown = measured if len(measured) else frame  # what we measured, or what others published
    models, systems, backends = (sorted(shown[name].unique()) for name in ("model", "system", "backend"))
    least, most = int(shown["workers"].min()), int(shown["workers"].max())
    span = f"{least:,} to {most:,} workers" if least < most else plural(most, "worker")
    where = ", ".join(systems) if len(systems) <= SYSTEMS_IN_TITLE else f"{len(systems)} systems"
    runs = f"{len(measured):,} measured" + (f", {numberless:,} of them without a number" if numberless else "")
    facts = {
        "Runs": runs if len(measured) else "",
        "Published": f"{published:,} results" if published else "",
        "Measured": days(sorted(measured["started"])),
        "Systems": ", ".join(sorted(measured["system"].unique())),
        "Sources": ", ".join(sources),
        "Made": f"{made} by harness {__version__}",
    }
    counts = Counter(tables.run_facets(frame))
    without = Counter(tables.run_facets(frame[frame["status"] != "completed"]))
    return Page(
        title=title or f"Training throughput on {where}",
        lead=f"{', '.join(models)} on {', '.join(systems)}: {plural(len(backends), 'backend')} ({', '.join(backends)}) "
        f"{'measured' if len(measured) else 'published'} on {span}.",
        facts={label: value for label, value in facts.items() if value},
        sections=sections(frame),
        runs={facets: (count, without[facets]) for facets, count in counts.items()},
    )


def summary(made: Page) -> str:
    """What a page holds, in a few words."""
    figures = sum(len(section.figures) for section in made.sections)
    runs = sum(count for count, _ in made.runs.values())
    return f"{runs:,} runs in {figures} figures"


def sections(frame: pandas.DataFrame) -> list[Section]:
    """The sections of a report that have something to show."""
    completed, drawn = frame[frame["status"] == "completed"], lines.of(frame)
    steps = [
        run_figures.steps(line, workers, source, run_figures.read_steps(Path(source)))
        for line, workers, source in run_figures.chosen(drawn)
    ]
    nothing = f"None of the {len(frame):,} runs has a number, so there is nothing to draw. The reasons are below."
    every = [
        Section("nothing", "No results", [nothing]) if completed.empty else _verdict(completed),
        _section(
            "throughput",
            "Throughput",
            "Images per second of all workers, on the best configuration at each size. Bars are 95 % confidence intervals, "
            "dashed grey lines ideal scaling from each curve's smallest size; hollow markers are published results.",
            curve_figures.throughputs(drawn),
            more=lines.usual_terms(drawn),
        ),
        _section(
            "efficiency",
            "Scaling efficiency",
            "Throughput per worker, relative to the smallest size of the same curve.",
            curve_figures.efficiencies(drawn),
        ),
        _section(
            "strong-scaling",
            "Strong scaling",
            "The global batch stays the same, so the batch per device shrinks as workers are added.",
            curve_figures.strong(drawn),
        ),
        _section(
            "ps-sweep",
            "Number of parameter servers",
            "Images per second with each number of servers that was tried, at each size. The best one is marked.",
            curve_figures.ps_sweeps(drawn),
            tables.ps_search(drawn),
        ),
        _model(frame, drawn),
        _section(
            "io-overhead",
            "I/O overhead",
            "How much of the throughput is lost when images are read from files instead of memory.",
            curve_figures.io_overhead(drawn),
            tables.io_overheads(curve_figures.overheads(drawn)),
        ),
        _section(
            "steps",
            "Step times by rank",
            "How long the steps of each rank took in the best run of the largest size of each curve. "
            "A rank that stands out holds up all others.",
            steps,
        ),
        _section(
            "history",
            "History",
            f"Measurements that were done at least {run_figures.HISTORY_RUNS} times, the "
            f"{run_figures.SHOWN_HISTORIES} that were done most often. Vertical lines are changes of the level, as "
            "`harness history` finds them.",
            run_figures.history(completed),
        ),
        _section("points", "All points", "", [], tables.points(drawn)),
        _section("without-number", "Runs without a number", "", [], tables.without_number(frame)),
        _section("runs", "All runs", "", [], tables.all_runs(frame)),
    ]
    return [each for each in every if each.answer or each.paragraphs or each.figures or each.tables]


def _section(
    name: str,
    title: str,
    text: str,
    figures: Sequence[Figure],
    *its_tables: Table,
    more: str = "",
    lists: dict[str, list[str]] | None = None,
) -> Section:
    """A section, or an empty one if there is nothing in its figures and tables."""
    drawn = [figure for figure in figures if figure.series]
    filled = [table for table in its_tables if table.rows]
    paragraphs = [paragraph for paragraph in (text, more) if paragraph and (drawn or filled)]
    return Section(name, title, paragraphs, drawn, filled, lists=lists or {})


def _model(frame: pandas.DataFrame, drawn: Sequence[lines.Line]) -> Section:
    """What the scaling model makes of the results."""
    groups, left_out = modelled.explained(frame, drawn)
    more = (
        f"Of all systems and transports the {len(groups)} with most sizes are shown; left out: {'; '.join(left_out)}."
    )
    misfits = [f"{group.name}: {group.fit.misfit.told}." for group in groups if group.fit.misfit.contradicts]
    bounds = {"What bounds each at its largest size": [f"{group.name}: {group.said}" for group in groups]}
    return _section(
        "model",
        "Why it scales as it does",
        "A law of the step, fitted to the results on this page: each pass takes as long as its compute, or as the network "
        "needs for what queues at the fullest server or in the allreduce. Hollow markers are published results.",
        model_figures.of(groups),
        tables.fits(groups),
        tables.parameters(groups),
        more=more if left_out else "",
        lists=({"Misfit": misfits} if misfits else {}) | bounds,
    )


def _verdict(completed: pandas.DataFrame) -> Section:
    """The answer to the question that the suite is for. It is about all results of the page, whatever is filtered."""
    verdict = verdicts.verdict(completed)
    said, table = report.sentences(verdict), tables.comparison(verdict)
    lists = {
        "Each toolkit": said.findings,
        "An indication only, not like for like": said.indications,
        "What was equal": said.equal,
        "What was not equal": said.unequal,
        "What would decide it": said.would_decide,
        "What was left out": said.left_out,
    }
    lists = {title: items for title, items in lists.items() if items}
    return Section("verdict", report.QUESTION, answer=said.headline, tables=[table] if table.rows else [], lists=lists)
