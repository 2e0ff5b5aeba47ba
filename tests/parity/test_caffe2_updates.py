"""Caffe2's updates are SGD: after a step every parameter is w − lr·gradient, to the last digit but one.

IDEEP, whose kernels make Caffe2 fast, has an update of its own that adds a kernel and its gradient element by element, each
in another layout, and says nothing (``harness.models.caffe2_layers``). Nor does the loss: it falls all the same. So the
same look is taken at that update, and has to find it. Both train alone and on the gradient that Caffe2 itself computed;
``test_models.py`` compares that with PyTorch's, and ``test_synchronous.py`` what real runs of several ranks come to.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import models
from tests.conftest import Harness, laid_out
from tests.parity.conftest import inside

STEPS = 3
# The last layers have three pixels a side or more: of two, IDEEP's kernels for AVX2 keep a gradient in its kernel's layout.
IMAGES = {
    **{"pointwise": 32, "mnist_cnn": 28, "hep_cnn": 64, "resnet50": 160, "inception3": 139},
    **{"resnet101": 160, "alexnet": 227, "vgg16": 224},  # resnet152 has more of what resnet101 has
}
QUICK = ("mnist_cnn", "pointwise")
EACH = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in IMAGES]
# The loss of a model without batch norm would tell: it grows.
NORMALISED = ["pointwise", *(pytest.param(name, marks=pytest.mark.slow) for name in ("inception3", "resnet50"))]

Trained = Callable[[str, str], dict[str, Any]]


@pytest.fixture
def trained(harness: Harness, environment: Callable[..., Path], tmp_path: Path) -> Trained:
    """What ``caffe2_updates.py`` saw of a model that was trained in one of its two ways."""

    def train(model: str, how: str) -> dict[str, Any]:
        arguments = ["--model", model, "--image-size", str(IMAGES[model]), "--batch-size", "4", "--threads", "1"]
        shown = laid_out(harness, tmp_path, "--backend", "caffe2", *arguments, "--learning-rate", "0.01")
        variables = shown["plan"]["processes"][0]["env"]
        inside(environment("caffe2"), "caffe2_updates.py", tmp_path, how, STEPS, tmp_path / "seen.json", **variables)
        seen: dict[str, Any] = json.loads((tmp_path / "seen.json").read_text())
        assert len(seen["losses"]) == STEPS
        return seen

    return train


@pytest.mark.parametrize("model", EACH)
def test_a_step_takes_the_rate_times_the_gradient_off_every_parameter(trained: Trained, model: str) -> None:
    assert trained(model, "ours")["wrong"] == {}


@pytest.mark.parametrize("model", NORMALISED)
def test_ideeps_own_update_would_spoil_every_convolution_although_the_loss_falls(trained: Trained, model: str) -> None:
    seen = trained(model, "naive")
    kernels = [tensor.name for tensor in models.specification(model).tensors if tensor.name.endswith(".conv.kernel")]
    assert list(seen["wrong"]) == kernels
    assert min(seen["wrong"].values()) > 1  # by more than all of the step
    assert seen["losses"] == sorted(seen["losses"], reverse=True)
