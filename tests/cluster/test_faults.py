"""What goes wrong on clusters: every fault ends in the right status with its reason, no number, and no process left."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import FEW_STEPS, SOONEST, Finished

from .submitted import User, nothing_is_left
from .virtual import VirtualCluster

pytestmark = pytest.mark.cluster


@pytest.fixture
def user(cluster: VirtualCluster, tmp_path: Path, environment: Callable[..., Path]) -> Iterator[User]:
    environment(SOONEST)
    cluster.settle()  # so that jobs get the first nodes
    yield User(cluster, tmp_path)
    cluster.run("scancel", "--me")
    nothing_is_left(cluster)


def no_number(user: User, done: Finished, status: str, *words: str) -> None:
    record = user.record()
    assert done.code == 1 and "total images/sec" not in done.stdout
    assert (record["status"], record["derived"]) == (status, None)
    for word in words:
        assert word in record["reason"] and word in done.stderr, done.stderr


def test_a_killed_rank_is_named_with_its_node(user: User) -> None:
    run = user.begin()
    run.reaches("worker-1", "window")
    user.cluster.exec("node2", "kill", "-KILL", run.pid("worker-1")).succeeded()
    no_number(user, run.end(), "failed", "repeat 1", "worker rank 1 on node2 was killed by SIGKILL")
    assert not (run.folder / "repeat-2").exists()


@pytest.mark.slow
def test_a_stopped_rank_is_told_apart_from_those_that_wait_for_it(user: User) -> None:
    run = user.begin("--timeout", "25")
    run.reaches("worker-1", "window")
    user.cluster.exec("node2", "kill", "-STOP", run.pid("worker-1")).succeeded()
    no_number(user, run.end(), "failed", "worker rank 1 on node2 is stopped: no end after 25 s")


@pytest.mark.slow
def test_a_task_that_dies_takes_its_process_along(user: User) -> None:
    run = user.begin()
    run.reaches("worker-1", "window")
    tasks = [pid for pid, line in user.cluster.processes()["node2"] if "task.py" in line]
    user.cluster.exec("node2", "kill", "-KILL", str(tasks[0])).succeeded()
    no_number(user, run.end(), "failed", "repeat 1")


@pytest.mark.slow
def test_a_node_that_dies_in_the_window_is_named(user: User) -> None:
    run = user.begin()
    run.reaches("worker-1", "window")
    user.cluster.fail("node2")
    try:
        no_number(user, run.end(), "failed", "a node died", "node2")
    finally:
        user.cluster.boot("node2")


@pytest.mark.slow
def test_scancel_interrupts(user: User) -> None:
    run = user.begin()
    run.reaches("worker-0", "window")
    user.cluster.run("scancel", run.job).succeeded()
    no_number(user, run.end(), "interrupted", f"job {run.job} was cancelled in repeat 1")


@pytest.mark.slow
def test_harness_cancel_cancels_a_job_that_waits(user: User) -> None:
    user.cluster.run("sbatch", "--nodes=4", "--exclusive", "--wrap", "sleep 60", "-o", "/dev/null").succeeded()
    run = user.begin()
    user.cluster.wait(
        lambda: user.output.exists() and "queued" in user.harness("jobs", "status", str(user.output)).stdout,
        "is queued",
    )
    assert run.job in user.harness("jobs", "cancel", str(run.folder)).stdout
    no_number(user, run.end(), "interrupted", "was cancelled before repeat 1")


@pytest.mark.slow
def test_the_time_limit(user: User) -> None:
    run = user.begin()
    run.reaches("worker-0", "window")
    user.cluster.run("scontrol", "update", f"jobid={run.job}", "EndTime=now+2").succeeded()
    no_number(user, run.end(), "failed", f"job {run.job} reached its time limit in repeat 1")


@pytest.mark.slow
def test_requeued_repeats_are_set_aside_and_measured_anew(user: User) -> None:
    run = user.begin("-J", "requeue", steps=["--warmup", "1", "--steps", "40", "--repeats", "2"])
    run.reaches("worker-0", "window", repeat=2)
    user.cluster.run("scontrol", "requeue", run.job).succeeded()
    run.end().succeeded()
    assert [repeat["restart"] for repeat in user.record()["repeats"]] == [1, 1]
    aside = run.folder / "set-aside" / f"{run.job}.0"
    assert sorted(path.name for path in aside.iterdir()) == ["repeat-1", "repeat-2"]


@pytest.mark.slow
def test_a_full_run_directory(user: User) -> None:
    user.output.mkdir()
    user.cluster.run("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(user.output)).succeeded()
    run = user.begin(steps=["--warmup", "1", "--steps", "60", "--repeats", "1"])
    events = ["sh", "-c", 'cat "$1"/*/repeat-1/events/worker-0.jsonl', "sh", str(user.output)]  # only the cluster sees
    user.cluster.wait(lambda: '"window"' in user.cluster.run(*events).stdout, "worker-0 reaches window")
    user.cluster.run("sh", "-c", 'cat /dev/zero > "$1"/filler', "sh", str(user.output))
    done = run.end()
    assert done.code == 1 and "No space left on device" in done.stderr, done.stderr
    assert "total images/sec" not in done.stdout
    nothing_is_left(user.cluster)
    user.cluster.run("umount", str(user.output)).succeeded()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (["-J", "partition=nonsense"], "invalid partition"),
        pytest.param(["--nodes", "9"], "", marks=pytest.mark.slow),
        (["--time-limit", "30d"], ""),
    ],
)
def test_what_the_cluster_does_not_have_is_refused_in_slurms_words(user: User, wrong: list[str], words: str) -> None:
    done = user.run(SOONEST, *wrong)
    assert words in done.stderr
    if words:  # at submission: nothing was measured, so nothing is kept
        assert (done.code, done.stderr.count("\n")) == (2, 1) and not list(user.output.glob("*/spec.json"))
    else:  # Slurm accepts it, and would let it wait for ever
        no_number(user, done, "failed", "could never start", "Partition", "a shorter --time-limit may help")


@pytest.mark.slow
def test_the_end_is_known_from_accounts_once_the_queue_has_forgotten(
    accounting_cluster: VirtualCluster, tmp_path: Path, environment: Callable[..., Path]
) -> None:
    environment(SOONEST)
    user = User(accounting_cluster, tmp_path, scheduler="slurm")
    submitted = user.run(SOONEST, "--nodes", "2", "--account", "project", "--tag", "old", "--no-wait", "--json")
    (job,) = submitted.json[0]["jobs"]
    accounting_cluster.wait(lambda: not accounting_cluster.queue(), "the job has ended")
    told = accounting_cluster.run("sacct", "-nPX", "-j", job, "-o", "State").succeeded()
    assert told.stdout.strip() == "COMPLETED"
    collected = user.harness("jobs", "collect", str(user.output), "--json")
    assert collected.code == 0 and collected.json[0]["status"] == "completed", collected.stderr
    assert [user.harness("table", f"{user.output} @ tag={tag}").code for tag in ("old", "new")] == [0, 2]


@pytest.mark.slow
def test_a_job_that_fails_before_anything_is_measured_shows_what_it_printed(user: User) -> None:
    user.site.write_text(user.site.read_text() + 'prepare_cmds = ["echo no such licence; false"]\n')
    no_number(user, user.run(SOONEST), "failed", "repeat 1 is not complete", "no such licence")


@pytest.mark.slow
def test_a_killed_controller_loses_nothing(user: User) -> None:
    run = user.begin(steps=[*FEW_STEPS, "--repeats", "2"])
    run.reaches("worker-1", "started")
    # Else all might end before it is looked at.
    user.cluster.exec("node2", "kill", "-STOP", run.pid("worker-1")).succeeded()
    os.kill(run.process.pid, signal.SIGKILL)
    run.process.wait()
    assert user.harness("jobs", "status", str(user.output), "--json").json[0]["state"] == "running"
    early = user.harness("jobs", "collect", str(user.output))
    assert early.code == 0 and not list(user.output.glob("*/record.json"))
    user.cluster.exec("node2", "kill", "-CONT", run.pid("worker-1")).succeeded()
    collected = user.harness("jobs", "collect", "--wait", str(user.output))
    assert collected.code == 0 and "completed" in collected.stdout, collected.stderr
    assert len(user.record()["repeats"]) == 2


@pytest.mark.slow
def test_a_lost_connection_leaves_the_job_alone_and_says_how_to_come_back(user: User) -> None:
    run = user.begin()
    run.reaches("worker-0", "window")
    run.process.send_signal(signal.SIGHUP)
    done = run.end()
    assert done.code == 130 and "nothing is lost" in done.stderr, done.stderr
    assert f"harness jobs collect {run.folder}" in done.stderr
    assert run.job in user.cluster.queue()
    assert user.harness("jobs", "cancel", str(run.folder)).code == 0
    user.cluster.settle()
    assert user.harness("jobs", "collect", str(run.folder)).code == 1
    assert user.record()["status"] == "interrupted"


@pytest.mark.slow
def test_a_job_that_slurm_has_forgotten_is_judged_by_what_it_left(user: User) -> None:
    run = user.begin(steps=[*FEW_STEPS, "--repeats", "1"])
    assert run.end().code == 0
    (run.folder / "record.json").unlink()
    submission = run.folder / "submission.json"
    submission.write_text(submission.read_text().replace(f'"{run.job}"', '"999999"'))
    for hosts in run.folder.glob("repeat-*/hosts.json"):
        hosts.write_text(json.dumps({**json.loads(hosts.read_text()), "job": "999999"}))
    assert user.harness("jobs", "collect", str(run.folder)).code == 0
    (run.folder / "record.json").unlink()
    (run.folder / "repeat-1" / "events" / "worker-1.jsonl").unlink()
    assert user.harness("jobs", "collect", str(run.folder)).code == 1
    assert "Slurm no longer knows it" in user.record()["reason"]
