"""The bytes that a run moves are those that its plan and its algorithm say, as the kernel counts them.

Parameter servers: each worker pulls what a server holds and pushes as much, once per step. Allreduce over N workers: each
sends 2(N−1)/N times the model, the least there is. One worker sends nothing.
"""

import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import models
from tests.conftest import Harness
from tests.parity.conftest import MODEL, TRAINED_IN_CI, WAYS, WINDOW, Record, Way, each

TOLERANCE = 0.05  # gRPC's and MPI's headers, barriers, HTTP/2's acknowledgements
A_FEW_SEGMENTS = 0.002  # of what five steps move: 120 kB
FEW_STEPS = 5
SMALL = models.specification("pointwise")  # for what does not depend on how many tensors there are, or how large
TINY = ["--batch-size", "2", "--image-size", "32", "--threads", "1", "--repeats", "1"]
TINY += ["--warmup", "2", "--steps", str(FEW_STEPS)]

slow = pytest.mark.slow
exhaustive = partial(pytest.param, marks=pytest.mark.exhaustive)
ALLREDUCE = [way for way in WAYS if not way.has_servers]
SERVERS = [way for way in WAYS if way.has_servers]
Measure = Callable[..., Record]


@pytest.fixture
def measure(harness: Harness, environment: Callable[..., Path]) -> Measure:
    """The record of a tiny run."""

    def run(*arguments: str, framework: str | None = None) -> Record:
        environment(arguments[0], framework)
        of = ["--framework", framework] if framework else []
        done = harness("run", "--backend", *arguments, *of, "--model", SMALL.name, *TINY, "--json").succeeded()
        record: Record = done.json
        return record

    return run


def ranks(record: Record) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = record["repeats"][0]["ranks"]
    return found


def each_rank_moved(record: Record, of_step: float) -> None:
    steps = record["spec"]["steps"]
    assert len(ranks(record)) == record["spec"]["nodes"]
    for rank in ranks(record):
        assert rank["servers"] == []
        assert rank["network"]["sent"] / steps == pytest.approx(of_step, rel=TOLERANCE)
        assert rank["network"]["received"] / steps == pytest.approx(of_step, rel=TOLERANCE)


def each_server_moved_what_the_plan_says(record: Record, steps: int, servers: int) -> None:
    planned = [server["bytes"] for server in record["plan"]["details"]["servers"]]
    assert len(planned) == servers and sum(planned) == models.specification(record["spec"]["model"]).bytes
    workers, measured = len(ranks(record)), ranks(record)[0]["servers"]
    assert len(measured) == servers
    for held, (sent, received) in zip(planned, measured, strict=True):
        assert sent / steps == pytest.approx(held * workers, rel=TOLERANCE)
        assert received / steps == pytest.approx(held * workers, rel=TOLERANCE)


@pytest.mark.parametrize("way", each(SERVERS, TRAINED_IN_CI), ids=str)
def test_each_server_moves_what_the_plan_says_for_every_worker_and_step(
    two_workers: Callable[[Way], Record], way: Way
) -> None:
    each_server_moved_what_the_plan_says(two_workers(way), WINDOW, servers=2)


@slow
@pytest.mark.parametrize(
    ("backend", "placement"),
    [
        exhaustive("parameter_server", "round_robin"),
        exhaustive("parameter_server", "partitioned"),
        exhaustive("distributed_replicated", "greedy"),
        exhaustive("distributed_replicated", "partitioned"),
        ("torch_parameter_server", "round_robin"),
        exhaustive("torch_parameter_server", "partitioned"),
    ],
)
def test_each_server_moves_what_the_plan_says_whatever_the_placement(
    measure: Measure, backend: str, placement: str
) -> None:
    """Three servers of their own and two workers. Above is each backend's default placement."""
    where = ["--nodes", "2", "--ps", "3", "--ps-nodes", "dedicated"]
    each_server_moved_what_the_plan_says(measure(backend, *where, "--placement", placement), FEW_STEPS, servers=3)


@slow
@pytest.mark.parametrize(
    ("way", "servers"),
    [
        ("parameter_server --sync barrier", 2),
        ("parameter_server --sync none", 2),
        ("parameter_server_strategy --sync none", 1),  # of two, one would hold all tensors that are large
        ("torch_parameter_server --sync none --transport gloo", 2),
        exhaustive("torch_parameter_server --sync none --transport mpi", 2),
    ],
)
def test_modes_that_claim_less_move_as_much_and_leave_one_set_of_parameters(
    measure: Measure, tmp_path: Path, way: str, servers: int
) -> None:
    """2017's barrier and asynchronous SGD: every worker's update arrives, and all workers read the same servers."""
    record = measure(*way.split(), "--nodes", "2", "--ps", str(servers), "--save-parameters")
    each_server_moved_what_the_plan_says(record, FEW_STEPS, servers)
    first, second = (np.load(file) for file in tmp_path.glob("runs/*/repeat-1/parameters-*.npz"))
    assert set(first) == set(second) and all(np.array_equal(first[name], second[name]) for name in first)


@slow
@pytest.mark.parametrize("backend", ["parameter_server", exhaustive("distributed_replicated")])
def test_a_node_with_two_devices_moves_the_model_once_per_step_too(measure: Measure, backend: str) -> None:
    of_nodes = [rank["network"] for rank in ranks(measure(backend, "--nodes", "2", "--devices-per-node", "2"))]
    assert len(of_nodes) == 2
    for moved in of_nodes:
        for direction in ("sent", "received"):
            # The kernel counts what is sent when it is acknowledged, perhaps too late.
            assert 1 - A_FEW_SEGMENTS < moved[direction] / (FEW_STEPS * SMALL.bytes) < 1 + TOLERANCE


@pytest.mark.parametrize("way", each(ALLREDUCE, TRAINED_IN_CI), ids=str)
def test_each_of_two_workers_sends_one_model_per_step(two_workers: Callable[[Way], Record], way: Way) -> None:
    each_rank_moved(two_workers(way), MODEL.bytes)


@slow
@pytest.mark.parametrize("backend", ["pytorch", exhaustive("multi_worker_mirrored")])
def test_each_of_three_workers_sends_four_thirds_of_the_model_per_step(measure: Measure, backend: str) -> None:
    each_rank_moved(measure(backend, "--nodes", "3"), SMALL.bytes * 2 * 2 / 3)


@pytest.mark.parametrize("transport", ["gloo", pytest.param("mpi", marks=slow)])
def test_a_single_worker_sends_nothing(measure: Measure, transport: str) -> None:
    (rank,) = ranks(measure("pytorch", "--transport", transport))
    assert rank["network"].pop("cards").keys() == {f"net/{name}" for _, name in socket.if_nameindex() if name != "lo"}
    assert rank["network"] == {"sent": 0, "received": 0, "interfaces": []}


@slow
@pytest.mark.parametrize(
    ("framework", "transport"),
    [("torch", "gloo"), exhaustive("torch", "mpi"), exhaustive("tensorflow", "gloo"), exhaustive("tensorflow", "mpi")],
)
def test_horovods_fp16_halves_the_bytes(measure: Measure, framework: str, transport: str) -> None:
    record = measure("horovod", "--transport", transport, "--nodes", "2", "--fp16-allreduce", framework=framework)
    each_rank_moved(record, SMALL.bytes / 2)
