"""Steady steps: who wins where the same was searched on both sides, and what a step needs to be one.

    .venv/bin/python studies/emulated-p100/steady.py RESULTS [-o DIR]

RESULTS are the records that measure.py keeps in ``steady``. The page is printed, or written with its data into DIR;
``steady.md.j2`` is the page. docs/experiments.md has the questions.
"""

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache, partial
from operator import attrgetter
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple, TypeVar

import pandas
from measure import FILES, FOLDERS, HERE, Part, parts
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
# The search on the servers' side: slices or whole tensors, 2017's number of them or another one, and the order.
AS_2017 = "whole, 2017's number, no order", "whole, 2017's number, in order"
ON_EVERY_NODE = "whole, on every node, no order", "whole, on every node, in order"
KINDS = (*AS_2017, *ON_EVERY_NODE, "slices, no order", "slices, in order")
REPLICAS = "replicas"
# Options of toolkits that are not their defaults, in labels.
OPTIONS = {"bucket_mb": "buckets of {:g} MB", "fusion_threshold_mb": "fused to {:g} MB", "net_type": "{} net"}
WINDOWS = (1, 2, 4, 8, 16)
IN_PHASE = 0.001  # edges of a window, as a share of its step
Answer = Literal["yes", "no", "it depends", "cannot say"]
Key = TypeVar("Key", bound=Hashable)


class Repeat(NamedTuple):
    """A repeat of a point; times are seconds of the device.

    ``step_s`` is the steady step, the period of all ranks. ``steps_s`` has the durations of all steps after the barrier,
    each the mean of all ranks. The first ``left_out`` of them are not part of the steady step.
    """

    step_s: float
    steps_s: tuple[float, ...]
    left_out: int

    @property
    def kept_s(self) -> tuple[float, ...]:
        """The durations of the steady steps."""
        return self.steps_s[self.left_out :]

    @property
    def edge(self) -> float:
        """The distance of the steady step from the mean duration of its steps, as a share.

        If ranks are in phase, it is nothing. Servers let them go out of phase, and then a window of few steps has edges.
        """
        return self.step_s / fmean(self.kept_s) - 1


class Point(NamedTuple):
    """A configuration with all its repeats; ``links`` are GB/s each way.

    ``complete``: all points of its study were measured, so that the search was the same on both sides. ``jobs`` have
    measured it, each in all of its repeats.
    """

    study: str
    links: float
    spec: RunSpec
    repeats: tuple[Repeat, ...]
    predicted: Steps
    complete: bool = True
    jobs: int = 1

    @property
    def step_s(self) -> float:
        """The mean of all repeats, each with the weight of its steady steps."""
        weights = [max(1, len(repeat.kept_s)) for repeat in self.repeats]
        return fmean([repeat.step_s for repeat in self.repeats], weights)

    @property
    def configuration(self) -> tuple[object, ...]:
        """The facts that points of several studies have in common if they are the same: all but the lengths of windows."""
        lengths = {"warmup_steps", "steps", "repeats", "timeout_s"}
        return self.links, "-slow-" in self.study, self.spec.model_dump_json(exclude=lengths)

    @property
    def ps(self) -> int:
        return int(self.spec.options.get("ps") or 0)

    @property
    def kind(self) -> str:
        """The side of the search: one of ``KINDS``, replicas, "toolkit", or the control of collectives in TensorFlow."""
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
    def errors(self) -> list[tuple[float, int]]:
        """Relative standard errors of the steady step and their degrees of freedom, by scatter of steps and by edges."""
        kept_s = [repeat.kept_s for repeat in self.repeats]
        steps, (squares, freedom) = sum(map(len, kept_s)), pooled_variance(kept_s)
        of_edges = [(abs(repeat.edge) * len(repeat.kept_s) / steps, 1) for repeat in self.repeats]
        return [(math.sqrt(squares / steps) / self.step_s, freedom), *of_edges]

    @property
    def is_repeat(self) -> bool:
        """True if another study has it, too."""
        return self.study.startswith("again")

    @property
    def is_control(self) -> bool:
        """True if it has windows of 16 steps, of which shorter ones are the beginning."""
        return self.study.startswith("steps")

    @property
    def way(self) -> str:
        spec = self.spec
        name = f"{spec.backend}:{spec.framework}" if spec.backend == "horovod" else spec.backend
        options = differing(spec.model_dump())["options"]
        more = [text.format(options[option]) for option, text in OPTIONS.items() if option in options]
        return ", ".join([f"{name} over {spec.transport}", *([f"{self.ps} ps", self.kind] if self.ps else more)])

    @property
    def place(self) -> str:
        return f"{self.spec.model} on {plural(self.spec.nodes, 'node')}, {self.links:g} GB/s"

    @property
    def label(self) -> str:
        return f"{self.place.removeprefix('inception3 on ')}: {self.way}"


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
        return [point for points in self.servers.values() for point in points]


def runtime(point: Point) -> str:
    """TensorFlow's or PyTorch's, in two letters."""
    return "PT" if point.spec.backend.startswith("torch") else "TF"


def fastest(points: Iterable[Point]) -> Point:
    return min(points, key=attrgetter("step_s"))


def grouped(points: Iterable[Point], key: Callable[[Point], Key]) -> dict[Key, list[Point]]:
    """The points with the same key, in the order of their first ones."""
    groups: dict[Key, list[Point]] = defaultdict(list)
    for point in points:
        groups[key(point)].append(point)
    return dict(groups)


class Ratio(NamedTuple):
    """A step over another one, with the interval of repeatability at 95 %."""

    value: float
    low: float = 0.0
    high: float = math.inf

    def __str__(self) -> str:
        brackets = f" [{self.low:.2f}, {self.high:.2f}]" if self.low else ""
        return f"{self.value:.2f} ×{brackets}"


# An answer, and the figures that it rests on, by their names: ratios, or errors as shares. Without any nobody can say.
Outcome = tuple[Answer, Mapping[str, Ratio | float]]
Questions = Mapping[str, tuple[str, Callable[[Sequence[Point]], Outcome]]]  # by the names of findings


class Finding(NamedTuple):
    """The answer to a question, and the figures of its ``Outcome``."""

    name: str
    question: str
    answer: Answer
    figures: Mapping[str, Ratio | float]


class Spread(NamedTuple):
    """The agreement of jobs of one emulation on this host: a relative standard deviation, and its degrees of freedom."""

    deviation: float
    freedom: int

    def ratio(self, slow: Sequence[Point], fast: Sequence[Point]) -> Ratio:
        """The shortest step of each side, widened for the choice (Šidák); without an interval if no job was repeated.

        A step that was the shortest by luck is longer: the dividend's raises the upper limit, the divisor's the lower one.
        The errors of each point's own window are added; a few steps say little of them.
        """
        from scipy.special import stdtrit

        dividend, divisor = fastest(slow), fastest(fast)
        ratio = dividend.step_s / divisor.step_s
        if not self.freedom:
            return Ratio(ratio)
        between_jobs = self.deviation * math.sqrt(1 / dividend.jobs + 1 / divisor.jobs)
        terms = [(between_jobs, self.freedom), *(term for term in (*dividend.errors, *divisor.errors) if term[0])]
        error, freedom = math.hypot(*(error for error, _ in terms)), satterthwaite(terms, careful=False)
        up, down = (float(stdtrit(freedom, 0.975 ** (1 / len(side)))) * error for side in (slow, fast))
        return Ratio(ratio, ratio * math.exp(-down), ratio * math.exp(up))


def spread(points: Iterable[Point]) -> Spread:
    """The spread of the first repeats of points that several studies have, each in its own job, with ranks in phase.

    Windows of others differ by their edges, which each point brings.
    """
    in_phase = [point for point in points if all(abs(repeat.edge) < IN_PHASE for repeat in point.repeats)]
    jobs = grouped(in_phase, attrgetter("configuration")).values()
    squares, freedom = pooled_variance([[math.log(point.repeats[0].step_s) for point in alike] for alike in jobs])
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
        planned = {point.id: point.spec for point in study_points(part.name, part.tables)}
        measured = []
        for entry in (entry for entry in notes.points if entry.id in planned):
            spec = complete(planned[entry.id])
            files = [folder / run / Record.file_name for run in entry.runs]
            measured += [_point(part, spec, Record.read(file)) for file in files if file.exists()]
        points += [point._replace(complete=len(measured) == len(planned)) for point in measured]
    if not points:
        raise InvalidInput(f"{', '.join(map(str, folders))}: no steady points in there")
    return sorted(points, key=lambda point: (point.spec.nodes, point.links, point.kind, point.way, point.study))


def _point(part: Part, spec: RunSpec, record: Record) -> Point:
    assert record.derived and record.derived.steady
    repeats = []
    derived = zip(record.derived.img_per_s.values, record.derived.steady, strict=True)
    for repeat, (img_per_s, steady) in zip(record.repeats, derived, strict=True):
        steps_s = tuple(step_s / spec.dilation for step_s in durations_s(repeat.ranks))
        repeats.append(Repeat(spec.global_batch / img_per_s, steps_s, steady.left_out))
    return Point(part.name, part.links.rate, spec, tuple(repeats), predicted(spec, part.links.rate))


def compared(points: Sequence[Point]) -> list[Point]:
    """The points with all their jobs: studies of repeats have more of them. The controls have questions of their own."""
    joined = []
    for point in (point for point in points if not (point.is_control or point.is_repeat)):
        jobs = [point, *(other for other in points if other.is_repeat and other.configuration == point.configuration)]
        repeats = tuple(repeat for job in jobs for repeat in job.repeats)
        joined.append(point._replace(repeats=repeats, jobs=len(jobs)))
    return joined


def cells(points: Sequence[Point]) -> list[Cell]:
    """The cells with toolkits and servers, if all of the search was measured."""
    complete = [point for point in compared(points) if point.complete]
    places = grouped(complete, lambda point: (point.spec.nodes, point.links))
    every = []
    for (nodes, links), alike in sorted(places.items()):
        toolkits = [point for point in alike if point.kind == "toolkit"]
        servers = grouped((point for point in alike if point.ps), attrgetter("kind"))
        if toolkits and servers:
            every.append(Cell(links, nodes, toolkits, servers))
    return every


# --- the questions ---


def answer_of(yes: bool, no: bool) -> Answer:
    return "yes" if yes else "no" if no else "cannot say"


def over_margin(ratios: Mapping[str, Ratio]) -> Outcome:
    """Answer "yes" if all ratios are over 1 + ``MARGIN``, "no" if none is, or that it depends."""
    over = [ratio.low > 1 + MARGIN for ratio in ratios.values()]
    below = [ratio.high <= 1 + MARGIN for ratio in ratios.values()]
    return "it depends" if any(over) and any(below) else answer_of(all(over), all(below)), ratios


def servers_lose(points: Sequence[Point], kind: str = "") -> Outcome:
    """Check that each cell's fastest toolkit is faster than its fastest servers, or those of a kind, by over ``MARGIN``."""
    known, ratios = spread(points), {}
    for cell in cells(points):
        if servers := cell.servers.get(kind, []) if kind else cell.all_servers:
            place = f"{plural(cell.nodes, 'node')} with {cell.links:g} GB/s"
            way = f"{fastest(servers).way} (of {plural(len(cell.all_servers), 'configuration')} of servers)"
            toolkit = f"{cell.toolkit.way} (of {plural(len(cell.toolkits), 'toolkit')})"
            ratios[f"{place}: {way} beside {toolkit}"] = known.ratio(servers, cell.toolkits)
    return over_margin(ratios)


def longer(
    points: Sequence[Point],
    slow: Callable[[Point], bool],
    fast: Callable[[Point], bool],
    place: Callable[[Point], str] = attrgetter("place"),
) -> Outcome:
    """Check in each place that the fastest ``slow`` steps take over ``MARGIN`` longer than the fastest ``fast`` ones."""
    known, ratios = spread(points), {}
    for name, alike in grouped(compared(points), place).items():
        sides = list(filter(slow, alike)), list(filter(fast, alike))
        if all(sides):
            ratios[name] = known.ratio(*sides)
    return over_margin(ratios)


def the_drop(points: Sequence[Point]) -> Outcome:
    known, far = spread(points), 1 + 2 * MARGIN
    growth: dict[str, Ratio] = {}
    answers = []
    on_128 = {cell.links: cell for cell in cells(points) if cell.nodes == 128}
    for few in (cell for cell in cells(points) if cell.nodes == 64 and cell.links in on_128):
        many = on_128[few.links]
        toolkits = {point.way: point for point in many.toolkits}
        alike = [point for point in few.toolkits if point.way in toolkits]
        pairs = {"an allreduce": (fastest(alike), toolkits[fastest(alike).way])} if alike else {}
        kinds = [kind for kind in few.servers if kind in many.servers]
        pairs |= {kind: (fastest(few.servers[kind]), fastest(many.servers[kind])) for kind in kinds}
        for way, (before, after) in pairs.items():
            ratio = known.ratio([after], [before])
            dilations = " and ".join(f"{point.spec.dilation:g}" for point in (before, after))
            growth[f"{way}, {few.links:g} GB/s (dilations {dilations})"] = ratio
            if way.startswith("whole"):
                answers.append(answer_of(ratio.low > far, ratio.high < far))
            else:
                answers.append(answer_of(ratio.high <= 1 + MARGIN, ratio.low > 1 + MARGIN))
    complete = any(way.startswith("whole") for way in growth)
    return answer_of(complete and set(answers) == {"yes"}, "no" in answers), growth


def dilations_agree(points: Sequence[Point]) -> Outcome:
    """Steps of the same configuration, with and without twice the dilation: processors' time beside the device halves."""
    known = {point.configuration: point for point in points}
    differences = {}
    for point in known.values():
        slower = point.spec.model_copy(update={"dilation": 2 * point.spec.dilation})
        if twice := known.get(point._replace(spec=slower).configuration):
            differences[f"{point.label}, dilation {slower.dilation:g}"] = twice.step_s / point.step_s - 1
    return "yes" if all(abs(share) <= 0.02 for share in differences.values()) else "no", differences


def window_s(point: Point, steps: int) -> float:
    """The mean of the first steps after the barrier, which a window of so many has."""
    return fmean(fmean(repeat.steps_s[:steps]) for repeat in point.repeats)


def steps_matter(points: Sequence[Point]) -> Outcome:
    long = [point for point in points if point.is_control]
    if not long:
        return "cannot say", {}
    worst = {steps: max((window_s(point, steps) / point.step_s - 1 for point in long), key=abs) for steps in WINDOWS}
    return "yes" if abs(worst[1]) < 0.02 else "no", {plural(steps, "step"): off for steps, off in worst.items()}


LAWS = {"the law": "queues_s", "two lines": "two_lines_s"}


def errors_of(points: Iterable[Point], law: str) -> tuple[float, float]:
    """The errors of one of ``LAWS``, as shares of measured steps: the mean size, and the worst, above 0 if it is longer."""
    errors = [getattr(point.predicted, LAWS[law]) / point.step_s - 1 for point in points]
    return fmean(map(abs, errors)), max(errors, key=abs)


def law_errs(points: Sequence[Point]) -> Outcome:
    mean, worst = errors_of(parted(points)["all"], "the law")
    return "yes" if mean < 0.03 else "no", {"mean error": mean, "worst error": worst}


def parted(points: Sequence[Point]) -> dict[str, list[Point]]:
    """Points by kind, and by whether a step takes notably longer than the device computes. No group is empty."""
    device = profile("p100").steps["inception3"]
    bound_s = (1 + MARGIN) * device.batch_size / device.img_per_s

    def part(point: Point) -> str:
        binds = "the network binds" if point.step_s > bound_s else "compute binds"
        return f"{'servers' if point.ps else 'without servers'}, {binds}"

    counted = [point for point in points if not point.is_repeat]
    return {"all": counted} | grouped(counted, part)


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
            place=lambda point: f"{point.place}: {point.ps} ps, {point.kind}",
        ),
    ),
    "dilations_agree": ("Is a step the same to within 2 % with twice the dilation?", dilations_agree),
    "steps_matter": ("Is the mean of a short window a steady step?", steps_matter),
    "law_errs": ("Is a steady step as long as the law says, nothing fitted?", law_errs),
}


def findings(points: Sequence[Point], questions: Questions = QUESTIONS) -> list[Finding]:
    answered = []
    for name, (question, ask) in questions.items():
        answer, figures = ask(points)
        answered.append(Finding(name, question, answer if figures else "cannot say", figures))
    return answered


# --- the page ---


def page(points: Sequence[Point], answers: Sequence[Finding], script: Path, **more: object) -> str:
    """The page as Markdown, by the script's own template, else by the plain one.

    Templates may use ``more``, and all that this module has, by the same names. ``own_points`` are those of the script's
    own studies.
    """
    file = script.with_suffix(".md.j2")
    own_points = [point for point in points if point.study.partition("-links")[0] in FOLDERS[script.stem]]
    values = (
        globals() | {"points": points, "own_points": own_points, "known": spread(points), "step_of": step_of} | more
    )
    return template(file if file.exists() else HERE / "plain.md.j2").render(values, findings=answers, script=script)


def write(points: Sequence[Point], answers: Sequence[Finding], folder: Path, text: str, script: str) -> None:
    """Write the page with this ``text``, its points, and its answers."""
    columns = ["links", "nodes", "model", "way", "dilation", "bytes_scale", "repeats", "step_s", "law_s", "two_lines_s"]
    rows = []
    for point in points:
        seconds = (point.step_s, point.predicted.queues_s, point.predicted.two_lines_s)
        scales = point.spec.dilation, point.spec.bytes_scale
        of_point = [point.links, point.spec.nodes, point.spec.model, point.way, *scales, len(point.repeats)]
        rows.append([*of_point, *(f"{value:.5f}" for value in seconds)])
    table = pandas.DataFrame(rows, columns=columns).to_csv(index=False, lineterminator="\n")
    data = {"experiment": "emulated-p100", "script": script, "findings": [answer._asdict() for answer in answers]}
    files = {"index.md": text, "points.csv": table, "analysis.json": json.dumps(data, indent=1) + "\n"}
    with writing(folder):
        for name, content in files.items():
            write_atomically(folder / name, content)


def command(file: str, questions: Questions, description: str | None, **more: object) -> None:
    """The command line of the script in ``file`` that answers ``questions`` on a page, whose template may use ``more``."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULTS", help="folders with studies' kept records")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="where to write the page  [default: print it]")
    options, script = parser.parse_args(), Path(file)
    try:
        points = read(sorted(path for folder in options.results for path in folder.glob("*") if path.is_dir()))
        answers = findings(points, questions)
        text = page(points, answers, script, **more)
        if options.output:
            write(points, answers, options.output, text, script.name)
        print(options.output / "index.md" if options.output else text)
    except HarnessError as error:
        print(f"{script.name}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    command(__file__, QUESTIONS, __doc__)
