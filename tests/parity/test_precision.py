"""Mixed precision trains the same network: the loss after a few steps is that of float32, but for rounding."""

from __future__ import annotations

import pytest

from tests.conftest import Harness


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["pytorch", "parameter_server", "distributed_replicated", "multi_worker_mirrored"])
def test_mixed_precision_follows_single_precision(harness: Harness, backend: str) -> None:
    losses = {}
    for precision in ("fp32", "amp"):
        arguments = ["--batch-size", "4", "--image-size", "96", "--warmup", "2", "--steps", "4", "--repeats", "1"]
        done = harness("run", "--backend", backend, "--precision", precision, *arguments, "--json")
        assert done.code == 0, done.stderr
        losses[precision] = done.json["repeats"][0]["ranks"][0]["evidence"]["loss"]
    assert losses["amp"] != losses["fp32"]
    assert losses["amp"] == pytest.approx(losses["fp32"], rel=0.02)
