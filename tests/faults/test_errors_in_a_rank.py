"""A rank raises an error, or computes nonsense: the run fails with that rank's own words."""

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import FEW_STEPS, ROOT, Harness, laid_out, shell_program
from tests.faults.conftest import Begin
from tests.faults.matrix import each
from tests.faults.running import LONG, TINY
from tests.parity.conftest import Way
from tests.shards import write_shard


@each("way", ("local",), "bad image")
def test_a_corrupted_image_fails_the_run_and_is_named(begin: Begin, images: Path, way: Way) -> None:
    (bad,) = images.glob("train/n00000002/*_3.JPEG")
    bad.write_bytes(b"\xff\xd8 this was an image once")
    run = begin(way, "--data", str(images), "--warmup", "1", "--steps", LONG)
    run.pid("worker-0"), run.pid("worker-1")
    run.end().failed_saying(" failed: BadImage: bad image", str(bad), "worker rank ", " on node")


@pytest.mark.parametrize("backend", ["pytorch", pytest.param("parameter_server", marks=pytest.mark.slow)])
def test_a_label_that_the_model_does_not_have_fails_the_run_and_the_record_is_named(
    begin: Begin, images: Path, tmp_path: Path, backend: str
) -> None:
    files = sorted(images.rglob("*.JPEG"))
    shard = tmp_path / "shards" / "train-00000-of-00001"
    write_shard(
        shard, [(file.name, file.read_bytes(), 1700 if number == 5 else 1) for number, file in enumerate(files)]
    )
    run = begin(backend, "--data", str(shard.parent), "--warmup", "1", "--steps", LONG)
    run.end().failed_saying(
        f" failed: BadImage: bad image {shard} at byte ",
        f"({files[5].name}): label 1700, but the model has 1001 classes",
    )


@each("way", ("local",), "divergence")
def test_a_training_that_diverges_gives_no_number(begin: Begin, way: Way) -> None:
    run = begin(way, "--learning-rate", "1e30", "--warmup", "2", "--steps", "3").end()
    run.failed_saying("repeat 1 does not count: finite: ")
    assert "ranks [0, 1]" in run.record["reason"]


def test_a_python_that_cannot_be_started_fails_the_run_and_is_named(begin: Begin, tmp_path: Path) -> None:
    """It answers when asked for its version, and then loses its permission."""
    python = shell_program(tmp_path / "python", f'chmod -x "$0"\nexec {sys.executable} "$@"')
    run = begin("pytorch", "--env", str(python), *FEW_STEPS).end()
    assert run.code == 1
    assert f"worker rank 0 on node0 cannot be started: {python}: Permission denied" in run.stderr
    assert run.record["derived"] is None


def test_a_port_that_becomes_busy_after_planning_fails_the_run_and_is_named(begin: Begin) -> None:
    run = begin("pytorch", *FEW_STEPS)
    process = run.plan["processes"][-1]
    with socket.create_server((process["address"], process["port"])):
        run.end()
    message = f"{process['role']} rank {process['rank']} on {process['host']} failed: RuntimeError: cannot listen on "
    run.failed_saying(message + f"127.0.0.1:{process['port']}: Address already in use")


@pytest.mark.slow
def test_a_port_that_others_take_is_free_in_a_network_of_its_own(begin: Begin) -> None:
    run = begin("parameter_server", *FEW_STEPS)
    process = run.plan["processes"][-1]
    with socket.create_server((process["address"], process["port"])):
        assert run.end().code == 0, run.stderr


def test_a_worker_started_alone_reports_its_error_and_ends(
    harness: Harness, environment: Callable[[str], Path], tmp_path: Path
) -> None:
    """Its peer never comes: the rank that waits gives up by itself, without a launcher that watches over it."""
    laid_out(harness, tmp_path, "--backend", "pytorch", "--nodes", "2", *TINY, "--timeout", "3")
    main = ROOT / "harness" / "worker" / "main.py"
    arguments = ["--run", str(tmp_path), "--repeat", "1", "--index", "0"]
    done = subprocess.run(
        [environment("pytorch"), main, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    last = (tmp_path / "repeat-1" / "events" / "worker-0.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["event"] == "error"


@pytest.mark.slow
def test_an_image_that_vanishes_during_the_run_fails_it_and_is_named(begin: Begin, images: Path) -> None:
    run = begin("pytorch", "--data", str(images), "--warmup", "1", "--steps", LONG)
    run.in_the_window()
    shutil.rmtree(images / "train" / "n00000001")
    run.end().failed_saying(" failed: BadImage: bad image", "n00000001", "No such file or directory")
