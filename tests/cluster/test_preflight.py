"""Nodes and links are checked before a run: what is throttled among eight virtual nodes is named, and nothing else is."""

import json
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.conftest import FEW_STEPS, SMALLEST, Clock

from .conftest import started
from .submitted import User, nothing_is_left
from .virtual import VirtualCluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.alone]
NODES = "8"


@pytest.fixture(scope="module")
def eight() -> Iterator[VirtualCluster]:
    yield from started("--nodes", NODES, "--rate", "200mbit")


@pytest.fixture
def user(eight: VirtualCluster, tmp_path: Path) -> Iterator[User]:
    yield User(eight, tmp_path)
    eight.rate("200mbit")


@pytest.mark.parametrize("backend", ["mpi4py", "pytorch --transport gloo"])
def test_a_link_throttled_to_half_is_named_within_a_minute(
    user: User, environment: Callable[..., Path], clock: Clock, backend: str
) -> None:
    environment(backend.split()[0])
    pairs = ("kernel", "pairs", "--backend", *backend.split(), "--nodes", NODES, "--threads", "1", "--quiet")
    assert "\nno node and no link is slow against the others: " in user.harness(*pairs).succeeded().stdout
    user.cluster.rate("100mbit", "node3")
    began = time.monotonic()
    shown = user.harness(*pairs).succeeded().stdout
    clock("naming a throttled link among eight nodes", time.monotonic() - began, 60)
    sends, receives = [line for line in shown.splitlines() if line.startswith("warning")]
    # 100 Mbit/s are 12.5 MB/s; of a message of 1 MiB the first tenth may follow a pause at once.
    assert sends.startswith("warning: node3 sends at 0.013") and receives.startswith("warning: node3 receives at 0.013")
    nothing_is_left(user.cluster)


def test_the_check_before_a_run_is_in_its_job_and_in_its_record(user: User, environment: Callable[..., Path]) -> None:
    """On four nodes, the fewest among which a slow one can be told."""
    environment("pytorch")
    user.cluster.rate("100mbit", "node3")
    run = ("run", "--backend", "pytorch", "--nodes", "4", "--threads", "1", *SMALLEST, *FEW_STEPS, "--repeats", "2")
    done = user.harness(*run, "--preflight").succeeded()
    assert "  preflight  warning: node3 sends at 0.013" in done.stdout
    record = user.record()
    slow = [(each["kind"], each["node"]) for each in record["preflight"]["pairs"]["slow"]]
    assert slow == [("sends", "node3"), ("receives", "node3")]
    assert record["preflight"]["pairs"]["nodes"] == [f"node{number}" for number in range(1, 5)]
    (checked,) = user.output.glob("*/preflight/kernel.json")
    check = json.loads(checked.read_text())["repeats"][0]
    assert {repeat["job"] for repeat in [check, *record["repeats"]]} == {check["job"]}
    assert check["ended"] <= min(repeat["started"] for repeat in record["repeats"])
    collected = user.harness("jobs", "collect", str(user.output), "--json").succeeded()
    assert [each["run"] for each in collected.json] == [str(checked.parents[1])], "the check is no run of its own"
    nothing_is_left(user.cluster)


def test_both_sides_of_a_kernel_and_the_check_before_them_are_one_job(
    user: User, environment: Callable[..., Path]
) -> None:
    environment("mpi4py")
    user.cluster.rate("100mbit", "node3")
    kernel = ("--kernel", "allreduce", "--bytes", "1KiB,64KiB", "--backend", "mpi4py", "--nodes", "4", "--threads", "1")
    few = ("--warmup", "1", "--steps", "5", "--repeats", "2")
    done = user.harness("ab", *kernel, *few, "--b", "var:OMP_PROC_BIND=close", "--preflight", "--json")
    assert done.code == int(done.json["slower"]), done.stderr
    assert [each["size"] for each in done.json["verdicts"]] == [1024, 65536]
    slow = [(each["kind"], each["node"]) for each in done.json["preflight"]["pairs"]["slow"]]
    assert slow == [("sends", "node3"), ("receives", "node3")]
    (folder,) = user.output.iterdir()
    check, a, b = (
        json.loads(next(folder.glob(file)).read_text())
        for file in ("a/*/preflight/kernel.json", "a/*/kernel.json", "b/*/kernel.json")
    )
    assert "OMP_PROC_BIND" not in a["variables"] and b["variables"]["OMP_PROC_BIND"] == "close"
    turns = [check["repeats"][0], a["repeats"][0], *b["repeats"], a["repeats"][1]]
    assert len({(repeat["job"], *repeat["nodes"]) for repeat in turns}) == 1
    assert all(one["ended"] <= other["started"] for one, other in pairwise(turns))
    again = user.harness("ab", "--of", str(folder), "--json")
    assert (again.code, again.json) == (done.code, done.json)
    nothing_is_left(user.cluster)
