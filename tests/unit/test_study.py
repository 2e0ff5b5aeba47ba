"""Studies: what a file stands for, what is wrong with it, and what is measured again."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import models
from harness.core.backend import EVERY, backend, contenders
from harness.running.study import Study, StudyPoint, labels, ps_counts
from tests.conftest import ROOT, Clock, Harness
from tests.wording import Case, Wording, cases

SCALING = ROOT / "studies" / "scaling.toml"
# workers: the best count published, on Piz Daint and on EC2's p2.xlarge (CSCS internship report 2017, tables 1 and 2)
PUBLISHED = [(1, 1), (2, 1), (4, 3), (8, 2), (16, 4), (32, 12), (64, 40), (128, 116)]
PUBLISHED += [(2, 2), (4, 4), (8, 8), (16, 12), (32, 32), (64, 64), (128, 128)]

TINY = """
[common]
batch-size = 2
image_size = 32
warmup = 1
steps = 3
repeats = 2
threads = 1
timeout = 200
"""


def written(folder: Path, text: str, name: str = "trial.toml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def points(folder: Path, text: str) -> list[StudyPoint]:
    return Study.read(written(folder, text)).points(lambda wanted: "cpu")


def named(folder: Path, text: str) -> list[str]:
    return labels([point.spec.model_dump() for point in points(folder, text)])


# --- what a file stands for ---


def test_every_list_multiplies_and_tables_are_added_up(tmp_path: Path) -> None:
    text = (
        '[[matrix]]\nbackend = ["horovod:torch:mpi", "pytorch"]\nnodes = [1, 2]\n'
        '[[matrix]]\nbackend = "parameter-server"\nps = [1, 2]\nnodes = 4'
    )
    assert named(tmp_path, text) == [
        "horovod:torch:mpi nodes=1",
        "horovod:torch:mpi nodes=2",
        "pytorch nodes=1",
        "pytorch nodes=2",
        "parameter_server nodes=4 ps=1",
        "parameter_server nodes=4 ps=2",
    ]


def test_common_fields_may_be_lists_and_a_table_has_the_last_word(tmp_path: Path) -> None:
    text = '[common]\ndata = ["synthetic", "/path"]\nwarmup = 3\n[[matrix]]\nbackend = "pytorch"\nwarmup-steps = 4'
    found = [point.spec for point in points(tmp_path, text)]
    assert [(spec.data, spec.warmup_steps) for spec in found] == [("synthetic", 4), ("/path", 4)]


def test_an_option_multiplies_only_the_backends_that_have_it(tmp_path: Path) -> None:
    text = '[[matrix]]\nbackend = ["parameter_server", "pytorch"]\nnodes = 2\nps = [1, 2]'
    assert named(tmp_path, text) == [
        "parameter_server nodes=2 ps=1",
        "parameter_server nodes=2 ps=2",
        "pytorch nodes=2",
    ]


def test_several_servers_on_a_node_are_an_axis_and_one_is_no_other_point_than_before(tmp_path: Path) -> None:
    text = '[[matrix]]\nbackend = ["parameter_server", "pytorch"]\nnodes = 2\nps = 2'
    assert named(tmp_path, f"{text}\nps-per-node = [1, 2]") == [
        "parameter_server nodes=2 ps_per_node=1",
        "parameter_server nodes=2 ps_per_node=2",
        "pytorch nodes=2",
    ]
    before, one = (points(tmp_path, each)[0] for each in (text, f"{text}\nps-per-node = 1"))
    assert one.id == before.id
    found = points(tmp_path, text.replace("ps = 2", 'ps = "search"\nps-per-node = 2'))
    assert [point.spec.options["ps"] for point in found[:-1]] == ps_counts(4)


@pytest.mark.parametrize(("workers", "best"), PUBLISHED)
def test_the_search_tries_every_count_that_was_published_as_the_best(workers: int, best: int) -> None:
    assert best in ps_counts(workers)
    assert ps_counts(workers)[0] == 1 and ps_counts(workers)[-1] == workers


def test_the_search_is_small() -> None:
    assert ps_counts(128) == [1, 2, 4, 8, 16, 32, 48, 64, 80, 96, 116, 128]
    assert [len(ps_counts(workers)) for workers in (1, 2, 4, 8, 16, 32, 64)] == [1, 2, 4, 8, 9, 10, 11]


def test_the_search_keeps_to_what_the_model_can_be_cut_into(tmp_path: Path) -> None:
    text = '[[matrix]]\nbackend = "parameter_server"\nmodel = "resnet50"\nnodes = 256\nps = "search"'
    pieces = len(models.specification("resnet50").tensors)
    found = [point.spec.options["ps"] for point in points(tmp_path, text)]
    assert found == [count for count in ps_counts(256) if count <= pieces] != ps_counts(256)


def test_scaling_is_planned_in_seconds(harness: Harness, clock: Clock) -> None:
    began = time.perf_counter()
    shown = harness("study", "run", str(SCALING), "--site", "daint:gpu", "--dry-run", "--json")
    clock("the plan of studies/scaling.toml", time.perf_counter() - began, 10.0)
    assert shown.code == 0, shown.stderr
    # per size 1, 2, 4, 8, 9, 10, 11 and 12 counts for two backends, and four backends without servers
    assert len(shown.json["points"]) == 2 * 57 + 4 * 8
    assert len(shown.json["jobs"]) == 5 * 146
    assert {job["lane"] for job in shown.json["jobs"]} == set(range(8))
    assert "#SBATCH --constraint=gpu" in shown.json["script"]


def test_a_dry_run_is_a_line_for_each_point(harness: Harness, tmp_path: Path) -> None:
    file = written(tmp_path, "[common]\nrepeats = 3\nnodes = [1, 2]\n[[matrix]]\nbackend = 'horovod:torch'")
    done = harness("study", "run", str(file), "--site", "daint", "--max-jobs", "2", "--dry-run").succeeded()
    table, jobs = done.stdout.strip().split("\n\n")
    assert [line.split()[-3:] for line in table.splitlines()[2:]] == [["new", "1", "1"], ["new", "2", "2"]]
    assert jobs == "2 points: 2 new; 6 jobs, 2 at once (--json lists them)"


def test_scaling_on_cpus_has_every_toolkit_over_each_of_its_transports(harness: Harness) -> None:
    file = ROOT / "studies" / "scaling-cpu.toml"
    harness("study", "run", str(file), "--site", "cori", "--dry-run", "--json").succeeded()
    specs = [point.spec for point in Study.read(file).points(lambda wanted: wanted)]
    there = {(spec.backend, spec.framework or backend(spec.backend).frameworks[0], spec.transport) for spec in specs}
    toolkits = [one for one in contenders([EVERY], "cpu") if backend(one["backend"]).family == "toolkit"]
    assert there >= {(one["backend"], one["framework"], one["transport"]) for one in toolkits}


@pytest.mark.parametrize(("allocation", "jobs"), [("repeat", 8 * 3), ("run", 8), ("nodes", 2)])
def test_the_allocation_says_how_many_jobs_there_are(
    harness: Harness, tmp_path: Path, allocation: str, jobs: int
) -> None:
    text = (
        f'allocation = "{allocation}"\n[common]\nrepeats = 3\nnodes = [1, 2]\n'
        '[[matrix]]\nbackend = ["pytorch", "horovod"]\nbatch-size = [2, 4]'
    )
    file = written(tmp_path, text)
    assert len(harness("study", "run", str(file), "--site", "daint:gpu", "--dry-run", "--json").json["jobs"]) == jobs
    assert not (tmp_path / "runs").exists()


# --- what is wrong with a file ---


@cases
def test_what_is_wrong_is_told_in_one_line_before_anything_is_done(
    harness: Harness, tmp_path: Path, case: Case
) -> None:
    file = written(tmp_path, case.text)
    case.refused(harness("study", "run", str(file)), FILE=file)
    assert not (tmp_path / "runs").exists()


def test_data_that_are_not_there_are_a_mistake_in_a_table(
    harness: Harness, tmp_path: Path, environment: Callable[..., Path], wording: Wording
) -> None:
    environment("pytorch")
    text = '[[matrix]]\nbackend = "pytorch"\n[[matrix]]\nbackend = "pytorch"\ndata = "nowhere"'
    wording("nowhere").refused(harness("study", "run", str(written(tmp_path, text))), HERE=tmp_path)


def test_an_id_depends_on_the_spec_alone(tmp_path: Path) -> None:
    (one,) = points(tmp_path, '[[matrix]]\nbackend = "parameter_server"\nnodes = 2\nps = 2')
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (other,) = points(elsewhere, 'name = "x"\n[common]\nps = 2\nnodes = 2\n[[matrix]]\nbackend = "parameter-server"')
    (different,) = points(tmp_path, '[[matrix]]\nbackend = "parameter_server"\nnodes = 2\nps = 1')
    assert one.id == other.id != different.id


# --- a small study on this machine ---


@pytest.mark.slow
def test_a_study_goes_on_where_it_was(harness: Harness, tmp_path: Path) -> None:
    pytorch, folder = '[[matrix]]\nbackend = "pytorch"\nnodes = 1\n', tmp_path / "runs" / "trial"
    file = str(
        written(tmp_path, TINY + pytorch + "[[matrix]]\nbackend = 'pytorch'\nnodes = 1\nbatch-size = 3\ntimeout = 1\n")
    )
    # One point takes too long for its timeout; that does not stop the other, nor is it measured again unless asked.
    done = harness("study", "run", file, "--json")
    assert done.code == 1, done.stderr
    good, bad = done.json
    assert [one["state"] for one in done.json] == ["completed", "failed"]
    assert "no end after 1 s (--timeout)" in bad["reason"] and bad["img_per_s"] is None and good["img_per_s"] > 0
    assert "harness study run" in done.stderr and "--retry-failed" in done.stderr
    again = harness("study", "run", file, "--json")
    assert (again.code, again.json) == (1, done.json)

    # A record that cannot be read is a failure of its point alone.
    content = (kept := folder / good["run"] / "record.json").read_bytes()
    kept.write_text("{")
    shown = harness("study", "status", file, "--json").succeeded().json
    assert [one["state"] for one in shown] == ["failed", "failed"] and "not a valid record" in shown[0]["reason"]
    kept.write_bytes(content)

    # A run that was killed leaves no record: it is measured again without asking, and what it left is kept.
    shutil.copytree(folder / bad["run"], killed := folder / "killed", ignore=shutil.ignore_patterns("record.json"))
    notes = json.loads((folder / "study.json").read_text())
    notes["points"][1]["runs"].append(killed.name)
    (folder / "study.json").write_text(json.dumps(notes))
    assert [one["state"] for one in harness("study", "status", file, "--json").json] == ["completed", "unfinished"]

    # Points come and go with the file.
    written(tmp_path, TINY + "[[matrix]]\nbackend = 'pytorch'\nnodes = 1\nbatch-size = 3\ntimeout = 1\n")
    shown = harness("study", "status", file)
    assert "not in the file any more" in shown.stdout and "2 points: 1 unfinished, 1 completed" in shown.stdout
    retried = harness("study", "run", file, "--json").json
    assert [(one["state"], one["in_file"]) for one in retried] == [("failed", True), ("completed", False)]
    assert retried[0]["run"] not in (bad["run"], killed.name) and killed.exists()
    retried = harness("study", "run", file, "--retry-failed", "--json").json
    assert len(json.loads((folder / "study.json").read_text())["points"][1]["runs"]) == 4


def test_only_one_works_on_a_study_and_what_is_interrupted_is_told(
    harness: Harness, tmp_path: Path, wording: Wording
) -> None:
    file = written(tmp_path, TINY + '[[matrix]]\nbackend = "pytorch"')
    first = subprocess.Popen(
        [sys.executable, "-m", "harness", "study", "run", str(file)], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("runs/trial/*/repeat-1")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    folder = tmp_path / "runs" / "trial"
    second = harness("study", "run", str(file))
    wording("a second").refused(second, FOLDER=folder, PROCESS=f"process {first.pid} on {os.uname().nodename}")
    assert harness("study", "status", str(file), "--json").json[0]["state"] == "running"
    first.send_signal(signal.SIGINT)
    said = first.communicate(timeout=60)[1]
    assert first.returncode == 130
    (begun,) = folder.glob("*/repeat-1")
    assert said.endswith(f"no process is left running\nlogs and record: {begun.parent}\n    harness study run {file}\n")
    assert harness("study", "status", str(file), "--json").json[0]["state"] == "interrupted"
    again = harness("study", "run", str(file), "--json")
    assert (again.code, again.json[0]["state"]) == (0, "completed"), again.stderr
