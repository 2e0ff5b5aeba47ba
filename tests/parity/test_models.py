"""PyTorch and TensorFlow train the same model: same weights and images, same logits, loss, gradients and statistics.

Two arrays agree within a tolerance when their largest difference is at most that fraction of their largest value:
``max|a - b| <= tolerance * max|a|``. An elementwise ratio would ask float32 for digits of values that are sums of terms
millions of times larger.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from harness import models
from harness.models.initial import initial_values

ROOT = Path(__file__).parents[2]
LOGITS, GRADIENTS = 1e-4, 1e-3

Step = dict[str, np.ndarray]
Steps = tuple[Step, Step]

# Height and width, chosen so that each layer's batch norm averages over at least 70 pixels of the batch, and so that the
# padding of ResNet's pool is tried with an even (48) and an odd (49) input at once.
IMAGES = {"resnet50": (96, 98), "inception3": (139, 155), "pointwise": (32, 50)}
BATCH = 8

pytestmark = pytest.mark.parametrize("name", models.names())


@pytest.fixture
def steps(name: str, environment: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Steps:
    """What PyTorch and TensorFlow made of the same step."""
    return _steps(name, environment("pytorch"), environment("parameter_server"), tmp_path_factory.getbasetemp())


@cache
def _steps(name: str, torch_python: Path, tensorflow_python: Path, folder: Path) -> Steps:
    random = np.random.default_rng(1)
    given = {
        "images": random.standard_normal((BATCH, *IMAGES[name], 3), dtype=np.float32),
        "labels": random.integers(0, 1001, BATCH),
    }
    for key, value in initial_values(models.specification(name), seed=1).items():
        # Zeros and ones would hide a gamma taken for a beta, or a mean for a variance. Betas lean to the positive side
        # because ReLUs that are mostly open amplify float32's rounding ten times less from layer to layer.
        low, high = (0, 0) if key.endswith("kernel") else (-0.2, 1) if key.endswith("beta") else (-0.1, 0.1)
        given[f"value/{key}"] = (value + random.uniform(low, high, value.shape)).astype(np.float32)
    np.savez(folder / f"{name}.npz", **given)
    return (
        _step(torch_python, "torch", name, folder),
        _step(tensorflow_python, "tensorflow", name, folder),
    )


def _step(python: Path, framework: str, name: str, folder: Path) -> Step:
    script, target = Path(__file__).with_name("model_step.py"), folder / f"{name}-{framework}.npz"
    command = [python, script, framework, name, folder / f"{name}.npz", target]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(np.load(target))


def difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    assert ours.shape == theirs.shape
    return float(np.abs(ours - theirs).max() / np.abs(ours).max())


def differences(steps: Steps, prefix: str) -> dict[str, float]:
    """By how much the frameworks differ in each array whose name starts with `prefix`."""
    ours, theirs = ({key: value for key, value in step.items() if key.startswith(prefix)} for step in steps)
    assert ours.keys() == theirs.keys()
    assert ours
    return {key: difference(value, theirs[key]) for key, value in ours.items()}


def test_both_create_the_tensors_of_the_specification_in_its_order(name: str, steps: Steps) -> None:
    tensors = models.specification(name).tensors
    for step in steps:
        assert step["order"].tolist() == [tensor.name for tensor in tensors]
        assert all(step[f"gradient/{tensor.name}"].shape == tensor.shape for tensor in tensors)


def test_both_move_the_statistics_of_the_specification(name: str, steps: Steps) -> None:
    for step in steps:
        moved = {key.removeprefix("moved/"): step[key].shape for key in step if key.startswith("moved/")}
        assert moved == {tensor.name: tensor.shape for tensor in models.specification(name).statistics}


@pytest.mark.parametrize("key", ["logits", "loss", "evaluated"])
def test_the_forward_pass_agrees(name: str, steps: Steps, key: str) -> None:
    ours, theirs = steps
    assert ours[key].dtype == theirs[key].dtype == np.float32
    assert difference(ours[key], theirs[key]) < LOGITS


def test_every_gradient_agrees(name: str, steps: Steps) -> None:
    too_far = {key: by for key, by in differences(steps, "gradient/").items() if not by < GRADIENTS}
    assert not too_far


def test_the_gradients_of_one_layer_agree_in_single_precision(name: str, steps: Steps) -> None:
    """With the kernels that training runs: `model_step.py` says why whole models are compared in double precision."""
    too_far = {key: by for key, by in differences(steps, "layer/").items() if not by < GRADIENTS}
    assert not too_far


def test_every_moving_statistic_agrees(name: str, steps: Steps) -> None:
    too_far = {key: by for key, by in differences(steps, "moved/").items() if not by < LOGITS}
    assert not too_far
