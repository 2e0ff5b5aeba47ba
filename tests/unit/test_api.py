"""harness from Python."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas
import pytest

import harness
from harness import api
from harness.errors import InvalidInput, RunFailed
from harness.records import launch, measurement
from tests import made
from tests.wording import Case, Wording, cases

ROOT = Path(__file__).parents[2]
TINY = {"model": "mnist_cnn", "batch_size": 2, "warmup_steps": 1, "steps": 2, "repeats": 2, "threads": 1}


def test_the_face_has_every_function_and_loads_nothing_before_it_is_used() -> None:
    functions = ("ab", "compare", "kernel", "load", "load_kernels", "plan", "predict", "run", "verdict")
    assert [getattr(harness, name) for name in functions] == [getattr(api, name) for name in functions]
    program = "import harness, sys; print('pandas' in sys.modules, 'harness.api' in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == ["False", "False"]
    with pytest.raises(AttributeError, match="fly"):
        _ = harness.fly


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(harness.__file__).parent / "py.typed").exists()


def test_a_run_is_a_row_per_repeat_with_the_path_of_its_record(
    tmp_path: Path, environment: Callable[..., Path]
) -> None:
    environment("pytorch")
    frame = harness.run(["pytorch:gloo", "pytorch:mpi"], nodes=[1, 2], output=tmp_path, **TINY | {"repeats": 1})
    measured = [*zip(frame["nodes"], frame["transport"], frame["repeat"], strict=True)]
    assert measured == [(1, "gloo", 1), (2, "gloo", 1), (1, "mpi", 1), (2, "mpi", 1)]
    for path, rows in frame.groupby("record"):
        record = measurement.Record.read(Path(path))
        assert record.derived
        assert tuple(rows["img_per_s"]) == record.derived.img_per_s.values
        assert set(rows["workers"]) == {record.spec.workers}


def test_a_kernel_is_a_row_per_size_and_its_results_are_read_again(
    tmp_path: Path, environment: Callable[..., Path]
) -> None:
    environment("mpi4py")
    fields = {"warmup_steps": 1, "steps": 2, "repeats": 2, "threads": 1}
    frame = harness.kernel("allreduce", "mpi4py", nodes=2, sizes=[4096, 1024], output=tmp_path, **fields)
    assert list(frame["size"]) == [1024, 4096] and (frame["rate"] > 0).all() and set(frame["unit"]) == {"bytes/s"}
    pandas.testing.assert_frame_equal(harness.load_kernels(tmp_path), frame)
    assert harness.load(tmp_path, status=None).empty


@cases
def test_two_sides_that_make_no_comparison_are_refused(tmp_path: Path, case: Case) -> None:
    with case.raises(InvalidInput):
        harness.ab(output=tmp_path / "runs", **eval(f"dict({case.request})"))
    assert not (tmp_path / "runs").exists()


def test_two_sides_of_a_program_are_a_row(tmp_path: Path) -> None:
    """Those of a backend and of kernels are compared in tests/unit/test_ab.py."""
    command = ["sh", "-c", "echo img/s: $(( $SPEED + 0x$(od -An -N1 -tx1 /dev/urandom | tr -d ' ') % 4 ))"]
    sides = {"a": "var:SPEED=100", "b": "var:SPEED=200"}
    frame = harness.ab(command=command, pattern="img/s: ([0-9.]+)", output=tmp_path, repeats=3, **sides)
    (row,) = frame.to_dict("records")
    assert (row["size"], row["answer"], row["slower"]) == (0, "B is faster", False)
    assert 0.5 < row["low"] < row["change"] < row["high"]
    measured = launch.LaunchRecord.read(row["b_record"]).img_per_s
    assert measured and row["b"] == pytest.approx(measured.mean, rel=1e-3) and row["b"] >= 200


def test_a_run_without_a_number_raises_and_keeps_its_record(tmp_path: Path, environment: Callable[..., Path]) -> None:
    environment("pytorch")
    with pytest.raises(RunFailed, match=str(tmp_path)):
        harness.run("pytorch", output=tmp_path, timeout_s=0.5, **TINY)
    (record,) = tmp_path.glob("*/record.json")
    assert measurement.Record.read(record).status == "failed"


@cases
def test_a_wrong_request_is_one_line_before_anything_is_begun(tmp_path: Path, case: Case) -> None:
    with case.raises(InvalidInput):
        harness.run("pytorch", output=tmp_path / "runs", **eval(f"dict({case.request})"))
    assert not (tmp_path / "runs").exists()


def test_a_plan_is_that_of_a_dry_run() -> None:
    plan = harness.plan("parameter_server", nodes=8, ps=3, site="daint", model="inception3")
    assert [process.role for process in plan.processes].count("ps") == 3
    assert plan.world_size == 8


def test_results_are_loaded_and_judged(tmp_path: Path, wording: Wording) -> None:
    frame = harness.load("reference:daint")
    assert {"workers", "img_per_s"} <= set(frame.columns)
    verdict = harness.verdict("reference:daint")
    assert verdict.answer == "cannot say"
    shown = verdict._repr_html_()
    assert shown.startswith("<pre>Undecided on Piz Daint") and "against the best parameter servers" in shown
    for read in (harness.load, harness.load_kernels, harness.verdict):
        with wording("an empty folder").raises(InvalidInput, HERE=tmp_path):
            read(tmp_path)
    made.save(tmp_path, [made.record(status="failed")])
    assert harness.load(tmp_path).empty and harness.load_kernels(tmp_path).empty


def test_a_comparison_is_a_row_per_pair(tmp_path: Path) -> None:
    for side, figures in (("old", [100.0, 101.0, 99.0]), ("new", [80.0, 81.0, 79.0])):
        made.save(tmp_path / side, [made.record(img_per_s=figures)])
    frame = harness.compare(tmp_path / "old", tmp_path / "new")
    assert list(frame["verdict"]) == ["slower"]
    assert frame["low"][0] < frame["change"][0] < frame["high"][0] < 0


def test_a_prediction_is_a_row_per_size() -> None:
    frame = harness.predict("parameter_server", nodes=[1, 128], ps=116, site="daint", model="inception3")
    assert list(frame["nodes"]) == [128]  # 116 servers have no place on one node
    best = harness.predict("parameter_server", nodes=[8, 64], site="daint", model="inception3")
    assert list(best["nodes"]) == [8, 64]
    assert (best["low"] < best["img_per_s"]).all() and (best["img_per_s"] < best["high"]).all()
    little = harness.predict("horovod", nodes=8, single=220.0, network=9.5e9)
    assert little["img_per_s"][0] > 220.0


@cases
def test_what_cannot_be_predicted_is_refused_as_on_the_command_line(case: Case) -> None:
    with case.raises(InvalidInput):
        eval(f"harness.predict({case.request}, single=220.0, network=9.5e9)")


@cases
def test_a_function_refuses_values_that_are_wrong_for_it(tmp_path: Path, case: Case) -> None:
    made.save(tmp_path, [made.record(img_per_s=[100.0, 101.0, 99.0])])
    with case.raises(InvalidInput):
        eval(f"harness.{case.request}", {"harness": harness, "runs": tmp_path})


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: Callable[..., Path]) -> None:
    environment("pytorch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")  # other tests run beside this one
    notebook = json.loads((ROOT / "examples" / "harness.ipynb").read_text())
    names: dict[str, object] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert len(names["measured"]) == 6  # type: ignore[arg-type]
    shown = [cell for cell in notebook["cells"] if cell["cell_type"] == "code" and cell["source"][-1][:7] != "import "]
    assert all(cell["outputs"] for cell in shown)  # for who reads it without executing it
