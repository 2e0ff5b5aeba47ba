"""The study of steady steps: what is compared, what follows from it, and that predictions came first."""

import contextlib
import csv
import io
import math
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

from harness.core.exchange import bytes_per_server, place
from harness.core.spec import RunSpec
from harness.models import specification
from harness.records.measurement import Record
from harness.running import status
from harness.running.notes import StudyNotes
from harness.running.study import Study
from tests import made
from tests.conftest import ROOT

FOLDER = ROOT / "studies" / "emulated-p100"
with contextlib.ExitStack() as stack:  # its scripts import each other
    sys.path.insert(0, str(FOLDER))
    stack.callback(sys.path.remove, str(FOLDER))
    import caffe2
    import causes
    import cori
    import measure
    import predictions
    import steady

RESULTS = measure.EXPERIMENTS / "steady"
COMMON = {"model": "inception3", "device": "emulated:p100", "batch-size": 64}


def test_points_that_want_the_same_links_are_a_study_of_their_own(tmp_path: Path) -> None:
    every = [part for file in measure.FILES for part in measure.parts(file)]
    assert len({part.name for part in every}) == len(every)
    for part in every:
        (tmp_path / "study.toml").write_text(part.toml())
        points = Study.read(tmp_path / "study.toml").points(lambda _: "cpu")
        assert {point.spec.dilation for point in points} == {part.links.dilation}
        assert max(point.spec.nodes for point in points) == part.nodes


def test_what_is_in_results_is_known_as_points_of_the_study() -> None:
    parts = {part.name: part for file in measure.FILES for part in measure.parts(file)}
    for folder in filter(Path.is_dir, RESULTS.glob("*")):
        notes = StudyNotes.read(folder)
        study = Study.model_validate({"name": folder.name, "matrix": parts[folder.name].tables})
        assert folder == measure.EXPERIMENTS / parts[folder.name].place
        asked = {point.id for point in study.points(lambda _: "cpu")}
        assert notes
        assert {file.parent.name for file in folder.glob("*/record.json")} <= {
            run for entry in notes.points if entry.id in asked for run in entry.runs
        }


def test_links_are_as_much_slower_as_time_is_dilated_and_bytes_are_scaled() -> None:
    assert measure.Links(2.5, 16, 1).megabits == 1250
    assert measure.Links(2.5, 16, 0.25).megabits == 312.5


def test_what_was_predicted_is_what_the_model_says() -> None:
    """Changing the law means a new study: its predictions are from before it was measured."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        predictions.main()
    assert printed.getvalue() == (FOLDER / "predictions.csv").read_text()


@dataclass(frozen=True)
class Made:
    """Step times by kind; repeats agree to 0.2 %."""

    servers: float
    slices: float
    toolkit: float = 0.47

    def points(self, nodes: int = 8, links: float = 2.25, study: str = "steady-8") -> list[steady.Point]:
        def point(seconds: float, **table: object) -> steady.Point:
            (planned,) = predictions.points("one", [COMMON | {"nodes": nodes} | table])
            spec = predictions.complete(planned.spec)
            each_s = (seconds * 0.998, seconds * 1.002)
            repeats = tuple(steady.Repeat(step_s, (0.7 * seconds, *[step_s] * 4), left_out=1) for step_s in each_s)
            return steady.Point(study, links, spec, repeats, predictions.Steps(seconds, seconds, seconds))

        whole = {"placement": "greedy", "ps": steady.published_2017()[nodes].ps}
        ps = {"placement": "partitioned", "ps": nodes}
        return [
            point(self.toolkit, backend="horovod:torch:mpi"),
            point(self.toolkit * 1.01, backend="pytorch:gloo"),
            point(self.servers, backend="parameter_server", order="none", **whole),
            point(self.servers, backend="torch_parameter_server:gloo", order="none", **whole),
            point(self.slices, backend="parameter_server", **ps),
        ]


def again(points: list[steady.Point], longer: float = 1.001) -> list[steady.Point]:
    """The same points in another job, in which steps take so many times as long."""
    return [stretched(point, longer)._replace(study="again") for point in points]


def stretched(point: steady.Point, longer: float) -> steady.Point:
    """The point with steps that take so many times as long."""
    return point._replace(
        repeats=tuple(
            repeat._replace(step_s=longer * repeat.step_s, steps_s=tuple(longer * step_s for step_s in repeat.steps_s))
            for repeat in point.repeats
        )
    )


def windows(point: steady.Point, step_s: float, *steps_s: float) -> steady.Point:
    """The point with one repeat, whose first step is left out."""
    return point._replace(repeats=(steady.Repeat(step_s, steps_s, left_out=1),))


def answers(points: list[steady.Point]) -> dict[str, str]:
    return {finding.name: finding.answer for finding in steady.findings([*points, *again(points)])}


def test_toolkits_beat_whole_tensors_and_not_slices() -> None:
    found = answers(Made(servers=0.7, slices=0.475).points())
    assert (found["in_no_order"], found["in_order"], found["best_servers"]) == ("yes", "cannot say", "no")


def test_the_drop_is_not_answered_without_whole_tensors_on_both_sizes() -> None:
    few, many = (Made(servers=seconds, slices=0.475).points(nodes=nodes) for nodes, seconds in ((64, 0.6), (128, 0.9)))
    assert answers([*few, *many])["the_drop"] == "yes"
    assert answers([*few, *(point for point in many if not point.kind.startswith("whole"))])["the_drop"] == "cannot say"


def test_records_are_kept_without_the_names_of_this_machine(tmp_path: Path) -> None:
    (part,) = [part for part in measure.parts(FOLDER / "again.toml")]
    folder, home = tmp_path / part.name / "run", str(Path.home())
    made.record("pytorch", 8, variables={"PYTHONPATH": f"{home}/x:{measure.ROOT}"}).write(make(folder))
    made.record("pytorch", 8, status="failed", reason="as it was").write(make(folder.with_name("failed")))
    (folder.parent / "study.json").write_text("{}")
    measure.keep(part, tmp_path)
    (kept,) = (tmp_path / "kept" / part.place).glob("*/record.json")
    assert Record.read(kept).variables == {"PYTHONPATH": "/home/user/x:/opt/harness"}


def test_what_was_kept_is_not_measured_again(tmp_path: Path) -> None:
    kept = RESULTS / "again-links-2.25-dilation-32"
    measure.take_up(kept, tmp_path / "again")
    runs, problems = status.find([tmp_path / "again"])
    assert not problems and len(runs) == len(list(kept.glob("*/record.json")))
    assert {each.state for each in status.status(runs)} == {"recorded"}


def make(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def test_what_is_near_the_margin_is_not_answered() -> None:
    assert answers(Made(servers=0.7, slices=0.47 * 1.05).points())["best_servers"] == "cannot say"


def test_each_comparison_names_what_was_searched_on_both_sides() -> None:
    in_no_order, _, best, *_ = steady.findings(Made(servers=0.7, slices=0.475).points())
    beside = "(of 3 configurations of servers) beside horovod:torch over mpi (of 2 toolkits)"
    (name,) = in_no_order.figures
    assert name.startswith("8 nodes with 2.25 GB/s: ") and name.endswith(
        f" ps, whole, 2017's number, no order {beside}"
    )
    assert [name.endswith(f"8 ps, slices, in order {beside}") for name in best.figures] == [True]


def test_servers_of_both_frameworks_are_compared_where_all_else_is_equal() -> None:
    points = Made(servers=0.7, slices=0.475).points()
    assert answers(points)["alike"] == "no"  # TensorFlow's take no longer
    drifting = [stretched(point, 1.36) if point.spec.backend == "parameter_server" else point for point in points]
    assert answers(drifting)["alike"] == "yes"
    (finding,) = [finding for finding in steady.findings(drifting) if finding.name == "alike"]
    longer = finding.figures["inception3 on 8 nodes, 2.25 GB/s: 2 ps, whole, 2017's number, no order"]
    assert str(longer) == "1.36 ×"


def test_it_depends_where_one_place_says_yes_and_another_one_no() -> None:
    slow, fast = steady.Ratio(1.4, 1.3, 1.5), steady.Ratio(1.0, 0.9, 1.01)
    for ratios, answer in (
        ((slow, slow), "yes"),
        ((fast, fast), "no"),
        ((slow, fast), "it depends"),
        ((slow, steady.Ratio(1.05, 1.0, 1.1)), "cannot say"),
    ):
        assert steady.over_margin(dict(enumerate(ratios)))[0] == answer


def rival(grows: Callable[[RunSpec], bool], names: tuple[str, ...] = ("causes", "search")) -> list[steady.Point]:
    """The points of studies, where a step of 16 nodes takes 0.6 s, and of 32 nodes 1.6 times that if it ``grows``."""
    points = []
    for part in chain.from_iterable(measure.parts(FOLDER / f"{name}.toml") for name in names):
        for planned in predictions.points(part.name, part.tables):
            spec = predictions.complete(planned.spec)
            step_s = 0.96 if spec.nodes == 32 and grows(spec) else 0.6
            predicted = predictions.Steps(step_s, step_s, step_s)
            repeat = steady.Repeat(step_s, (0.9 * step_s, *[step_s] * 4), left_out=1)
            points.append(steady.Point(part.name, part.links.rate, spec, (repeat,), predicted))
    return [*points, *again(Made(servers=0.7, slices=0.475).points()), *Made(servers=0.7, slices=0.475).points()]


def whole(spec: RunSpec) -> bool:
    return spec.options.get("placement") != "partitioned"


def test_every_switch_of_a_cause_finds_its_points_and_names_what_makes_the_drop() -> None:
    drops = causes.drops(rival(whole))
    for name, (all_but, only) in drops.items():
        expected = [1.0, 1.6] if name == causes.LARGEST else [1.6, 1.0]
        for drop, switch, value in zip((all_but, only), causes.SWITCHES[name], expected, strict=True):
            assert (drop is None) == (switch is None), name
            assert drop is None or drop.ratio.value == pytest.approx(value), name


def heavier(spec: RunSpec) -> bool:
    """The fullest server sends much more to twice the nodes."""
    return whole(spec) or spec.options["ps"] == 16


def test_the_fullest_server_sends_as_much_more_as_the_question_says() -> None:
    tensors, grows = specification("inception3").tensors, {}
    for placement in ("greedy", "round_robin", "partitioned"):
        few, many = (max(bytes_per_server(place(tensors, ps, placement, 2**20), ps)) for ps in (16, 32))
        grows[placement] = 31 * many / (15 * few)
        assert (grows[placement] > 1.5) == causes.heavier(causes.NONE, {"placement": placement})
    assert grows == pytest.approx({"greedy": 1.59, "round_robin": 1.54, "partitioned": 1.12}, abs=0.005)


@pytest.mark.parametrize(
    ("grows", "answer"),
    [
        (heavier, "yes"),
        (whole, "no"),  # half as many servers for each worker
        (lambda spec: spec.backend == "parameter_server", "no"),  # TensorFlow's runtime
        (lambda spec: heavier(spec) or spec.options["order"] == "none", "no"),  # a second cause
    ],
)
def test_the_root_cause_is_answered_only_if_it_alone_makes_the_drop(
    grows: Callable[[RunSpec], bool], answer: str
) -> None:
    (finding, *_) = steady.findings(rival(grows), causes.QUESTIONS)
    assert finding.answer == answer


def test_caffe2_and_cori_compare_every_pair_that_is_asked_for() -> None:
    points = rival(whole, ("caffe2", "steady-8", "steady-32"))
    found = {finding.name: finding for finding in steady.findings(points, caffe2.QUESTIONS)}
    assert all(finding.figures for finding in found.values())
    assert found["in_order"].figures["inception3 on 32 nodes, 2.25 GB/s"].value == pytest.approx(1)
    # Links of each number of nodes that both sides have.
    assert len(found["gloo"].figures) == 11 and len(found["simple_mpi"].figures) == 3
    of_cori = {finding.name: finding for finding in steady.findings(rival(whole, ("cori",)), cori.QUESTIONS)}
    assert {name: len(finding.figures) for name, finding in of_cori.items()} == {
        "kept": 5,
        "servers": 2,
        "imbalance": 1,
        "grpc": 2,
    }


def test_a_short_window_is_the_beginning_of_a_long_one() -> None:
    points = Made(servers=0.7, slices=0.475).points(study="steps")
    (finding,) = [finding for finding in steady.findings(points) if finding.name == "steps_matter"]
    assert finding.answer == "no"
    assert finding.figures["1 step"] == pytest.approx(-0.3)
    assert finding.figures["4 steps"] == pytest.approx(-0.075)


def test_intervals_are_how_far_jobs_agree_and_few_steps_that_scatter_widen_them() -> None:
    made = Made(servers=0.7, slices=0.475)
    assert steady.spread(made.points()).freedom == 0  # repeats of one job say nothing of another one
    spread = steady.spread([*made.points(), *again(made.points(), 1.004)])
    assert spread.freedom == 5
    assert spread.deviation == pytest.approx(math.log(1.004) / 2**0.5)
    point, *_ = made.points()
    value, low, high = spread.ratio([point], [point])
    assert value == 1 and high == pytest.approx(1 / low)
    assert high == pytest.approx(math.exp(2.5706 * math.log(1.004)), abs=1e-5)  # Student's quantile of 5
    chosen = spread.ratio([point] * 6, [point])
    assert chosen.high > high and chosen.low == low
    restless = windows(point, 0.47, 0.3, 0.45, 0.49, 0.47)
    # Welch and Satterthwaite: the scatter of three steps has two degrees of freedom, and is nearly all there is.
    error = 0.02 / 3**0.5 / restless.step_s
    assert spread.ratio([restless], [point]).high == pytest.approx(math.exp(4.3 * error), rel=0.01)
    # What edges are in one window says little of those in another one: one degree of freedom.
    edgy = windows(point, 0.48, 0.3, 0.47, 0.47, 0.47)
    assert spread.ratio([edgy], [point]).high == pytest.approx(math.exp(12.7 * (0.48 / 0.47 - 1)), rel=0.02)
    assert steady.spread([edgy, *again([edgy], 1.004)]).freedom == 0
    assert steady.spread([]).ratio([point], [point]) == (1, 0, float("inf"))


def test_another_job_of_a_point_counts_with_its_steps() -> None:
    points = Made(servers=0.7, slices=0.475).points()
    long = [windows(point, 0.4, 0.5, *[0.4] * 9) for point in again(points)]
    (cell,) = steady.cells([*points, *long])
    horovod = next(point for point in cell.toolkits if point.spec.backend == "horovod")
    assert horovod.jobs == 2 and horovod.step_s == pytest.approx((8 * 0.47 + 9 * 0.4) / 17)
    alone = next(point for point in points if point.spec.backend == "horovod")
    spread = steady.Spread(0.01, 5)
    assert spread.ratio([horovod], [horovod]).high < spread.ratio([alone], [alone]).high


KINDS = [*steady.KINDS]


def kept() -> list[steady.Point]:
    return steady.read(sorted(path for path in RESULTS.glob("*") if path.is_dir()))


def test_the_readme_has_the_answer_on_most_nodes() -> None:
    points = kept()
    (cell,) = [cell for cell in steady.cells(points) if (cell.nodes, cell.links) == (128, 2.25)]
    whole, slices = (steady.spread(points).ratio(cell.servers[KINDS[at]], cell.toolkits) for at in (1, 5))
    answer = f"2.25 GB/s a step takes {whole} as long with the first kind, and {slices} with the second"
    assert answer in (ROOT / "README.md").read_text().replace("\n", " ")


@cache
def first_written() -> dict[tuple[str, str], datetime]:
    """When each prediction was committed first, by links and id; empty where git does not know.

    An earlier row is the same prediction if its links, model, backend and figures are, and no option in its label differs.
    """
    file = "studies/emulated-p100/predictions.csv"

    def git(*arguments: str) -> str:
        return subprocess.check_output(["git", *arguments], cwd=ROOT, text=True, stderr=subprocess.DEVNULL)

    written: dict[tuple[str, ...], list[tuple[dict[str, str], datetime]]] = defaultdict(list)
    try:
        for line in git("log", "--reverse", "--format=%H %cI", "--", file).splitlines():
            commit, when = line.split()
            for row in csv.DictReader(io.StringIO(git("show", f"{commit}:{file}"))):
                prediction, options = _parted(row)
                written[prediction].append((options, datetime.fromisoformat(when)))
    except (OSError, subprocess.CalledProcessError):
        return {}
    first: dict[tuple[str, str], datetime] = {}
    for row in csv.DictReader(io.StringIO((FOLDER / "predictions.csv").read_text())):
        prediction, options = _parted(row)
        times = [when for earlier, when in written[prediction] if options | earlier == earlier | options]
        first |= {(row["links_gb_per_s"], row["id"]): min(times)} if times else {}
    return first


def _parted(row: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Links, model, figures and backend of a prediction; and the options in its label."""
    backend, _, options = row["point"].partition(" ")
    prediction = (*(value for name, value in row.items() if name not in ("id", "point")), backend)
    return prediction, dict(word.split("=") for word in options.split())


def test_the_page_follows_from_its_records_and_predictions_were_committed_before_them() -> None:
    text = (RESULTS / "index.md").read_text()
    assert all(f"| {point.label} |" in text for point in kept())
    parts = {part.name: part for file in measure.FILES for part in measure.parts(file)}
    written = first_written()
    for folder in filter(Path.is_dir, RESULTS.glob("*")):
        part, notes = parts[folder.name], StudyNotes.read(folder)
        planned = {point.id for point in predictions.points(part.name, part.tables)}
        assert notes
        for entry in (entry for entry in notes.points if entry.id in planned):
            for file in (folder / run / Record.file_name for run in entry.runs):
                if file.exists():
                    started = datetime.fromisoformat(Record.read(file).started)
                    assert written[f"{part.links.rate:g}", entry.id] < started, file
