"""The disk fills up: one message says so, and no number is printed that could not be recorded."""

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import FEW_STEPS, SOONEST
from tests.faults.conftest import Begin

NO_SPACE = "No space left on device"


def disk(folder: Path, size: str) -> list[str]:
    """A command that runs another one with a disk of its own at ``folder``; other processes see it through ``inside``."""
    folder.mkdir()
    mount = f'mount -t tmpfs -o size={size} tmpfs "{folder}" && exec "$@"'
    return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]


def inside(pid: int, folder: Path) -> Path:
    """``folder`` as the process sees it."""
    return Path(f"/proc/{pid}/root{folder}")


def fill(file: Path) -> None:
    """Take all the space there is."""
    with file.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(os.sysconf("SC_PAGE_SIZE")))
        except OSError:
            pass


def test_a_disk_without_room_for_the_run_directory(begin: Begin, tmp_path: Path) -> None:
    run = begin("pytorch", *FEW_STEPS, wrapper=disk(tmp_path / "runs", "4k")).end()
    assert (run.code, run.stdout, run.stderr.count("\n")) == (1, "", 1)
    assert run.stderr.startswith("harness: cannot write ") and NO_SPACE in run.stderr


def test_a_disk_that_is_full_when_the_record_is_written(begin: Begin, tmp_path: Path) -> None:
    run = begin("pytorch", *FEW_STEPS, wrapper=disk(tmp_path / "runs", "1m"))
    run.output = inside(run.process.pid, tmp_path / "runs")
    run.in_the_window()
    fill(run.output / "filler")
    run.end()
    assert (run.code, run.stdout) == (1, ""), run.stderr
    assert run.stderr.startswith("harness: cannot write ") and NO_SPACE in run.stderr


def test_a_disk_that_a_worker_fills(begin: Begin, tmp_path: Path) -> None:
    """The parameters take 12 MB. The worker says so although the disk is full, and so does the missing record."""
    run = begin(SOONEST, *FEW_STEPS, "--save-parameters", wrapper=disk(tmp_path / "runs", "1m")).end()
    assert (run.code, run.stdout) == (1, ""), run.stderr
    assert run.stderr.startswith("harness: cannot write ") and run.stderr.count("cannot write") == 1
    assert "before that: worker rank " in run.stderr and f"failed: OSError: [Errno 28] {NO_SPACE}" in run.stderr


def test_a_disk_without_room_for_a_set_that_is_made(tmp_path: Path) -> None:
    """Nothing of it is left."""
    made = [sys.executable, "-m", "harness", "data", "make", "set/images", "--images", "40"]
    listed = ["sh", "-c", '"$@"; code=$?; ls -A set/images; exit $code', "sh", *made]
    done = subprocess.run(
        [*disk(tmp_path / "set", "128k"), *listed], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert done.stderr.startswith("harness: cannot write ") and NO_SPACE in done.stderr
