"""Mixed precision trains the same network: the loss after a few steps is that of float32, but for rounding."""

from __future__ import annotations

import pytest

from tests.conftest import Harness

TINY = ["--batch-size", "4", "--image-size", "96", "--warmup", "2", "--steps", "4", "--repeats", "1"]
# With biases; and with batch norms, in one backend of each framework around shortcuts, whose graphs take long to build.
MODELS = {
    "pytorch": ("hep_cnn", "resnet50"),
    "parameter_server": ("hep_cnn", "resnet50"),
    "distributed_replicated": ("hep_cnn", "pointwise"),
    "multi_worker_mirrored": ("hep_cnn", "pointwise"),
    "torch_parameter_server": ("hep_cnn", "pointwise"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "model"), [(backend, model) for backend in MODELS for model in MODELS[backend]])
def test_mixed_precision_follows_single_precision(harness: Harness, backend: str, model: str) -> None:
    losses = {}
    for precision in ("fp32", "amp"):
        arguments = ["--model", model, "--precision", precision]
        done = harness("run", "--backend", backend, *arguments, *TINY, "--json")
        assert done.code == 0, done.stderr
        losses[precision] = done.json["repeats"][0]["ranks"][0]["evidence"]["loss"]
    assert losses["amp"] != losses["fp32"]
    assert losses["amp"] == pytest.approx(losses["fp32"], rel=0.02)
