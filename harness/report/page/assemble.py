"""From results to the sections of a report."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pandas

from harness import __version__
from harness.analysis import verdict as verdicts
from harness.core.text import plural
from harness.report.page import curve_figures, lines, model_figures, modelled, run_figures, tables
from harness.report.page.document import Page, Section
from harness.report.text import verdict as report
from harness.report.text.prediction import parameters


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
    where = ", ".join(systems) if len(systems) <= 3 else f"{len(systems)} systems"
    runs = f"{len(measured):,} measured" + (f", {numberless:,} of them without a number" if numberless else "")
    facts = {
        "Runs": runs if len(measured) else "",
        "Published": f"{published:,} results" if published else "",
        "Measured": lines.days(sorted(measured["started"])),
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


def sections(frame: pandas.DataFrame) -> list[Section]:
    """The sections of a report that have something to show."""
    completed, drawn = frame[frame["status"] == "completed"], lines.of(frame)
    nothing = f"None of the {len(frame):,} runs has a number, so there is nothing to draw. The reasons are below."
    every = [
        Section(
            "throughput",
            "Throughput",
            [
                "Images per second of all workers, on the best configuration at each size. Bars are 95 % confidence "
                "intervals, dashed grey lines ideal scaling from each curve's smallest size; hollow markers are published "
                "results.",
                lines.usual_terms(drawn),
            ],
            curve_figures.growth(drawn, "weak"),
        ),
        Section(
            "efficiency",
            "Scaling efficiency",
            [
                "Throughput per worker, relative to the size that the axis names. Arrows stand where a curve or interval "
                "leaves the axes."
            ],
            curve_figures.efficiencies(drawn),
        ),
        Section(
            "strong-scaling",
            "Strong scaling",
            ["The global batch stays the same, so the batch per device shrinks as workers are added."],
            curve_figures.growth(drawn, "strong"),
        ),
        Section(
            "ps-sweep",
            "Number of parameter servers",
            ["Images per second with each number of servers that was tried, at each size. The best one is marked."],
            curve_figures.ps_sweeps(drawn),
            [tables.ps_search(drawn)],
        ),
        _model(frame, drawn),
        Section(
            "io-overhead",
            "I/O overhead",
            ["How much of the throughput is lost when images are read from files instead of memory."],
            curve_figures.io_overhead(drawn),
            [tables.io_overheads(curve_figures.overheads(drawn))],
        ),
        Section(
            "steps",
            "Step times by rank",
            [
                "How long the steps of each rank took in the best run of the largest size of each curve. "
                "A rank that stands out holds up all others."
            ],
            run_figures.steps(drawn),
        ),
        Section(
            "history",
            "History",
            [
                f"Measurements that were done at least {run_figures.HISTORY_RUNS} times, the "
                f"{run_figures.SHOWN_HISTORIES} that were done most often. Vertical lines are changes of the level, as "
                "`harness history` finds them."
            ],
            run_figures.history(completed),
        ),
        Section("points", "All points", tables=[tables.points(drawn)]),
        Section("without-number", "Runs without a number", tables=[tables.without_number(frame)]),
        Section("runs", "All runs", tables=[tables.all_runs(frame)]),
    ]
    first = Section("nothing", "No results", [nothing]) if completed.empty else _verdict(completed)
    for number, section in enumerate(every):
        figures = [figure for figure in section.figures if figure.series]
        every[number] = replace(section, figures=figures, tables=[table for table in section.tables if table.rows])
    return [first, *(section for section in every if section.figures or section.tables)]


def _model(frame: pandas.DataFrame, drawn: Sequence[lines.Line]) -> Section:
    groups, left_out = modelled.explained(frame, drawn)
    paragraphs = [
        "A law of the step, fitted to the results on this page: each pass takes as long as its compute, or as the network "
        "needs for what queues at the fullest server or in the allreduce. Hollow markers are published results."
    ]
    if left_out:
        shown = f"Of all systems and transports the {len(groups)} with most sizes are shown"
        paragraphs.append(f"{shown}; left out: {'; '.join(left_out)}.")
    lists: dict[str, Sequence[str]] = {
        "Misfit": [
            f"{group.name}: {group.fit.misfit.contradiction}." for group in groups if group.fit.misfit.contradiction
        ],
        "What bounds each at its largest size": [f"{group.name}: {group.said}" for group in groups],
        **{f"Parameters of {group.name}": parameters(group.fit) for group in groups},
    }
    fits = [tables.fits(groups)]
    return Section("model", "Why it scales as it does", paragraphs, model_figures.of(groups), fits, lists=lists)


def _verdict(completed: pandas.DataFrame) -> Section:
    """The answer to the question that the suite is for. It is about all results of the page, whatever is filtered."""
    verdict = verdicts.verdict(completed)
    table = tables.comparison(verdict)
    return Section(
        "verdict",
        report.QUESTION,
        answer=report.headline(verdict),
        tables=[table] if table.rows else [],
        lists=report.lists(verdict),
    )
