"""Nodes and links are checked before a run: what is throttled among virtual nodes is named, and nothing else is."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import FEW_STEPS, SMALLEST, Clock

from .conftest import started
from .submitted import User, nothing_is_left
from .virtual import VirtualCluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
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


def test_the_check_before_a_run_is_in_its_job_and_in_its_record(
    cluster: VirtualCluster, tmp_path: Path, environment: Callable[..., Path]
) -> None:
    """On four nodes, the fewest among which a slow one can be told."""
    environment("pytorch")
    user = User(cluster, tmp_path)
    run = ("run", "--backend", "pytorch", "--nodes", "4", "--threads", "1", *SMALLEST, *FEW_STEPS, "--repeats", "2")
    cluster.rate("200mbit")
    cluster.rate("100mbit", "node3")
    try:
        done = user.harness(*run, "--preflight").succeeded()
    finally:
        cluster.rate("1gbit")
    assert "  preflight  warning: node3 sends at 0.013" in done.stdout
    record = user.record()
    slow = [(each["what"], each["node"]) for each in record["preflight"]["pairs"]["slow"]]
    assert slow == [("sends", "node3"), ("receives", "node3")]
    assert record["preflight"]["pairs"]["nodes"] == [f"node{number}" for number in range(1, 5)]
    (checked,) = user.output.glob("*/preflight/kernel.json")
    check = json.loads(checked.read_text())["repeats"][0]
    assert {repeat["job"] for repeat in [check, *record["repeats"]]} == {check["job"]}
    assert check["ended"] <= min(repeat["started"] for repeat in record["repeats"])
    collected = user.harness("collect", str(user.output), "--json").succeeded()
    assert [each["run"] for each in collected.json] == [str(checked.parents[1])], "the check is no run of its own"
    nothing_is_left(cluster)
