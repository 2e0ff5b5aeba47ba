"""From results to the sections of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness import __version__
from harness.analysis import history
from harness.analysis import verdict as verdicts
from harness.core.text import plural
from harness.report.page import curve_figures, lines, model_figures, modelled, provenance, run_figures, tables
from harness.report.page.document import Page
from harness.report.page.figures import Figure, Mark
from harness.report.page.modelled import Explained
from harness.report.page.provenance import Runs
from harness.report.page.tables import Section, Table
from harness.report.text import verdict as report

if TYPE_CHECKING:
    import pandas

SYSTEMS_IN_TITLE = 3


def page(frame: pandas.DataFrame, sources: Sequence[str], made: str, title: str | None = None) -> Page:
    """The report on the rows of ``results.load(sources, status=None)``.

    ``made`` says when. Reads the records whose step times are shown; raises InvalidInput for one that cannot be read.
    """
    facets = tables.run_facets(frame)
    counts = Counter(facets)
    without = Counter(one for one, status in zip(facets, frame["status"], strict=True) if status != "completed")
    return Page(
        title=title or f"Training throughput on {_systems(frame)}",
        lead=lead(frame),
        facts=facts(frame, sources, made),
        sections=tuple(sections(frame)),
        runs={one: (count, without[one]) for one, count in counts.items()},
    )


def _systems(frame: pandas.DataFrame) -> str:
    """The systems that we measured on, or the published ones, as far as a title has room."""
    measured = frame[frame["origin"] == "measured"]
    names = sorted(set((measured if len(measured) else frame)["system"]))
    return ", ".join(names) if len(names) <= SYSTEMS_IN_TITLE else f"{len(names)} systems"


def summary(made: Page) -> str:
    """What a page holds, in a few words."""
    figures = sum(len(section.figures) for section in made.sections)
    runs = sum(count for count, _ in made.runs.values())
    return f"{runs:,} runs in {figures} figures"


def sections(frame: pandas.DataFrame) -> list[Section]:
    """The sections of a report that have something to show."""
    completed = frame[frame["status"] == "completed"]
    runs, drawn = Runs.of(frame), lines.of(completed)
    overheads = curve_figures.overheads(drawn)
    fitted, unfitted = modelled.explained(frame, drawn)
    steps = [
        run_figures.steps(line, workers, source, run_figures.read_steps(Path(source)))
        for line, workers, source in run_figures.chosen(drawn)
    ]
    every = [
        _nothing(frame) if completed.empty else _verdict(completed),
        _section(
            "throughput",
            "Throughput",
            "Images per second of all workers, on the best configuration at each size. Bars are 95 % confidence intervals, "
            "dashed grey lines ideal scaling from each curve's smallest size; hollow markers are published results.",
            curve_figures.throughput(drawn, runs),
            more=lines.usual_terms(drawn),
        ),
        _section(
            "efficiency",
            "Scaling efficiency",
            "Throughput per worker, relative to the smallest size of the same curve.",
            curve_figures.efficiency(drawn, runs),
        ),
        _section(
            "strong-scaling",
            "Strong scaling",
            "The global batch stays the same, so the batch per device shrinks as workers are added.",
            curve_figures.strong(drawn, runs),
        ),
        _section(
            "ps-sweep",
            "Number of parameter servers",
            "Images per second with each number of servers that was tried, at each size. The best one is marked.",
            curve_figures.ps_sweeps(drawn, runs),
            tables.ps_search(drawn, runs),
        ),
        _model(fitted, unfitted, runs),
        _section(
            "io-overhead",
            "I/O overhead",
            "How much of the throughput is lost when images are read from files instead of memory.",
            curve_figures.io_overhead(drawn, runs),
            tables.io_overheads(overheads),
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
            run_figures.history(frame, runs, _changes(completed)),
        ),
        _section("points", "All points", "", [], tables.points(drawn, runs)),
        _section("without-number", "Runs without a number", "", [], tables.without_number(frame)),
        _section("runs", "All runs", "", [], tables.all_runs(frame)),
    ]
    return [one for one in every if one.answer or one.paragraphs or one.figures or one.tables]


def _section(name: str, title: str, text: str, figures: Sequence[Figure], *made: Table, more: str = "") -> Section:
    """A section, or an empty one if there is nothing in its figures and tables."""
    drawn = tuple(figure for figure in figures if figure.series)
    filled = tuple(table for table in made if table.rows)
    paragraphs = tuple(filter(None, (text, more))) if text and (drawn or filled) else ()
    return Section(name, title, paragraphs, drawn, filled)


def _model(fitted: Sequence[Explained], left_out: Sequence[str], runs: Runs) -> Section:
    """What the scaling model makes of the results."""
    more = (
        f"Of all systems and transports the {len(fitted)} with most sizes are shown; left out: {'; '.join(left_out)}."
    )
    made = _section(
        "model",
        "Why it scales as it does",
        "A law of the step, fitted to the results on this page: each pass takes as long as its compute, or as the network "
        "needs for what queues at the fullest server or in the allreduce. Hollow markers are published results.",
        model_figures.of(fitted, runs),
        tables.fits(fitted),
        tables.parameters(fitted),
        more=more if left_out else "",
    )
    said = tuple(f"{one.name}: {one.said}" for one in fitted)
    misfits = tuple(f"{one.name}: {one.fit.misfit.told}." for one in fitted if one.fit.misfit.contradicts)
    lists = {"Misfit": misfits, "What bounds each at its largest size": said}
    return replace(made, lists=tuple((title, each) for title, each in lists.items() if each))


def _nothing(frame: pandas.DataFrame) -> Section:
    text = f"None of the {len(frame):,} runs has a number, so there is nothing to draw. The reasons are below."
    return Section("nothing", "No results", (text,))


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
    return Section(
        "verdict",
        report.QUESTION,
        answer=said.headline,
        tables=(table,) if table.rows else (),
        lists=tuple((title, items) for title, items in lists.items() if items),
    )


def _changes(completed: pandas.DataFrame) -> dict[tuple[str, str], list[Mark]]:
    """Where the level of the measurements that were done most often changed, by system and spec."""
    measured = completed[completed["origin"] == "measured"]
    runs = measured.groupby(["system", "spec"])["id"].transform("size")
    counts = measured.groupby(["system", "spec"]).size().nlargest(run_figures.SHOWN_HISTORIES)
    measured = measured[runs >= counts.min()] if len(counts) else measured
    return {
        (one.system, one.spec): [Mark(change.after.started[:19], f"{change.change:+.1%}") for change in one.changes]
        for one in history.series(measured)
    }


def lead(frame: pandas.DataFrame) -> str:
    """What was measured, in a sentence."""
    measured = frame[frame["origin"] == "measured"]
    rows = measured if len(measured) else frame
    models, systems, backends = (", ".join(sorted(rows[name].unique())) for name in ("model", "system", "backend"))
    least, most = int(rows["workers"].min()), int(rows["workers"].max())
    span = f"{least:,} to {most:,} workers" if least < most else plural(most, "worker")
    return (
        f"{models} on {systems}: {plural(rows['backend'].nunique(), 'backend')} ({backends}) "
        f"{'measured' if len(measured) else 'published'} on {span}."
    )


def facts(frame: pandas.DataFrame, sources: Sequence[str], made: str) -> tuple[tuple[str, str], ...]:
    """What the header says."""
    measured = frame[frame["origin"] == "measured"]
    without = int((frame["status"] != "completed").sum())
    published = len(frame) - len(measured)
    runs = f"{len(measured):,} measured" + (f", {without:,} of them without a number" if without else "")
    entries = {
        "Runs": runs if len(measured) else "",
        "Published": f"{published:,} results" if published else "",
        "Measured": provenance.when(sorted(measured["started"].unique())),
        "Systems": ", ".join(sorted(measured["system"].unique())),
        "Sources": ", ".join(sources),
        "Made": f"{made} by harness {__version__}",
    }
    return tuple((label, value) for label, value in entries.items() if value)
