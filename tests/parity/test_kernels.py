"""Kernels over every transport that has them: the right results, over what was asked for, with the bytes that it takes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import kernels
from harness.core.backend import EVERY, backend, contenders
from tests.conftest import Harness
from tests.parity.conftest import Way

RANKS, STEPS, SIZES = 3, 3, "3KiB,96KiB"
WAYS = [Way(*contender.values()) for contender in contenders([EVERY], "cpu", lambda backend: backend.kernels)]
EACH = [(way, kernel) for way in WAYS for kernel in backend(way.backend).kernels]
QUICK = {
    "mpi4py:numpy:mpi cg",
    "pytorch:torch:gloo allreduce",
    "pytorch:torch:gloo pairs",
    "pytorch:torch:mpi pingpong",
    "torch_parameter_server:torch:gloo incast",
}
# Every fabric over each of its transports, and every kernel; the others are for `make test-all`.
SLOW = {
    "horovod:tensorflow:gloo allgather",
    "horovod:tensorflow:mpi fft",
    "horovod:torch:gloo alltoall",
    "horovod:torch:mpi allreduce",
    "mpi4py:numpy:mpi fft",
    "multi_worker_mirrored:tensorflow:grpc matmul",
    "parameter_server:tensorflow:grpc fft",
    "parameter_server:tensorflow:grpc outcast",
    "pytorch:torch:gloo cg",
    "pytorch:torch:mpi matmul",
    "pytorch:torch:mpi stream",
    "torch_parameter_server:torch:mpi outcast",
}


def marked(way: Way, kernel: str) -> Any:
    name = f"{way} {kernel}"
    marks = [] if name in QUICK else [pytest.mark.slow] if name in SLOW else [pytest.mark.slow, pytest.mark.exhaustive]
    return pytest.param(way, kernel, id=name, marks=marks)


def test_what_is_tried_often_is_there_and_leaves_out_no_fabric_and_no_kernel() -> None:
    tried = {(way, kernel) for way, kernel in EACH if f"{way} {kernel}" in QUICK | SLOW}
    assert len(tried) == len(QUICK | SLOW)
    assert {way for way, _ in tried} == set(WAYS)
    assert {kernel for _, kernel in tried} == set(kernels.names())


@pytest.mark.parametrize(("way", "kernel"), [marked(*each) for each in EACH])
def test_every_rank_gets_the_right_result_over_the_transport_that_was_asked_for(
    harness: Harness, environment: Callable[..., Path], way: Way, kernel: str
) -> None:
    environment(way.backend, way.framework)
    servers = ["--ps", "2"] if way.has_servers else []
    few = ["--warmup", "1", "--steps", str(STEPS), "--repeats", "1"]
    few += ["--bytes", SIZES] if kernels.specification(kernel).in_bytes else ["--size", "18,288"]
    done = harness("kernel", kernel, *way.arguments, "--nodes", str(RANKS), *servers, *few, "--json").succeeded()
    carried = {"mpi": "MPICH", "gloo": "gloo on lo", "grpc": "grpc "}[way.transport]
    (repeat,) = done.json["repeats"]
    assert [check["name"] for check in repeat["checks"] if not check["passed"]] == []
    assert all(rank["evidence"]["transport"].startswith(carried) for rank in repeat["ranks"])
    small, large = done.json["derived"]
    assert 0 < small["p50_s"] <= small["p99_s"]
    specification = kernels.specification(kernel)
    if specification.bus is None:
        assert large["size"] == 288 and large["rate"]["mean"] > 0
        return
    assert large["size"] == 96 << 10
    # What a rank has to send at the least; of a ping-pong two of the three ranks send, of others only one or none.
    others = {"pingpong": 2 / RANKS, "stream": 1 / RANKS, "incast": 1, "outcast": 0}
    least = others[kernel] if kernel in others else specification.bus(RANKS, 0)
    if large["sent_bytes"] is not None:
        assert large["sent_bytes"] >= 0.98 * least * large["size"]
    if kernel == "outcast":
        network = [rank["sizes"][1]["network"] for rank in repeat["ranks"]]
        assert all(moved is None or moved["received"] >= 0.98 * STEPS * large["size"] for moved in network)


@pytest.mark.slow
def test_residuals_fall_alike_beside_servers_and_among_ranks(
    harness: Harness, environment: Callable[..., Path]
) -> None:
    histories = []
    for name in ("parameter_server", "mpi4py"):
        environment(name, backend(name).frameworks[0])
        few = ["--nodes", "2", "--size", "512", "--warmup", "1", "--steps", "2", "--repeats", "1", "--json"]
        done = harness("kernel", "cg", "--backend", name, *few).succeeded()
        histories.append(done.json["repeats"][0]["ranks"][0]["sizes"][0]["history"])
    assert len(histories[0]) == 50 and histories[0] == pytest.approx(histories[1], rel=0, abs=1e-10)
