"""What the emulated study says: who wins on which links, why, and where the scaling model was right.

    .venv/bin/python studies/emulated-p100/analyse.py RESULTS [-o DIR]

RESULTS are records of the studies in this folder. The page is printed, or written with its figures and data into DIR.
docs/experiments.md has the questions, and what hangs on the answers; ``index.md.j2`` is the page. What the scaling model
predicted (``predictions.csv``) is computed anew for each record.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from figures import figures, waits
from points import (
    BESIDE_2017,
    CONFIGURATION,
    ITS_OWN,
    PIECES,
    REPLICATED,
    TENSORFLOW,
    TORCH,
    TRANSPORTS,
    Cell,
    Point,
    beside,
    beside_2017,
    chosen,
    columns,
    computed_s,
    emulated_2017,
    fastest,
    measured,
    once,
    published_2017,
    strategies,
    systems,
    the_map,
    whole,
    without_number,
)
from predictions import by_law, completed

from harness import results
from harness.analysis.ratios import Ratio, holm
from harness.analysis.verdict import MARGIN
from harness.core.text import plural, template
from harness.errors import HarnessError, InvalidInput
from harness.report.page import static
from harness.report.page.figures import Figure
from harness.report.text.verdict import ratio as shown
from harness.results import experiment
from harness.results.experiment import Answer, Finding

HERE = Path(__file__).parent
GOOD = 0.03  # a mean error up to which the law is right
MATTERS = 1 + MARGIN  # a ratio of steps that is called a difference
WAITS = 1.02  # a predicted step over its compute, from which on it is one that waits for the network
RATES = [rate / 20 for rate in range(10, 201)]  # of links that are asked for by the law, GB/s


# --- the questions: each answer, what it rests on as a sentence, and the same figures for scripts ---

Answered = tuple[Answer, str, dict[str, float]]


def above(found: Ratio, limit: float) -> bool:
    """Whether a ratio is certainly above a limit: all of its interval is."""
    return found.interval is not None and found.interval[0] > limit


def below(found: Ratio, limit: float) -> bool:
    return found.interval is not None and found.interval[1] < limit


def decided(yes: bool, no: bool) -> Answer:
    """What is certain; "cannot say" if neither is."""
    return "yes" if yes else "no" if no else "cannot say"


def as_long(found: Ratio, wanted: float = 1.0) -> Answer:
    """Whether a ratio is certainly the wanted one but for what does not matter."""
    low, high = wanted / MATTERS, wanted * MATTERS
    return decided(above(found, low) and below(found, high), above(found, high) or below(found, low))


def together(answers: Sequence[Answer]) -> Answer:
    """Whether all are certainly so, or one is certainly not."""
    return decided(all(one == "yes" for one in answers), "no" in answers)


def errors(points: Iterable[Point], law: str = "queues_s") -> list[float]:
    """Predicted over measured steps of several nodes, minus 1."""
    return [getattr(point, law) / point.step_s - 1 for point in points if point.nodes > 1]


def step(point: Point) -> float:
    return point.step_s


def mean_error(found: Sequence[float]) -> float:
    return fmean(map(abs, found))


def lacking(what: str) -> Answered:
    return "cannot say", f"Not measured: {what}.", {}


def law_is_right(points: Iterable[Point], what: str) -> Answered:
    those = list(points)
    found = errors(those)
    if not found:
        return lacking(what)
    mean, most, long = mean_error(found), max(found, key=abs), sum(error > 0 for error in found)
    waiting = errors(point for point in those if point.queues_s > WAITS * computed_s(point.model))
    because = (
        f"The predictions of {plural(len(found), 'step')} are off by {mean:.1%} on average, {most:+.1%} at most, "
        f"{long} of them too long. "
    )
    if 0 < len(waiting) < len(found):
        because += (
            f"Of the {len(waiting)} that wait for the network by the law they are off by {mean_error(waiting):.1%}."
        )
    figures = {"points": len(found), "mean_error": mean, "worst": most, "too_long": long, "waiting": len(waiting)}
    return "yes" if mean < GOOD else "no", because.strip(), figures


def gains(found: dict[Point, Ratio], what: str) -> Answered:
    """Whether a change makes some points certainly faster by a difference that matters, and none slower by one."""
    if not found:
        return lacking(what)
    best, worst = (end(found, key=lambda one: found[one].value) for end in (max, min))
    said = [f"{shown(found[one])} as fast ({one.label})" for one in (best, worst)]
    sure, lost, kept = (
        [gain for gain in found.values() if certainly(gain, limit)]
        for certainly, limit in ((above, MATTERS), (below, 1 / MATTERS), (above, 1 / MATTERS))
    )
    never = [gain for gain in found.values() if below(gain, MATTERS)]
    because = (
        f"Of {plural(len(found), 'pair')}, {len(sure)} certainly by more than {MARGIN:.0%}; {len(lost)} certainly slower "
        f"by as much, {len(found) - len(kept) - len(lost)} perhaps; at most {said[0]}, at least {said[1]}."
    )
    figures = {"most": found[best].value, "least": found[worst].value, "sure": len(sure), "points": len(found)}
    answer = decided(bool(sure) and len(kept) == len(found), bool(lost) or len(never) == len(found))
    return answer, because, figures


def no_order_costs_all_pulls(points: list[Point]) -> Answered:
    """Do TensorFlow's servers as they are, without an order, take the time of compute and of all pulls, T1 + b / R?"""
    return law_is_right(chosen(points, backend=TENSORFLOW, order="none"), "parameter_server --order none")


def in_order_beside(order: str, points: list[Point], what: str) -> Answered:
    """What TensorFlow's servers gain by being asked in order, on several nodes, beside another ``order``."""
    pairs = beside(points, {"backend": TENSORFLOW, "order": "forward"}, order=order)
    return gains({one: one.times(other) for one, other in pairs if one.nodes > 1}, what)


def ours_are_tensorflows_own(points: list[Point]) -> Answered:
    """Do TensorFlow's own servers of today (ParameterServerStrategy) take as long as ours that do the same?"""
    pairs = beside(points, {"backend": ITS_OWN}, backend=TENSORFLOW, order="none")
    longer = {own: ours.times(own) for own, ours in pairs if own.nodes > 1}
    if not longer:
        return lacking("parameter_server_strategy beside parameter_server --order none")
    least, most = (end(longer, key=lambda one: longer[one].value) for end in (min, max))
    off = mean_error(errors(longer))
    because = (
        f"Of {plural(len(longer), 'step')} the shortest is {shown(longer[least])} as long as with ours ({least.label}), "
        f"the longest {shown(longer[most])} ({most.label}). The law errs by {off:.1%}."
    )
    alike = [as_long(each) for each in longer.values()]
    because += f" Certainly within {MARGIN:.0%} are {alike.count('yes')}, certainly not within {alike.count('no')}."
    figures = {"least": longer[least].value, "most": longer[most].value, "points": len(longer), "mean_error": off}
    return together(alike), because, figures


def order_helps(points: list[Point]) -> Answered:
    """Are they faster if they are asked for parameters in the order of their use, and never slower?"""
    return in_order_beside("none", points, "parameter_server with both orders")


def bytes_are_the_window(points: list[Point]) -> Answered:
    """Is a window of 2 MiB as fast as one of 8 pieces, and faster where 8 are much of what a server holds?"""
    return in_order_beside(PIECES, points, "parameter_server with both windows")


def order_restores_the_law(points: list[Point]) -> Answered:
    """Is a step with an order as short as the law says, with compute hiding what it can?"""
    return law_is_right(chosen(points, order="forward"), "servers in order")


def as_2017_by_law(wanted: dict[str, Any]) -> Callable[[float], dict[int, float]]:
    """A step by nodes, in s, of InceptionV3 with as many servers as in 2017, on links of a rate in GB/s."""
    counts = {row.nodes: row.ps for row in published_2017() if row.nodes >= 8}
    every = {nodes: by_law(completed(**wanted, nodes=nodes, ps=ps)) for nodes, ps in counts.items()}
    return lambda links: {nodes: predicted(links)[0] for nodes, predicted in every.items()}


def drop_is_of_one_rate(points: list[Point]) -> Answered:
    """Is Piz Daint's drop from 64 to 128 nodes a matter of links of one rate?"""
    published = {row.nodes: row.published_s for row in published_2017()}
    few, then = (8, 16, 32), published[128] / published[64]

    def worst(times: Iterable[float]) -> float:
        return max((one - 1 for one in times), key=abs)

    def alike(steps: dict[int, float]) -> bool:
        growth = steps[128] / steps[64] / then
        return abs(worst([*(steps[nodes] / published[nodes] for nodes in few), growth])) < MARGIN

    said, figures, found = [], {"published": then}, list[Answer]()
    for column in columns(points):
        there = emulated_2017(points, column)
        if not {*few} <= set(there):
            continue  # a rate that was measured on one size may be right there by chance
        times = [there[nodes].times_of(published[nodes]) for nodes in few]
        off = worst(one.value for one in times)
        if {64, 128} <= set(there):
            longer = there[64].times(there[128])
            found.append(together([*map(as_long, times), as_long(longer, then)]))
            growth, which = longer.value, {"yes": "so", "no": "not so", "cannot say": "perhaps so"}[found[-1]]
            how = f"{shown(longer)} as long (measured, {there[64].step_s:.3f} to {there[128].step_s:.3f} s): {which}"
        else:
            steps = as_2017_by_law(column.wanted)(column.links)
            growth = steps[128] / steps[64]
            how = f"{growth:.2f} × as long (by the law)"
        said.append(f"with {column.name}, {off:+.1%} at most, then {how}")
        figures |= {f"{column.name}, worst": off, f"{column.name}, growth": growth}
    if not said:
        return lacking("servers as in 2017 on 8 to 32 nodes")
    laws = {way: as_2017_by_law(wanted) for way, wanted in BESIDE_2017.items() if wanted["backend"] == TENSORFLOW}
    would = {way: [rate for rate in RATES if alike(steps(rate))] for way, steps in laws.items()}
    ways = (f"{way} with {f'{min(r):g} to {max(r):g} GB/s' if r else 'none'}" for way, r in would.items())
    because = (
        f"Wanted are steps within {MARGIN:.0%} of 2017 on 8 to 32 nodes, and {then:.2f} times as long on 128 as on 64. "
        f"Measured servers are off: {'; '.join(said)}. By the law alone all of it is so, of {RATES[0]:g} to {RATES[-1]:g} "
        f"GB/s: {'; '.join(ways)}."
    )
    return decided("yes" in found, not any(would.values())), because, figures


def the_drop(points: list[Point]) -> Answered:
    """Do whole tensors on servers make a step much longer from 64 to 128 nodes, and an allreduce not?"""
    servers = {"backend": TORCH, "order": "forward", "placement": "greedy"}
    ways = {"with as many servers as in 2017": servers, "without servers": {"backend": "pytorch"}}
    counts = {row.nodes: row.ps for row in published_2017()}
    longer: dict[str, Ratio] = {}
    said, scales = [], set()
    for way, wanted in ways.items():
        here = chosen(points, transport="gloo", links=2.5, **wanted)
        before, after = (
            fastest(point for point in here if point.nodes == nodes and point.ps in (0, counts[nodes]))
            for nodes in (64, 128)
        )
        if not before or not after:
            return lacking("servers and allreduce on 64 and 128 nodes")
        longer[way], law = before.times(after), after.queues_s / before.queues_s
        scales.add(after.bytes_scale)
        said.append(
            f"{way} {shown(longer[way])} as long ({before.step_s:.3f} to {after.step_s:.3f} s; by the law {law:.2f})"
        )
    few = f" On 128 nodes tensors had {min(scales):g} of their bytes." if min(scales) < 1 else ""
    because = f"With PyTorch over Gloo a step becomes {', '.join(said)}.{few}"
    with_servers, without = longer.values()
    yes = above(with_servers, 1 + 2 * MARGIN) and below(without, MATTERS)
    no = below(with_servers, 1 + 2 * MARGIN) or above(without, MATTERS)
    return decided(yes, no), because, {way: found.value for way, found in longer.items()}


def everybody_with_everybody(points: list[Point]) -> Answered:
    """Does traffic of everybody with everybody cost more than its bytes on links with deep queues?"""
    crowded = [point for point in points if point.ps == point.nodes > 1 and point.placement == "partitioned"]
    if not crowded:
        return lacking("slices with a server on every node")
    means = [mean_error(errors(crowded, law)) for law in ("queues_s", "contention_s")]
    because = (
        f"On {plural(len(crowded), 'point')} with slices on every node the law errs by {means[0]:.1%}, and by "
        f"{means[1]:.1%} with what many-to-many traffic is said to cost in addition."
    )
    answer: Answer = "yes" if means[1] < means[0] else "no"
    alike = abs(means[1] - means[0]) < 0.001  # what such traffic is said to cost is less than can be seen here
    return "cannot say" if alike else answer, because, {"queues": means[0], "contention": means[1]}


def toolkits_beat_servers(points: list[Point]) -> Answered:
    """Do MPI-based toolkits train faster than TensorFlow's servers as it runs them, as many as in 2017?"""
    return won({cell: cell.as_2017 for cell in the_map(points) if cell.nodes >= 8 and cell.as_2017})


def toolkits_beat_the_best_servers(points: list[Point]) -> Answered:
    """Do MPI-based toolkits train faster than the fastest servers of all that were measured on these links?"""
    cells = {cell: cell.at_best for cell in the_map(points) if cell.nodes >= 8 and cell.at_best}
    answer, because, figures = won(cells)
    sliced = {point[:3] for point in chosen(points, placement="partitioned")}
    there = [ratio.value for cell, ratio in cells.items() if cell[:3] in sliced]
    if len(there) == len(cells):
        return answer, because, figures
    # The search was not the same everywhere: elsewhere the fastest servers are whole tensors, mostly on the number of 2017.
    searched = f"Slices were tried in {len(there)} of {len(cells)} of these pairs"
    searched += f", where it is between {min(there):.2f} and {max(there):.2f} ×" if there else ""
    return (
        "cannot say",
        f"{because} {searched}; elsewhere only whole tensors, on the number of servers of 2017.",
        figures,
    )


def won(found: dict[Cell, Ratio]) -> Answered:
    """Whether toolkits are faster everywhere; not if somewhere they certainly are not by a difference that matters.

    What is certain is so if all of these comparisons together shall err in 5 % of cases.
    """
    if not found:
        return lacking("both on 8 nodes or more")
    certain, slower = (
        sum(holm([gain.p if (gain.value > 1) == faster else 1.0 for gain in found.values()]))
        for faster in (True, False)
    )
    ends = [end(found, key=lambda cell: found[cell].value) for end in (min, max)]
    said = [f"{shown(found[cell])} on {cell.nodes} nodes with {cell.links:g} GB/s ({cell.model})" for cell in ends]
    because = (
        f"Between {said[0]} and {said[1]}; certainly faster on {certain} of {len(found)} pairs of links and size, "
        f"certainly slower on {slower}."
    )
    least, most = (found[cell].value for cell in ends)
    figures = {"least": least, "most": most, "certain": certain, "slower": slower, "points": len(found)}
    no_faster = any(below(gain, MATTERS) for gain in found.values())
    return decided(certain == len(found), no_faster), because, figures


def strategy_and_transport(points: list[Point]) -> Answered:
    """Is it the strategy rather than the transport?"""
    figures: dict[str, float] = {}
    said, answers = [], []
    for table in (table for table in strategies(points) if len(table.both) > 1):
        by_strategy = [table.allreduce[name].times(table.servers[name]) for name in table.both]
        sides = [list(side.values()) for side in (table.servers, table.allreduce)]
        by_transport = [min(side, key=step).times(max(side, key=step)) for side in sides]
        least, most = (end(one.value for one in by_strategy) for end in (min, max))
        transport = max(one.value for one in by_transport)
        said.append(f"{least:.2f} to {most:.2f}, and {transport:.2f} times, on {table.nodes} nodes")
        figures |= {f"{table.nodes} nodes, strategy": least, f"{table.nodes} nodes, transport": transport}
        if max(most, transport) > MATTERS:  # else neither makes a difference there
            longer = all(above(one, 1) for one in by_strategy) and least > transport
            answers.append(decided(longer, any(above(one, max(1, most)) for one in by_transport)))
    if not said:
        return lacking("servers and allreduce over the same transports")
    because = (
        "How many times longer servers in order take than an allreduce over the same transport, and the slowest transport "
        f"than the fastest with the same strategy: {'; '.join(said)}."
    )
    return answers[0] if len(set(answers)) == 1 else "cannot say", because, figures


def the_number_of_servers(points: list[Point]) -> Answered:
    """Does the number of servers matter as the bytes of the fullest one say?"""
    eight = chosen(points, model="inception3", nodes=8, links=2.5)
    searched = chosen(eight, backend=TENSORFLOW, order="forward", placement="greedy")
    if len(searched) < 4:
        return lacking("several numbers of servers on 8 nodes")
    found, best = errors(searched), fastest(searched)
    assert best
    as_good = [str(point.ps) for point in searched if point.step_s < best.step_s * MATTERS]
    by_count = ", ".join(f"{point.step_s:.3f} s with {point.ps}" for point in searched)
    because = (
        f"On 8 nodes a step takes {by_count}: within 5 % of the best are {', '.join(as_good)}. "
        f"The law errs by {mean_error(found):.1%}."
    )
    return "yes" if mean_error(found) < GOOD else "no", because, {"best": best.ps, "mean_error": mean_error(found)}


def replicas_keep_up(points: list[Point]) -> Answered:
    """Do replicas that are updated while the backward pass goes on (distributed_replicated) keep up with the toolkits?"""
    toolkits = {(cell.model, cell.links, cell.nodes): cell.toolkit for cell in the_map(points) if cell.nodes >= 8}
    replicas = whole(chosen(points, backend=REPLICATED))
    pairs = [(one, toolkits[one[:3]].times(one)) for one in replicas if one[:3] in toolkits]
    if not pairs:
        return lacking("distributed_replicated beside toolkits on 8 nodes or more")
    worst, longer = max(pairs, key=lambda pair: pair[1].value)
    said = f"the worst takes {shown(longer)} as long as the fastest toolkit's ({worst.label})"
    because = f"Of {plural(len(pairs), 'step')}, {said}."
    answer = keeps_up(gain for _, gain in pairs)
    return answer, because, {"worst": longer.value, "points": len(pairs)}


def keeps_up(longer: Iterable[Ratio]) -> Answer:
    """Whether no step takes longer by a difference that matters."""
    found = list(longer)
    return decided(all(below(one, MATTERS) for one in found), any(above(one, MATTERS) for one in found))


def slices_help(points: list[Point]) -> Answered:
    """Are servers faster somewhere if tensors are cut into slices, and slower nowhere?"""
    pairs = {one: one.times(other) for one, other in beside(points, {"placement": "partitioned"}, placement="greedy")}
    return gains(pairs, "slices beside whole tensors")


def caffe2_keeps_up(points: list[Point]) -> Answered:
    """Does Caffe2 keep up with the toolkits of today?"""
    toolkits = [point for point in whole(points) if not point.ps and point.backend != "caffe2"]
    several = [one for one in chosen(points, backend="caffe2") if one.nodes > 1]
    others = [(one, fastest(point for point in toolkits if point[:3] == one[:3])) for one in several]
    pairs = [(one, other.times(one)) for one, other in others if other]
    if not pairs:
        return lacking("Caffe2 beside others")
    worst, ratio_ = max(pairs, key=lambda pair: pair[1].value)
    because = f"At worst its step takes {shown(ratio_)} that of the fastest ({worst.label})."
    return keeps_up(gain for _, gain in pairs), because, {"worst": ratio_.value}


QUESTIONS: tuple[Callable[[list[Point]], Answered], ...] = (
    *(toolkits_beat_servers, toolkits_beat_the_best_servers, strategy_and_transport),
    *(ours_are_tensorflows_own, no_order_costs_all_pulls, order_helps),
    bytes_are_the_window,
    *(order_restores_the_law, replicas_keep_up, the_number_of_servers, slices_help, everybody_with_everybody),
    *(the_drop, drop_is_of_one_rate, caffe2_keeps_up),
)


def emulated_otherwise(every: list[Point]) -> Answered:
    """Is a step the same with a half or a quarter of the dilation, and with a quarter of the bytes?"""
    first = {point[:CONFIGURATION]: point for point in once(every)}
    again = [point for point in every if point is not first[point[:CONFIGURATION]]]
    if not again:
        return lacking("a point emulated in two ways")
    said, figures = [], {}
    for what, those in (
        ("shorter dilation", [point for point in again if point.bytes_scale == 1]),
        ("fewer bytes", [point for point in again if point.bytes_scale < 1]),
    ):
        if those:
            off = {point: point.step_s / first[point[:CONFIGURATION]].step_s - 1 for point in those}
            worst = max(those, key=lambda point: abs(off[point]))
            figures[what] = off[worst]
            said.append(f"with {what} {plural(len(those), 'step')} differ by {off[worst]:+.1%} at most ({worst.label})")
    same = all(abs(found) < GOOD for found in figures.values())
    because = "; ".join(said)
    return "yes" if same else "no", f"{because[0].upper()}{because[1:]}.", figures


# --- the page ---


def findings(every: list[Point]) -> list[Finding]:
    points = once(every)
    asked = [(question, question(points)) for question in QUESTIONS] + [(emulated_otherwise, emulated_otherwise(every))]
    return [Finding(question.__name__, str(question.__doc__), *answered) for question, answered in asked]


def page(every: list[Point], frame: Any, drawn: list[Figure]) -> str:
    points = once(every)
    rows = beside_2017(points)
    return template(HERE / "index.md.j2").render(
        findings=findings(every),
        every=every,
        without=without_number(every),
        systems=systems(),
        cells=list(the_map(points)),
        strategies=list(strategies(points)),
        beside=rows,
        columns=[column.name for column in columns(points)],
        steps=sorted({point.steps for point in every}),
        repeats=sorted({point.repeats for point in every}),
        dilations=[f"{end(point.dilation for point in points):g}" for end in (min, max)],
        slack=max((own / computed_s(rows[0].model) for own in rows[0].emulated_s.values()), default=1.0) - 1,
        transports=TRANSPORTS,
        figures=drawn,
        shown=shown,
        runs=len(frame),
        days=sorted({min(frame["started"])[:10], max(frame["ended"])[:10]}),
        software=sorted(set(frame["software"])),
    )


def write(every: list[Point], frame: Any, folder: Path) -> None:
    """Write the page, its figures and its data into ``folder``. Raises InvalidInput if that cannot be written."""
    drawn = figures(once(every), waits(frame))
    static.write(drawn, folder, ("png",))
    table = io.StringIO()
    fields = [name for name in Point._fields if name != "img_per_s"]
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(fields)
    rows.writerows([getattr(point, name) for name in fields] for point in every)
    data = {
        "experiment": "emulated-p100",
        "findings": [finding._asdict() for finding in findings(every)],
        "columns": [column.name for column in columns(once(every))],
        "beside_2017": [row._asdict() for row in beside_2017(once(every))],
    }
    experiment.write(folder, page(every, frame, drawn), table.getvalue(), data)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", metavar="RESULTS", help="records, or folders with them")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="where to write the page  [default: print it]")
    options = parser.parse_args(argv)
    frame = results.load(options.results)
    if frame.empty:
        raise InvalidInput(f"{', '.join(options.results)}: no completed runs in there")
    points = measured(frame)
    if options.output:
        write(points, frame, options.output)
        print(options.output / "index.md")
    else:
        print(page(points, frame, figures(once(points), waits(frame))), end="")


if __name__ == "__main__":
    try:
        main()
    except HarnessError as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
