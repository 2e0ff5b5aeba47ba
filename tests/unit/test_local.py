"""What the local launcher makes of this machine's GPUs."""

import subprocess
import time
from functools import partial

import psutil
import pytest

from harness.launch import local
from harness.launch.forked import Started
from harness.running.prepare import Place
from harness.worker import proc
from tests.conftest import PATIENCE_S

UUIDS = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,GPU-d0a4f1c2-5a7b-4c5e-9d1e-0a1b2c3d4e5f"
MIG = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f,MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/0"


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [
        ("0,2", ["0", "2"]),
        (UUIDS, UUIDS.split(",")),
        (MIG, MIG.split(",")),
        ("0, 1", ["0", "1"]),
        ("0,-1,1", ["0"]),  # CUDA ignores what follows a wrong name
        ("-1", []),
        ("NoDevFiles", []),
        ("", []),
    ],
)
def test_gpus_are_those_that_are_visible_by_number_uuid_or_mig_name(
    monkeypatch: pytest.MonkeyPatch, visible: str, gpus: list[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert local.local_gpus() == gpus
    assert Place().device("auto") == ("cuda" if gpus else "cpu")


def test_what_a_rank_has_left_behind_in_its_group_is_ended_after_it() -> None:
    popen = subprocess.Popen(["sh", "-c", "sleep 600 & echo $!"], stdout=subprocess.PIPE, start_new_session=True)
    assert popen.stdout
    left = psutil.Process(int(popen.stdout.readline()))
    rank = Started(popen.pid, partial(proc.exit_code, popen.pid), lambda: popen.returncode is None, popen.poll)
    while rank.poll() is None:
        time.sleep(0.01)
    local._end([rank])
    assert (popen.returncode, rank.is_held()) == (0, False)
    deadline = time.monotonic() + PATIENCE_S
    while left.is_running() and left.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
    popen.stdout.close()
