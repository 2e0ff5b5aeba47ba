"""A request is carried out without a command line: what is resolved once, what kinds of work there are, how it ends."""

import dataclasses
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.cli.interrupts import signals_interrupt
from harness.core import backend as backends
from harness.core import subject
from harness.core.spec import KernelSizes, Program, RunSpec, Training
from harness.environments import pythons
from harness.errors import Interrupted, InvalidInput
from harness.running.kinds import KINDS, kind_of
from harness.running.prepare import Place
from harness.running.request import carry_out, execute
from harness.running.run import Listener, Run
from tests.wording import Case, Wording, cases

TRAINING = Training(epochs=1, validation="/data/val")


def test_a_dry_run_gives_plans_and_scripts_and_touches_nothing(tmp_path: Path) -> None:
    place = Place("daint:gpu", account="s123", output=tmp_path / "runs", dry_run=True)
    outcome = carry_out([RunSpec(backend="pytorch", nodes=2)], place)
    assert [run.plan.nodes for run in outcome.runs] == [2] and outcome.records == []
    assert ["--account=s123" in script for script in outcome.scripts] == [True]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("output", ["file", "file/runs"])
@pytest.mark.parametrize("dry_run", [True, False])
def test_an_output_folder_that_cannot_be_one_is_refused_by_a_dry_run_too(
    tmp_path: Path, output: str, dry_run: bool, wording: Wording
) -> None:
    (tmp_path / "file").touch()
    with wording(output).raises(InvalidInput, HERE=tmp_path):
        carry_out([RunSpec(backend="pytorch")], Place(output=tmp_path / output, dry_run=dry_run))


def test_the_processes_of_a_run_are_seated_and_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted(name: str) -> Any:
        function = getattr(chosen, name)
        return lambda spec: (calls.append(name), function(spec))[1]

    chosen = backends.backend("parameter_server")
    counting = dataclasses.replace(chosen, seats=counted("seats"), arrange=counted("arrange"))
    monkeypatch.setattr("harness.running.prepare.backend_of", lambda spec: counting)
    Place("daint", dry_run=True).prepare(RunSpec(backend="parameter_server", nodes=4, options={"ps": 2}))
    assert sorted(calls) == ["arrange", "seats"]


def test_every_spec_is_one_kind_of_work_whose_record_has_a_file_of_its_own() -> None:
    measured = RunSpec(backend="pytorch")
    trained = RunSpec(backend="pytorch", data="/data", repeats=1, training=TRAINING)
    kernel = RunSpec(backend="pytorch", kernel=KernelSizes(name="allreduce", sizes=(1024,)))
    launched = RunSpec(backend="launch", program=Program(command=("true",), folder="/"))
    assert [kind_of(spec) for spec in (measured, kernel, trained, launched)] == list(KINDS)
    assert len({kind.RECORD.file_name for kind in KINDS}) == len(KINDS)


def test_a_comparison_is_every_contender_at_every_size() -> None:
    compared = {"backend": ["horovod:torch:gloo", "pytorch"], "nodes": [1, 2]}
    specs = subject.TRAINING.specs(compared | {"steps": 3, "bucket_mb": 1.0})
    assert [(spec.backend, spec.nodes, spec.transport) for spec in specs] == [
        ("horovod", 1, "gloo"),
        ("horovod", 2, "gloo"),
        ("pytorch", 1, None),
        ("pytorch", 2, None),
    ]
    assert {spec.steps for spec in specs} == {3} and specs[-1].options == {"bucket_mb": 1.0}


@cases
def test_what_makes_no_sense_about_the_place_is_refused_in_one_line(case: Case) -> None:
    with case.raises(InvalidInput):
        eval(case.request)


@pytest.mark.parametrize(("wait", "submit", "option"), [(False, True, "--no-wait"), (True, False, "--no-submit")])
def test_jobs_are_refused_where_there_is_no_batch_system(
    wait: bool, submit: bool, option: str, wording: Wording
) -> None:
    with wording(option).raises(InvalidInput):
        carry_out([RunSpec(backend="pytorch")], Place(), wait=wait, submitting=submit)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Place(output=tmp_path).prepare(RunSpec(backend="pytorch"))


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_names_the_signal(
    run: Run, monkeypatch: pytest.MonkeyPatch, sent: signal.Signals, wording: Wording
) -> None:
    monkeypatch.setattr(run, "begin", lambda: signal.raise_signal(sent))
    with wording("signal").raises(Interrupted, NAME=sent.name), signals_interrupt():
        execute([run], Listener())


def test_an_interruption_without_a_name_is_called_one(
    run: Run, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    def pressed() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "begin", pressed)
    with wording("pressed").raises(Interrupted):
        execute([run], Listener(), "    go on")


def test_a_run_directory_that_cannot_be_made_is_refused_and_leaves_nothing(tmp_path: Path, wording: Wording) -> None:
    place = Place(output=tmp_path / "file", dry_run=True)
    run = place.prepare(RunSpec(backend="pytorch"))
    (tmp_path / "file").touch()
    with wording("file").raises(InvalidInput, HERE=tmp_path):
        run.begin()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


MODULES = """
[[systems]]
name = "theirs"
modules_system = "lmod"
[[systems.partitions]]
name = "all"
scheduler = "slurm"
launcher = "srun"
environs = ["own"]
processor = {num_cpus = 8, num_cpus_per_core = 1}
[[environments]]
name = "own"
extras = {python = "PYTHON"}
"""


def test_a_sites_python_has_the_framework_unless_modules_may_bring_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    looked: list[list[str]] = []
    monkeypatch.setattr(pythons, "lacks", lambda python, modules, environ: looked.append([*modules]) or ["torch"])
    file = tmp_path / "site.toml"
    file.write_text(MODULES.replace("PYTHON", sys.executable))
    run = Place(str(file)).prepare(RunSpec(backend="horovod", framework="torch", device="cpu"))
    with wording("horovod").raises(InvalidInput, PYTHON=sys.executable):
        run.check()
    assert looked == [["numpy", "horovod", "torch"]]
    file.write_text(MODULES.replace("PYTHON", sys.executable).replace('"own"\n', '"own"\nmodules = ["torch"]\n'))
    Place(str(file)).prepare(run.spec).check()
    assert len(looked) == 1
