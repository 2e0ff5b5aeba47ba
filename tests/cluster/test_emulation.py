"""Emulated devices in the nodes of the virtual cluster, without Slurm: forked processes, real links."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.core.emulation import KEPT_UP
from tests.conftest import Harness
from tests.made import content
from tests.parity.test_emulation import DEVICE, MODEL

from .virtual import VirtualCluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
# Links of so many Mbit/s, and how. Undilated, a slow machine is seldom in time for the device: it has twice that or more.
DILATED, SCALED = ["100", "--dilation", "2"], ["25", "--dilation", "2", "--bytes-scale", "0.25"]
MORE_DILATED = ["50", "--dilation", "4"]


@pytest.mark.parametrize("backend", ["parameter_server --ps 2", "torch_parameter_server --transport mpi --ps 2"])
def test_forked_processes_are_in_the_nodes_and_say_what_their_links_are(
    cluster: VirtualCluster, harness: Harness, environment: Callable[..., Path], tmp_path: Path, backend: str
) -> None:
    environment(backend.split()[0])
    (tmp_path / "device.toml").write_text(DEVICE)
    done = harness(
        *("run", "--site", str(cluster.state / "site.toml"), "--backend", *backend.split(), "--nodes", "2"),
        *("--model", MODEL, "--batch-size", "20", "--device", f"emulated:{tmp_path}/device.toml", "--dilation", "10"),
        *("--warmup", "1", "--steps", "4", "--repeats", "1", "--output", str(tmp_path / "runs")),
    )
    assert done.code in (0, 1), done.stderr  # whether this machine kept up is another question
    (run,) = (tmp_path / "runs").iterdir()
    ranks = content(run / "record.json")["repeats"][0]["ranks"]
    assert [rank["host"] for rank in ranks] == ["node1", "node2"]
    rate = json.loads((cluster.state / "cluster.json").read_text())["link"]["rate"]
    for rank in ranks:
        assert rank["kept"]["forked"]
        assert rank["kept"]["link_bytes_per_s"] == rate / 8
        assert rank["network"]["interfaces"] == ["eth0"]


@pytest.mark.alone
@pytest.mark.parametrize(
    "ways",
    [[DILATED], pytest.param([DILATED, MORE_DILATED, SCALED], marks=pytest.mark.exhaustive)],
    ids=["dilated", "dilated and scaled"],
)
def test_an_emulated_step_is_as_long_as_the_real_one_whatever_the_dilation_and_the_bytes(
    cluster: VirtualCluster, harness: Harness, environment: Callable[..., Path], tmp_path: Path, ways: list[list[str]]
) -> None:
    """Where the network bounds a step, so that two nodes on a few cores do not lengthen each other's computing."""
    environment("pytorch")
    device = f"emulated:{tmp_path}/device.toml"
    small = ("--backend", "pytorch", "--model", "resnet50", "--batch-size", "4", "--image-size", "64", "--threads", "1")
    harness("run", *small, "--warmup", "2", "--steps", "5", "--output", str(tmp_path / "alone")).succeeded()
    (alone,) = (tmp_path / "alone").glob("*/record.json")
    step = f'img_per_s = {content(alone)["derived"]["img_per_s"]["mean"]}\nbatch_size = 4\nimage_size = 64\nsource = "here"'
    (tmp_path / "device.toml").write_text(f'description = "this machine"\nforward_share = 0.37\n[resnet50]\n{step}\n')

    def img_per_s(megabits: str, *how: str) -> float:
        cluster.rate(f"{megabits}mbit")
        counted = ("--nodes", "2", "--warmup", "1", "--steps", "4", "--repeats", "1", *how)
        return first_that_counts(harness, cluster, tmp_path / f"runs-{megabits}-{len(how)}", *small, *counted)

    real = img_per_s("200")
    first, *others = [img_per_s(megabits, "--device", device, *how) for megabits, *how in ways]
    assert first == pytest.approx(real, rel=0.05)
    assert others == pytest.approx([first] * len(others), rel=0.03)


@pytest.mark.alone
@pytest.mark.parametrize("order", ["none", "forward"])
def test_pytorchs_servers_take_as_long_as_tensorflows_where_the_network_binds(
    cluster: VirtualCluster, harness: Harness, environment: Callable[..., Path], tmp_path: Path, order: str
) -> None:
    """Two servers on four nodes with 0.125 GB/s, of the device's time: 2.5 s. Servers that go on alone, or have too little
    room for gradients, take 5 to 12 % longer here.
    """
    cluster.rate("62.5mbit", "--dilation", "4", "--bytes-scale", "0.25")
    scaled = ("--model", "inception3", "--device", "emulated:p100", "--dilation", "4", "--bytes-scale", "0.25")
    counted = ("--nodes", "4", "--ps", "2", "--order", order, "--warmup", "1", "--steps", "7", "--repeats", "1")
    rates = {}
    for backend in ("torch_parameter_server", "parameter_server"):
        environment(backend)
        what = ("--backend", backend, *counted, *scaled)
        rates[backend] = first_that_counts(harness, cluster, tmp_path / backend, *what)
    assert rates["torch_parameter_server"] == pytest.approx(rates["parameter_server"], rel=0.05)


def first_that_counts(harness: Harness, cluster: VirtualCluster, folder: Path, *arguments: str) -> float:
    """The img/s of the first run that does: a machine shared with others is late for an emulated device now and then."""
    for attempt in range(15):
        runs = folder / str(attempt)
        done = harness("run", "--site", str(cluster.state / "site.toml"), "--output", str(runs), *arguments)
        if not any(check in done.stderr for check in KEPT_UP):
            break
    done.succeeded()
    (record,) = runs.glob("*/record.json")
    return float(json.loads(record.read_text())["derived"]["img_per_s"]["mean"])
