"""From results to the sections of a report."""

import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from harness import __version__
from harness.analysis import fastest, scaling
from harness.analysis import verdict as verdicts
from harness.core import emulation
from harness.core.text import percent, plural
from harness.report.page import (
    curve_figures,
    kernel_figures,
    lines,
    model_figures,
    modelled,
    run_figures,
    tables,
)
from harness.report.page.document import TEMPLATES, Answer, Page, PageTable, Section
from harness.report.page.figures import Facets, Figure, by_system, relative
from harness.report.text import fastest as texts
from harness.report.text import verdict as report
from harness.report.text.prediction import parameters
from harness.results.result import Result
from harness.results.sources import kernels as kernels_of
from harness.results.sources import trainings

SHOWN_ANSWERS = 24
NAMED = 3  # of a page's systems, models or backends above its answer; of more there is the number
SECTIONS = tomllib.loads((TEMPLATES / "sections.toml").read_text(encoding="utf-8"))


def page(
    results: Sequence[Result], sources: Sequence[str], made: str, title: str | None = None, left_out: Sequence[str] = ()
) -> Page:
    """The report on ``results``, of any kind and status; kernels have a section.

    ``made`` is a time, ``left_out`` are the records that could not be read, and why. Reads the records whose step times are
    shown; raises InvalidInput for one that cannot be read.
    """
    short = emulation.short({run.system for run in results})
    results = [run if short[run.system] == run.system else replace(run, system=short[run.system]) for run in results]
    runs, of_kernels = trainings(results), kernels_of(results)
    kernels = list({run.id: run for run in reversed(of_kernels)}.values())[::-1]
    measured = [run for run in runs if run.measured]
    shown = measured or runs or kernels  # ours, or those of others
    where, subjects, backends = (
        ", ".join(values) if len(values) <= NAMED else plural(len(values), name)
        for name in ("system", "model" if runs else "kernel", "backend")
        for values in [sorted({getattr(run, name) for run in shown})]
    )
    lead = f"{subjects}{f' on {where}' if title else ''}: {backends}"  # a title of our own has it
    if runs:
        least, most = min(run.workers for run in shown), max(run.workers for run in shown)
        span = f"{least:,} to {most:,} workers" if least < most else plural(most, "worker")
        lead += f", {'measured' if measured else 'published'} on {span}"
    facts = {
        "Measured": lines.days(sorted(run.started for run in (measured if runs else kernels))),
        "Sources": ", ".join(sources),
        "Made": f"{made} by harness {__version__}",
        "Systems": "; ".join(f"{name} is {long}" for long, name in sorted(short.items()) if name != long),
    }
    of_kinds = sections(runs) if runs else []
    if kernels:
        of_kinds.append(_section("kernels", kernel_figures.of(of_kernels), [tables.kernels(of_kernels)]))
    counts = Counter((Facets.of_run(run), run.completed) for run in [*runs, *kernels])
    return Page(
        title=title or f"{'Training throughput' if runs else 'Kernels'} on {where}",
        lead=f"{lead}.",
        facts={label: value for label, value in facts.items() if value},
        sections=of_kinds,
        runs={facets: (counts[facets, True] + counts[facets, False], counts[facets, False]) for facets, _ in counts},
        left_out=left_out,
    )


def sections(runs: Sequence[Result]) -> list[Section]:
    """The sections of a report that have something to show."""
    completed, failed = ([run for run in runs if run.completed == ended] for ended in (True, False))
    curves = scaling.curves(completed)
    races = fastest.races(completed, curves)
    drawn = lines.of(runs, races, curves)
    histories, overheads = run_figures.history(completed), curve_figures.overheads(drawn)
    every = [
        _section("throughput", curve_figures.growth(drawn, "weak"), words=[lines.usual_terms(drawn)]),
        _section("efficiency", curve_figures.efficiencies(drawn, races)),
        _section("strong-scaling", curve_figures.growth(drawn, "strong")),
        _section("ps-sweep", curve_figures.ps_sweeps(drawn), [tables.ps_search(drawn)]),
        _model(runs, drawn),
        _section("io-overhead", curve_figures.io_overhead(overheads), [tables.io_overheads(overheads)]),
        _section("steps", run_figures.steps(drawn)),
        _section("energy", tables=[tables.of_runs("energy-runs", [run for run in runs if run.energy])]),
        _slower(histories),
        _section("history", histories),
        _section("points", tables=[tables.points(drawn)]),
        _section("without-number", tables=[tables.of_runs("without-number", failed)]),
        _section("runs", tables=[tables.of_runs("runs", runs)]),
    ]
    shown = [section for section in every if section.figures or section.tables or section.links]
    if not completed:
        nothing = f"None of the {len(runs):,} runs has a number, so there is nothing to draw. The reasons are below."
        return [Section("nothing", "No results", [nothing]), *shown]
    verdict = verdicts.verdict(completed)
    return [_answer(completed, verdict, races, shown), _verdict(verdict), *shown]


def _section(
    name: str, figures: Sequence[Figure] = (), tables: Sequence[PageTable] = (), words: Sequence[str] = ()
) -> Section:
    """A section with its title and words in ``sections.toml``; figures and tables that show nothing are left out."""
    about = SECTIONS[name]
    first = about.get("words", "").format(runs=run_figures.HISTORY_RUNS, histories=run_figures.SHOWN_HISTORIES)
    note = about.get("note", "")
    drawn = [replace(each, note=each.note or note, series=by_system(each.series)) for each in figures if each.series]
    filled = [table for table in tables if table.rows]
    return Section(name, about["title"], [first, *words], drawn, filled)


def _model(runs: Sequence[Result], drawn: Sequence[lines.Line]) -> Section:
    groups, left_out = modelled.explained(runs, drawn)
    shown = f"Of all systems and transports the {len(groups)} with most sizes are shown"
    words = [f"{shown}; left out: {'; '.join(left_out)}."] if left_out else []
    contradictions = [(group.name, group.fit.misfit.contradiction) for group in groups]
    lists: dict[str, Sequence[str]] = {
        "Misfit": [f"{name}: {contradiction}." for name, contradiction in contradictions if contradiction],
        "What bounds each at its largest size": [f"{group.name}: {group.sentence}" for group in groups],
        **{f"Parameters of {group.name}": parameters(group.fit) for group in groups},
    }
    return replace(_section("model", model_figures.of(groups), [tables.fits(groups)], words), lists=lists)


def _answer(
    completed: Sequence[Result], of_all: verdicts.Verdict, races: Sequence[fastest.Race], sections: Sequence[Section]
) -> Section:
    """The fastest and the best scaling contender of each system, model and kind of data that has any.

    ``of_all`` is the verdict on all runs.
    """
    figures = [figure for section in sections for figure in section.figures]
    answers = []
    for race in races[:SHOWN_ANSWERS]:
        facets = Facets.of(*(standing.facets for ranking in race.sizes for standing in ranking.standings))
        shared = ("origin", "system", "model", "data")
        runs = [run for run in completed if all(str(getattr(run, name)) in getattr(facets, name) for name in shared)]
        part = of_all if len(runs) == len(completed) else verdicts.verdict(runs)
        verdict = replace(part, scatters=of_all.scatters)  # runs of other models tell how runs scatter, too
        answers.append(Answer(texts.answer([race], verdict), _numbers(race), _beside(race, facets, figures), facets))
    return Section("answer", "Which is fastest, and which scales best?", answers=answers)


def _numbers(race: fastest.Race) -> list[tuple[str, str, bool]]:
    """At most three numbers with their labels, and whether they can be relied on: no undecided ratio is a number."""
    ranking = (race.contested or race.sizes)[-1]
    best, *others = ranking.standings
    at, sure = texts.size(ranking), ranking.decided or ranking.equal or not others
    numbers = [(f"{texts.rate(best)} img/s", f"{texts.who(best)} on {at}", sure)]
    if others:
        times, of = report.ratio(others[0].ratio), f"the img/s of {texts.who(others[0])} on {at}"
        doubt = f", within {verdicts.MARGIN:.0%}" if ranking.equal else ""
        numbers.append((times, f"{of}{doubt}", True) if sure else ("undecided", f"{times} {of}", False))
    if race.scales:
        top = race.scales.best
        share = f"of ideal from {race.scales.base} to {texts.size(race.scales)}: {texts.who(top)}"
        numbers.append((percent(top.point.efficiency, None, 1), share, race.scales.decided or race.scales.equal))
    return numbers


def _beside(race: fastest.Race, facets: Facets, figures: Sequence[Figure]) -> list[str]:
    """The efficiency figure, if it has the base that the answer has; and the parts of a step, or throughput."""
    shared = ("system", "model", "data")
    every = [(figure, series.facets) for figure in figures for series in figure.series if series.facets]
    of_race = [each for each, its in every if all({*getattr(its, name)} & {*getattr(facets, name)} for name in shared)]
    kinds = ("efficiency", "model-spent", "throughput")
    efficiency, spent, throughput = ([each for each in of_race if each.name.startswith(kind)][:1] for kind in kinds)
    bases = tuple(relative(race.base, unit) for unit in ("worker", "node"))
    shown = efficiency if any(each.y.name.endswith(bases) for each in efficiency) else throughput
    return list(dict.fromkeys(each.name for each in (*shown, *spent, *throughput)))[:2]


def _slower(histories: Sequence[Figure]) -> Section:
    """The changes to a lower level, the latest first."""
    drops = [(time, word, figure) for figure in histories for time, word in figure.marks if word.startswith("-")]
    drops.sort(key=lambda drop: drop[0], reverse=True)
    links = [(f"{time[:10]}: {word}, {figure.choice}", figure) for time, word, figure in drops]
    return Section("slower", "Slowdowns", links=links)


def _verdict(verdict: verdicts.Verdict) -> Section:
    """The answer to the question that the suite is for. Its words are about all results, whatever is filtered."""
    table, lists = tables.comparison(verdict), report.lists(verdict)
    shown = [table] if table.rows else []
    return Section("verdict", report.QUESTION, answer=report.headline(verdict), tables=shown, lists=lists)
