"""The task that attends one process on its host: real processes, ended in every way, and what is noted about them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.launch.script import WORKER
from harness.worker.agent.seating import Hosts
from tests.wording import Case, cases

SLEEP = "import time; time.sleep(60)"


class Task:
    """``task.py`` with one planned process, which runs Python ``code``."""

    def __init__(self, folder: Path, code: str, timeout_s: float = 30, env: dict[str, str] | None = None) -> None:
        self.folder = folder
        (folder / "repeat-1" / "events").mkdir(parents=True)
        (folder / "spec.json").write_text(json.dumps({"timeout_s": timeout_s}))
        where = {"index": 0, "role": "worker", "rank": 0, "node": 0, "host": "here", "address": "127.0.0.1"}
        process = where | {"argv": [sys.executable, "-c", code], "env": {"PLANNED": "yes", **(env or {})}}
        (folder / "plan.json").write_text(json.dumps({"processes": [process]}))
        self.environ: dict[str, str] = {}

    def start(self) -> subprocess.Popen[bytes]:
        where = ["--run", str(self.folder), "--repeat", "1", "--index", "0"]
        return subprocess.Popen(
            [sys.executable, str(WORKER / "agent" / "task.py"), *where], env={**os.environ, **self.environ}
        )

    def exit(self) -> dict[str, Any]:
        lines = (self.folder / "repeat-1" / "events" / "worker-0.jsonl").read_text().splitlines()
        event: dict[str, Any] = json.loads(lines[-1])
        assert event["event"] == "exit"
        return event

    @property
    def log(self) -> str:
        return (self.folder / "repeat-1" / "logs" / "worker-0.log").read_text()


def child_of(task: subprocess.Popen[bytes]) -> psutil.Process:
    """Its process, once that is more than a copy of the task: to stop a copy would stop the task, which waits for it."""
    deadline, own = time.monotonic() + 20, psutil.Process(task.pid)
    while not (children := own.children()) or children[0].cmdline() == own.cmdline():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return children[0]


def test_the_process_gets_its_environment_its_repeat_and_its_log(tmp_path: Path) -> None:
    task = Task(tmp_path, "import os, sys; print(os.environ['PLANNED'], sys.argv[1:])")
    assert task.start().wait(20) == 0
    assert task.log == "yes ['--repeat', '1']\n"
    assert task.exit()["code"] == 0


@pytest.mark.parametrize(
    ("code", "exit_code", "noted"), [("raise SystemExit(7)", 7, 7), ("import os; os.kill(os.getpid(), 9)", 137, -9)]
)
def test_how_the_process_ended_is_passed_on_and_noted(tmp_path: Path, code: str, exit_code: int, noted: int) -> None:
    task = Task(tmp_path, code)
    assert task.start().wait(20) == exit_code
    assert task.exit()["code"] == noted and "asked" not in task.exit()


@pytest.mark.parametrize("stopped", [False, True])
def test_a_process_that_does_not_end_is_ended(tmp_path: Path, stopped: bool) -> None:
    task = Task(tmp_path, SLEEP, timeout_s=1.5)
    started = task.start()
    child = child_of(started)
    if stopped:
        child.suspend()
    assert started.wait(60) == 124
    assert (task.exit()["how"], task.exit()["stopped"]) == ("timeout", stopped)
    assert not child.is_running()


def test_a_launcher_that_ends_the_task_is_no_failure_of_the_process(tmp_path: Path) -> None:
    task = Task(tmp_path, SLEEP)
    started = task.start()
    child = child_of(started)
    started.send_signal(signal.SIGTERM)
    assert started.wait(20) == 143
    assert task.exit()["asked"] == "SIGTERM"
    assert not child.is_running()


def test_a_signal_to_all_processes_of_the_job_is_the_launchers_too(tmp_path: Path) -> None:
    task = Task(tmp_path, SLEEP)
    started = task.start()
    child = child_of(started)
    child.terminate()
    started.send_signal(signal.SIGTERM)
    started.wait(20)
    assert task.exit()["asked"] == "SIGTERM"


def test_a_process_killed_just_before_the_launcher_ends_its_task_was_killed(tmp_path: Path) -> None:
    """Another rank fails of its death, and the launcher ends all tasks before this one has looked."""
    task = Task(tmp_path, SLEEP)
    started = task.start()
    child = child_of(started)
    started.send_signal(signal.SIGSTOP)
    child.kill()
    while child.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    started.send_signal(signal.SIGTERM)
    started.send_signal(signal.SIGCONT)
    assert started.wait(20) == 137
    assert task.exit()["code"] == -signal.SIGKILL and "asked" not in task.exit()


def test_a_process_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    task = Task(tmp_path, "")
    plan = json.loads((tmp_path / "plan.json").read_text())
    plan["processes"][0]["argv"][0] = "/no/such/python"
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert task.start().wait(20) == 1
    assert task.exit()["how"] == "cannot be started: /no/such/python: No such file or directory"


def test_a_task_on_the_wrong_node_starts_nothing(tmp_path: Path) -> None:
    task = Task(tmp_path, SLEEP)
    task.environ = {"SLURMD_NODENAME": "elsewhere"}
    assert task.start().wait(20) == 1
    assert task.exit()["how"] == "was started on elsewhere, planned on here"


@cases
def test_a_task_that_is_not_as_the_site_has_set_it_up_starts_nothing(tmp_path: Path, case: Case) -> None:
    """``promised`` are variables of the job, ``here`` those of the task; ``cpus`` are the CPUs of the site's profile."""
    given = {"promised": {}, "here": {}, "cpus": 0, "address": "127.0.0.1", "image": None}
    given |= eval(f"dict({case.request})")
    task = Task(tmp_path, "print('started')")
    plan = json.loads((tmp_path / "plan.json").read_text())
    if given["image"]:
        plan["container"] = {"image": given["image"]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    hosts = Hosts([("here", given["address"])], "2026-01-01", promised=given["promised"], cpus=given["cpus"])
    hosts.write(tmp_path / "repeat-1")
    task.environ = given["here"]
    cpus = len(os.sched_getaffinity(0))
    if task.start().wait(20) == 0:
        case.answered(task.log.strip())
    else:
        case.answered(task.exit()["how"], CPUS=f"use {cpus} of")


SEEN = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'] or 'none')"


@cases
def test_gpus_are_those_that_the_batch_system_handed_out(tmp_path: Path, case: Case) -> None:
    gpus = eval(f"dict({case.request})")
    task = Task(tmp_path, SEEN, env={"CUDA_VISIBLE_DEVICES": gpus["planned"]})
    task.environ = {"CUDA_VISIBLE_DEVICES": gpus["handed_out"]}
    assert task.start().wait(20) == 0
    case.answered(task.log.strip())


@pytest.mark.parametrize(
    ("handed_out", "given"),
    [("NoDevFiles", "no"), ("1", "1"), ("2,3", "2")],  # the last: --gpu-bind=closest, on a node of four
)
def test_gpus_that_are_too_few_for_the_processes_of_a_node_are_refused(
    tmp_path: Path, handed_out: str, given: str
) -> None:
    task = Task(tmp_path, SEEN, env={"CUDA_VISIBLE_DEVICES": "0"})
    plan = json.loads((tmp_path / "plan.json").read_text())
    plan["processes"] += [
        {**plan["processes"][0], "env": {"CUDA_VISIBLE_DEVICES": str(number)}} for number in range(1, 4)
    ]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    task.environ = {"CUDA_VISIBLE_DEVICES": handed_out}
    assert task.start().wait(20) == 1
    how = (
        f"gave this task {given} GPUs (CUDA_VISIBLE_DEVICES={handed_out}), and the processes of its node are to have 4"
    )
    assert how in task.exit()["how"]


@pytest.mark.parametrize("how", [{"SLURM_GPUS_PER_TASK": "1"}, {"SLURM_TRES_PER_TASK": "cpu=4,gres/gpu=1"}])
def test_a_gpu_that_the_batch_system_handed_to_this_task_is_its_own(tmp_path: Path, how: dict[str, str]) -> None:
    """Within its control group each task's GPU has the number 0."""
    task = Task(tmp_path, SEEN, env={"CUDA_VISIBLE_DEVICES": "3"})
    task.environ = {"CUDA_VISIBLE_DEVICES": "0", **how}
    assert task.start().wait(20) == 0
    assert task.log == "0\n"
