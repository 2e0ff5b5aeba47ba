"""An input pipeline that cannot keep up is found and named, one that can is not blamed."""

from pathlib import Path
from typing import Any

import pytest

from harness.datasets.make import make
from tests.conftest import Finished, Harness

TINY = ["--model", "pointwise", "--image-size", "32", "--threads", "1", "--data-threads", "1"]
STEPS = ["--warmup", "2", "--steps", "6", "--repeats", "1"]


def ran(harness: Harness, *options: str) -> Finished:
    return harness("run", *TINY, *STEPS, *options).succeeded()


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 13 megapixels each."""
    folder = tmp_path_factory.mktemp("photographs")
    make(folder, 8, 2, (4200, 3100), seed=1)
    return folder


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("backend", ["pytorch", "parameter_server"])
def test_a_decoder_that_is_too_slow_is_found_and_blamed(harness: Harness, photographs: Path, backend: str) -> None:
    """The throttle: one thread that decodes photographs for a network of a few milliseconds a step.

    There are so many that a step, which shares busy processors with that thread, remains short beside them.
    """
    options = ["--backend", backend, "--batch-size", "16", "--data", str(photographs), "--data-cache", "warm"]
    told: dict[str, Any] = ran(harness, *options, "--json").json
    (rank,) = told["repeats"][0]["ranks"]
    assert len(rank["input_wait_s"]) == 6
    assert sum(rank["input_wait_s"]) > 0.5 * rank["marks_s"][-1]
    assert rank["evidence"]["data_cache"]["left"] == 1


@pytest.mark.slow
def test_a_decoder_that_keeps_up_is_not_blamed(harness: Harness, tmp_path: Path) -> None:
    """Long steps, images of a few pixels."""
    make(tmp_path / "small", 24, 2, (64, 48), seed=1)
    slow = ["--model", "resnet50", "--image-size", "64", "--batch-size", "8", "--steps", "4"]
    done = ran(harness, "--backend", "pytorch", *slow, "--data", "small", "--data-cache", "cold")
    assert "page cache cold: 0% to 0% of the images in memory" in done.stdout
    waited = float(done.stdout.partition("ms per step waited")[0].rpartition("input")[2])
    step = float(done.stdout.partition("step time  p50 ")[2].partition(" ms")[0])
    assert waited < 0.3 * step


def test_the_page_cache_is_set_for_files_only(harness: Harness) -> None:
    harness("run", "--backend", "pytorch", *TINY, "--data-cache", "cold").refused(
        "--data-cache cold: synthetic images are not read; give --data PATH"
    )
