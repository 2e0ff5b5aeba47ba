"""Steady steps: who wins where the same was searched on both sides, and what a step needs to be one.

    .venv/bin/python studies/emulated-p100/steady.py RESULTS [-o DIR]

RESULTS are the records that measure.py keeps in ``steady``. The page is printed, or written with its data into DIR;
``steady.md.j2`` is the page. docs/experiments.md has the questions.
"""

import argparse
import csv
import io
import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple

from measure import FILES, FOLDERS, HERE, parts
from predictions import Steps, complete, predicted
from predictions import points as study_points

from harness import results
from harness.analysis.ratios import pooled_variance, satterthwaite
from harness.analysis.verdict import MARGIN
from harness.core.backend import differing
from harness.core.emulation import profile
from harness.core.spec import RunSpec
from harness.core.text import plural, template
from harness.errors import HarnessError, InvalidInput, writing
from harness.files import write_atomically
from harness.prediction.observations import step_of
from harness.records.measurement import Record, durations_s
from harness.results import Result
from harness.running.notes import StudyNotes

TOOLKITS = ("pytorch", "horovod", "caffe2")
# What is searched on the servers' side: slices or whole tensors, 2017's number of them or another one, and the order.
AS_2017 = "whole, 2017's number, no order", "whole, 2017's number, in order"
ON_EVERY_NODE = "whole, on every node, no order", "whole, on every node, in order"
KINDS = (*AS_2017, *ON_EVERY_NODE, "slices, no order", "slices, in order")
REPLICAS = "replicas"
# Options of toolkits that are not their defaults, in labels.
OPTIONS = {"bucket_mb": "buckets of {:g} MB", "fusion_threshold_mb": "fused to {:g} MB", "net_type": "{} net"}
WINDOWS = (1, 2, 4, 8, 16)
IN_PHASE = 0.001  # edges of a window, as a share of its step
Answer = Literal["yes", "no", "it depends", "cannot say"]


class Point(NamedTuple):
    """A configuration with all its repeats. Times are seconds of the device; ``links`` are GB/s each way.

    ``steps_s`` has the durations of each repeat's steps after the barrier, the mean of all ranks, of which the first
    ``left_out`` are not part of its steady step, which ``each_s`` has. ``complete``: all points of its study were measured,
    so that the search was the same on both sides. ``jobs`` have measured it, each in all of its repeats.
    """

    study: str
    links: float
    spec: RunSpec
    each_s: tuple[float, ...]
    steps_s: tuple[tuple[float, ...], ...]
    left_out: tuple[int, ...]
    predicted: Steps
    identity: str
    started: str
    complete: bool = True
    jobs: int = 1

    @property
    def step_s(self) -> float:
        """The mean of all repeats, each with the weight of its steady steps."""
        return fmean(self.each_s, weights=[max(1, len(kept_s)) for kept_s in self.kept_s])

    @property
    def configuration(self) -> tuple[object, ...]:
        """What points of several studies have in common if they are the same."""
        return self.links, self.spec.nodes, self.way, self.spec.dilation, self.spec.bytes_scale

    @property
    def ps(self) -> int:
        return int(self.spec.options.get("ps") or 0)

    @property
    def kind(self) -> str:
        """What is searched: one of ``KINDS``, replicas, "toolkit", or the control of collectives in TensorFlow."""
        options, backend = self.spec.options, self.spec.backend
        if backend == "distributed_replicated":
            return REPLICAS
        if not self.ps:
            return "toolkit" if backend in TOOLKITS else "control"
        order = "no order" if options.get("order", "none") == "none" else "in order"
        if options["placement"] == "partitioned":
            return f"slices, {order}"
        of_2017 = published_2017().get(self.spec.nodes)
        if of_2017 and of_2017.ps == self.ps:
            return f"whole, 2017's number, {order}"
        return f"whole, {'on every node' if self.ps == self.spec.nodes else 'another number'}, {order}"

    @property
    def kept_s(self) -> list[tuple[float, ...]]:
        """The durations of each repeat's steady steps."""
        return [steps_s[left_out:] for steps_s, left_out in zip(self.steps_s, self.left_out, strict=True)]

    @property
    def edges(self) -> list[float]:
        """How far each repeat's steady step, the period of all ranks, is from the mean duration of its steps, as a share.

        If ranks are in phase, it is nothing. Servers let them go out of phase, and then a window of few steps has edges.
        """
        return [step_s / fmean(kept_s) - 1 for step_s, kept_s in zip(self.each_s, self.kept_s, strict=True)]

    @property
    def errors(self) -> list[tuple[float, int]]:
        """Relative standard errors of the steady step and their degrees of freedom, by scatter of steps and by edges."""
        steps, (squares, freedom) = sum(map(len, self.kept_s)), pooled_variance(self.kept_s)
        of_edges = [(abs(edge) * len(kept_s) / steps, 1) for edge, kept_s in zip(self.edges, self.kept_s, strict=True)]
        return [(math.sqrt(squares / steps) / self.step_s, freedom), *of_edges]

    @property
    def is_as_2017(self) -> bool:
        return self.kind in AS_2017

    @property
    def is_repeat(self) -> bool:
        """Whether another study has it, too."""
        return self.study.startswith("again")

    @property
    def is_control(self) -> bool:
        """Whether it has windows of 16 steps, of which shorter ones are the beginning."""
        return self.study.startswith("steps")

    @property
    def way(self) -> str:
        spec = self.spec
        name = f"{spec.backend}:{spec.framework}" if spec.backend == "horovod" else spec.backend
        own = differing(spec.model_dump())["options"]
        more = [text.format(own[option]) for option, text in OPTIONS.items() if option in own]
        return ", ".join([f"{name} over {spec.transport}", *([f"{self.ps} ps", self.kind] if self.ps else more)])

    @property
    def label(self) -> str:
        model = "" if self.spec.model == "inception3" else f"{self.spec.model} on "
        return f"{model}{plural(self.spec.nodes, 'node')}, {self.links:g} GB/s: {self.way}"


@cache
def published_2017() -> dict[int, Result]:
    """The best number of servers that was published for each number of nodes of Piz Daint: TensorFlow 1.1, 64 images."""
    every = results.load(["reference:daint"])
    return {run.nodes: run for run in every if (run.software, run.data) == ("TensorFlow 1.1.0", "synthetic")}


class Cell(NamedTuple):
    """Links of a rate and a number of nodes: the toolkits, and the servers of each kind."""

    links: float
    nodes: int
    toolkits: list[Point]
    servers: dict[str, list[Point]]

    @property
    def toolkit(self) -> Point:
        return fastest(self.toolkits)

    @property
    def all_servers(self) -> list[Point]:
        return [point for alike in self.servers.values() for point in alike]

    @property
    def name(self) -> str:
        return f"{plural(self.nodes, 'node')} with {self.links:g} GB/s"


def runtime(point: Point) -> str:
    """TensorFlow's or PyTorch's, in two letters."""
    return "PT" if point.spec.backend.startswith("torch") else "TF"


def fastest(points: Iterable[Point]) -> Point:
    return min(points, key=attrgetter("step_s"))


class Ratio(NamedTuple):
    """How many times longer one step takes than another, with the interval of repeatability at 95 %."""

    value: float
    low: float = 0.0
    high: float = math.inf

    def __str__(self) -> str:
        brackets = f" [{self.low:.2f}, {self.high:.2f}]" if self.low else ""
        return f"{self.value:.2f} ×{brackets}"


class Finding(NamedTuple):
    """The answer to a question, and the figures that it rests on, by their names: ratios, or errors as shares."""

    name: str
    question: str
    answer: Answer
    figures: Mapping[str, Ratio | float]

    def __str__(self) -> str:
        """In Markdown."""
        rows = [
            f"| {name} | {figure if isinstance(figure, Ratio) else f'{figure:+.1%}'} |"
            for name, figure in self.figures.items()
        ]
        table = "\n".join(["| | |", "|---|---:|", *rows]) if rows else "Not measured."
        return f"## {self.question}\n\n**{self.answer.capitalize()}.**\n\n{table}\n"


class Spread(NamedTuple):
    """How far jobs of one emulation on this host agree: one relative standard deviation, and its degrees of freedom."""

    deviation: float
    freedom: int

    def ratio(self, slow: Point, fast: Point, among: tuple[int, int] = (1, 1)) -> Ratio:
        """Of two steps that are the shortest ``among`` so many (Šidák); without an interval if no job was repeated.

        A step that was the shortest by luck is longer: the dividend's raises the upper limit, the divisor's the lower one.
        The errors of each point's own window are added; a few steps say little of them.
        """
        from scipy.special import stdtrit

        ratio = slow.step_s / fast.step_s
        if not self.freedom:
            return Ratio(ratio)
        between_jobs = self.deviation * math.sqrt(1 / slow.jobs + 1 / fast.jobs)
        terms = [(between_jobs, self.freedom), *(term for term in (*slow.errors, *fast.errors) if term[0])]
        error, freedom = math.hypot(*(error for error, _ in terms)), satterthwaite(terms, careful=False)
        up, down = (float(stdtrit(freedom, 0.975 ** (1 / count))) * error for count in among)
        return Ratio(ratio, ratio * math.exp(-down), ratio * math.exp(up))

    def of_fastest(self, slow: Sequence[Point], fast: Sequence[Point]) -> Ratio:
        """The fastest of each side, with an interval that is widened for the choice."""
        return self.ratio(fastest(slow), fastest(fast), (len(slow), len(fast)))


def spread(points: Iterable[Point]) -> Spread:
    """From the first repeats of points that several studies have, each in a job of its own, with ranks in phase.

    Windows of others differ by their edges, which each point brings.
    """
    jobs: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for point in points:
        if max(map(abs, point.edges)) < IN_PHASE:
            jobs[point.configuration].append(math.log(point.each_s[0]))
    squares, freedom = pooled_variance(jobs.values())
    return Spread(math.sqrt(squares), freedom)


# --- reading ---


def read(folders: Iterable[Path]) -> list[Point]:
    """The points of the studies' folders among these, each with its kept records. Raises InvalidInput."""
    known = {part.name: part for file in FILES for part in parts(file)}
    points = []
    for folder in folders:
        notes, part = StudyNotes.read(folder), known.get(folder.name)
        if not notes or not part:
            continue
        asked = {point.id: point for point in study_points(part.name, part.tables)}
        here = []
        for entry in notes.points:
            files = [folder / run / Record.file_name for run in entry.runs]
            for record in (Record.read(file) for file in files if file.exists() and entry.id in asked):
                here.append(_point(part.name, part.links.rate, entry.id, record, complete(asked[entry.id].spec)))
        points += [point._replace(complete=len(here) == len(asked)) for point in here]
    if not points:
        raise InvalidInput(f"{', '.join(map(str, folders))}: no steady points in there")
    return sorted(points, key=lambda point: (point.spec.nodes, point.links, point.kind, point.way, point.study))


def _point(study: str, links: float, identity: str, record: Record, spec: RunSpec) -> Point:
    assert record.derived and record.derived.steady
    return Point(
        study,
        links,
        spec,
        each_s=tuple(spec.global_batch / value for value in record.derived.img_per_s.values),
        steps_s=tuple(
            tuple(step_s / spec.dilation for step_s in durations_s(repeat.ranks)) for repeat in record.repeats
        ),
        left_out=tuple(repeat.left_out for repeat in record.derived.steady),
        predicted=predicted(spec, links),
        identity=identity,
        started=record.started,
    )


def cells(points: Sequence[Point]) -> list[Cell]:
    """Those with toolkits and servers, if all of the search was measured. The controls have questions of their own."""
    places: dict[tuple[int, float], list[Point]] = defaultdict(list)
    for point in points:
        if point.complete and not (point.is_control or point.is_repeat):
            places[point.spec.nodes, point.links].append(_joined(point, points))
    compared = []
    for (nodes, links), here in sorted(places.items()):
        toolkits = [point for point in here if point.kind == "toolkit"]
        servers = defaultdict(list)
        for point in (point for point in here if point.ps):
            servers[point.kind].append(point)
        if toolkits and servers:
            compared.append(Cell(links, nodes, toolkits, servers))
    return compared


def _joined(point: Point, points: Iterable[Point]) -> Point:
    """The point with what studies of repeats have measured of it in other jobs."""
    every = [point, *(other for other in points if other.is_repeat and other.configuration == point.configuration)]
    each_s, steps_s, left_out = (
        tuple(chain.from_iterable(getattr(one, name) for one in every)) for name in ("each_s", "steps_s", "left_out")
    )
    return point._replace(each_s=each_s, steps_s=steps_s, left_out=left_out, jobs=len(every))


# --- the questions ---

# An answer, and the figures that it rests on; None where nothing was measured that could tell.
Outcome = tuple[Answer, Mapping[str, Ratio | float]] | None


def answer_of(yes: bool, no: bool) -> Answer:
    return "yes" if yes else "no" if no else "cannot say"


def over_margin(ratios: Mapping[str, Ratio]) -> Outcome:
    """Whether all ratios are over 1 + ``MARGIN``, or none, or some are and some are not; None without ratios."""
    over = [ratio.low > 1 + MARGIN for ratio in ratios.values()]
    below = [ratio.high <= 1 + MARGIN for ratio in ratios.values()]
    answer: Answer = "it depends" if any(over) and any(below) else answer_of(all(over), all(below))
    return (answer, ratios) if ratios else None


def servers_lose(points: Sequence[Point], kind: str = "") -> Outcome:
    """Whether each cell's fastest toolkit is faster than its fastest servers, or those of a kind, by over ``MARGIN``."""
    chosen = [
        (cell, cell.servers[kind] if kind else cell.all_servers)
        for cell in cells(points)
        if not kind or kind in cell.servers
    ]
    known = spread(points)
    return over_margin(
        {
            f"{cell.name}: {fastest(servers).way} (of {plural(len(cell.all_servers), 'configuration')} of servers) beside "
            f"{cell.toolkit.way} (of {plural(len(cell.toolkits), 'toolkit')})": known.of_fastest(servers, cell.toolkits)
            for cell, servers in chosen
        }
    )


def of_place(point: Point) -> str:
    return f"{point.spec.model} on {plural(point.spec.nodes, 'node')}, {point.links:g} GB/s"


def longer(
    points: Sequence[Point],
    slow: Callable[[Point], bool],
    fast: Callable[[Point], bool],
    place: Callable[[Point], str] = of_place,
) -> Outcome:
    """Whether the fastest ``slow`` steps take longer than the fastest ``fast`` ones by over ``MARGIN``, in each place."""
    places: dict[str, tuple[list[Point], list[Point]]] = defaultdict(lambda: ([], []))
    for point in (point for point in points if not (point.is_control or point.is_repeat)):
        for side, belongs in zip(places[place(point)], (slow, fast), strict=True):
            side += [_joined(point, points)] * belongs(point)
    known = spread(points)
    return over_margin({name: known.of_fastest(*both) for name, both in places.items() if all(both)})


def the_drop(points: Sequence[Point]) -> Outcome:
    known, far = spread(points), 1 + 2 * MARGIN
    growth: dict[str, Ratio] = {}
    answers = []
    places = {(cell.links, cell.nodes): cell for cell in cells(points)}
    for (links, nodes), few in places.items():
        many = places.get((links, 128))
        if nodes != 64 or many is None:
            continue
        on_many = {point.way: point for point in many.toolkits}
        alike = [point for point in few.toolkits if point.way in on_many]
        pairs = {"an allreduce": (fastest(alike), on_many[fastest(alike).way])} if alike else {}
        kinds = [kind for kind in few.servers if kind in many.servers]
        pairs |= {kind: (fastest(few.servers[kind]), fastest(many.servers[kind])) for kind in kinds}
        for way, (before, after) in pairs.items():
            ratio = known.ratio(after, before)
            dilations = " and ".join(f"{point.spec.dilation:g}" for point in (before, after))
            growth[f"{way}, {links:g} GB/s (dilations {dilations})"] = ratio
            if way.startswith("whole"):
                answers.append(answer_of(ratio.low > far, ratio.high < far))
            else:
                answers.append(answer_of(ratio.high <= 1 + MARGIN, ratio.low > 1 + MARGIN))
    if not growth:
        return None
    complete = any(way.startswith("whole") for way in growth)
    return answer_of(complete and set(answers) == {"yes"}, "no" in answers), growth


def dilations_agree(points: Sequence[Point]) -> Outcome:
    """Steps of the same configuration, with and without twice the dilation: processors' time beside the device halves."""

    def slower(point: Point) -> tuple[object, ...]:
        return point._replace(spec=point.spec.model_copy(update={"dilation": 2 * point.spec.dilation})).configuration

    known = {point.configuration: point for point in points}
    pairs = [(point, known[slower(point)]) for point in known.values() if slower(point) in known]
    off = {
        f"{point.label}, dilation {2 * point.spec.dilation:g}": twice.step_s / point.step_s - 1
        for point, twice in pairs
    }
    return ("yes" if max(map(abs, off.values())) <= 0.02 else "no", off) if off else None


def window_s(point: Point, steps: int) -> float:
    """The mean of the first steps after the barrier, which a window of so many has."""
    return fmean(fmean(of_repeat[:steps]) for of_repeat in point.steps_s)


def steps_matter(points: Sequence[Point]) -> Outcome:
    long = [point for point in points if point.is_control]
    if not long:
        return None
    worst = {steps: max((window_s(point, steps) / point.step_s - 1 for point in long), key=abs) for steps in WINDOWS}
    return "yes" if abs(worst[1]) < 0.02 else "no", {plural(steps, "step"): off for steps, off in worst.items()}


LAWS = {"the law": "queues_s", "two lines": "two_lines_s"}


def errors_of(points: Iterable[Point], law: str) -> tuple[float, float]:
    """By how much of the measured steps one of ``LAWS`` errs: the mean size, and the worst, positive if it is longer."""
    errors = [getattr(point.predicted, LAWS[law]) / point.step_s - 1 for point in points]
    return fmean(map(abs, errors)), max(errors, key=abs)


def law_errs(points: Sequence[Point]) -> Outcome:
    mean, worst = errors_of(parted(points)["all"], "the law")
    return "yes" if mean < 0.03 else "no", {"mean error": mean, "worst error": worst}


def parted(points: Sequence[Point]) -> dict[str, list[Point]]:
    """Points by kind, and by whether a step takes notably longer than the device computes. No group is empty."""
    device_s = profile("p100").steps["inception3"]
    bound_s = (1 + MARGIN) * device_s.batch_size / device_s.img_per_s
    groups: dict[str, list[Point]] = defaultdict(list)
    for point in (point for point in points if not point.is_repeat):
        binds = "the network binds" if point.step_s > bound_s else "compute binds"
        groups["all"].append(point)
        groups[f"{'servers' if point.ps else 'without servers'}, {binds}"].append(point)
    return dict(groups)


Questions = Mapping[str, tuple[str, Callable[[Sequence[Point]], Outcome]]]  # by the names of findings
QUESTIONS: Questions = {
    "in_no_order": (
        "Are toolkits faster than whole tensors on 2017's number of servers, in no order, as TensorFlow asks by itself?",
        partial(servers_lose, kind=AS_2017[0]),
    ),
    "in_order": (
        "Are toolkits faster than whole tensors on 2017's number of servers, in order of use, which fits 2017's tables?",
        partial(servers_lose, kind=AS_2017[1]),
    ),
    "best_servers": ("Are toolkits over MPI or Gloo faster than the fastest servers of those searched?", servers_lose),
    "the_drop": (
        "Does a step become much longer from 64 to 128 nodes with whole tensors, not with others, on all links?",
        the_drop,
    ),
    "alike": (
        "Do servers with TensorFlow's runtime take longer than PyTorch's, where all else is equal?",
        partial(
            longer,
            slow=lambda point: point.spec.backend == "parameter_server",
            fast=lambda point: point.spec.backend == "torch_parameter_server",
            place=lambda point: f"{of_place(point)}: {point.ps} ps, {point.kind}",
        ),
    ),
    "dilations_agree": ("Is a step the same to within 2 % with twice the dilation?", dilations_agree),
    "steps_matter": ("Is the mean of a short window a steady step?", steps_matter),
    "law_errs": ("Is a steady step as long as the law says, nothing fitted?", law_errs),
}


def findings(points: Sequence[Point], questions: Questions = QUESTIONS) -> list[Finding]:
    not_measured: tuple[Answer, Mapping[str, Ratio | float]] = ("cannot say", {})
    return [Finding(name, text, *(ask(points) or not_measured)) for name, (text, ask) in questions.items()]


# --- the page ---


def page(points: Sequence[Point], questions: Questions, script: Path, **more: object) -> str:
    """The page as Markdown. The script's template may use ``more``, and all that this module has, by the same names."""
    values = globals() | {"points": points, "known": spread(points), "step_of": step_of} | more
    return template(script.with_suffix(".md.j2")).render(values, findings=findings(points, questions))


def plain_page(points: Sequence[Point], questions: Questions, script: Path, title: str) -> str:
    """A page with the answers to ``questions`` and the points of the script's own studies."""
    own = [point for point in points if point.study.partition("-links")[0] in FOLDERS[script.stem]]
    return template(HERE / "plain.md.j2").render(
        title=title, points=own, findings=findings(points, questions), script=script.name, folder=script.stem
    )


def write(points: Sequence[Point], folder: Path, text: str, questions: Questions, script: str) -> None:
    """Write the page with this ``text``, its points, and the answers to its ``questions``."""
    table = io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(["links", "nodes", "way", "dilation", "bytes_scale", "repeats", "step_s", "law_s", "two_lines_s"])
    for point in points:
        seconds = (point.step_s, point.predicted.queues_s, point.predicted.two_lines_s)
        spec, repeats = point.spec, len(point.each_s)
        rows.writerow(
            [point.links, spec.nodes, point.way, spec.dilation, spec.bytes_scale, repeats]
            + [f"{value:.5f}" for value in seconds]
        )
    answers = [finding._asdict() for finding in findings(points, questions)]
    data = {"experiment": "emulated-p100", "script": script, "findings": answers}
    files = {"index.md": text, "points.csv": table.getvalue(), "analysis.json": json.dumps(data, indent=1) + "\n"}
    with writing(folder):
        for name, content in files.items():
            write_atomically(folder / name, content)


def command(script: Path, page: Callable[..., str], questions: Questions, description: str | None) -> None:
    """The command line of a ``script`` that answers ``questions`` on a page."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULTS", help="folders with studies' kept records")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="where to write the page  [default: print it]")
    options = parser.parse_args()
    try:
        points = read(sorted(path for folder in options.results for path in folder.glob("*") if path.is_dir()))
        text = page(points, questions, script)
        if options.output:
            write(points, options.output, text, questions, script.name)
        print(options.output / "index.md" if options.output else text)
    except HarnessError as error:
        print(f"{script.name}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    command(Path(__file__), page, QUESTIONS, __doc__)
