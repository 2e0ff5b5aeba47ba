"""GPUs as nvidia-smi describes them, and what is made of that: names for a plan, facts for a record, a run that is marked.

There is no GPU where these tests run. What nvidia-smi prints is written by hand after NVIDIA's documents: `nvidia-smi
--help-query-gpu`, the MIG user guide (`nvidia-smi -L`), and the description of `nvidia-smi topo -m`.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.regression import compare
from harness.core import backend as backends
from harness.core.plan import complete, launch_plan, with_options
from harness.core.spec import RunSpec
from harness.errors import InvalidInput
from harness.launch import local
from harness.records import measurement
from harness.records.measurement import Record
from harness.records.record import seen_by
from harness.report.text import kernels, outcomes, regression
from harness.report.text import runs as of_runs
from harness.report.text.table import text as text_of
from harness.results import load
from harness.results.result import of_kernel
from harness.running.prepare import Place
from harness.worker import gpus, machine
from tests import made
from tests.conftest import ROOT
from tests.unit import test_kernel_results, test_training
from tests.wording import Case, Wording, cases

H100 = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
SECOND = "GPU-d0a4f1c2-5a7b-4c5e-9d1e-0a1b2c3d4e5f"
MIGS = ["MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", "MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb"]
WHOLE = f"""\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: {H100})
GPU 1: NVIDIA H100 80GB HBM3 (UUID: {SECOND})
"""
DIVIDED = f"""\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: {H100})
  MIG 3g.40gb     Device  0: (UUID: {MIGS[0]})
  MIG 3g.40gb     Device  1: (UUID: {MIGS[1]})
GPU 1: NVIDIA H100 80GB HBM3 (UUID: {SECOND})
"""
SETTINGS = (
    f"NVIDIA H100 80GB HBM3, 550.54.15, 81559 MiB, {H100}, 00000000:19:00.0, Enabled, Enabled, Disabled, Default, "
    "700.00 W, 700.00 W, 1980 MHz, 2619 MHz\n"
)
TOPOLOGY = """\
\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV18\tPIX\t0-51\t0\t\tN/A
GPU1\tNV18\t X \tSYS\t52-103\t1\t\tN/A

Legend:
  NV#  = Connection traversing a bonded set of # NVLinks
"""
# Clocks in MHz, °C, W, reasons: idle, at the power limit (usual), and slowed down because it is too hot.
SAMPLES = [
    "345, 2619, 31, 71.02, 0x0000000000000001\n",
    "1755, 2619, 62, 698.71, 0x0000000000000004\n",
    "1200, 2619, 88, 520.40, 0x0000000000000048\n",
]


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with what a program called nvidia-smi, the first on PATH, prints; with a file ``old`` as in 2019."""
    printed = {"listing": WHOLE, "settings": SETTINGS, "topology": TOPOLOGY, "samples": "".join(SAMPLES)}
    for name, text in printed.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "bin").mkdir()
    shutil.copy(ROOT / "tests/programs/nvidia-smi", tmp_path / "bin")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    local._listed_gpus.cache_clear()
    machine.describe.cache_clear()
    yield tmp_path
    local._listed_gpus.cache_clear()
    machine.describe.cache_clear()


def planned(nodes: int, devices_per_node: int, transport: str | None = None) -> list[tuple[str, str]]:
    """Each worker's node and the GPUs that it sees."""
    chosen = backends.backend("pytorch")
    usual = {"nodes": nodes, "devices_per_node": devices_per_node, "device": "cuda"}
    wanted = RunSpec(backend="pytorch", transport=transport, **usual)
    allocation = local.allocation(nodes, nodes * devices_per_node, port=None)
    spec = complete(with_options(wanted, chosen), chosen, allocation)
    plan = launch_plan(spec, chosen, chosen.seats(spec), allocation, "python", "run")
    return [(process.host, process.env["CUDA_VISIBLE_DEVICES"]) for process in plan.processes]


@pytest.mark.parametrize(
    ("listing", "names"),
    [(WHOLE, [H100, SECOND]), (DIVIDED, [*MIGS, SECOND]), ("No devices were found\n", []), ("", [])],
)
def test_gpus_have_the_names_that_cuda_accepts_and_mig_instances_replace_theirs(listing: str, names: list[str]) -> None:
    assert gpus.devices(listing) == names


def test_a_gpu_whose_inforom_is_corrupted_is_there(smi: Path) -> None:
    (smi / "listing").write_text(f"{WHOLE}WARNING: infoROM is corrupted at gpu 0000:19:00.0\n")
    assert gpus.ask("-L") == WHOLE and local.local_gpus() == [H100, SECOND]
    assert gpus.ask("--no-such-option") == ""


def test_two_nodes_on_one_machine_share_its_gpus(smi: Path) -> None:
    assert planned(nodes=2, devices_per_node=1) == [("node0", H100), ("node1", SECOND)]
    assert planned(nodes=1, devices_per_node=2) == [("node0", H100), ("node0", SECOND)]


def test_mig_instances_are_planned_as_devices_of_their_own(smi: Path, wording: Wording) -> None:
    (smi / "listing").write_text(DIVIDED)
    assert planned(nodes=1, devices_per_node=3, transport="gloo") == [("node0", name) for name in (*MIGS, SECOND)]
    assert planned(nodes=3, devices_per_node=1, transport="gloo") == [
        (f"node{number}", name) for number, name in enumerate((*MIGS, SECOND))
    ]
    with wording("nccl").raises(InvalidInput):
        planned(nodes=3, devices_per_node=1)


def test_a_process_that_drives_several_gpus_gets_no_mig_instances_of_which_cuda_gives_it_one(
    smi: Path, wording: Wording
) -> None:
    two = {"devices_per_node": 2, "device": "cuda"}
    planned = Place(dry_run=True).prepare(RunSpec(backend="distributed_replicated", **two)).plan
    assert [process.env["CUDA_VISIBLE_DEVICES"] for process in planned.processes if process.role == "worker"] == [
        f"{H100},{SECOND}"
    ]
    (smi / "listing").write_text(DIVIDED)
    local._listed_gpus.cache_clear()
    with wording("distributed_replicated").raises(InvalidInput):
        Place(dry_run=True).prepare(RunSpec(backend="distributed_replicated", **two))


def test_two_processes_share_a_gpu_that_is_named_twice_but_not_over_nccl(
    monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"{H100},{H100}")
    assert planned(nodes=2, devices_per_node=1, transport="gloo") == [("node0", H100), ("node1", H100)]
    with wording("nccl").raises(InvalidInput):
        planned(nodes=2, devices_per_node=1)


def test_horovod_sends_by_nccl_what_is_on_gpus_unless_the_user_brings_another_one(
    monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    wanted = RunSpec(backend="horovod", nodes=2, device="cuda", transport="mpi")
    with wording("horovod").raises(InvalidInput):
        Place(dry_run=True).prepare(wanted)
    assert Place(dry_run=True, environment=Path(sys.executable)).prepare(wanted).spec.transport == "mpi"


def test_what_has_gpus_takes_no_processors_because_they_are_too_few(
    monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with wording("caffe2").raises(InvalidInput):
        Place(dry_run=True).prepare(RunSpec(backend="pytorch", nodes=2))
    assert Place(dry_run=True).prepare(RunSpec(backend="caffe2", nodes=2)).spec.device == "cpu"


def test_the_record_says_how_gpus_are_set_and_linked(smi: Path) -> None:
    described = machine.describe()
    (gpu,) = described["gpus"]
    assert (gpu["name"], gpu["driver"], gpu["memory"]) == ("NVIDIA H100 80GB HBM3", "550.54.15", "81559 MiB")
    assert (gpu["uuid"], gpu["persistence"], gpu["ecc"], gpu["mig"]) == (H100, "Enabled", "Enabled", "Disabled")
    assert (gpu["compute_mode"], gpu["power_limit"], gpu["highest_sm_clock"]) == ("Default", "700.00 W", "1980 MHz")
    assert described["gpu_topology"][0].startswith("GPU0\tGPU1") and described["gpu_topology"][1].startswith(
        "GPU0\t X \tNV18"
    )


def test_a_gpu_that_has_fallen_off_the_bus_is_lost_and_has_no_name(smi: Path) -> None:
    error = "Unable to determine the device handle for GPU 0000:18:00.0: Unknown Error"
    (smi / "settings").write_text(f"{error}\n{SETTINGS}")
    lost, gpu = gpus.describe()
    assert lost == {"lost": error} and gpu["name"] == "NVIDIA H100 80GB HBM3"


def test_a_driver_that_does_not_know_a_setting_still_tells_the_rest(smi: Path) -> None:
    (smi / "old").touch()
    assert gpus.describe() == [{"name": "Tesla P100-PCIE-16GB", "driver": "440.33.01", "memory": "16280 MiB"}]


def test_without_a_driver_there_is_nothing_to_tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(gpus, "DRIVER", tmp_path)
    assert gpus.describe() == [] and gpus.topology() == []
    watch = gpus.GpuWatch("0")
    watch.begin()
    assert watch.end() == {}


def test_without_nvidia_smi_the_driver_names_its_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(gpus, "DRIVER", tmp_path)
    (tmp_path / "gpus/0000:19:00.0").mkdir(parents=True)
    (tmp_path / "gpus/0000:19:00.0/information").write_text("Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 18\n")
    assert gpus.describe() == [{"name": "NVIDIA H100 80GB HBM3", "bus": "0000:19:00.0"}]


def test_the_power_limit_is_usual_and_heat_is_a_slowdown() -> None:
    seen = gpus.summary([*SAMPLES, "1755, 2619, 62, 69"])  # the last line was cut off
    assert seen["sm_mhz"] == [345, 1200, 1755] and seen["celsius"] == [31, 62, 88] and seen["watts"][2] == 698.71
    assert seen["samples"] == 3 and seen["power_capped"] == 1
    assert seen["slowed"] == {"hardware slowdown": 1, "hardware thermal slowdown": 1}
    assert gpus.summary(SAMPLES[:2])["slowed"] == {}
    assert "watts" not in gpus.summary(["345, 2619, 31, [N/A], 0x0000000000000000\n"])
    assert gpus.summary(["Field is not a valid field to query.\n"]) == {}
    untold = gpus.summary(["1755, 2619, 62, 69.5, [Not Supported]\n"])
    assert untold["watts"] == [69.5, 69.5, 69.5] and not {"slowed", "power_capped"} & untold.keys()


@pytest.mark.parametrize("old", [False, True])
def test_a_watch_sees_what_nvidia_smi_prints_until_it_is_ended(smi: Path, old: bool) -> None:
    if old:
        (smi / "old").touch()
    watch = gpus.GpuWatch(H100)
    watch.begin()
    deadline = time.monotonic() + 10
    while len(watch._lines) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert watch.end()["gpu"]["samples"] == 3
    (asked,) = [line for line in (smi / "asked").read_text().splitlines() if "--loop-ms" in line]
    assert f"--id={H100}" in asked and ("throttle" in asked) == old


def test_nobody_watches_for_a_process_that_was_killed(smi: Path) -> None:
    code = (
        "import os, signal; from harness.worker.gpus import GpuWatch; watch = GpuWatch('0'); watch.begin(); "
        "print(watch._process.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    watching = Path("/proc", done.stdout.strip())
    deadline = time.monotonic() + 10
    while watching.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not watching.exists()


def test_mig_instances_which_have_no_clocks_of_their_own_are_not_watched(smi: Path) -> None:
    watch = gpus.GpuWatch(MIGS[0])
    watch.begin()
    assert watch.end() == {} and not (smi / "asked").exists()


def throttled(**fields: Any) -> Record:
    """A run whose first GPU was slowed down in its second repeat."""
    record = made.record("pytorch", **fields)
    record.repeats[1].ranks[0].evidence["gpu"] = gpus.summary(SAMPLES)
    seen = measurement.window_seen_by(record.spec, record.repeats)
    return record.model_copy(update={"derived": measurement.derive(record.spec, record.repeats), "seen": seen})


def test_a_run_that_was_slowed_down_is_marked() -> None:
    assert "THROTTLED" not in outcomes.summary(made.record("pytorch"), "record.json")
    said = outcomes.summary(throttled(), "record.json")
    assert "clocks     345 to 1755 MHz" in said
    assert "THROTTLED  rank 0 in repeat 2: hardware thermal slowdown in 1 of 3 samples" in said


def test_trainings_and_kernels_that_were_slowed_down_are_marked() -> None:
    trained = test_training.record(test_training.spec(), [test_training.epoch(number, 0.5) for number in (1, 2, 3)])
    trained.ranks[1].evidence["gpu"] = gpus.summary(SAMPLES)
    said = outcomes.training(trained, Path("training.json"))
    assert "THROTTLED   rank 1: hardware thermal slowdown in 1 of 3 samples" in said
    of = test_kernel_results.measured()
    of.repeats[0].ranks[1].evidence["gpu"] = gpus.summary(SAMPLES)
    said = kernels.kernel(of, Path("kernel.json"))
    assert "THROTTLED  rank 1 in repeat 1: hardware slowdown in 1 of 3 samples" in said
    again = of.model_copy(update={"seen": seen_by([rank for repeat in of.repeats for rank in repeat.ranks])})
    (result,) = of_kernel(again, "kernel.json")
    assert result.environment["machine gpu throttled by"] == "hardware slowdown, hardware thermal slowdown"


def test_results_say_which_run_was_slowed_down_and_a_regression_that_this_may_be_why(tmp_path: Path) -> None:
    usual = made.save(tmp_path / "usual", [made.record("pytorch")])
    hot = made.save(tmp_path / "hot", [throttled(img_per_s=(80.0, 81.0, 79.0))])
    lines = text_of(of_runs.table_of_runs(load([usual]))).splitlines()
    assert not [line for line in lines if "THROTTLED" in line]
    (marked,) = [line for line in text_of(of_runs.table_of_runs(load([usual, hot]))).splitlines() if "hardware" in line]
    assert marked.startswith("pytorch") and "80.00" in marked
    assert marked.endswith("hardware slowdown, hardware thermal slowdown")
    compared = compare(load([usual]), load([hot]))
    assert [pair.verdict for pair in compared.pairs] == ["slower"]
    said = regression.markdown(compared, "usual", "hot")
    assert "machine gpu throttled by none → hardware slowdown, hardware thermal slowdown" in said


@cases
def test_a_graph_is_refused_where_none_can_be(monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    chosen = backends.backend("pytorch")
    usual = {"device": "cuda", "warmup_steps": 12} | eval(f"dict({case.request})")
    options = {"cuda_graphs": True, **usual.pop("options", {})}
    spec = with_options(RunSpec(backend="pytorch", options=options, **usual), chosen)
    with case.raises(InvalidInput):
        complete(spec, chosen, local.allocation(1, 1, port=None))
