"""``--compare-synthetic``: an input pipeline that cannot keep up is found and named, one that can is not blamed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.datasets.make import make
from tests.conftest import Finished, Harness

TINY = ["--model", "pointwise", "--image-size", "32", "--threads", "1", "--data-threads", "1"]
STEPS = ["--warmup", "2", "--steps", "6", "--repeats", "2"]


def compared(harness: Harness, *options: str) -> Finished:
    return harness("run", *TINY, *STEPS, "--compare-synthetic", *options).succeeded()


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
    options += ["--repeats", "1"]
    told: dict[str, Any] = compared(harness, *options, "--json").json
    overhead = told["io_overhead"]
    assert overhead["overhead"] > 0.5
    assert overhead["wait"]["per_step_s"] > 0.7 * overhead["longer_s"]
    ranks = told["real"]["repeats"][0]["ranks"]
    assert len(ranks[0]["input_wait_s"]) == 6
    assert ranks[0]["evidence"]["data_cache"]["left"] == 1
    assert told["synthetic"]["repeats"][0]["ranks"][0]["input_wait_s"] == []


@pytest.mark.slow
def test_a_decoder_that_keeps_up_is_not_blamed(harness: Harness, tmp_path: Path) -> None:
    """Long steps, images of a few pixels. Both records are kept, and the summary says what each was."""
    make(tmp_path / "small", 24, 2, (64, 48), seed=1)
    slow = ["--model", "resnet50", "--image-size", "64", "--batch-size", "8", "--steps", "4"]
    images = ["--data", "small", "--data-cache", "cold"]
    done = compared(harness, "--backend", "pytorch", *slow, *images, "--output", "runs")
    assert "page cache cold: 0% to 0% of the images in memory" in done.stdout
    assert done.stdout.startswith("I/O overhead ")
    assert done.stdout.rstrip().rpartition("\n")[2].startswith("total images/sec: ")
    assert len(list(tmp_path.glob("runs/*/record.json"))) == 2
    waited = float(done.stdout.partition("ms per step waited")[0].rpartition("input")[2])
    step = float(done.stdout.partition("step time  p50 ")[2].partition(" ms")[0])
    assert waited < 0.3 * step


def test_there_must_be_images_to_compare_with_synthetic_ones(harness: Harness) -> None:
    harness("run", "--backend", "pytorch", *TINY, "--compare-synthetic").refused(
        "--compare-synthetic: give --data PATH"
    )
    refused = harness("run", "--backend", "pytorch", *TINY, "--data-cache", "cold")
    assert "--data-cache cold: synthetic images are not read; give --data PATH" in refused.stderr
