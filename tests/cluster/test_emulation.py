"""Emulated devices in the nodes of the virtual cluster, without Slurm: forked processes, real links."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Harness
from tests.parity.test_emulation import DEVICE, MODEL

from .virtual import VirtualCluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.mark.parametrize("backend", ["parameter_server --ps 2", "torch_parameter_server --transport mpi --ps 2"])
def test_forked_processes_are_in_the_nodes_and_say_what_their_links_are(
    cluster: VirtualCluster, harness: Harness, environment: Callable[..., Path], tmp_path: Path, backend: str
) -> None:
    environment(backend.split()[0])
    (tmp_path / "device.toml").write_text(DEVICE)
    done = harness(
        *("run", "--site", str(cluster.state / "site.toml"), "--backend", *backend.split(), "--nodes", "2"),
        *("--model", MODEL, "--batch-size", "20", "--device", f"emulated:{tmp_path}/device.toml", "--dilation", "10"),
        *("--warmup", "1", "--steps", "3", "--repeats", "1", "--output", str(tmp_path / "runs")),
    )
    assert done.code in (0, 1), done.stderr  # whether this machine kept up is another question
    (run,) = (tmp_path / "runs").iterdir()
    ranks = json.loads((run / "record.json").read_text())["repeats"][0]["ranks"]
    assert [rank["host"] for rank in ranks] == ["node1", "node2"]
    rate = json.loads((cluster.state / "cluster.json").read_text())["link"]["rate"]
    for rank in ranks:
        assert rank["kept"]["forked"]
        assert rank["kept"]["link_bytes_per_s"] == rate / 8
        assert rank["network"]["interfaces"] == ["eth0"]
