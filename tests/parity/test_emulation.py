"""An emulated device computes nothing, and its gradients are known: what comes of them proves the exchange.

Each device's gradient is f (w + 1), with f another one for each device and 1 on average. So the mean of all takes w + 1 to
(1 - rate) (w + 1) in each step, and whoever leaves a worker out, adds instead of averaging, or reads stale parameters
ends elsewhere.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import models
from harness.datasets.make import make
from harness.models.initial import initial_values
from tests.conftest import Harness
from tests.made import content
from tests.parity.conftest import ENOUGH, WAYS, Way, each

MODEL, STEPS, RATE = "mnist_cnn", 5, 0.01
DEVICE = """
description = "a device of this test"
forward_share = 0.3
[mnist_cnn]
img_per_s = 200
batch_size = 20
source = "this test"
"""


@pytest.mark.parametrize("scale", [0.1, pytest.param(1.0, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("way", each(WAYS), ids=str)
def test_parameters_of_emulated_devices_go_where_the_mean_of_known_gradients_takes_them(
    harness: Harness, environment: Callable[..., Path], tmp_path: Path, way: Way, scale: float
) -> None:
    reached(harness, environment, tmp_path, way, scale)


@pytest.mark.parametrize("way", each(WAYS, ENOUGH), ids=str)
def test_emulated_devices_read_real_images_and_their_gradients_are_the_same(
    harness: Harness, environment: Callable[..., Path], tmp_path: Path, way: Way
) -> None:
    """Labels and images are real, so a loss is that of as many classes as the model has: all logits are zero."""
    make(tmp_path / "set", 60, 2, (64, 48), seed=1)
    data = ("--data", str(tmp_path / "set"), "--data-threads", "1", "--data-cache", "warm")
    for rank in reached(harness, environment, tmp_path, way, 0.1, *data):
        assert len(rank["input_wait_s"]) == STEPS - 1
        assert rank["evidence"]["data_cache"]["left"] == 1
        assert rank["evidence"]["data_cache"]["read_bytes"] < 20 * rank["evidence"]["data_cache"]["image_bytes"]
        assert rank["evidence"]["losses"] == pytest.approx(
            [np.log(models.specification(MODEL).num_classes)] * STEPS, rel=1e-5
        )


def reached(
    harness: Harness, environment: Callable[..., Path], tmp_path: Path, way: Way, scale: float, *more: str
) -> list[dict[str, Any]]:
    """Check which parameters two devices reach in a run with ``more`` options. Returns what its ranks say."""
    environment(way.backend, way.framework)
    (tmp_path / "device.toml").write_text(DEVICE)
    servers = ["--ps", "2"] if way.has_servers else []
    done = harness(
        *("run", *way.arguments, *servers, "--model", MODEL, "--nodes", "2", "--batch-size", "20", "--threads", "1"),
        *("--device", f"emulated:{tmp_path}/device.toml", "--dilation", "2", "--bytes-scale", str(scale)),
        *("--warmup", "1", "--steps", str(STEPS - 1), "--repeats", "1", "--learning-rate", str(RATE)),
        *("--save-parameters", *more),
    )
    assert done.code in (0, 1), done.stderr  # whether this machine kept up is another question
    (run,) = (tmp_path / "runs").iterdir()
    ranks = content(run / "record.json")["repeats"][0]["ranks"]
    assert all(rank["kept"]["forked"] for rank in ranks), "a framework starts threads as it is imported"
    specification = models.specification(MODEL, scale)
    first = initial_values(specification, seed=1)
    for rank in range(2):
        arrived = np.load(run / "repeat-1" / f"parameters-{rank}.npz")
        for tensor in specification.tensors:
            expected = (1 - RATE) ** STEPS * (first[tensor.name].astype(float) + 1) - 1
            np.testing.assert_allclose(arrived[tensor.name], expected, atol=1e-6, err_msg=f"{tensor.name} of {rank}")
    return list(ranks)
