"""``harness train`` on the real Slurm: submitted, asked about, collected."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT

from .submitted import User, nothing_is_left
from .virtual import VirtualCluster


@pytest.mark.slow
@pytest.mark.cluster
def test_a_training_is_a_job_whose_epochs_are_seen_and_whose_record_anybody_collects(
    cluster: VirtualCluster, tmp_path: Path, environment: Callable[..., Path]
) -> None:
    environment("pytorch")
    user = User(cluster, tmp_path)
    cluster.settle()  # so that the job gets the first nodes
    subprocess.run([sys.executable, str(ROOT / "examples" / "digits.py"), str(tmp_path / "digits")], check=True)
    what = ["--backend", "pytorch", "--nodes", "2", "--data", str(tmp_path / "digits"), "--model", "mnist_cnn"]
    how = ["--batch-size", "16", "--epochs", "1", "--threads", "1"]

    user.harness("train", *what, *how, "--until", "top1=0.999", "--no-wait", "--time-limit", "10m").succeeded()
    (folder,) = [path.parent for path in user.output.glob("*/submission.json")]
    assert "#SBATCH --time=0-00:10:00" in (folder / "job-1.sh").read_text()
    collected = user.harness("jobs", "collect", "--wait", str(folder))
    record = json.loads((folder / "training.json").read_text())
    assert (record["status"], len(record["epochs"]), record["nodes"]) == ("completed", 1, ["node1", "node2"])
    assert record["job"] and record["site"]
    # What was wanted was not reached, and whoever collects hears of it.
    assert collected.code == 1 and "not 0.999 in 1 epoch" in collected.stderr
    (told,) = user.harness("jobs", "status", "--json", str(folder)).succeeded().json
    assert (told["state"], told["epochs"], told["of"]) == ("recorded", 1, 1)

    resumed = user.harness("train", *what, *how, "--epochs", "2", "--resume", str(folder), "--json").succeeded().json
    assert [epoch["epoch"] for epoch in resumed["epochs"]] == [1, 2]
    nothing_is_left(cluster)
