"""What a run leaves behind when somebody kills, removes or fills what it needs."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from harness.launch import local
from tests.conftest import ROOT, Harness

CHILD = """
import subprocess, sys, time
child = subprocess.Popen(["sleep", "777"], start_new_session=True)
print("child", child.pid, flush=True)
time.sleep(60)
"""

# A trainer as MPICH 4.0.2 over UCX 1.13.1 made it: its end does not return.
ENDLESS = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
from harness.worker import main
main.LEAVE_S = 0.2
joined = SimpleNamespace(barrier=lambda: None, close=lambda: time.sleep(60))
main._leave(SimpleNamespace(rank=1), main.Events(Path(sys.argv[1])), joined)
"""


def begun(folder: Path, program: str) -> subprocess.Popen[str]:
    launch = [
        "launch",
        "--nodes",
        "2",
        "--output",
        str(folder / "runs"),
        "--quiet",
        "--",
        sys.executable,
        "-c",
        program,
    ]
    return subprocess.Popen(
        [sys.executable, "-m", "harness", *launch],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


def printed(folder: Path, word: str) -> list[str]:
    """What both ranks have printed behind a word, once they have."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        logs = [log.read_text() for log in folder.glob("runs/*/repeat-1/logs/worker-*.log")]
        if len(logs) == 2 and all(word in log for log in logs):
            return [log.partition(word)[2].split()[0] for log in logs]
        time.sleep(0.05)
    raise AssertionError(f"nobody has printed {word}")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_what_a_program_put_into_a_session_of_its_own_ends_though_its_wrapper_was_killed(
    tmp_path: Path, number: int
) -> None:
    run = begun(tmp_path, CHILD)
    children = [psutil.Process(int(pid)) for pid in printed(tmp_path, "child ")]
    wrapper = next(each for each in psutil.Process(run.pid).children(recursive=True) if "--index" in each.cmdline())
    wrapper.send_signal(number)
    assert run.wait(30) == 1
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)


def test_a_run_directory_that_vanishes_is_said_in_one_line(tmp_path: Path) -> None:
    run = begun(tmp_path, "import time; print('begun', 1, flush=True); time.sleep(2)")
    printed(tmp_path, "begun ")
    for path in sorted((tmp_path / "runs").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert run.wait(30) == 1
    assert run.stderr
    (line,) = run.stderr.read().splitlines()
    assert "is gone: somebody has removed the run directory meanwhile" in line


def test_a_rank_that_dies_of_a_real_time_signal_is_named(harness: Harness, tmp_path: Path) -> None:
    die = "import os; os.kill(os.getpid(), 35 if os.environ['RANK'] == '1' else 0)"
    launch = ("launch", "--nodes", "2", "--output", str(tmp_path / "runs"), "--quiet")
    done = harness(*launch, "--", sys.executable, "-c", die)
    assert done.code == 1 and "worker rank 1 on node1 was killed by signal 35" in done.stderr


def test_shared_memory_of_mpich_goes_once_nobody_maps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "SEGMENTS", tmp_path)
    dead, young, mapped, others = (tmp_path / name for name in ("mpich_1", "mpich_2", "mpich_3", "somebody"))
    for segment in (dead, young, mapped, others):
        segment.write_bytes(bytes(4096))
        if segment is not young:
            os.utime(segment, (0, 0))
    mapping = (
        f"import mmap, time; f = open({str(mapped)!r}, 'r+b'); m = mmap.mmap(f.fileno(), 0); print('mapped', flush=True); "
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", mapping], stdout=subprocess.PIPE) as holder:
        assert holder.stdout and holder.stdout.readline()
        local.remove_segments()
        holder.kill()
    assert {segment for segment in (dead, young, mapped, others) if segment.exists()} == {young, mapped, others}


def test_a_process_whose_library_does_not_end_ends_with_all_it_measured(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", ENDLESS, tmp_path / "events"], capture_output=True, text=True, timeout=30
    )
    assert (run.returncode, run.stderr) == (0, "") and "(MPI_Finalize) has not returned" in run.stdout
    assert '"event": "closed"' in (tmp_path / "events").read_text()
