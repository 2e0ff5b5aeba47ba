"""What a step of a training to an accuracy does, in every way of training: the equations, and what a checkpoint keeps.

A network that has learned a little, with velocities, goes on for one epoch of one step in which two workers see all images
once. What it comes to is read from the checkpoint and compared with NumPy:

    v' = momentum · v + (gradient + weight decay · w)        kernels only decay
    w' = w − rate · v'

The gradient is what a step without momentum and weight decay takes off.
"""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import models
from harness.datasets.make import make
from tests.conftest import once, run_harness
from tests.parity.conftest import HOMES, WAYS, with_one_transport

MODEL = models.specification("pointwise")  # with batch norms, and a bias
CLASSES, TRAINING, VALIDATION, WORKERS = 5, 70, 25, 2
RATE, MOMENTUM, DECAY = 0.02, 0.9, 0.1
AT_FIRST = ("--momentum", str(MOMENTUM), "--weight-decay", str(DECAY / 100))
SMALL = 8  # a batch that 70 images do not divide into
LEARNED = 10  # epochs: enough for some images to be right, few enough for others to be wrong
NAMES = [tensor.name for tensor in MODEL.tensors]
FIRST_LAYER = "stem.bn.moving_mean"

Train = Callable[..., "Trained"]

pytestmark = pytest.mark.slow


def framework_of(way: str) -> str:
    """Ways are the arguments of ``harness train`` after ``--backend``."""
    words = way.split()
    return words[words.index("--framework") + 1]


@dataclass(frozen=True)
class Trained:
    """The last epoch, and what is kept after it."""

    epoch: dict[str, Any]
    checks: dict[str, bool]
    values: dict[str, np.ndarray]
    checkpoint: Path


@pytest.fixture(scope="module")
def images() -> Path:
    """Images of few classes; of the same pictures none is for training and for validation."""

    def both(folder: Path) -> None:
        make(folder / "images", TRAINING + VALIDATION, CLASSES, (40, 40), seed=1)
        for file in sorted(folder.glob("images/train/*/*.JPEG")):
            if int(file.stem.partition("_")[2]) >= TRAINING // CLASSES:
                aside = folder / "images" / "validation" / file.parent.name
                aside.mkdir(parents=True, exist_ok=True)
                shutil.move(file, aside)

    return once("images to learn", both) / "images"


@pytest.fixture(scope="module")
def train(images: Path, environment: Callable[..., Path]) -> Train:
    """Train in some way, once for all tests that ask for it."""

    def ran(way: str, epochs: int, batch: int, *more: str) -> Trained:
        environment(way.split()[0], framework_of(way))

        def run(folder: Path) -> None:
            done = run_harness(
                folder,
                *("train", "--backend", *way.split(), "--model", MODEL.name, "--data", str(images), "--threads", "1"),
                *("--epochs", str(epochs), "--batch-size", str(batch), "--reference-batch", str(TRAINING)),
                *("--learning-rate", str(RATE), "--warmup-epochs", "0", "--decay-epochs", "none", "--json", *more),
            ).succeeded()
            (folder / "checks.json").write_text(json.dumps(done.json["checks"]))

        folder = once(("trained", way, epochs, batch, more), run)
        (checkpoint,) = folder.glob(f"runs/*/repeat-1/checkpoints/epoch-{epochs:04}.npz")
        with np.load(checkpoint) as file:
            values = {name: file[name] for name in file.files}
        epoch = json.loads(str(values.pop("history")))[-1]
        checks = json.loads((folder / "checks.json").read_text())
        return Trained(epoch, {check["name"]: check["passed"] for check in checks}, values, checkpoint)

    return ran


@pytest.fixture(scope="module")
def before(train: Train) -> Trained:
    """Where all of them begin."""
    return train("pytorch --framework torch --nodes 2", LEARNED, SMALL, *AT_FIRST)


@pytest.fixture(scope="module")
def go_on(train: Train, before: Trained) -> Train:
    """One step from there, on all images."""

    def trained(way: str, workers: int = WORKERS, momentum: float = MOMENTUM, decay: float = DECAY) -> Trained:
        optimizer = ["--momentum", str(momentum), "--weight-decay", str(decay)]
        return train(way, LEARNED + 1, TRAINING // workers, *optimizer, "--resume", str(before.checkpoint))

    return trained


@pytest.fixture(scope="module")
def gradients(go_on: Train, before: Trained) -> Callable[[str], dict[str, np.ndarray]]:
    """The mean gradient of all images as a framework computes it from its own decoding of them."""

    def found(framework: str) -> dict[str, np.ndarray]:
        plain = go_on(f"{HOMES[framework]} --framework {framework} --nodes 2", momentum=0, decay=0)
        return {name: (before.values[name] - plain.values[name]) / RATE for name in NAMES}

    return found


def ways() -> list[Any]:
    """All of them with two workers, and those whose workers may have two devices with one that has. One is usual.

    CI has each backend on each of its frameworks over one transport, which carries sums and knows nothing of velocities.
    """
    found = []
    for_ci = with_one_transport("gloo")
    for way in WAYS:
        arguments = " ".join(way.arguments[1:])
        servers = ["--ps", "2", "--placement", "partitioned"] if way.has_servers else []
        marks = [] if way in for_ci else [pytest.mark.exhaustive]
        found.append(pytest.param(" ".join([arguments, "--nodes 2", *servers]), marks=marks))
        if way.backend in ("parameter_server", "distributed_replicated"):
            found.append(pytest.param(f"{arguments} --devices-per-node 2", marks=[*marks, pytest.mark.exhaustive]))
    return found


@pytest.mark.parametrize("way", ways())
def test_a_step_with_momentum_and_weight_decay_is_that_of_the_equations(
    go_on: Train, before: Trained, gradients: Callable[[str], dict[str, np.ndarray]], way: str
) -> None:
    after, gradient = go_on(way), gradients(framework_of(way))
    assert set(after.values) == set(before.values)
    assert all(after.checks.values()), after.checks
    for name in NAMES:
        weights, velocity = before.values[name], before.values[f"velocity/{name}"]
        expected = MOMENTUM * velocity + gradient[name] + (DECAY * weights if name.endswith("kernel") else 0)
        found = after.values[f"velocity/{name}"]
        assert np.linalg.norm(found - expected) < 0.01 * np.linalg.norm(expected), name  # a ReLU or two may differ
        np.testing.assert_allclose(after.values[name], weights - RATE * found, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("way", ways())
def test_all_workers_together_evaluate_every_image_once_with_their_common_statistics(go_on: Train, way: str) -> None:
    found, reference = go_on(way), go_on("pytorch --framework torch --nodes 2")
    alone = go_on("pytorch --framework torch --nodes 1", workers=1)
    # Before the first batch norm the mean over both workers' images is that over all images.
    np.testing.assert_allclose(found.values[FIRST_LAYER], alone.values[FIRST_LAYER], rtol=1e-3, atol=1e-3)
    for tensor in MODEL.statistics:
        np.testing.assert_allclose(found.values[tensor.name], reference.values[tensor.name], rtol=1e-2, atol=1e-2)
    accuracies = ("images", "top1", "top5")
    assert [found.epoch[name] for name in accuracies] == [reference.epoch[name] for name in accuracies]
    assert (found.epoch["images"], 0 < found.epoch["top1"] < 1) == (VALIDATION, True)
    assert found.epoch["validation_loss"] == pytest.approx(reference.epoch["validation_loss"], rel=5e-3)
    assert found.epoch["loss"] == pytest.approx(reference.epoch["loss"], rel=1e-3)


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_a_resumed_training_reads_on_where_the_other_stopped(train: Train, before: Trained, framework: str) -> None:
    last_but_one = before.checkpoint.with_name(f"epoch-{LEARNED - 1:04}.npz")
    way = f"{HOMES[framework]} --framework {framework} --nodes 2"
    again = train(way, LEARNED, SMALL, *AT_FIRST, "--resume", str(last_but_one))
    assert again.epoch["loss"] == pytest.approx(before.epoch["loss"], rel=1e-3)  # other images have other losses
    if framework == "torch":
        assert all(np.array_equal(again.values[name], value) for name, value in before.values.items())


@pytest.mark.parametrize(
    "way",
    ["pytorch", "parameter_server", "caffe2", pytest.param("torch_parameter_server", marks=pytest.mark.exhaustive)],
)
def test_a_training_that_diverges_says_on_which_rank_and_in_which_step(
    images: Path, environment: Callable[..., Path], tmp_path: Path, way: str
) -> None:
    environment(way)
    where = ["--backend", way, "--model", MODEL.name, "--data", str(images), "--threads", "1", "--nodes", str(WORKERS)]
    done = run_harness(tmp_path, "train", *where, "--batch-size", str(SMALL), "--learning-rate", "1e20")
    assert done.code == 1
    assert re.search(r"loss is (nan|inf) on rank [01] in epoch 1, step [1-5] of 5: training has diverged", done.stderr)
