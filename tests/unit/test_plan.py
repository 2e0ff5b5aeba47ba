"""Launch plans: pure functions of a spec and an allocation, so clusters of any size are planned here."""

import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import models
from harness.core import parts
from harness.core.backend import backend, differing
from harness.core.plan import Allocation, LaunchPlan, Node, complete, launch_plan, with_options
from harness.core.spec import RunSpec
from harness.errors import HarnessError, InvalidInput
from tests.wording import Case, Wording, cases, same_as_golden


def cluster(nodes: int, gpus: int = 0, cores: int = 12) -> Allocation:
    hosts = tuple(Node(f"nid{i:05}", f"10.0.{i // 256}.{i % 256}", tuple(map(str, range(gpus)))) for i in range(nodes))
    return Allocation(hosts, cores_per_node=cores, base_port=20000)


def plan(allocation: Allocation, backend_name: str, options: dict[str, Any] | None = None, **fields: Any) -> LaunchPlan:
    spec = RunSpec.validated(backend=backend_name, options=options or {}, **fields)
    chosen = backend(backend_name)
    full = complete(with_options(spec, chosen), chosen, allocation)
    return launch_plan(full, chosen, chosen.seats(full), allocation, "/env/bin/python", "/scratch/run")


def hosts(launch: LaunchPlan, role: str) -> list[str]:
    return [process.host for process in launch.processes if process.role == role]


def test_parameter_servers_share_the_first_nodes_with_workers() -> None:
    launch = plan(cluster(4), "parameter_server", {"ps": 2}, nodes=4)
    assert hosts(launch, "worker") == ["nid00000", "nid00001", "nid00002", "nid00003"]
    assert hosts(launch, "ps") == ["nid00000", "nid00001"]


def test_dedicated_parameter_servers_get_nodes_of_their_own() -> None:
    launch = plan(cluster(7), "parameter_server", {"ps": 3, "ps_nodes": "dedicated"}, nodes=4)
    assert hosts(launch, "ps") == ["nid00004", "nid00005", "nid00006"]


@pytest.mark.parametrize(
    ("where", "its_hosts"),
    [("shared", ["nid00000", "nid00000", "nid00001"]), ("dedicated", ["nid00002", "nid00002", "nid00003"])],
)
def test_servers_fill_a_node_before_the_next_one(where: str, its_hosts: list[str]) -> None:
    launch = plan(cluster(4), "parameter_server", {"ps": 3, "ps_per_node": 2, "ps_nodes": where}, nodes=2)
    assert hosts(launch, "ps") == its_hosts


@pytest.mark.parametrize("name", ["parameter_server", "distributed_replicated"])
def test_workers_of_a_node_share_its_gpus(name: str) -> None:
    launch = plan(cluster(2, gpus=4), name, {"workers_per_node": 2}, nodes=2, devices_per_node=4)
    workers = [process for process in launch.processes if process.role == "worker"]
    seats = [(worker.host, worker.devices, worker.env["CUDA_VISIBLE_DEVICES"]) for worker in workers]
    assert seats == [(f"nid0000{node}", 2, gpus) for node in range(2) for gpus in ("0,1", "2,3")]
    assert launch.world_size == 4


def test_every_worker_s_gradient_is_an_update_where_each_applies_its_own() -> None:
    chosen = backend("torch_parameter_server")
    options = {"workers_per_node": 2, "sync": "none"}
    spec = RunSpec(backend=chosen.name, nodes=3, devices_per_node=2, warmup_steps=1, steps=9, options=options)
    assert chosen.expected_updates(with_options(spec, chosen)) == 60


def test_a_spec_differs_from_the_usual_one_by_what_was_chosen_whatever_options_there_are() -> None:
    """A new option changes no key: those with their defaults are not in it, also where an old record lacks them."""
    chosen = backend("parameter_server")
    usual = with_options(RunSpec(backend=chosen.name, nodes=8), chosen)
    older = usual.model_copy(update={"options": {"ps": 1, "order": "forward"}})
    chosen_fields = [differing(each.model_dump()) for each in (usual, older)]
    assert chosen_fields == [{"backend": "parameter_server", "nodes": 8, "options": {}}] * 2
    other = with_options(RunSpec(backend=chosen.name, nodes=8, repeats=3, options={"order": "none"}), chosen)
    assert differing(other.model_dump(), ignored={"repeats"}) == chosen_fields[0] | {"options": {"order": "none"}}
    program = {"command": ("train",), "folder": "/", "ps": 0, "mpi": True}
    own = {"backend": "not_installed", "options": {"depth": 2}, "program": program}
    assert differing(own) == own | {"program": {"command": ("train",), "folder": "/", "mpi": True}}


def test_a_plan_names_the_data_format_and_a_spec_has_it_where_it_is_not_the_usual_one() -> None:
    def formats(name: str, device: str, data_format: str = "auto") -> tuple[str | None, object]:
        spec = RunSpec(backend=name, device=device, data_format=data_format)
        full = complete(with_options(spec, backend(name)), backend(name), gpu := cluster(1, gpus=1))
        planned = plan(gpu, name, device=device, data_format=data_format).data_format
        return planned, differing(full.model_dump()).get("data_format")

    assert formats("pytorch", "cpu") == formats("pytorch", "cpu", "nhwc") == ("nhwc", None)
    assert formats("pytorch", "cuda", "nchw") == ("nchw", "nchw")
    assert formats("parameter_server", "cpu") == ("nhwc", None) and formats("caffe2", "cpu") == ("nchw", None)
    assert [formats("horovod", "cuda", each) for each in ("auto", "nhwc")] == [("nchw", None), ("nhwc", "nhwc")]


def test_servers_on_pytorch_are_planned_as_those_on_tensorflow() -> None:
    options = {"ps": 3, "placement": "partitioned"}
    ours, theirs = (
        plan(cluster(4), name, options, nodes=4, model="inception3")
        for name in ("torch_parameter_server", "parameter_server")
    )
    assert theirs.details.pop("asked_after") and "asked_after" not in ours.details
    assert (ours.details, hosts(ours, "ps")) == (theirs.details, hosts(theirs, "ps"))


def test_tensorflows_own_servers_cut_tensors_along_their_first_axis_and_deal_the_parts_in_turn() -> None:
    options = {"ps": 2, "placement": "partitioned"}
    details = plan(cluster(2), "parameter_server_strategy", options, nodes=2, model="inception3").details
    pieces, slice_elements = details["pieces"], 2**20 // 4
    assert details["slice_bytes"] == 2**20
    assert [ps for _, ps, _, _ in pieces] == [number % 2 for number in range(len(pieces))]
    for tensor in models.specification("inception3").tensors:
        row = tensor.elements // tensor.shape[0]
        bounds = [(begin, end) for name, _, begin, end in pieces if name == tensor.name]
        rows = [(end - begin) / row for begin, end in bounds]
        assert [begin for begin, _ in bounds] == [0, *(end for _, end in bounds[:-1])]
        assert sum(rows) == tensor.shape[0]
        assert rows == sorted(map(int, rows), reverse=True) and rows[0] - rows[-1] <= 1
        assert rows[0] == 1 or rows[0] * row <= slice_elements


def test_the_plan_says_which_bytes_each_server_will_hold() -> None:
    launch = plan(cluster(4), "parameter_server", {"ps": 4}, nodes=4, model="inception3")
    held = [server["bytes"] for server in launch.details["servers"]]
    assert sum(held) == pytest.approx(95.3e6, rel=1e-3)
    assert max(held) == pytest.approx(28.6e6, rel=0.02)


def test_one_process_per_gpu_sees_only_its_own() -> None:
    launch = plan(cluster(2, gpus=4), "pytorch", nodes=2, devices_per_node=4)
    seen = [(process.host, process.local_rank, process.env["CUDA_VISIBLE_DEVICES"]) for process in launch.processes]
    assert seen == [(f"nid0000{node}", gpu, str(gpu)) for node in range(2) for gpu in range(4)]


@pytest.mark.parametrize("name", ["parameter_server", "distributed_replicated"])
def test_one_worker_per_node_drives_all_its_gpus(name: str) -> None:
    launch = plan(cluster(2, gpus=4, cores=12), name, nodes=2, devices_per_node=3)
    workers = [process for process in launch.processes if process.role == "worker"]
    assert [(worker.host, worker.devices) for worker in workers] == [("nid00000", 3), ("nid00001", 3)]
    assert {worker.env["CUDA_VISIBLE_DEVICES"] for worker in workers} == {"0,1,2"}
    assert {worker.env["OMP_NUM_THREADS"] for worker in workers} == {"12"}  # of all its devices together
    assert launch.world_size == 2  # processes; the spec counts the devices


def test_only_workers_over_mpi_are_told_how_mpi_reaches_the_hosts() -> None:
    allocation = replace(cluster(2), mpi_env={"FI_PROVIDER": "tcp"})
    over_mpi = plan(allocation, "pytorch", nodes=2, transport="mpi")
    assert over_mpi.mpi and all(process.env["FI_PROVIDER"] == "tcp" for process in over_mpi.processes)
    over_gloo = plan(allocation, "pytorch", nodes=2, transport="gloo")
    assert not over_gloo.mpi and not any("FI_PROVIDER" in process.env for process in over_gloo.processes)


def test_parameter_servers_see_no_gpu() -> None:
    launch = plan(cluster(2, gpus=1), "parameter_server", {"ps": 2}, nodes=2)
    visible = {process.name: process.env["CUDA_VISIBLE_DEVICES"] for process in launch.processes}
    assert visible == {"worker-0": "0", "worker-1": "0", "ps-0": "", "ps-1": ""}


def test_gpus_talk_nccl_and_cpus_gloo_unless_told_otherwise() -> None:
    chosen = backend("pytorch")
    spec = with_options(RunSpec(backend="pytorch"), chosen)
    assert complete(spec, chosen, cluster(1, gpus=1)).transport == "nccl"
    assert complete(spec, chosen, cluster(1)).transport == "gloo"
    assert complete(spec.model_copy(update={"transport": "gloo"}), chosen, cluster(1, gpus=1)).transport == "gloo"


def test_auto_takes_the_gpus_that_are_there() -> None:
    chosen = backend("pytorch")
    spec = with_options(RunSpec(backend="pytorch"), chosen)
    assert complete(spec, chosen, cluster(1, gpus=1)).device == "cuda"
    assert complete(spec, chosen, cluster(1)).device == "cpu"


def test_auto_is_cpu_for_a_backend_that_has_nothing_for_gpus() -> None:
    launch = plan(cluster(2, gpus=4), "caffe2", nodes=2, devices_per_node=2)
    assert {process.env["CUDA_VISIBLE_DEVICES"] for process in launch.processes} == {""}
    assert {process.env["OMP_NUM_THREADS"] for process in launch.processes} == {"6"}
    chosen = backend("caffe2")
    assert complete(with_options(RunSpec(backend="caffe2"), chosen), chosen, cluster(1, gpus=4)).device == "cpu"


def test_no_two_processes_listen_on_the_same_port_and_indices_follow_the_order() -> None:
    launch = plan(cluster(64), "parameter_server", {"ps": 40}, nodes=64)
    assert [process.index for process in launch.processes] == list(range(104))
    assert max(Counter(process.port for process in launch.processes).values()) == 1


def test_workers_of_a_node_share_its_cores() -> None:
    launch = plan(cluster(2, cores=12), "pytorch", nodes=2, devices_per_node=3, device="cpu")
    assert {process.env["OMP_NUM_THREADS"] for process in launch.processes} == {"4"}


def test_a_plan_and_its_making_grow_linearly_up_to_512_nodes_and_116_servers() -> None:
    """How long it takes in all is in test_cli.py."""

    def planned(nodes: int, servers: int) -> tuple[float, LaunchPlan, str]:
        began = time.process_time()
        launch = plan(cluster(nodes), "parameter_server", {"ps": servers}, nodes=nodes, model="inception3")
        return time.process_time() - began, launch, launch.to_json()

    # In turn, as a machine that does other things too is slow for moments; each takes some milliseconds.
    tries = [(planned(512, 116), planned(256, 58)) for _ in range(12)]
    (cpu_s, launch, text), (half_s, _, half) = (
        min(made, key=lambda each: each[0]) for made in zip(*tries, strict=True)
    )
    assert cpu_s < 3 * half_s
    assert len(launch.processes) == 628
    assert len(text) < 2.2 * len(half)
    assert json.loads(text)["world_size"] == 512


def test_a_plan_is_its_golden_text() -> None:
    """What launchers and workers read. A change here changes records: raise the schema's number with it."""
    launch = plan(cluster(2), "parameter_server", {"ps": 1}, nodes=2)
    same_as_golden("parameter_server-n2.json", launch.to_json().replace(str(parts.ROOT), "HARNESS"))


@cases
def test_what_cannot_run_is_refused_in_one_line(case: Case) -> None:
    with case.raises(InvalidInput):
        eval(case.request)


def test_a_copy_without_its_links_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wording: Wording) -> None:
    (tmp_path / "jobs").write_text("../jobs")  # what a zip makes of a link
    (tmp_path / "models").mkdir()
    monkeypatch.setattr(parts, "ROOT", tmp_path)
    for name in parts.PARTS:
        with wording("a copy").raises(HarnessError, PART=tmp_path / name):
            parts.part(name)


def test_every_part_is_there() -> None:
    assert all(parts.part(name).is_dir() for name in parts.PARTS)
