"""Mixed precision trains the same network: the loss after a few steps is that of float32, but for rounding."""

from __future__ import annotations

import pytest

from tests.conftest import Harness

TINY = ["--batch-size", "4", "--image-size", "96", "--warmup", "2", "--steps", "4", "--repeats", "1"]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["resnet50", "hep_cnn"])  # with batch norms, and with biases
@pytest.mark.parametrize(
    "backend",
    ["pytorch", "parameter_server", "distributed_replicated", "multi_worker_mirrored", "torch_parameter_server"],
)
def test_mixed_precision_follows_single_precision(harness: Harness, backend: str, model: str) -> None:
    losses = {}
    for precision in ("fp32", "amp"):
        arguments = ["--model", model, "--precision", precision]
        done = harness("run", "--backend", backend, *arguments, *TINY, "--json")
        assert done.code == 0, done.stderr
        losses[precision] = done.json["repeats"][0]["ranks"][0]["evidence"]["loss"]
    assert losses["amp"] != losses["fp32"]
    assert losses["amp"] == pytest.approx(losses["fp32"], rel=0.02)
