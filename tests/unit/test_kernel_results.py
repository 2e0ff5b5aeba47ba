"""What is made of kernels' records: tables, comparisons, pages, exports; and that they never mix with img/s."""

import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas
import pytest

from harness import api, kernels
from harness.analysis.regression import ComparedResults, compare
from harness.analysis.strong import with_efficiencies
from harness.core.spec import RunSpec
from harness.errors import InvalidInput
from harness.records.kernel import KernelRecord
from harness.report.page import assemble, document, kernel_figures
from harness.report.text import kernel_table
from harness.report.text import regression as texts
from harness.results import Result, load
from harness.results.sources import kernels as kernels_of
from harness.results.sources import trainings
from harness.running.prepare import Place
from harness.running.study import Study, labels
from tests import made
from tests.conftest import Harness
from tests.unit.test_kernels import STEPS, ranks, reading, recorded
from tests.wording import Case, Wording, cases

_NUMBERS = itertools.count(1)


def measured(
    kernel: str = "allreduce",
    nodes: int = 2,
    times_s: Sequence[float] = (1e-3, 1.01e-3, 0.99e-3),
    sizes: Sequence[int] = (4096,),
    *,
    status: str = "completed",
    day: int = 1,
    joules: Sequence[float] = (),
    **fields: Any,
) -> KernelRecord:
    """A record of ``len(times_s)`` repeats, whose windows are a tenth longer than so many steps take.

    In each all sizes use so many ``joules``.
    """
    usual = {"backend": "pytorch", "framework": "torch", "transport": "gloo", "threads": 1, "device": "cpu"}
    spec = RunSpec.validated(
        **usual | fields, nodes=nodes, steps=STEPS, repeats=len(times_s), kernel={"name": kernel, "sizes": tuple(sizes)}
    )
    repeats = [ranks(dict.fromkeys(sizes, time_s), count=nodes) for time_s in times_s]
    if joules:
        repeats = [reading(those, *[used] * len(sizes)) for those, used in zip(repeats, joules, strict=True)]
    completed = status == "completed"
    return recorded(
        spec,
        repeats if completed else [],
        day,
        id=f"run-{next(_NUMBERS):06}",
        status=status,
        reason=None if completed else "rank 1 on nid1 exited with 1",
        site="daint:gpu",
        machine={"cpu": "EPYC"},
        software={"packages": {"torch": "2.13.0"}},
    )


def saved(folder: Path, *records: KernelRecord) -> Path:
    return made.save(folder, records)


def rows(folder: Path, *records: KernelRecord) -> list[Result]:
    return load([saved(folder, *records)])


# --- rows ---


def test_a_run_has_its_tag_in_a_column_as_soon_as_one_has_a_tag(tmp_path: Path) -> None:
    def headings(*records: KernelRecord) -> list[str]:
        shown = rows(tmp_path / f"{len(records)}", *records)
        return [column.heading for column in kernel_table.table_of(shown).columns]

    assert "tag" not in headings(measured())
    assert "tag" in headings(measured(), measured("cg").model_copy(update={"tag": "nightly"}))


def test_a_size_is_a_row_with_its_figures(tmp_path: Path) -> None:
    small, large = rows(tmp_path, measured(sizes=(1024, 4096)))
    assert (small.size, large.size) == (1024, 4096)
    assert large.rate == pytest.approx(4096 / 1.1e-3, rel=1e-3)
    assert large.bus_bytes_per_s == pytest.approx(large.rate), "2 (n − 1) / n of two ranks is 1"
    assert large.p50_s == pytest.approx(1e-3) and len(large.values) == 3
    assert (large.kernel, large.unit, large.system) == ("allreduce", "bytes/s", "daint:gpu")
    assert large.spec["size"] == 4096


def test_a_failed_run_has_its_sizes_and_no_figures(tmp_path: Path) -> None:
    failed = rows(tmp_path, measured("alltoall", 3, sizes=(1000, 4096), status="failed"))
    assert [each.size for each in failed] == [996, 4092] and all(math.isnan(each.rate) for each in failed)
    assert {each.reason for each in failed} == {"rank 1 on nid1 exited with 1"}


def test_kernels_and_img_per_s_stay_apart(tmp_path: Path) -> None:
    made.save(saved(tmp_path, measured()), [made.record()])
    assert len(trainings(load([tmp_path]))) == len(kernels_of(load([tmp_path]))) == 1
    (file,) = tmp_path.glob("*/kernel.json")
    assert not trainings(load([file])) and len(kernels_of(load([file]))) == 1
    assert not kernels_of(load(["reference:daint"]))
    assert len(load([tmp_path, file])) == 2, "a run in two sources is one run"


def test_a_history_is_of_each_size_in_its_own_unit_and_beside_that_of_trainings(
    tmp_path: Path, harness: Harness
) -> None:
    times = [1e-3 * (1.0 if day < 8 else 1.25) * (1 + 0.002 * (day % 3)) for day in range(1, 17)]
    runs = [measured(times_s=(time_s, time_s), day=day) for day, time_s in enumerate(times, start=1)]
    made.save(saved(tmp_path, *runs), [made.record(day=day) for day in range(8)])
    said = harness("history", str(tmp_path)).succeeded().stdout
    assert said.startswith("1 change point in 1 of 2 measurements")
    assert "0.00372 GB/s → 0.00297 GB/s, −20.0 %" in said and "100.00 img/s" in said
    kernel, training = harness("history", str(tmp_path), "--json").succeeded().json["series"]
    assert (kernel["kernel"], kernel["unit"]) == ("allreduce", "bytes/s")
    assert (training["kernel"], training["unit"]) == ("", "img/s")
    assert kernel["changes"][0]["new_rate"] == pytest.approx(4096 / 1.375e-3, rel=0.01)
    assert training["runs"][0]["rate"] == 100


def test_strong_scaling_is_that_of_the_same_size_on_more_nodes(tmp_path: Path) -> None:
    runs = [measured("cg", nodes, (time_s, time_s), (1024,)) for nodes, time_s in ((1, 8e-3), (2, 5e-3), (4, 4e-3))]
    other = measured("cg", 8, (1e-3, 1e-3), (2048,))
    messages = [measured("allreduce", nodes, (1e-3, 1e-3)) for nodes in (2, 4)]
    every = rows(tmp_path, *runs, other, *messages)
    computed = sorted((each for each in every if each.kernel == "cg"), key=lambda run: run.workers)
    shares, from_two = with_efficiencies(every), with_efficiencies(every, 2)
    assert [shares[run] for run in computed] == pytest.approx([1, 0.8, 0.5, math.nan], nan_ok=True)
    assert [from_two[run] for run in computed] == pytest.approx([1.25, 1, 0.625, math.nan], nan_ok=True)
    assert all(math.isnan(shares[run]) for run in every if run.kernel == "allreduce")


def test_threads_that_change_with_the_nodes_of_one_machine_are_no_other_computation(tmp_path: Path) -> None:
    both = rows(tmp_path, measured("cg", 1, (8e-3,) * 2, threads=2), measured("cg", 2, (4e-3,) * 2, threads=1))
    assert [*with_efficiencies(both).values()] == pytest.approx([1, 1])


# --- harness table ---


def test_table_shows_kernels_by_themselves(harness: Harness, tmp_path: Path) -> None:
    saved(
        tmp_path / "runs", measured("cg", 1, (8e-3,) * 2, (1024,)), measured("cg", 2, (5e-3,) * 2, (1024,)), measured()
    )
    ours, published = harness("table", "runs").succeeded().stdout.split("\n\n")
    heading, _, allreduce, one, two = ours.splitlines()
    assert "img/s" not in heading
    assert " ".join(allreduce.split()) == "allreduce pytorch torch gloo 2 4 KiB 1 0.00372 GB/s 0.00372 2.5 %"
    assert " ".join(one.split()) == "cg pytorch torch gloo 1 N = 1,024 8 11.9 Gflop/s 0.0 % 100.0 %"
    assert two.split()[-4:] == ["0.0", "%", "80.0", "%"]
    title, _, _, first, *_ = published.splitlines()
    assert "measured elsewhere (TensorFlow Doing HPC" in title and published.count("\ncg ") == 7
    assert " ".join(first.split()) == "cg Kebnekaise K80 32768 2 → 4 1.6 times as fast"


def test_table_of_both_has_two_tables(harness: Harness, tmp_path: Path) -> None:
    made.save(saved(tmp_path / "runs", measured()), [made.record(nodes=1), made.record(nodes=2)])
    training, kernels = harness("table", "runs").succeeded().stdout.split("\n\nkernel ")
    assert "img/s" in training and "allreduce" not in training
    assert "allreduce" in kernels and "img/s" not in kernels
    of_training, of_kernels = (
        [point for point in harness("table", "runs", "--json").json if ("kernel" in point) == wanted]
        for wanted in (False, True)
    )
    assert len(of_training) == 2 and all(point["img_per_s"] for point in of_training)
    (point,) = of_kernels
    assert "img_per_s" not in point and point["rate"] > 0 and len(point["values"]) == 3 and point["efficiency"] is None


def test_the_interval_of_a_rate_does_not_reach_below_zero(refused: Harness, tmp_path: Path) -> None:
    saved(tmp_path / "runs", measured(times_s=(1e-3, 5e-2)), measured(day=2, times_s=(1e-3,)))
    shown = refused("table", "runs", "--json").succeeded().json
    (low, high), none = (point["rate_ci95"] for point in shown)
    assert 0 < low < shown[0]["rate"] < high and none is None


@pytest.mark.parametrize(
    "command", [["table"], ["table", "--json"], ["report", "-o", "page.html"], ["baseline", "save", "b"]]
)
@pytest.mark.usefixtures("shelf")
def test_a_training_that_cannot_be_read_hides_no_kernels(harness: Harness, tmp_path: Path, command: list[str]) -> None:
    (saved(tmp_path / "runs", measured()) / "bad").mkdir()
    (tmp_path / "runs" / "bad" / "record.json").write_text("{")
    assert "1 record was left out: runs/bad/record.json" in harness(*command, "runs").succeeded().stderr


def test_table_as_csv_has_plain_numbers(harness: Harness, tmp_path: Path) -> None:
    saved(tmp_path / "runs", measured("cg", 1, (8e-3,) * 2, (1024,)), measured("cg", 2, (4e-3,) * 2, (1024,)))
    heading, *lines = harness("table", "runs", "--format", "csv").succeeded().stdout.splitlines()
    table = [
        dict(zip(heading.replace('"', "").replace("p50, ms", "p50").split(","), line.split(","), strict=True))
        for line in lines
    ]
    assert [float(row["efficiency"]) for row in table] == pytest.approx([1, 1])
    assert {row["size"] for row in table} == {"1024"} and {row["unit"] for row in table} == {"Gflop/s"}


def test_a_run_without_a_number_has_one_line(harness: Harness, tmp_path: Path) -> None:
    saved(tmp_path / "runs", measured(sizes=(1024, 4096), status="failed"), measured(day=2), measured(day=3))
    _, _, failed, *others = harness("table", "runs").succeeded().stdout.splitlines()
    assert "failed" in failed and "rank 1 on nid1 exited with 1" in failed
    assert [line.split()[-2] for line in others] == ["2026-01-02", "2026-01-03"], "equal rows have their dates"


def test_rows_are_told_apart_by_threads_unless_these_change_with_the_nodes(harness: Harness, tmp_path: Path) -> None:
    saved(tmp_path / "by-nodes", measured("cg", 1, threads=2), measured("cg", 2, threads=1))
    saved(tmp_path / "by-threads", measured("cg", 2, threads=2, day=2))
    assert "threads" not in harness("table", "by-nodes").succeeded().stdout
    both = harness("table", "by-nodes", "by-threads").succeeded().stdout.split("\n\n")[0]
    assert [line.split()[-1] for line in both.splitlines()[2:]] == ["threads=2", "threads=1", "threads=2"]


@cases
def test_what_kernels_have_no_answer_to_is_refused(refused: Harness, tmp_path: Path, case: Case) -> None:
    (run,) = saved(tmp_path / "runs", measured()).iterdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "wrong.toml").write_text('[[matrix]]\nbackend = "horovod"\nnodes = 2\nkernel = "pingpong"\n')
    case.refused(refused(*case.words(RUN=run)), RUN=run)


# --- studies ---

STUDY = """
[common]
batch-size = 2
nodes = 2

[[matrix]]
backend = ["mpi4py", "pytorch:gloo"]
kernel = ["allreduce", "pingpong"]
sizes = ["1KiB..2KiB", 65536]

[[matrix]]
backend = "mpi4py"
kernel = "cg"
nodes = [1, 2]
"""


def study(folder: Path, text: str) -> list[RunSpec]:
    (folder / "kernels.toml").write_text(text)
    return [point.spec for point in Study.read(folder / "kernels.toml").points(lambda wanted: "cpu")]


def test_each_kernel_of_a_table_is_a_point_with_all_sizes(tmp_path: Path) -> None:
    specs = study(tmp_path, STUDY)
    messages = [(backend, name, 2) for backend in ("mpi4py", "pytorch") for name in ("allreduce", "pingpong")]
    expected = [*messages, ("mpi4py", "cg", 1), ("mpi4py", "cg", 2)]
    assert [(spec.backend, spec.subject, spec.nodes) for spec in specs] == expected
    sizes = [spec.kernel.sizes for spec in specs if spec.kernel]
    assert sizes[0] == (1024, 2048, 65536) and sizes[-1] == kernels.specification("cg").usual


def test_points_of_one_kernel_are_told_apart_by_their_sizes(tmp_path: Path) -> None:
    table = '[[matrix]]\nbackend = "mpi4py"\nnodes = 2\nkernel = "allreduce"\nsizes = [{}]\n'
    specs = study(tmp_path, table.format(1024) + table.format(4096))
    assert labels([spec.model_dump() for spec in specs]) == ["mpi4py nodes=2 sizes=1024", "mpi4py nodes=2 sizes=4096"]


@cases
def test_a_table_of_kernels_that_makes_no_sense_is_refused(tmp_path: Path, case: Case) -> None:
    with case.raises(InvalidInput, HERE=tmp_path):
        study(tmp_path, f'[[matrix]]\nbackend = "mpi4py"\n{case.text}\n')


def test_a_study_of_kernels_is_measured_and_shown(harness: Harness, tmp_path: Path) -> None:
    few = "[common]\nsteps = 2\nwarmup = 1\nrepeats = 1\nthreads = 1\n"
    matrix = '[[matrix]]\nbackend = "mpi4py"\nnodes = 2\nkernel = "allreduce"\nsizes = [1024]\n'
    (tmp_path / "kernels.toml").write_text(few + matrix)
    done = harness("study", "run", "kernels.toml").succeeded()
    assert "img/s" not in done.stdout and "1 KiB" in done.stdout and "1 point: 1 completed" in done.stdout
    (point,) = harness("study", "status", "kernels.toml", "--json").json
    assert point["state"] == "completed" and point["kernel"] == "allreduce" and "img_per_s" not in point
    assert "allreduce" in harness("table", "runs/kernels").succeeded().stdout


def test_status_counts_all_repeats_of_a_kernel_that_has_ended(harness: Harness, tmp_path: Path) -> None:
    record = measured(times_s=(1e-3,) * 3)
    run = Place(output=tmp_path / "runs").prepare(record.spec)
    run.begin()
    for number in range(1, 4):
        (run.folder / f"repeat-{number}").mkdir()
    record.write(run.folder)
    (shown,) = harness("jobs", "status", "--json").json
    assert (shown["status"], shown["repeats"], shown["of"]) == ("completed", 3, 3)


# --- harness compare ---

FIVE = (1e-3, 1.01e-3, 0.99e-3, 1.005e-3, 0.995e-3)
SLOWER = tuple(1.2 * time_s for time_s in FIVE)


def compared(folder: Path, old: Sequence[KernelRecord], new: Sequence[KernelRecord]) -> ComparedResults:
    sides = [saved(folder / name, *those) for name, those in (("old", old), ("new", new))]
    return compare(*(load([side]) for side in sides))


def test_python_compares_trainings_and_kernels(tmp_path: Path) -> None:
    for name, times_s, img_per_s in (("old", FIVE, 100.0), ("new", SLOWER, 80.0)):
        made.save(tmp_path / name, [made.record(img_per_s=[img_per_s, 1.01 * img_per_s, 0.99 * img_per_s])])
        computed = measured("matmul", sizes=[64], times_s=[1000 * time_s for time_s in times_s])
        saved(tmp_path / name, measured(times_s=times_s), computed)
    found = api.compare(tmp_path / "old", tmp_path / "new").set_index("unit")
    assert dict(found["verdict"]) == {"img/s": "slower", "bytes/s": "slower", "flop/s": "slower"}
    assert found.loc["img/s", "old"] == pytest.approx(100, rel=1e-3)
    assert list(found["new"] / found["old"] - 1) == pytest.approx(list(found["change"]))


def test_the_energy_of_a_kernel_is_in_tables_and_exports(tmp_path: Path, harness: Harness) -> None:
    times_s = tuple(1000 * time_s for time_s in FIVE)
    joules = [20 * time_s for time_s in times_s]
    saved(tmp_path / "runs", measured("cg", 2, times_s, (1024,), joules=joules))
    shown = harness("table", "runs").succeeded().stdout.split("\n\n")[0]
    assert "G/J" in shown and shown.rstrip().endswith("0.021  package (powercap)")
    (row,) = harness("results", "export", "runs", "--kernels", "--format", "json").succeeded().json
    assert row["joules"] == pytest.approx(20.0, rel=0.01) and row["energy"] == "package (powercap)"
    assert row["joules_values"] == pytest.approx([used / (STEPS * 100 * 1024**2) for used in joules])


def test_each_size_is_judged_by_its_repeats(tmp_path: Path) -> None:
    old = [measured(times_s=FIVE, sizes=(1024, 4096)), measured("cg", times_s=FIVE, sizes=(64,))]
    new = [measured(times_s=SLOWER, sizes=(1024,), day=2), measured(times_s=FIVE, sizes=(4096,), day=2)]
    found = compared(tmp_path, old, [*new, measured("cg", times_s=FIVE, sizes=(64,), day=2)])
    verdicts = {pair.label: pair.verdict for pair in found.pairs}
    assert verdicts == {
        "pytorch torch gloo allreduce of 1 KiB 2 nodes": "slower",
        "pytorch torch gloo allreduce of 4 KiB 2 nodes": "too noisy",  # of one job each
        "pytorch torch gloo cg of N = 64 2 nodes": "too noisy",
    }
    assert found.pairs[0].judgement.change == pytest.approx(1 / 1.2 - 1)
    assert (found.old.records, found.old.repeats, found.new.records) == (2, 10, 3)
    assert [pair.new.repeats for pair in found.pairs] == [5, 5, 5]


def test_sizes_and_transports_without_a_partner_are_named(tmp_path: Path) -> None:
    old = [measured(times_s=FIVE, sizes=(1024, 4096)), measured(times_s=FIVE, transport="mpi")]
    found = compared(tmp_path, old, [measured(times_s=FIVE, sizes=(1024, 2048), day=2)])
    assert [pair.spec["size"] for pair in found.pairs] == [1024]
    whys = {alone.label: alone.why for alone in found.unpaired}
    assert whys["pytorch torch gloo allreduce of 4 KiB 2 nodes"].startswith(
        "not in NEW; the closest differs in size 4096 → "
    )
    assert "pytorch torch mpi allreduce of 4 KiB 2 nodes" in whys and len(found.unpaired) == 3


def test_a_kernel_that_fails_now_is_a_regression(tmp_path: Path) -> None:
    found = compared(tmp_path, [measured(times_s=FIVE)], [measured(times_s=FIVE, status="failed", day=2)])
    assert [pair.verdict for pair in found.pairs] == ["no number"]
    assert "had 0.00372 GB/s, now has no number: rank 1 on nid1" in texts.failure(found)


def test_regression_of_kernels_ends_as_that_of_training(harness: Harness, tmp_path: Path, wording: Wording) -> None:
    saved(tmp_path / "old", measured(times_s=FIVE), measured("cg", times_s=FIVE, sizes=(64,)))
    saved(tmp_path / "same", measured(times_s=FIVE, day=2))
    saved(tmp_path / "slow", measured(times_s=SLOWER, day=2), measured("cg", times_s=SLOWER, sizes=(64,), day=2))
    assert harness("compare", "old", "same").code == 0
    slow = harness("compare", "old", "slow")
    wording("slow").ended(slow, 1)
    assert "img/s" not in slow.stdout and "Gflop/s" in slow.stdout
    assert "slower 0.00372 GB/s 0.0031 GB/s −16.7 %" in " ".join(slow.stdout.split())
    pairs = harness("compare", "old", "slow", "--json").json["pairs"]
    assert {pair["unit"] for pair in pairs} == {"bytes/s", "flop/s"}
    assert all(pair["old"]["rate"] > pair["new"]["rate"] for pair in pairs)


def test_kernels_beside_training_have_a_table_of_their_own(harness: Harness, tmp_path: Path, wording: Wording) -> None:
    for name, times_s, day in (("old", FIVE, 1), ("new", SLOWER, 2)):
        made.save(
            saved(tmp_path / name, measured(times_s=times_s, day=day)), [made.record(img_per_s=[100, 101], day=day)]
        )
    done = harness("compare", "old", "new", "--markdown", "table.md")
    wording("new").ended(done, 1)
    of_training, of_kernels = done.stdout.split("old img/s")[1].split("allreduce", 1)
    assert "inception3" in of_training and "inception3" not in of_kernels.split("\n\n")[0]
    assert (tmp_path / "table.md").read_text().count("| measurement |") == 2


def test_kernels_of_two_systems_or_beside_publications_are_not_matched_by_columns_of_training(
    refused: Harness, tmp_path: Path, wording: Wording
) -> None:
    saved(tmp_path / "old", measured(times_s=FIVE))
    saved(tmp_path / "new", measured(times_s=FIVE, threads=2, day=2))
    for old in ("old", "reference:daint"):
        wording(old).refused(refused("compare", old, "new"))


@pytest.mark.usefixtures("shelf")
def test_a_baseline_keeps_kernels(harness: Harness, tmp_path: Path) -> None:
    saved(tmp_path / "old", measured(times_s=FIVE, sizes=(1024, 4096)), measured(status="failed"))
    saved(tmp_path / "new", measured(times_s=SLOWER, sizes=(1024, 4096), day=2))
    said = harness("baseline", "save", "before", "old").succeeded().stdout
    assert "1 record; 1 without a number left out" in said
    assert "allreduce" in harness("table", "before").succeeded().stdout
    assert harness("compare", "before", "new").code == 1


# --- harness report ---


def test_messages_have_a_curve_for_each_transport_over_their_sizes(tmp_path: Path) -> None:
    sizes = (1024, 4096)
    shown = rows(
        tmp_path, measured(sizes=sizes), measured(sizes=sizes, transport="mpi"), measured(nodes=4, sizes=sizes)
    )
    (figure,) = kernel_figures.of(shown)
    assert figure.name == "kernel-allreduce"
    assert (figure.x.scale, figure.y.scale, figure.y.name) == ("log", "log", "bus GB/s")
    by_name = {series.name: series for series in figure.series}
    assert list(by_name) == [f"pytorch torch {which}" for which in ("gloo, 2 nodes", "gloo, 4 nodes", "mpi, 2 nodes")]
    curve = by_name["pytorch torch gloo, 4 nodes"]
    assert curve.column("x") == sizes and curve.spots[1].y == pytest.approx(1.5 * 4096 / 1.1e-3 / 1e9, rel=1e-3)
    assert all(spot.low < spot.y < spot.high for spot in curve.spots)
    looks = [(series.style.colour, series.style.marker, series.style.dash) for series in figure.series]
    assert len(set(looks)) == 3 and len({colour for colour, _, _ in looks}) == 1, "a backend has one colour"


def test_what_computes_is_shown_over_nodes_if_it_was_measured_on_several(tmp_path: Path) -> None:
    both = [measured("cg", nodes, (8e-3 / nodes,) * 2, (64, 128)) for nodes in (1, 2)]
    shown = rows(tmp_path, *both, measured("matmul", 2, sizes=(64, 128)))
    cg, matmul = kernel_figures.of(shown)
    assert (cg.x.name, matmul.x.name, cg.y.name) == ("nodes", "N", "Gflop/s")
    curves = [series for series in cg.series if series.kind == "curve"]
    assert [series.name.split(", ")[1] for series in curves] == ["N = 64", "N = 128"]
    ideal = [series for series in cg.series if series.kind == "ideal"]
    assert [each.spots[-1].y for each in ideal] == pytest.approx([2 * each.spots[0].y for each in curves])


def test_several_runs_of_one_size_are_one_point_and_one_rank_by_itself_has_none(tmp_path: Path) -> None:
    assert kernel_figures.of(rows(tmp_path / "alone", measured(nodes=1))) == []
    both = rows(tmp_path / "both", measured(times_s=(1e-3,) * 2), measured(times_s=(2e-3,) * 2, day=2))
    (figure,) = kernel_figures.of(both)
    (spot,) = figure.series[0].spots
    assert spot.y == pytest.approx(4096 / 1.1 * 0.75 / 1e-3 / 1e9) and "4 repeats in 2 runs" in spot.hover[3]


def test_a_page_of_kernels_alone_has_one_section(tmp_path: Path) -> None:
    page = assemble.page(rows(tmp_path, measured(), measured(status="failed")), ["runs"], "now")
    (section,) = page.sections
    assert section.name == "kernels" and [figure.name for figure in section.figures] == ["kernel-allreduce"]
    assert page.title == "Kernels on daint:gpu"
    assert [cells[-7] for _, cells in section.tables[0].rows] == ["completed", "failed"]
    ((facets, counts),) = page.runs.items()
    assert (facets.model, facets.data, counts) == (("allreduce",), ("none",), (2, 1))
    json.dumps(document.data(page), allow_nan=False)


def test_kernels_on_a_page_of_training_change_nothing_of_it(tmp_path: Path) -> None:
    made.save(saved(tmp_path, measured()), [made.record(nodes=nodes) for nodes in (1, 2)])
    every = load([tmp_path])
    alone, page = assemble.page(trainings(every), ["runs"], "now"), assemble.page(every, ["runs"], "now")
    assert page.title == alone.title and page.sections[-1].name == "kernels"
    assert str(page.sections[:-1]) == str(alone.sections), "as text, for a NaN is not equal to itself"


def test_report_writes_the_page_and_the_figures_of_kernels(harness: Harness, tmp_path: Path) -> None:
    saved(tmp_path / "runs", measured(sizes=(1024, 4096)))
    done = harness("report", "runs", "-o", "page.html", "--figures", "figures").succeeded()
    assert "page.html: 1 runs in 1 figures" in done.stdout
    drawn = sorted(file.name for file in (tmp_path / "figures").iterdir())
    assert drawn == ["kernel-allreduce.png", "kernel-allreduce.svg"]
    assert "Kernels on daint:gpu" in (tmp_path / "page.html").read_text()


# --- harness results export ---


def test_export_writes_kernels_or_img_per_s_never_both(harness: Harness, tmp_path: Path) -> None:
    made.save(saved(tmp_path / "runs", measured(sizes=(1024, 4096)), measured("cg", sizes=(64,))), [made.record()])
    exported = harness("results", "export", "runs", "--format", "json", "--kernels").json
    assert [(row["kernel"], row["size"]) for row in exported] == [("allreduce", 1024), ("allreduce", 4096), ("cg", 64)]
    assert all("img_per_s" not in row and len(row["values"]) == 3 for row in exported)
    assert exported[2]["bus_bytes_per_s"] is None and exported[0]["spec"]["kernel"] == "allreduce"
    (run,) = harness("results", "export", "runs", "--format", "json").json
    assert "kernel" not in run and run["img_per_s"] > 0
    heading, *lines = (
        harness("results", "export", "runs", "--format", "csv", "--kernels").succeeded().stdout.splitlines()
    )
    assert '"rate"' in heading and len(lines) == 3
    assert (
        "3 rows: k.parquet" in harness("results", "export", "runs", "-o", "k.parquet", "--kernels").succeeded().stdout
    )
    assert list(pandas.read_parquet(tmp_path / "k.parquet")["unit"]) == ["bytes/s", "bytes/s", "flop/s"]
