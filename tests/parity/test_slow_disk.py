"""A disk that gives so many bytes a second: emulated devices wait for it as long as the law says, and for no longer."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from harness.core.emulation import KEPT_UP, STEADY
from tests.conftest import Finished, Harness
from tests.made import content
from tests.scripts import script

slow_disk = script("benchmarks/slow_disk.py")
DILATION, BATCH, IMG_PER_S = 4, slow_disk.BATCH, slow_disk.IMG_PER_S
STEP_S = BATCH / IMG_PER_S


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """With 9,000 images, more than a run reads, so that none is read twice."""
    if os.geteuid() or not slow_disk.LIMIT.exists():
        pytest.skip("to limit a disk takes root, and version 1 of the blkio controller of control groups")
    with slow_disk.mounted(tmp_path_factory.mktemp("disk"), 9000) as disk:
        yield disk


@pytest.mark.exhaustive  # on two cores all decode at once in 8 % of the slices, and 5 % are the limit: few runs count
@pytest.mark.parametrize(
    ("backend", "warmup", "steps", "tolerance"), [("pytorch", 16, 48, 0.1), ("parameter_server", 32, 96, 0.2)]
)
def test_a_step_waits_for_a_limited_disk_as_long_as_is_predicted_and_not_at_all_where_it_keeps_up(
    harness: Harness,
    environment: Callable[..., Path],
    disk: Any,
    tmp_path: Path,
    backend: str,
    warmup: int,
    steps: int,
    tolerance: float,
) -> None:
    """PyTorch is ahead by four batches. TensorFlow is by up to three groups of 256 images, of the 24 in its window: the
    wait is half of a step, so that one group more or less at an end changes it by 8 %.
    benchmarks/slow_disk.py has longer windows.
    """
    environment(backend)
    (tmp_path / "device.toml").write_text(slow_disk.DEVICE)
    counted = ("--backend", backend, "--nodes", "1", "--model", "mnist_cnn", "--batch-size", str(BATCH))
    emulated = ("--device", f"emulated:{tmp_path}/device.toml", "--dilation", str(DILATION), "--repeats", "1")
    data = ("--data", str(disk.images), "--data-threads", "2")

    def ran(name: str, *more: str) -> tuple[Path, dict[str, Any]]:
        """The folder and the rank of the first run that counts."""
        for attempt in range(15):
            runs = tmp_path / name / str(attempt)
            done = disk.harness(tmp_path, "run", *counted, *emulated, *more, "--output", str(runs))
            if not any(check in done.stderr for check in (*KEPT_UP, STEADY)):
                break
        Finished(done.returncode, done.stdout, done.stderr).succeeded()
        (record,) = runs.glob("*/record.json")
        return record.parent, content(record)["repeats"][0]["ranks"][0]

    def waited_s(rank: dict[str, Any]) -> float:
        return fmean(rank["input_wait_s"]) / DILATION

    disk.limit(1e9)
    alone, _ = ran("synthetic", "--warmup", "2", "--steps", "10")
    _, warm = ran("warm", "--warmup", "2", "--steps", "10", *data, "--data-cache", "warm")
    assert waited_s(warm) < 0.05 * STEP_S
    assert warm["evidence"]["data_cache"]["read_bytes"] < 10 * BATCH * disk.image_bytes / 20

    rate = IMG_PER_S / 2  # of the device; as many on the clock as the dilation has seconds for one
    disk.limit(rate / DILATION * disk.image_bytes)
    arguments = ("--single", str(alone), "--network", "9.5GB/s", "--read-rate", f"{rate:g}img/s", "--json")
    (predicted,) = harness("model", "predict", *counted[:2], "--nodes", "1", *arguments).succeeded().json["predictions"]
    assert predicted["read_by"] == "node"
    cold_steps = ("--warmup", str(warmup), "--steps", str(steps))
    _, cold = ran("cold", *cold_steps, *data, "--data-cache", "cold")
    share = cold["evidence"]["data_cache"]["read_bytes"] / (steps * BATCH * disk.image_bytes)
    assert waited_s(cold) == pytest.approx(predicted["read_wait_s"], rel=tolerance)
    assert share == pytest.approx(1, abs=3 / 24)
