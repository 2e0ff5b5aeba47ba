"""What `measure --backends` means, and what `list backends` says of this machine."""

from __future__ import annotations

import pytest

from harness.cli.listing import survey
from harness.core import backend as backends
from harness.core.backend import contenders
from harness.errors import InvalidInput
from tests.conftest import Harness
from tests.wording import Case, cases


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
    found = contenders(None, "cpu")
    assert {"backend": "horovod", "framework": "torch", "transport": "gloo"} in found
    trained = {name for name in backends.names() if backends.backend(name).trains}
    assert {one["backend"] for one in found} == trained == set(backends.names()) - {"mpi4py"}
    assert "nccl" not in {one["transport"] for one in found}
    on_gpus = contenders(None, "cuda")
    assert {"backend": "pytorch", "framework": "torch", "transport": "nccl"} in on_gpus
    on_cpus_only = {"caffe2", "parameter_server_strategy", "torch_parameter_server"}
    assert {one["backend"] for one in on_gpus} == trained - on_cpus_only


@cases
def test_what_is_unknown_or_said_twice_is_refused(case: Case) -> None:
    with case.raises(InvalidInput):
        contenders(case.request.split(","), "cpu")


def test_a_backend_that_does_not_train_on_the_device_is_left_out_unless_it_is_named() -> None:
    with pytest.raises(InvalidInput) as refused:
        contenders(["pytorch", "caffe2:mpi"], "cuda")
    assert str(refused.value) == "--backends caffe2:mpi: the device is cuda, and caffe2 trains on cpu only"


def test_a_comparison_plans_each_contender_at_each_size(harness: Harness) -> None:
    done = harness("measure", "--backends", "horovod:torch:gloo,pytorch:mpi", "--nodes", "1,3", "--dry-run")
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
