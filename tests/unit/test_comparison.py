"""What `run --backend` means, and what `list backends` says of this machine."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.cli import runs
from harness.cli.listing import survey
from harness.core import backend as backends
from harness.core.backend import EVERY, contenders
from harness.errors import InvalidInput
from harness.report.text import outcomes
from harness.running.prepare import Place
from harness.running.request import Outcome
from tests import made
from tests.conftest import Harness
from tests.wording import Case, Wording, cases


def named(text: str, device: str = "cpu") -> list[tuple[str, str | None, str | None]]:
    return [(one["backend"], one.get("framework"), one.get("transport")) for one in contenders(text.split(","), device)]


def test_a_backend_may_come_with_a_framework_and_a_transport_in_any_order() -> None:
    assert named("horovod,horovod:torch,horovod:gloo:torch,pytorch:mpi") == [
        ("horovod", None, None),
        ("horovod", "torch", None),
        ("horovod", "torch", "gloo"),
        ("pytorch", None, "mpi"),
    ]


def test_without_names_every_backend_runs_on_all_its_frameworks_over_all_transports() -> None:
    found = contenders([EVERY], "cpu")
    assert {"backend": "horovod", "framework": "torch", "transport": "gloo"} in found
    trained = {name for name in backends.names() if backends.backend(name).trains}
    assert {one["backend"] for one in found} == trained == set(backends.names()) - {"mpi4py"}
    assert "nccl" not in {one["transport"] for one in found}
    on_gpus = contenders([EVERY], "cuda")
    assert {"backend": "pytorch", "framework": "torch", "transport": "nccl"} in on_gpus
    on_cpus_only = {"caffe2", "parameter_server_strategy", "torch_parameter_server"}
    assert {one["backend"] for one in on_gpus} == trained - on_cpus_only


@cases
def test_what_is_unknown_or_said_twice_is_refused(case: Case) -> None:
    with case.raises(InvalidInput):
        contenders(case.request.split(","), "cpu")


def test_a_backend_that_does_not_train_on_the_device_is_left_out_unless_it_is_named(wording: Wording) -> None:
    with wording("caffe2:mpi").raises(InvalidInput):
        contenders(["pytorch", "caffe2:mpi"], "cuda")


def test_a_comparison_plans_each_contender_at_each_size(harness: Harness) -> None:
    done = harness("run", "--backend", "horovod:torch:gloo,pytorch:mpi", "--nodes", "1,3", "--dry-run")
    assert done.code == 0, done.stderr
    assert done.stdout.count("horovod (torch)") == done.stdout.count("pytorch (torch)") == 2
    assert done.stdout.count(" worker ") == 2 * (1 + 3)


def test_list_backends_says_what_a_backend_lacks_and_how_to_get_it(harness: Harness, tmp_path: object) -> None:
    empty = harness("list", "backends", HARNESS_CACHE=str(tmp_path), PATH="/nowhere")
    assert empty.code == 0, empty.stderr
    line = next(line for line in empty.stdout.splitlines() if "torch       cpu   mpi, gloo" in line)
    assert "lacks g++, make, its environment (`harness env build horovod --framework torch`)" in line
    rows = harness("list", "backends", "--json", HARNESS_CACHE=str(tmp_path), PATH="/nowhere").json
    assert all(row["lacks"] for row in rows)
    assert {row["device"] for row in rows} == {"cpu", "cuda"}
    assert {row["device"] for row in rows if row["backend"] == "caffe2"} == {"cpu"}


def test_a_backend_that_does_not_load_is_listed_with_the_reason_and_harms_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken:
        def load(self) -> object:
            raise ImportError("No module named 'gone'")

    monkeypatch.setattr(
        backends, "_announced", lambda: {"broken": Broken(), "number": type("", (), {"load": lambda _: 1})()}
    )
    found = {row["backend"]: row for row in survey()}
    assert found["broken"]["lacks"] == ("backend 'broken' does not load: ImportError: No module named 'gone'",)
    assert "is announced as 1, which is no harness.core.backend.Backend" in found["number"]["lacks"][0]
    assert found["pytorch"]["framework"] == "torch"
    assert "broken" not in [one.name for one in backends.working()]


def test_all_is_every_backend_that_trains_or_that_has_the_kernel(refused: Harness) -> None:
    shown = refused("run", "--backend", "all", "--device", "cpu", "--force", "--dry-run", "--json").succeeded().json
    assert len(shown["runs"]) == len(contenders([EVERY], "cpu"))
    shown = refused("kernel", "cg", "--backend", "all", "--nodes", "1,2", "--dry-run", "--json").succeeded().json
    having = {name for name in backends.names() if "cg" in backends.backend(name).kernels}
    assert {run["spec"]["backend"] for run in shown["runs"]} == having
    assert {run["spec"]["nodes"] for run in shown["runs"]} == {1, 2}


@pytest.mark.parametrize("command", [["ab", "--b", "seed=2"], ["train", "--data", "."]])
def test_what_takes_one_backend_refuses_several(refused: Harness, command: list[str], wording: Wording) -> None:
    wording("all").refused(refused(*command, "--backend", "all", "--dry-run"))


def test_one_record_is_an_object_several_are_a_list_or_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    records = [made.record(nodes=nodes, img_per_s=[100.0 * nodes, 101.0 * nodes]) for nodes in (1, 2)]
    files = [SimpleNamespace(record_file=tmp_path / record.id / "record.json") for record in records]

    def printed(count: int, as_json: bool) -> str:
        monkeypatch.setattr(runs, "carried_out", lambda *arguments: Outcome(files[:count], records[:count]))  # type: ignore[arg-type]
        runs.measure([], Place(output=tmp_path), {"as_json": as_json}, outcomes.summary, outcomes.comparison)
        return capsys.readouterr().out

    assert json.loads(printed(1, True))["id"] == records[0].id
    assert [document["id"] for document in json.loads(printed(2, True))] == [record.id for record in records]
    assert printed(1, False).endswith("total images/sec: 100.50\n")
    assert printed(2, False).endswith(f"records: {tmp_path}/*/record.json\n")
