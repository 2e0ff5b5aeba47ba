"""Whoever distributes the training, it is the same training: all losses agree, step by step.

Every backend, on each of its frameworks, over each of its transports, trains the same network from the same weights on the
same synthetic images, and a backend of each framework on the same real ones. Gradients that are summed instead of averaged
set losses apart by more than 5 ‰ from the third step on: five times the tolerance.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.datasets import make
from tests.conftest import Harness
from tests.parity.conftest import HOMES, QUICK, STEPS, TRAINED_IN_CI, WAYS, Record, Way, each
from tests.shards import write_shard

TOLERANCE = 1e-3
TwoWorkers = Callable[[Way], Record]


def losses(record: Record) -> np.ndarray:
    """The loss of every step since the start, the mean over all ranks."""
    ranks = record["repeats"][0]["ranks"]
    assert [rank["rank"] for rank in ranks] == [0, 1]
    return np.mean([rank["evidence"]["losses"] for rank in ranks], axis=0)


@pytest.mark.parametrize("way", each(WAYS, TRAINED_IN_CI), ids=str)
def test_the_loss_of_every_step_is_kept_and_falls(two_workers: TwoWorkers, way: Way) -> None:
    found = losses(two_workers(way))
    assert found.shape == (STEPS,)
    assert np.isfinite(found).all() and len(set(found)) == STEPS
    assert found[-1] < 0.9 * found[0]
    (outcome,) = two_workers(way)["derived"]["fingerprint"]["outcomes"]
    assert outcome["losses"] == pytest.approx(found[:10], rel=1e-12)


@pytest.mark.parametrize(
    "ways",
    [
        pytest.param(QUICK, id="quick"),
        pytest.param(TRAINED_IN_CI, id="for ci", marks=pytest.mark.slow),
        pytest.param(WAYS, id="all", marks=[pytest.mark.slow, pytest.mark.exhaustive]),
    ],
)
def test_the_losses_of_all_backends_on_the_same_images_agree_step_by_step(
    two_workers: TwoWorkers, ways: list[Way]
) -> None:
    found = {str(way): losses(two_workers(way)) for way in ways}
    assert len(found) == len(ways) > 1
    all_of_them = np.array(list(found.values()))
    spread = np.ptp(all_of_them, axis=0) / all_of_them.min(axis=0)
    assert spread.shape == (STEPS,)
    assert (spread <= TOLERANCE).all(), (spread, found)


@pytest.mark.slow
def test_all_frameworks_read_the_same_crops_of_the_same_images_and_learn_the_same_from_them(
    harness: Harness, environment: Callable[..., Path], tmp_path: Path, temporary: Path
) -> None:
    """From shards, whose records neither shards nor ranks divide. An epoch is three steps, and every epoch crops anew.

    Nothing of it is left in the temporary folder, but a cache that PyTorch keeps for later.
    """
    make.make(tmp_path / "images", 25, 3, (100, 75), seed=1)
    images = [(file.name, file.read_bytes(), int(file.parent.name[1:])) for file in tmp_path.rglob("*.JPEG")]
    for shard in range(3):
        write_shard(tmp_path / "shards" / f"train-{shard:05}-of-00003", images[shard::3])
    settings = ["--nodes", "2", "--model", "pointwise", "--batch-size", "4", "--image-size", "32", "--threads", "1"]
    settings += ["--warmup", "2", "--steps", "6", "--repeats", "1", "--learning-rate", "0.001", "--data", "shards"]
    found = {}
    for framework, backend in HOMES.items():
        environment(backend)
        done = harness("run", "--backend", backend, *settings, "--json", TMPDIR=str(temporary))
        found[framework] = losses(done.succeeded().json)
        assert not [left for left in temporary.iterdir() if not left.name.startswith("torchinductor_")]
    ours = found["torch"]
    assert len(set(ours)) == len(ours) == 8
    for theirs in found.values():
        assert theirs == pytest.approx(ours, rel=1e-5)
