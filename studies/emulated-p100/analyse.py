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
    CONFIGURATION,
    ITS_OWN,
    PIECES,
    REPLICATED,
    TENSORFLOW,
    TORCH,
    TRANSPORTS,
    Point,
    as_2017,
    beside,
    beside_2017,
    chosen,
    columns,
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
from predictions import completed, predicted

from harness import results
from harness.analysis.ratios import Ratio
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


# --- the questions: each answer, what it rests on as a sentence, and the same figures for scripts ---

Answered = tuple[Answer, str, dict[str, float]]


def above(found: Ratio, limit: float) -> bool:
    """Whether a ratio is certainly above a limit: its interval is, or it is where there are no repeats."""
    return (found.interval[0] if found.interval else found.value) > limit


def errors(points: Iterable[Point], law: str = "queues_s") -> list[float]:
    """Predicted over measured steps of several nodes, minus 1."""
    return [getattr(point, law) / point.step_s - 1 for point in points if point.nodes > 1]


def mean_error(found: Sequence[float]) -> float:
    return fmean(map(abs, found))


def lacking(what: str) -> Answered:
    return "cannot say", f"Not measured: {what}.", {}


def law_is_right(points: Iterable[Point], what: str) -> Answered:
    found = errors(points)
    if not found:
        return lacking(what)
    mean, most = mean_error(found), max(found, key=abs)
    because = f"The predictions of {plural(len(found), 'step')} are off by {mean:.1%} on average, {most:+.1%} at most."
    return "yes" if mean < GOOD else "no", because, {"points": len(found), "mean_error": mean, "worst": most}


def gains(found: dict[Point, Ratio], what: str) -> Answered:
    """Whether a change makes some points certainly faster by a difference that matters, and none slower by one."""
    if not found:
        return lacking(what)
    best, worst = (end(found, key=lambda one: found[one].value) for end in (max, min))
    said = [f"{shown(found[one])} as fast ({one.label})" for one in (best, worst)]
    sure = [gain for gain in found.values() if above(gain, MATTERS)]
    lost = [gain for gain in found.values() if gain.interval and gain.interval[1] < 1 / MATTERS]
    because = (
        f"Of {plural(len(found), 'pair')}, {len(sure)} certainly by more than {MARGIN:.0%} and {len(lost)} certainly "
        f"slower; at most {said[0]}, at least {said[1]}."
    )
    figures = {"most": found[best].value, "least": found[worst].value, "sure": len(sure), "points": len(found)}
    return "yes" if sure and not lost else "no", because, figures


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
    alike = longer[most].value < MATTERS and longer[least].value > 1 / MATTERS
    figures = {"least": longer[least].value, "most": longer[most].value, "points": len(longer), "mean_error": off}
    return "yes" if alike else "no", because, figures


def order_helps(points: list[Point]) -> Answered:
    """Are they faster if they are asked for parameters in the order of their use, and never slower?"""
    return in_order_beside("none", points, "parameter_server with both orders")


def bytes_are_the_window(points: list[Point]) -> Answered:
    """Is a window of 2 MiB as fast as one of 8 pieces, and faster where 8 are much of what a server holds?"""
    return in_order_beside(PIECES, points, "parameter_server with both windows")


def order_restores_the_law(points: list[Point]) -> Answered:
    """Is a step with an order as short as the law says, with compute hiding what it can?"""
    return law_is_right(as_2017(chosen(points, order="forward")), "servers in order")


def drop_is_of_one_rate(points: list[Point]) -> Answered:
    """Is Piz Daint's drop from 64 to 128 nodes a matter of links of one rate?"""
    rows = {row.nodes: row for row in beside_2017(points)}
    published = {row.nodes: row for row in published_2017()}
    then = published[128].published_s / published[64].published_s
    said, figures, alike = [], {"published": then}, False
    for name, wanted, links in columns(points):
        steps = {nodes: row.emulated_s[name] for nodes, row in rows.items() if name in row.emulated_s}
        off = [steps[nodes] / published[nodes].published_s - 1 for nodes in (8, 16, 32) if nodes in steps]
        if len(off) < 3:
            continue  # a rate that was measured on one size may be right there by chance
        worst = max(off, key=abs)
        measured = {64, 128} <= set(steps)
        before, after = (
            steps[nodes] if measured else predicted(completed(**wanted, nodes=nodes, ps=published[nodes].ps), links)[0]
            for nodes in (64, 128)
        )
        how = f"as measured, from {before:.3f} to {after:.3f} s" if measured else "by the law"
        said.append(f"with {name}, {worst:+.1%} at most, then {after / before:.2f} times ({how})")
        figures |= {f"{name}, worst": worst, f"{name}, growth": after / before}
        alike |= abs(worst) < MARGIN and abs(after / before / then - 1) < MARGIN
    if not said:
        return lacking("servers as in 2017 on 8 to 32 nodes")
    because = (
        f"Wanted are steps within {MARGIN:.0%} of 2017 on 8 to 32 nodes, and {then:.2f} times as long on 128 as on 64. "
        f"Servers are off: {'; '.join(said)}."
    )
    return "yes" if alike else "no", because, figures


def the_drop(points: list[Point]) -> Answered:
    """Do whole tensors on servers make a step much longer from 64 to 128 nodes, and an allreduce not?"""
    servers = {"backend": TORCH, "order": "forward", "placement": "greedy"}
    ways = {"with the servers of 2017": servers, "without servers": {"backend": "pytorch"}}
    counts = {row.nodes: row.ps for row in published_2017()}
    longer, said, scales = {}, [], set()
    for way, wanted in ways.items():
        here = chosen(points, transport="gloo", **wanted)
        before, after = (
            fastest(point for point in here if point.nodes == nodes and point.ps in (0, counts[nodes]))
            for nodes in (64, 128)
        )
        if not before or not after:
            return lacking("servers and allreduce on 64 and 128 nodes")
        longer[way], by_law = after.step_s / before.step_s, after.queues_s / before.queues_s
        scales.add(after.bytes_scale)
        said.append(
            f"{way} {longer[way]:.2f} times as long ({before.step_s:.3f} to {after.step_s:.3f} s; by the law {by_law:.2f})"
        )
    few = f" On 128 nodes tensors had {min(scales):g} of their bytes." if min(scales) < 1 else ""
    because = f"With PyTorch over Gloo a step becomes {', '.join(said)}.{few}"
    with_servers, without = longer.values()
    return "yes" if with_servers > 1 + 2 * MARGIN and without < MATTERS else "no", because, longer


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
    """Do MPI-based toolkits train faster than the servers of 2017, on all links that were measured?"""
    won = [(cell.as_2017, cell) for cell in the_map(points) if cell.nodes >= 8 and cell.as_2017]
    if not won:
        return lacking("both on 8 nodes or more")
    ends = [end(won, key=lambda one: one[0].value) for end in (min, max)]
    said = [f"{shown(gain)} on {cell.nodes} nodes with {cell.links:g} GB/s ({cell.model})" for gain, cell in ends]
    certain = [gain for gain, _ in won if above(gain, 1)]
    because = f"Between {said[0]} and {said[1]}; certain on {len(certain)} of {len(won)} pairs of links and size."
    figures = {"least": ends[0][0].value, "most": ends[1][0].value, "certain": len(certain), "points": len(won)}
    answer: Answer = "yes" if certain and ends[0][0].value > 1 else "no"
    return answer, because, figures


def strategy_and_transport(points: list[Point]) -> Answered:
    """Is it the strategy rather than the transport?"""
    for table in reversed(list(strategies(points))):
        by_strategy = [table.servers[name].step_s / table.allreduce[name].step_s for name in table.both]
        steps = [[point.step_s for point in side.values()] for side in (table.servers, table.allreduce)]
        servers, allreduce = (max(those) / min(those) for those in steps)
        if len(table.both) > 1:
            because = (
                f"On {table.nodes} nodes, {table.links:g} GB/s, servers in order take {min(by_strategy):.2f} to "
                f"{max(by_strategy):.2f} times as long as an allreduce over the same transport. Over the slowest transport "
                f"servers take {servers:.2f}, an allreduce {allreduce:.2f} times as long as over the fastest."
            )
            figures = {"strategy": fmean(by_strategy), "transport_servers": servers, "transport_allreduce": allreduce}
            return "yes" if min(by_strategy) > max(servers, allreduce) else "no", because, figures
    return lacking("servers and allreduce over the same transports")


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
    return "no" if above(longer, MATTERS) else "yes", because, {"worst": longer.value, "points": len(pairs)}


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
    return "no" if above(ratio_, MATTERS) else "yes", because, {"worst": ratio_.value}


QUESTIONS: tuple[Callable[[list[Point]], Answered], ...] = (
    *(toolkits_beat_servers, strategy_and_transport, ours_are_tensorflows_own, no_order_costs_all_pulls, order_helps),
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
    return template(HERE / "index.md.j2").render(
        findings=findings(every),
        every=every,
        without=without_number(every),
        systems=systems(),
        cells=list(the_map(points)),
        strategies=list(strategies(points)),
        beside=beside_2017(points),
        columns=[column.name for column in columns(points)],
        rates=sorted({point.links for point in points}),
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
