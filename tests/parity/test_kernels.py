"""Kernels over every transport that has them: the right results, over what was asked for, with the bytes that it takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness import kernels
from harness.core.backend import backend
from tests.conftest import Harness
from tests.parity.conftest import WAYS, Way

RANKS, SIZES = 3, "3KiB,96KiB"
EACH = [(way, kernel) for way in WAYS for kernel in backend(way.backend).kernels]
QUICK = {"pytorch:torch:gloo allreduce", "pytorch:torch:mpi pingpong"}


@pytest.mark.parametrize(
    ("way", "kernel"),
    [
        pytest.param(
            *each, id=f"{each[0]} {each[1]}", marks=[] if f"{each[0]} {each[1]}" in QUICK else [pytest.mark.slow]
        )
        for each in EACH
    ],
)
def test_every_rank_gets_the_right_result_over_the_transport_that_was_asked_for(
    harness: Harness, environment: Callable[..., Path], way: Way, kernel: str
) -> None:
    environment(way.backend, way.framework)
    servers = ["--ps", "2"] if way.has_servers else []
    few = ["--warmup", "1", "--steps", "3", "--repeats", "2", "--bytes", SIZES]
    done = harness("kernel", kernel, *way.arguments, "--nodes", str(RANKS), *servers, *few, "--json")
    assert done.code == 0, done.stderr
    carried = {"mpi": "MPICH", "gloo": "gloo on lo", "grpc": "grpc "}[way.transport]
    for repeat in done.json["repeats"]:
        assert [check["name"] for check in repeat["checks"] if not check["passed"]] == []
        assert all(rank["evidence"]["transport"].startswith(carried) for rank in repeat["ranks"])
    small, large = done.json["derived"]
    assert large["bytes"] == 96 << 10 and 0 < small["p50_s"] <= small["p99_s"]
    # What a rank has to send at the least; of a ping-pong two of the three ranks send.
    least = {"pingpong": 2 / RANKS, "push": 1}.get(kernel) or kernels.specification(kernel).bus(RANKS, 0)
    if large["sent_bytes"] is not None:
        assert large["sent_bytes"] >= 0.98 * least * large["bytes"]
