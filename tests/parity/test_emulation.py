"""An emulated device computes nothing, and its gradients are known: what comes of them proves the exchange.

Each device's gradient is f (w + 1), with f another one for each device and 1 on average. So the mean of all takes w + 1 to
(1 - rate) (w + 1) in each step, and whoever leaves a worker out, adds instead of averaging, or reads stale parameters
ends elsewhere.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness import models
from harness.models.initial import initial_values
from tests.conftest import Harness
from tests.made import content
from tests.parity.conftest import WAYS, Way, each

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
    environment(way.backend, way.framework)
    (tmp_path / "device.toml").write_text(DEVICE)
    servers = ["--ps", "2"] if way.has_servers else []
    done = harness(
        *("run", *way.arguments, *servers, "--model", MODEL, "--nodes", "2", "--batch-size", "20", "--threads", "1"),
        *("--device", f"emulated:{tmp_path}/device.toml", "--dilation", "2", "--bytes-scale", str(scale)),
        *("--warmup", "1", "--steps", str(STEPS - 1), "--repeats", "1", "--learning-rate", str(RATE)),
        "--save-parameters",
    )
    assert done.code in (0, 1), done.stderr  # whether this machine kept up is another question
    (run,) = (tmp_path / "runs").iterdir()
    ranks = content(run / "record.json")["repeats"][0]["ranks"]
    assert all(rank["kept"]["forked"] for rank in ranks), "a framework starts threads as it is imported"
    specification = models.specification(MODEL, scale)
    first = initial_values(specification, seed=1)
    for rank in range(2):
        reached = np.load(run / "repeat-1" / f"parameters-{rank}.npz")
        for tensor in specification.tensors:
            expected = (1 - RATE) ** STEPS * (first[tensor.name].astype(float) + 1) - 1
            np.testing.assert_allclose(reached[tensor.name], expected, atol=1e-6, err_msg=f"{tensor.name} of {rank}")
