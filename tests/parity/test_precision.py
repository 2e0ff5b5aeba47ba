"""Mixed precision trains the same network: the losses after a few steps are those of float32, but for rounding."""

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Harness

TINY = ["--batch-size", "4", "--warmup", "2", "--steps", "4", "--repeats", "1", "--json"]
# Processors without instructions for a format convert every number, so that images are no larger than a model needs.
SIZES = {"resnet50": "96", "hep_cnn": "32", "pointwise": "32"}
# With biases; and with batch norms, in one backend of each framework around shortcuts, whose graphs take long to build.
MODELS = {
    "pytorch": ("hep_cnn", "pointwise", "resnet50"),
    "parameter_server": ("hep_cnn", "pointwise", "resnet50"),
    "distributed_replicated": ("hep_cnn", "pointwise"),
    "multi_worker_mirrored": ("hep_cnn", "pointwise"),
    "torch_parameter_server": ("hep_cnn", "pointwise"),
}

# In CI: batch norms in one backend of each way to build models, and biases in one.
CHOSEN = [
    *((backend, "pointwise") for backend in ("pytorch", "parameter_server", "multi_worker_mirrored")),
    ("pytorch", "hep_cnn"),
]


def evidence(harness: Harness, model: str, *arguments: str) -> dict[str, Any]:
    """Of the first worker."""
    done = harness("run", *TINY, "--model", model, "--image-size", SIZES[model], *arguments).succeeded()
    return dict(done.json["repeats"][0]["ranks"][0]["evidence"])


def losses(harness: Harness, model: str, *arguments: str) -> list[float]:
    """Of each step of the first worker."""
    return list(evidence(harness, model, *arguments)["losses"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "model"),
    [
        pytest.param(backend, model, marks=[] if (backend, model) in CHOSEN else pytest.mark.exhaustive)
        for backend in MODELS
        for model in MODELS[backend]
    ],
)
def test_mixed_precision_follows_single_precision(harness: Harness, backend: str, model: str) -> None:
    single, mixed = (
        losses(harness, model, "--backend", backend, "--precision", precision) for precision in ("fp32", "amp")
    )
    assert mixed != single
    assert mixed == pytest.approx(single, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["pytorch", "horovod"])
def test_a_scaled_loss_in_float16_follows_single_precision_too(harness: Harness, backend: str) -> None:
    """Rounding to 11 bits, not to the 8 of bfloat16: ten times closer."""
    where = ["--backend", backend, "--framework", "torch", "--nodes", "2"]
    single, half = (evidence(harness, "pointwise", *where, "--precision", precision) for precision in ("fp32", "fp16"))
    assert half["losses"] != single["losses"]
    assert half["losses"] == pytest.approx(single["losses"], rel=0.002)
    assert half["details"]["loss_scale"] == 128 and "loss_scale" not in single["details"]  # no step found an overflow


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["pytorch", "torch_parameter_server"])  # TensorFlow trains in NCHW on GPUs only
def test_both_data_formats_train_alike_on_images_too(harness: Harness, backend: str, images: Path) -> None:
    for data in ("synthetic", str(images)):
        where = ["hep_cnn", "--backend", backend, "--nodes", "2", "--data", data, "--data-format"]
        nhwc, nchw = (losses(harness, *where, each) for each in ("nhwc", "nchw"))
        assert nchw == pytest.approx(nhwc, rel=1e-4)


@pytest.mark.slow
def test_a_compiled_model_computes_the_same(harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether kernels sum in another order, so that the last bits differ, depends on the processor. Code is generated."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "generated"))
    arguments = ["pointwise", "--backend", "pytorch", "--nodes", "2"]
    plain = losses(harness, *arguments)
    assert not [*tmp_path.rglob("generated/**/*.so")]
    assert losses(harness, *arguments, "--compile") == pytest.approx(plain, rel=1e-4)
    assert [*tmp_path.rglob("generated/**/*.so")]
