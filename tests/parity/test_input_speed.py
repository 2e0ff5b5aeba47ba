"""``harness data bench``: both pipelines read for real, and are told apart."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.datasets.make import make
from tests.conftest import ROOT, Harness


@pytest.mark.slow
def test_each_pipeline_is_measured_in_images_per_second_of_processor_time(harness: Harness, tmp_path: Path) -> None:
    make(tmp_path / "set", 24, 2, (64, 48), seed=1)
    settings = ["--image-size", "32", "--batch-size", "4", "--threads", "1", "--seconds", "0.5", "--rounds", "2"]
    told = harness("data", "bench", "set", *settings, "--json").succeeded().json
    assert set(told["pipelines"]) == {"torch", "tensorflow"}
    for speed in told["pipelines"].values():
        assert speed["img_per_s"] > 0
        assert speed["img_per_processor_s"] == pytest.approx(1e3 / speed["processor_ms_per_image"], rel=0.2)
    shown = harness("data", "bench", "set", "--pipeline", "torch", *settings).succeeded().stdout.splitlines()
    assert shown[0] == "24 images, 32 px, batches of 4, 1 thread"
    assert shown[-1].startswith("torch ")
    # A batch system's TMPDIR may be longer than the address of a socket.
    (long := tmp_path / ("job" * 40)).mkdir()
    harness("data", "bench", "set", "--pipeline", "torch", *settings, TMPDIR=str(long)).succeeded()
    (bad := next((tmp_path / "set").glob("train/*/*.JPEG"))).write_text("no image")
    for pipeline in ("torch", "tensorflow"):
        refused = harness("data", "bench", "set", "--pipeline", pipeline, *settings)
        assert refused.code == 1 and f"bad image {bad}: neither JPEG nor PNG" in refused.stderr, refused.stderr


@pytest.mark.slow
def test_pipelines_are_measured_beside_those_of_others(
    harness: Harness, environment: Callable[..., Path], tmp_path: Path
) -> None:
    for backend in ("pytorch", "parameter_server"):
        environment(backend)
    make(tmp_path / "files", 24, 2, (64, 48), seed=1)
    harness("data", "convert", "files", "shards", "--shards", "2").succeeded()
    command = [sys.executable, str(ROOT / "benchmarks/input_pipelines.py"), "--files", "files", "--shards", "shards"]
    command += ["--image-size", "32", "--batch-size", "4", "--threads", "1", "--seconds", "0.2", "--rounds", "1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    shown = done.stdout.splitlines()
    assert [line.endswith("ms per image") for line in shown] == [True] * 6 + [False] * 4
    assert all(": median ratio " in line for line in shown[6:])


def test_there_must_be_images_to_read(harness: Harness) -> None:
    refused = harness("data", "bench", "nothing")
    assert (refused.code, len(refused.stderr.splitlines())) == (2, 1)
    assert "nothing" in refused.stderr
    for command in ("bench", "check"):
        refused = harness("data", command, "x" * 300)
        assert refused.code == 2 and refused.stderr.endswith(f"{'x' * 300}: File name too long\n"), refused.stderr
        assert refused.stderr.startswith("harness: cannot read ") and refused.stderr.count("\n") == 1
