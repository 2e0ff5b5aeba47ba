"""An experiment on the virtual cluster, as people type it, with fewer points and steps than the real one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from harness.records.measurement import Record
from tests.scripts import script

from .submitted import SITE
from .virtual import VirtualCluster

pytestmark = pytest.mark.cluster
HEAD = """
[common]
model = "pointwise"
image-size = 32
batch-size = 1
threads = 1
warmup = 1
steps = 3
repeats = 2
timeout = 200
"""
POINTS = HEAD + '[[matrix]]\nbackend = "parameter_server"\nnodes = [1, 2]\n[[matrix]]\nbackend = "pytorch"\nnodes = 2\n'


@pytest.mark.alone
@pytest.mark.slow
def test_two_points_are_measured_and_explained(cluster: VirtualCluster, tmp_path: Path) -> None:
    """One parameter server for two nodes: the law with a fitted throughput, from real runs to the page."""
    site, study = tmp_path / "site.toml", tmp_path / "tiny.toml"
    site.write_text(SITE.format(scheduler="squeue"))
    study.write_text(POINTS)
    cluster.rate("200mbit")
    try:
        runs = [sys.executable, "-m", "harness", "study", "run", str(study), "--site", str(site)]
        cluster.run(*runs, "--output", str(tmp_path / "runs"), timeout=600).succeeded()
    finally:
        cluster.rate("1gbit")
    folder = tmp_path / "runs" / "tiny"
    script("studies/ps-bottleneck/analyse.py").main([str(folder), "-o", str(tmp_path / "page")])
    analysis = json.loads((tmp_path / "page" / "analysis.json").read_text())
    (fitted,) = [one for one in analysis["points"] if one["contender"] == "parameter_server" and one["nodes"] == 2]
    records = [Record.read(path) for path in folder.glob("*/record.json")]
    assert len(records) == len(analysis["points"]) == 3
    assert fitted["fullest_server_bytes"] == 12_169_124 and fitted["fitted"]
    assert fitted["predicted_s"] == pytest.approx(fitted["measured_s"], rel=1e-3)
    # 200 Mbit/s are 25 MB/s, headers included; the directions take turns, else this were half of that.
    assert 18e6 < analysis["throughput_bytes_per_s"]["grpc"] < 26e6
    assert "Not measured: " in (tmp_path / "page" / "index.md").read_text()
