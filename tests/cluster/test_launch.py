"""Programs that are not ours on the real Slurm: they find each other across nodes, and the links carry their bytes."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.made import content

from .submitted import User, nothing_is_left
from .virtual import VirtualCluster

pytestmark = pytest.mark.cluster
PROGRAMS = ROOT / "tests" / "programs"
FLAGS = ("--ps_hosts={ps_hosts}", "--worker_hosts={worker_hosts}", "--job_name={job_name}", "--task_index={task_index}")


@pytest.fixture
def user(cluster: VirtualCluster, tmp_path: Path) -> User:
    return User(cluster, tmp_path)


def record(user: User) -> dict[str, Any]:
    (path,) = user.output.glob("*/launch.json")
    return content(path)


def test_workers_reach_a_server_on_another_node(user: User) -> None:
    servers = [sys.executable, str(PROGRAMS / "servers.py"), *FLAGS]
    pattern = ["--pattern", "total images/sec: ([0-9.]+)"]
    user.harness("launch", "--nodes", "2", "--ps", "1", "--timeout", "200", *pattern, "--", *servers).succeeded()
    launched = record(user)
    here, there, server = launched["repeats"][0]["ranks"]
    assert launched["repeats"][0]["nodes"] == [here["host"], there["host"]] and server["host"] == here["host"]
    assert launched["img_per_s"]["mean"] == here["printed"]
    (link,) = [moved for name, moved in there["interfaces"].items() if name != "lo"]
    assert 3e6 < link["sent"] < 4e6 and 3e6 < link["received"] < 4e6  # three messages of 1 MB each way
    nothing_is_left(user.cluster)


def test_a_rank_of_mpi_that_fails_is_named_with_its_node(user: User, environment: Callable[..., Path]) -> None:
    program = [str(environment("mpi4py")), str(PROGRAMS / "mpi.py"), "{rank}"]
    done = user.harness("launch", "--nodes", "3", "--mpi", "--timeout", "200", "--", *program)
    assert done.code == 1
    launched = record(user)
    failed = [rank for rank in launched["repeats"][0]["ranks"] if rank["code"] == 4]
    assert [rank["rank"] for rank in failed] == [2]
    assert f"worker rank 2 on {failed[0]['host']} failed: exit code 4: rank 2 of 3, sum 3" in done.stderr
    nothing_is_left(user.cluster)
