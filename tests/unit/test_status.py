"""`harness jobs status` of runs that no batch system carries out."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.core.spec import RunSpec
from harness.errors import HarnessError, Interrupted, InvalidInput, RunFailed
from harness.launch.slurm import NEVER, JobState
from harness.report.text import outcomes
from harness.running import collect, notes
from harness.running.kinds import Measurement
from harness.running.pace import Pace
from harness.running.prepare import Place
from harness.running.run import Listener, Run
from harness.running.status import RunStatus, find
from harness.worker.agent.seating import Hosts
from tests import made
from tests.conftest import Harness
from tests.wording import Case, Wording, cases


@pytest.fixture
def begun(tmp_path: Path) -> Callable[..., Run]:
    """A run directory as it is once ``repeats`` of 3 repeats have begun."""

    def begin(repeats: int = 0, output: str = "runs") -> Run:
        run = Place(output=tmp_path / output).prepare(RunSpec(backend="pytorch", repeats=3))
        run.begin()
        for number in range(1, repeats + 1):
            (run.folder / f"repeat-{number}").mkdir()
        return run

    return begin


def test_a_folder_is_a_run_once_all_of_it_is_written(
    begun: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    """The indexes of a training's images may take long to write; whoever asks meanwhile sees the other runs."""
    seen: list[Run] = []

    def asks(run: Run) -> None:
        with wording("runs").raises(InvalidInput, HERE=tmp_path):
            find([tmp_path / "runs"])
        seen.append(run)

    monkeypatch.setattr(Measurement, "write_inputs", asks)
    run = begun()
    (found,), problems = find([run.folder])
    assert (seen, found.folder, problems) == ([run], run.folder, [])


def test_runs_of_this_machine_are_running_unfinished_or_have_their_img_per_s(
    begun: Callable[..., Run], harness: Harness
) -> None:
    working, killed, done, failed = begun(2), begun(2), begun(3), begun(2)
    made.record(img_per_s=(99.0, 101.0, 100.0)).write(done.folder)
    made.record(status="failed", reason="rank 0 exited with 1").write(failed.folder)
    with notes.at_work(working.folder):
        shown = harness("jobs", "status", "--json").json
        table = harness("jobs", "status").stdout
    states = {Path(run["run"]).name: (run["state"], run["status"], run["repeats"], run["of"]) for run in shown}
    assert states == {
        working.folder.name: ("running", None, 1, 3),
        killed.folder.name: ("unfinished", None, 1, 3),
        done.folder.name: ("recorded", "completed", 3, 3),
        failed.folder.name: ("recorded", "failed", 0, 3),
    }
    assert "100.00 img/s" in table and "rank 0 exited with 1" in table and "jobs" not in table
    assert harness("jobs", "status").stdout.count("unfinished") == 2, "nobody is at work any more"


def test_runs_are_looked_for_where_the_config_has_them_written(
    begun: Callable[..., Run], harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(1), (elsewhere := begun(1, "elsewhere"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "harness").mkdir(parents=True)
    (tmp_path / "config" / "harness" / "config.toml").write_text(f'output = "{tmp_path}/elsewhere"\n')
    assert [run["run"] for run in harness("jobs", "status", "--json").json] == [str(elsewhere.folder)]
    assert [Path(run["run"]).parent.name for run in harness("jobs", "status", "runs", "--json").json] == ["runs"]


def test_the_lock_of_a_study_stands_for_its_runs(begun: Callable[..., Run], harness: Harness) -> None:
    run = begun(1, "runs/study")
    with notes.locked(run.folder.parent):
        with notes.at_work(run.folder):
            assert not notes.is_locked(run.folder / notes.SPEC), "a study of 1,000 runs needs one open file"
        assert harness("jobs", "status", "runs/study", "--json").json[0]["state"] == "running"


def test_a_link_in_the_place_of_a_studys_lock_is_not_followed(tmp_path: Path, wording: Wording) -> None:
    """In a folder of several users it may be somebody else's."""
    (tmp_path / "thesis.txt").write_text("all of it")
    (tmp_path / notes.LOCK).symlink_to("thesis.txt")
    with wording("study.lock").raises(InvalidInput, HERE=tmp_path), notes.locked(tmp_path):
        pass
    assert (tmp_path / "thesis.txt").read_text() == "all of it"


def test_a_folder_that_makes_no_sense_is_named_and_left_out(
    begun: Callable[..., Run], harness: Harness, tmp_path: Path, wording: Wording
) -> None:
    run = begun()
    shutil.copytree(run.folder, run.folder.parent / "broken")
    (run.folder.parent / "broken" / "plan.json").write_text("{}")
    done = harness("jobs", "status")
    assert done.code == 0 and run.folder.name in done.stdout and "broken" not in done.stdout
    wording("broken").ended(done, 0)
    (tmp_path / "empty").mkdir()
    for nothing in ("empty", "nowhere"):
        wording(nothing).refused(harness("jobs", "status", nothing))


def test_files_of_a_run_that_make_no_sense_keep_nobody_from_seeing_the_others(
    begun: Callable[..., Run], harness: Harness
) -> None:
    whole = begun(1)
    for number, text in enumerate(("", "{}", '{"nodes": 1}', "[]")):
        wrong = whole.folder.parent / f"wrong-{number}"
        shutil.copytree(whole.folder, wrong)
        (wrong / "submission.json").write_text(
            '{"site": "daint", "started": "", "record": "record.json", "tag": "", "jobs": [["7", [1]]]}'
        )
        (wrong / "repeat-1" / "hosts.json").write_text(text)
    training = whole.folder.parent / "training"
    shutil.copytree(whole.folder, training)
    fields = json.loads((training / notes.SPEC).read_text())
    fields["training"] = {"epochs": 3, "validation": "/data/val"}
    (training / notes.SPEC).write_text(json.dumps(fields))
    done = harness("jobs", "status", "--json").succeeded()
    assert [Path(run["run"]) for run in done.json] == [whole.folder]
    damaged = ["training/earlier-epochs.json", *(f"wrong-{number}/repeat-1/hosts.json" for number in range(4))]
    for line, file in zip(done.stderr.splitlines(), damaged, strict=True):
        assert line.startswith("harness: left out: runs/") and "not what harness writes" in line
        assert file.partition("/")[2] in line and file.partition("/")[0] in line


def test_a_record_that_cannot_be_read_keeps_nobody_from_seeing_the_others(
    begun: Callable[..., Run], harness: Harness
) -> None:
    good, damaged = begun(3), begun(3)
    made.record(img_per_s=(99.0, 101.0, 100.0)).write(good.folder)
    damaged.record_file.write_text("{")
    shown = {Path(run["run"]).name: run for run in harness("jobs", "status", "--json").succeeded().json}
    assert shown[good.folder.name]["state"] == "recorded"
    assert shown[damaged.folder.name]["state"] == "unreadable" and shown[damaged.folder.name]["status"] is None
    assert shown[damaged.folder.name]["reason"].startswith("record.json: not a valid record: ")
    assert "unreadable" in harness("jobs", "status").succeeded().stdout


def test_a_batch_run_that_makes_no_sense_keeps_nobody_from_collecting_and_cancelling_the_others(
    harness: Harness, tmp_path: Path
) -> None:
    place = Place("daint:gpu", account="s123", output=tmp_path / "runs", dry_run=True)
    whole, broken, damaged = (place.prepare(RunSpec(backend="horovod")) for _ in range(3))
    for run in (whole, broken, damaged):
        run.begin()
    (broken.folder / notes.SPEC).write_text("{")
    damaged.record_file.write_text("{")
    done = harness("jobs", "collect", "--json")
    shown = {Path(run["run"]).name: run["state"] for run in done.json}
    assert shown == {whole.folder.name: "not submitted", damaged.folder.name: "unreadable"}
    said = done.stderr.splitlines()
    assert said[0].startswith(f"harness: left out: runs/{broken.folder.name}: not a run directory: ")
    assert said[1:] == [f"harness: {damaged.folder}: record.json: not a valid record: {said[1].split(': ', 4)[-1]}"]
    assert done.code == 1
    assert harness("jobs", "cancel", "runs").succeeded().stdout == "nothing to cancel\n"


def test_jobs_are_named_with_their_states_which_nobody_asks_for_once_there_is_a_record(
    begun: Callable[..., Run],
) -> None:
    run = begun()
    notes.Submission(site="daint", started="", record="record.json", tag="", jobs=[("19", [1, 2]), ("20", [3])]).write(
        run.folder
    )
    jobs = (JobState("19", "COMPLETED"), JobState("20", "RUNNING"))
    assert RunStatus(run, "running", 2, jobs).as_dict()["jobs"] == {"19": "COMPLETED", "20": "RUNNING"}
    assert RunStatus(run, "recorded", 3).as_dict()["jobs"] == {"19": None, "20": None}
    assert RunStatus(begun(), "unfinished", 0).as_dict()["jobs"] == {}


def test_a_training_that_stayed_below_says_so(begun: Callable[..., Run]) -> None:
    record = SimpleNamespace(
        reason=None, problem="top-1 reached 0.7 (epoch 3), not 0.99999 in 3 epochs", status="completed"
    )
    far = RunStatus(begun(), "recorded", 3, record=record)  # type: ignore[arg-type]
    assert far.as_dict()["reason"] == record.problem and record.problem in outcomes.runs([far])


def test_of_a_run_whose_processes_said_nothing_no_variables_are_known(begun: Callable[..., Run]) -> None:
    assert begun().finish(RunFailed("rank 0 was killed")).variables == {}


def test_repeats_of_jobs_are_heard_of_once_with_their_img_per_s_and_seconds(
    begun: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begun(3)
    processes = [SimpleNamespace(events={"exit": {"code": 0}})]
    hosts = Hosts([("nid1", "nid1")], "2026-01-01T00:00:10+00:00")
    watch = SimpleNamespace(followed=processes, first_error=lambda: None, hosts=hosts)
    monkeypatch.setattr(collect, "_watch", lambda run, number, ended: watch)
    marks_s = [64.0 * step / run.spec.steps for step in range(run.spec.steps + 1)]
    window = {"ranks": [SimpleNamespace(window_s=64.0, marks_s=marks_s)]}
    monkeypatch.setattr(Measurement, "judge", lambda run, *more: run.judged.append(window))
    heard: list[tuple[int, str, str]] = []

    class Ears(Listener):
        def ended(self, run: Run, repeat: int, pace: Pace, error: HarnessError | None = None) -> None:
            heard.append((repeat, "" if error else run.result(), str(error or "")))

    def end(number: int, code: int) -> None:
        end = {"code": code, "ended": "2026-01-01T00:00:52.500+00:00"}
        (run.folder / f"repeat-{number}" / "ended.json").write_text(json.dumps(end))

    pace, known = Pace.of({run.folder: run.spec}), set[tuple[Path, int]]()
    collect._hear_of_repeats(run, pace, known, Ears())
    assert heard == [], "no repeat has ended"
    end(1, 0)
    for _ in range(2):
        collect._hear_of_repeats(run, pace, known, Ears())
    assert heard == [(1, "100.00 img/s", "")] and pace.took_s[run.folder] == [42.5] and pace.left_s == 85.0
    processes[0].events.clear()
    end(2, 0)
    collect._hear_of_repeats(run, pace, known, Ears())
    assert len(heard) == 1, "what the file system does not show yet is waited for"
    monkeypatch.setattr(collect, "from_exit_events", lambda watch: RunFailed("rank 0 exited with 1"))
    end(2, 1)
    collect._hear_of_repeats(run, pace, known, Ears())
    assert heard[1:] == [(2, "", "rank 0 exited with 1")] and not pace.left and not run.judged


@cases
def test_whoever_leaves_reads_which_jobs_go_on_and_how_to_come_back(
    begun: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    jobs = case.words()
    runs = [begun() for _ in jobs]

    def interrupted(*more: object) -> None:
        raise KeyboardInterrupt("interrupted by SIGTERM")

    monkeypatch.setattr(collect, "known_jobs", {run.folder: [job] for run, job in zip(runs, jobs, strict=True)}.get)
    monkeypatch.setattr(collect, "_wait", interrupted)
    with case.raises(Interrupted, **{name: run.folder for name, run in zip("ABC", runs, strict=False)}):
        collect.wait(runs, Listener())


@cases
def test_a_job_that_could_never_start_says_what_may_help(
    begun: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    run = begun()
    monkeypatch.setattr(collect, "submitted_repeats", lambda folder: {1: "7"})
    record = collect.collect(run, [JobState("7", NEVER, case.request)])
    assert record is not None
    case.answered(record.reason)


def test_who_waits_hears_of_what_ends_from_then_on(begun: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    """`harness jobs collect --wait` prints no repeat that was printed by the command that submitted it."""
    run, heard = begun(2), list[int]()

    def end(number: int) -> list[JobState]:
        (run.folder / f"repeat-{number}" / "ended.json").write_text('{"code": 0, "ended": "2026-01-01T00:01:00+00:00"}')
        return [JobState("7", "COMPLETED")]

    class Ears(Listener):
        def ended(self, run: Run, repeat: int, pace: Pace, error: HarnessError | None = None) -> None:
            heard.append(repeat)

    hosts = Hosts([("nid1", "nid1")], "2026-01-01T00:00:10+00:00")
    processes = [SimpleNamespace(events={"exit": {"code": 0}})]
    watch = SimpleNamespace(followed=processes, first_error=lambda: None, hosts=hosts)
    monkeypatch.setattr(collect, "_watch", lambda run, number, ended: watch)
    monkeypatch.setattr(Measurement, "judge", lambda *more: None)
    monkeypatch.setattr(collect.slurm, "cancel", lambda jobs: None)
    monkeypatch.setattr(collect, "jobs_of", lambda runs: {run.folder: end(2)})
    monkeypatch.setattr(collect, "collect", lambda run, jobs: "its record")
    end(1)
    assert collect.wait([run], Ears()) == ["its record"] and heard == [2]
