"""MPI as a factor: what --mpi stands for, what it is refused for, and how results of several libraries are told apart."""

import sys
from pathlib import Path
from typing import Any

import pytest

from harness import environments
from harness.analysis.fastest import races
from harness.analysis.verdict import verdict
from harness.core.spec import MPI_LIBRARIES, RunSpec
from harness.core.subject import TRAINING
from harness.environments import mpi
from harness.errors import InvalidInput
from harness.report.text import fastest
from harness.report.text import runs as of_runs
from harness.report.text.table import text as text_of
from harness.results.result import with_libraries
from harness.running.study import Study, labels
from harness.worker.job import Job
from harness.worker.mpi import OWN_NAMES, check_mpi_world
from tests.conftest import Harness
from tests.unit.made_rows import HOROVOD, listed, run
from tests.wording import Case, Wording, cases

INTEL, MPICH = "Intel(R) MPI Library 2021.18.1", "MPICH 5.0.2"
OVER_MPI = ["--transport", "mpi", "--nodes", "2"]


def planned(harness: Harness, *arguments: str) -> dict[str, Any]:
    shown: dict[str, Any] = harness("run", *arguments, "--dry-run", "--json").succeeded().json
    return shown


# --- the spec ---


def test_a_spec_without_a_library_is_what_it_was_before_there_was_a_choice() -> None:
    usual, chosen = RunSpec.validated(backend="pytorch"), RunSpec.validated(backend="pytorch", mpi="intel")
    assert "mpi" not in usual.model_dump() and RunSpec(**usual.model_dump()) == usual
    assert chosen.model_dump() == usual.model_dump() | {"mpi": "intel"}


def test_every_library_says_how_it_calls_itself() -> None:
    assert set(OWN_NAMES) == set(MPI_LIBRARIES)


def test_another_library_than_the_one_that_was_named_is_an_error(wording: Wording) -> None:
    def job(spec: dict[str, Any]) -> Job:
        return Job(Path(), 1, spec, {"processes": [{}, {}]}, {"index": 0})

    with wording("intel").raises(RuntimeError):
        check_mpi_world(0, 2, job({"mpi": "intel"}))
    check_mpi_world(0, 2, job({}))


# --- the plan ---


def test_intels_library_comes_first_on_the_library_path_and_is_named_to_mpi4py(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/own")
    folder = environments.path(mpi.environment("intel")) / "lib"
    plan = planned(harness, "--backend", "horovod", *OVER_MPI, "--mpi", "intel")["plan"]
    for process in plan["processes"]:
        assert process["env"]["LD_LIBRARY_PATH"] == f"{folder}:/opt/own"
        assert process["env"]["MPI4PY_LIBMPI"] == str(folder / "libmpi.so.12")
    assert plan["mpi"]


def test_mpich_is_found_where_it_always_was(harness: Harness) -> None:
    usual, chosen = (planned(harness, "--backend", "pytorch", *OVER_MPI, *more) for more in ([], ["--mpi", "mpich"]))
    assert chosen["spec"] == usual["spec"] | {"mpi": "mpich"}
    both = [[process["env"] for process in shown["plan"]["processes"]] for shown in (usual, chosen)]
    assert both[0] == both[1]


def test_a_library_has_an_environment_of_its_own_by_its_content() -> None:
    folders = [environments.path(mpi.environment(library)).name for library in mpi.LIBRARIES]
    assert [name.rsplit("-", 1)[0] for name in folders] == ["intel-cpu", "openmpi-cpu"]


@cases
def test_what_cannot_be_had_is_refused_in_one_line(refused: Harness, case: Case) -> None:
    case.refused(refused(*case.words()))


def test_a_library_that_is_not_built_is_refused_with_the_command_that_builds_it(
    refused: Harness, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wording: Wording
) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    done = refused("run", "--backend", "pytorch", *OVER_MPI, "--mpi", "intel", "--env", sys.executable)
    wording("intel").refused(done)


def test_open_mpi_takes_a_slurm_that_serves_pmix(refused: Harness) -> None:
    wanted = ["--backend", "pytorch", *OVER_MPI, "--mpi", "openmpi", "--device", "cpu", "--dry-run"]
    refused("run", *wanted).refused("its ranks meet through PMIx, which Slurm serves")
    refused("run", *wanted, "--site", "daint:gpu").refused("give a --site with", "the profile of daint", "has 'pmi2'")


# --- several libraries ---


def test_what_goes_over_mpi_is_measured_under_each_library_and_the_rest_once(harness: Harness) -> None:
    backends = "pytorch:gloo,pytorch:mpi,horovod:torch"
    done = harness("run", "--backend", backends, "--nodes", "2", "--mpi", "mpich,intel", "--dry-run").succeeded()
    described = [line for line in done.stdout.splitlines() if " · pointwise · " in line or " · resnet50 · " in line]
    carriers = [line.split(" · ")[6] for line in described]
    assert carriers == ["gloo", "mpi:mpich", "mpi:intel", "mpi:mpich", "mpi:intel"]


@cases
def test_libraries_that_are_of_no_use_are_refused(case: Case) -> None:
    with case.raises(InvalidInput):
        TRAINING.specs({"backend": "pytorch:gloo", "nodes": [1, 2], "mpi": case.words()})


def test_a_library_of_a_study_multiplies_what_goes_over_mpi(tmp_path: Path) -> None:
    file = tmp_path / "libraries.toml"
    file.write_text('[[matrix]]\nbackend = ["pytorch:gloo", "pytorch:mpi", "horovod:torch"]\nmpi = ["mpich", "intel"]')
    points = Study.read(file).points(lambda wanted: "cpu")
    assert labels([point.spec.model_dump() for point in points]) == [
        "pytorch:gloo nodes=1",
        "pytorch:mpi:mpich nodes=1",
        "pytorch:mpi:intel nodes=1",
        "horovod:torch:mpich nodes=1",
        "horovod:torch:intel nodes=1",
    ]


def test_a_program_is_started_as_an_mpi_world_and_a_backend_with_its_library(harness: Harness) -> None:
    sides = ["--nodes", "2", "--b", "var:A=1", "--dry-run"]
    program = harness("ab", *sides, "--pattern", "([0-9.]+)", "--mpi", "--", "true").succeeded()
    assert program.stdout.count("PMI") == 0 and "true" in program.stdout
    own = harness("ab", "--backend", "pytorch", "--transport", "mpi", "--mpi", "intel", *sides).succeeded()
    assert "mpi:intel" in own.stdout
    assert harness("launch", "--mpi", "--dry-run", "--json", "--", "true").succeeded().json["plan"]["mpi"]


# --- results ---


def test_a_table_says_which_library_a_row_had_where_there_are_several() -> None:
    runs = [run(2, [180.0, 181.0], **HOROVOD, mpi=library) for library in (MPICH, INTEL)]
    text = text_of(of_runs.table_of_runs(with_libraries(listed(runs))))
    assert [line.split("  ")[-1].strip() for line in text.splitlines() if line.startswith("horovod")] == [INTEL, MPICH]
    alone = text_of(of_runs.table_of_runs(with_libraries(listed([run(2, [180.0, 181.0], **HOROVOD, mpi=MPICH)]))))
    assert MPICH not in alone


def test_the_answer_names_the_library_of_each_contender_where_there_are_several() -> None:
    runs = [
        run(2, [value, value + 0.1, value + 0.2], **HOROVOD, mpi=library)
        for library, value in ((MPICH, 180.0), (INTEL, 200.0))
    ]
    results = with_libraries(listed(runs))
    assert "over Intel(R) MPI Library is fastest" in fastest.text(races(results), verdict(results), in_detail=True)
