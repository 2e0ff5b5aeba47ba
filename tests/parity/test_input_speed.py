"""``benchmarks/input_pipelines.py``: all pipelines read for real, and are told apart."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.datasets.make import make
from harness.worker.inputs.index import scan, write
from tests.conftest import PATIENCE_S, ROOT


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "backend"), [("torch", "pytorch"), ("tensorflow", "parameter_server")])
def test_a_pipeline_counts_its_images_or_names_a_bad_one(
    environment: Callable[..., Path], tmp_path: Path, framework: str, backend: str
) -> None:
    """A batch system's TMPDIR may be longer than the address of a socket, of which decoders have some."""
    make(tmp_path / "set", 8, 2, (64, 48), seed=1)
    write(scan(tmp_path / "set"), tmp_path / "index")
    (long := tmp_path / ("job" * 40)).mkdir()
    arguments = {"index": str(tmp_path / "index"), "decoders": 1, "batch_size": 4, "image_size": 32}
    command = [environment(backend), ROOT / "benchmarks/read_images.py", framework, json.dumps(arguments)]
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TMPDIR": str(long)}

    def answer() -> dict[str, Any]:
        done = subprocess.run(
            command, env=environ, input="0.2\n", capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
        answered: dict[str, Any] = json.loads(done.stdout)
        return answered

    measured = answer()
    assert measured["images"] >= 4 and measured["wall_s"] >= 0.2 and measured["processor_s"] >= 0, measured
    (bad := next((tmp_path / "set").glob("train/*/*.JPEG"))).write_text("no image")
    assert answer() == {"error": f"bad image {bad}: neither JPEG nor PNG"}


@pytest.mark.slow
def test_pipelines_are_measured_beside_those_of_others(environment: Callable[..., Path], tmp_path: Path) -> None:
    for backend in ("pytorch", "parameter_server"):
        environment(backend)
    make(tmp_path / "files", 24, 2, (64, 48), seed=1)
    command = [sys.executable, str(ROOT / "benchmarks/input_pipelines.py"), "--files", "files", "--shards", "shards"]
    command += ["--image-size", "32", "--batch-size", "4", "--threads", "1", "--seconds", "0.2", "--rounds", "1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert len([*(tmp_path / "shards").glob("train-*-of-00016")]) == 16
    shown = done.stdout.splitlines()
    assert [line.endswith("ms per image") for line in shown] == [True] * 6 + [False] * 4
    assert all(": median ratio " in line for line in shown[6:])
