"""``harness launch``: programs that are not ours find their place, and are watched, ended and recorded as ours are."""

import json
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from harness.core import known_logs
from harness.core.spec import Program
from harness.files import end_of
from harness.launch.watch import LOG_LINES, POLL_S, failure
from harness.records.launch import LaunchRecord, printed
from tests.conftest import PATIENCE_S, ROOT, Finished, Harness
from tests.made import content, store
from tests.wording import Case, Wording, cases

SERVERS = ROOT / "tests" / "programs" / "servers.py"
IMG_PER_S = "total images/sec: ([0-9.]+)"
FLAGS = ("--ps_hosts={ps_hosts}", "--worker_hosts={worker_hosts}", "--job_name={job_name}", "--task_index={task_index}")


def record(folder: Path) -> LaunchRecord:
    (path,) = folder.glob("runs/*/launch.json")
    return LaunchRecord.read(path, believing_seals=False)


def processes(harness: Harness, *arguments: str) -> list[dict[str, Any]]:
    started: list[dict[str, Any]] = harness("launch", "--dry-run", "--json", *arguments).succeeded().json["processes"]
    return started


def gone(marks: str) -> bool:
    """Whether no process has these words in its command line, at once or a little later."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        lines = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
        if not any(marks in line for line in lines):
            return True
        time.sleep(0.1)
    return False


def test_each_process_finds_its_place_in_its_arguments_and_in_its_environment(harness: Harness) -> None:
    layout = ["--nodes", "2", "--workers-per-node", "2", "--ps", "3", "--ps-per-node", "2", "--port", "23450"]
    started = processes(harness, *layout, "--", "train", "{rank}/{world_size}", '{"lr": {lr}}', *FLAGS)
    assert [(each["role"], each["rank"], each["host"]) for each in started] == [
        *(("worker", rank, f"node{rank // 2}") for rank in range(4)),
        *(("ps", 0, "node0"), ("ps", 1, "node0"), ("ps", 2, "node1")),
    ]
    workers = [f"127.0.0.1:{port}" for port in range(23450, 23454)]
    servers = [f"127.0.0.1:{port}" for port in range(23454, 23457)]
    assert started[3]["argv"] == [
        *("train", "3/4", '{"lr": {lr}}', f"--ps_hosts={','.join(servers)}", f"--worker_hosts={','.join(workers)}"),
        *("--job_name=worker", "--task_index=3"),
    ]
    told = started[3]["env"]
    assert {name: told[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")} == {
        **{"RANK": "3", "WORLD_SIZE": "4"},
        **{"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"},
    }
    assert (told["MASTER_ADDR"], told["MASTER_PORT"]) == ("127.0.0.1", "23450")
    assert json.loads(started[5]["env"]["TF_CONFIG"]) == {
        "cluster": {"worker": workers, "ps": servers},
        "task": {"type": "ps", "index": 1},
    }
    assert "RANK" not in started[5]["env"]


@pytest.mark.parametrize(("layout", "each"), [(["2", "2"], ["0", "1", "2", "3"]), (["1", "2"], ["0,1", "2,3"])])
def test_workers_share_the_gpus_of_their_node(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, layout: list[str], each: list[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    workers, devices = layout
    started = processes(
        harness, "--nodes", "2", "--ps", "1", "--workers-per-node", workers, "--devices-per-node", devices, "--", "true"
    )
    assert [process["env"]["CUDA_VISIBLE_DEVICES"] for process in started] == [*each, ""]


def test_only_the_first_node_starts_a_program_with_a_launcher_of_its_own(harness: Harness) -> None:
    first, second = processes(harness, "--once", "--nodes", "2", "--", "mpiexec", "-hosts", "{hosts}", "x", "{slots}")
    assert first["argv"] == ["mpiexec", "-hosts", "127.0.0.1,127.0.0.1", "x", "127.0.0.1:1,127.0.0.1:1"]
    assert second["argv"] == ["sleep", "infinity"]
    assert "RANK" not in first["env"]


@cases
def test_what_cannot_work_is_refused(refused: Harness, case: Case, tmp_path: Path) -> None:
    case.refused(refused(*case.words()))
    assert not list(tmp_path.iterdir())


def program(**fields: object) -> Program:
    return Program.model_validate({"command": ("train",), "folder": "/", **fields})


def read_from(log: Path, output: str, **fields: object) -> tuple[float | None, str]:
    """What is read from a log with this output, and why nothing is."""
    log.write_text(output, newline="")
    return printed(program(**fields), log)


@cases
def test_the_last_number_that_was_printed_counts(tmp_path: Path, case: Case) -> None:
    number, unread = read_from(tmp_path / "log", **eval(f"dict({case.request})"))
    case.answered(f"{number}, as {unread}" if unread else number)


def test_the_output_may_be_in_utf_16(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes("total images/sec: 12.5\n".encode("utf-16"))
    assert printed(program(pattern=IMG_PER_S), tmp_path / "log")[0] == 12.5


@cases
def test_img_per_s_follow_from_the_steps_that_are_printed(tmp_path: Path, case: Case) -> None:
    number, _ = read_from(tmp_path / "log", images_per_step=512, **eval(f"dict({case.request})"))
    case.answered(f"{number:.1f}")


def test_an_expression_that_takes_for_ever_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.records.launch.PATIENCE_S", 0.5)
    (tmp_path / "log").write_text("a" * 64 + "!")
    assert "takes more than" in printed(program(pattern="(?:a|aa)+$(b)"), tmp_path / "log")[1]


@pytest.mark.parametrize("name", known_logs.names())
def test_a_line_of_each_known_program_is_read(tmp_path: Path, name: str) -> None:
    about = known_logs.read(name)
    (tmp_path / "log").write_text(f"loss 1\n{about['line']}\nended after 12 s\n")
    unit, number = about.get("unit", "img/s"), about["number"]
    if unit == "img/s":
        known, img_per_s = program(log=name), number
    else:
        known, img_per_s = program(log=name, images_per_step=100), 100 * (number if unit == "step/s" else 1 / number)
    assert printed(known, tmp_path / "log") == (pytest.approx(img_per_s), "")
    assert about["source"].startswith("https://")


@pytest.mark.parametrize(
    ("name", "evaluation"),
    [
        ("imagenet", "Test: [ 10/196]\tTime  0.120 ( 0.350)\tLoss 6.9e+00 (6.9e+00)"),
        ("dllogger", "DLL 2021-03-23 11:50:00.1 - (0,) val.total_ips : 9000.5 "),
        ("timm", "Test: [  30/30]  Time: 3.856 (0.732)  Loss:   6.615 ( 6.691)"),
    ],
)
def test_an_evaluation_after_the_training_does_not_count(tmp_path: Path, name: str, evaluation: str) -> None:
    about = known_logs.read(name)
    (tmp_path / "log").write_text(f"{about['line']}\n")
    known = program(log=name, **({"images_per_step": 100} if "unit" in about else {}))
    before = printed(known, tmp_path / "log")
    (tmp_path / "log").write_text(f"{about['line']}\n{evaluation}\n")
    assert before[0] and printed(known, tmp_path / "log") == before


def test_a_share_is_multiplied_by_the_devices(harness: Harness, tmp_path: Path) -> None:
    layout = ["--nodes", "2", "--devices-per-node", "4", "--device", "cpu", "--times-workers"]
    harness("launch", *layout, "--pattern", "img/s: ([0-9.]+)", "--", "echo", "img/s: 10").succeeded()
    launched = record(tmp_path)
    assert launched.img_per_s is not None and launched.img_per_s.mean == 80


def test_what_is_said_of_a_known_program_counts_more_than_what_is_known() -> None:
    assert program(log="timm", pattern="(x)").pattern == "(x)"
    known = program(log="timm", unit="s/step", images_per_step=8)
    assert (known.unit, known.pattern) == ("s/step", program(log="timm").pattern)
    assert program(**known.model_dump(exclude={"command", "folder"})) == known


@pytest.mark.parametrize("flags", [FLAGS, ()], ids=["flags", "TF_CONFIG"])
def test_servers_are_ended_when_the_workers_are_done(
    harness: Harness, tmp_path: Path, flags: tuple[str, ...], wording: Wording
) -> None:
    arguments = ["--nodes", "2", "--ps", "2", "--pattern", IMG_PER_S, "--sum-workers"]
    done = harness("launch", *arguments, "--", sys.executable, str(SERVERS), *flags).succeeded()
    launched = record(tmp_path)
    (repeat,) = launched.repeats
    assert [(rank.role, rank.code, rank.stopped) for rank in repeat.ranks] == [
        *[("worker", 0, False)] * 2,
        *[("ps", -signal.SIGTERM, True)] * 2,
    ]
    first, second = (rank.printed or 0.0 for rank in repeat.ranks[:2])
    assert launched.img_per_s is not None and launched.img_per_s.mean == pytest.approx(first + second)
    assert f"{first + second:.2f} by the program's own clock: not to be compared" in done.stdout
    # Two workers have sent 3 MB to each of two servers, and got them back.
    assert repeat.ranks[0].interfaces["lo"].sent > 12e6
    wording("table").refused(harness("table", "runs"))


def test_a_failure_names_the_rank_its_host_and_its_last_words_and_nothing_is_left(
    harness: Harness, tmp_path: Path
) -> None:
    script = 'if [ {rank} = 1 ]; then echo "no more"; exit 3; fi; setsid sleep 86412 & sleep 86412'
    done = harness("launch", "--nodes", "2", "--", "sh", "-c", script)
    assert done.code == 1
    assert "launch: worker rank 1 on node1 failed: exit code 3: no more" in done.stderr
    launched = record(tmp_path)
    assert launched.status == "failed" and launched.img_per_s is None
    assert [(rank.code, rank.stopped) for rank in launched.repeats[0].ranks] == [(-signal.SIGTERM, True), (3, False)]
    assert gone("sleep 86412")


def test_no_process_outlives_a_launcher_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "harness", "launch", "--nodes", "2", "--quiet", "--"]
    script = f"setsid sleep 86413 & touch {tmp_path}/began-{{rank}}; sleep 86413"
    launcher = subprocess.Popen([*command, "sh", "-c", script], cwd=tmp_path, env=os.environ)
    deadline = time.monotonic() + PATIENCE_S
    while len(list(tmp_path.glob("began-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    launcher.kill()
    launcher.wait()
    assert len(list(tmp_path.glob("began-*"))) == 2
    assert gone("sleep 86413")


def test_a_program_that_prints_no_img_per_s_has_no_number(harness: Harness, tmp_path: Path) -> None:
    done: Finished = harness("launch", "--pattern", IMG_PER_S, "--", "true")
    assert done.code == 1 and "of worker rank 0: its output has no number" in done.stderr
    assert record(tmp_path).status == "failed"


def test_a_process_that_failed_cannot_be_among_those_of_a_completed_launch(
    harness: Harness, tmp_path: Path, wording: Wording
) -> None:
    harness("launch", "--nodes", "2", "--", "true").succeeded()
    (file,) = tmp_path.glob("runs/*/launch.json")
    edited = content(file)
    edited["repeats"][0]["ranks"][1]["code"] = 1
    store(file, edited, seal=True)
    done = harness("results", "check", "runs")
    wording("a record").answered(done.stdout.removesuffix("\n"), FILE=file.relative_to(tmp_path))
    wording("check").ended(done, 1)


def test_of_a_log_of_any_length_little_is_in_memory_at_once(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "worker-0.log"
    log.parent.mkdir()
    with log.open("w") as lines:
        lines.writelines(["img/s: 5\n", *(f"{'x' * 1023}\n" for _ in range(32 << 10)), "img/s: 7\n"])
    process = SimpleNamespace(name="worker-0", role="worker", rank=0, host="node0")
    followed = SimpleNamespace(process=process, phase="window", log=log)
    tracemalloc.start()
    try:
        assert printed(program(pattern="img/s: ([0-9.]+)"), log)[0] == 7
        error = failure(followed, "exited with code 3")  # type: ignore[arg-type]
        assert end_of(log).endswith("x\nimg/s: 7\n")
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()
    assert str(error).endswith("x\n    img/s: 7") and str(error).count("\n") == LOG_LINES


def test_the_number_of_a_rank_that_has_ended_is_kept_from_other_processes_until_the_run_ends(tmp_path: Path) -> None:
    """The end of the run is signalled to it, and to its group."""
    command = [sys.executable, "-m", "harness", "launch", "--nodes", "2", "--quiet", "--"]
    script = 'test "$RANK" = 0 || until [ -e go ]; do sleep 0.05; done'
    launcher = subprocess.Popen([*command, "sh", "-c", script], cwd=tmp_path, env=os.environ)
    try:
        while not (ended := list(tmp_path.glob("runs/*/repeat-1/events/worker-0.jsonl"))):
            time.sleep(0.05)
        while '"closed"' not in (events := ended[0].read_text()):
            time.sleep(0.05)
        rank = psutil.Process(json.loads(events.splitlines()[0])["pid"])
        time.sleep(3 * POLL_S)  # so that the launcher has seen its end
        assert rank.status() == psutil.STATUS_ZOMBIE
    finally:
        (tmp_path / "go").touch()
        assert launcher.wait(60) == 0
