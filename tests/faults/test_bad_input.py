"""A request that cannot be carried out: one line that says what, where and what would be right; nothing is started."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import made
from tests.conftest import Harness, shell_program
from tests.wording import Case, Wording, cases

PYTORCH = ["run", "--backend", "pytorch"]


@pytest.fixture
def things(tmp_path: Path) -> Path:
    """A folder with a file, and data sets that are none."""
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    three = [f"three/{name}/one.jpg" for name in "abc"]
    for name in ("imageless/a/notes.txt", "single/a/one.jpg", *three):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    for name in ("incomplete/train-00000-of-00002", "damaged/train-00000-of-00001"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"not a TFRecord, though as long as one")
    return tmp_path


@cases
def test_a_wrong_request_is_refused_in_one_line(refused: Harness, things: Path, case: Case) -> None:
    names = {"LONG_NAME": "x" * 5000, "MANY_NINES": "9" * 400, "HERE": things}
    before = set(things.rglob("*"))
    case.refused(refused(*case.words(**names)), **names)
    made = set(things.rglob("*")) - before
    assert made <= {things / "runs"}, "nothing but an empty folder for runs may be there"


def test_cuda_without_a_gpu_is_refused(harness: Harness) -> None:
    harness(*PYTORCH, "--device", "cuda", CUDA_VISIBLE_DEVICES="").refused(
        "--device cuda", "0 GPUs", "--devices-per-node asks for 1"
    )


@pytest.mark.parametrize(
    ("options", "missing"), [("", "torch"), ("-S", "numpy and torch")], ids=["no framework", "nothing"]
)
def test_a_python_without_the_packages_is_refused_before_anything_is_begun(
    harness: Harness, tmp_path: Path, options: str, missing: str
) -> None:
    python = shell_program(tmp_path / "python", f'exec {sys.executable} {options} "$@"')
    harness(*PYTORCH, "--env", str(python)).refused(
        f"{python} is a Python without {missing}: give --env PYTHON of one that has what pytorch"
    )
    assert not (tmp_path / "runs").exists()
    harness(*PYTORCH, "--env", str(python), "--dry-run").succeeded()


def test_a_busy_port_is_refused_by_its_number(harness: Harness) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        harness(*PYTORCH, "--port", str(port)).refused(f"--port {port}", f"port {port} is in use")
        # … also when it is not the first one of the run
        harness(*PYTORCH, "--nodes", "2", "--port", str(port - 1)).refused(f"port {port} is in use")


@cases
def test_a_missing_environment_is_refused_with_the_command_that_builds_it(
    harness: Harness, tmp_path: Path, case: Case
) -> None:
    case.refused(harness(*case.words(), HARNESS_CACHE=str(tmp_path / "cache")))
    assert list(tmp_path.iterdir()) == []


def test_a_comparison_checks_every_run_before_it_starts_one(harness: Harness, things: Path) -> None:
    done = harness("run", "--backend", "all", "--nodes", "1,2", "--data", "single")
    done.refused("--data", "1 images for 2 ranks")
    assert not (things / "runs").exists()


def test_output_that_cannot_be_written_is_one_line_too() -> None:
    for command in (["list", "backends"], [*PYTORCH, "--dry-run"], ["--help"]):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "harness", *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )
        assert (done.returncode, done.stderr) == (1, "harness: cannot write the output: No space left on device\n")


def test_what_an_encoding_has_no_characters_for_is_no_error(harness: Harness, tmp_path: Path, wording: Wording) -> None:
    made.save(tmp_path / "plain", [made.record(nodes=2)])
    made.save(tmp_path / "mit ü", [made.record(nodes=4)])
    assert "pytorch      2  100.00" in harness("table", "plain", PYTHONIOENCODING="ascii").succeeded().stdout
    in_ascii = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = harness("table", ".", **in_ascii).succeeded()
    assert "pytorch      2  100.00" in done.stdout and "pytorch      4" not in done.stdout
    wording("mit ü").ended(done, 0)
    wording("its path").refused(harness("table", "mit ü", **in_ascii))


def test_an_output_whose_name_no_record_could_hold_is_refused_before_anything_is_written(
    harness: Harness, things: Path
) -> None:
    before = {*things.iterdir()}
    harness(*PYTORCH, "--output", os.fsdecode(b"runs-\xff")).refused("--output '/", "is no text in")
    assert {*things.iterdir()} == before
