"""Site profiles: what is in them, which of them is meant, and how a wrong one is refused."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import InvalidInput
from harness.launch import ssh
from harness.sites import file as site_file
from harness.sites import site
from harness.sites.file import Mistake, duration_s
from tests.conftest import Harness
from tests.wording import Case, Wording, cases

MINE = Path(__file__).with_name("mine.toml").read_text()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder of site profiles, empty."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    path = site.user_folder()
    path.mkdir(parents=True)
    return path


Write = Callable[..., Path]


def mistakes(name: str) -> list[Mistake]:
    return site.mistakes(site.checked_files([name])[0])


@pytest.fixture
def write(folder: Path) -> Write:
    """Write a profile of the user's."""

    def text(content: str, name: str = "mine.toml") -> Path:
        (folder / name).write_text(content)
        return folder / name

    return text


# --- built-in profiles -------------------------------------------------------------------------------------------------


def test_every_built_in_profile_is_valid_and_has_its_page(folder: Path) -> None:
    built_in = site.files()
    assert {file.path.stem for file in built_in} >= {"alps", "cori-knl", "daint-gpu", "ec2", "generic-slurm", "local"}
    for file in built_in:
        assert site.mistakes(file) == []
        page = Path(__file__).parents[2] / "docs" / "sites" / f"{file.path.stem}.md"
        names = [f"{system.name}:{partition.name}" for system in file.systems for partition in system.partitions]
        assert names and all(name in page.read_text() for name in names)


@cases
def test_names_find_their_target(folder: Path, case: Case) -> None:
    """No profile holds a user's account."""
    found = site.find(case.request)
    case.answered(" ".join([found.name, f"cores={found.cores_per_node}", f"gpus={found.gpus_per_node}", *found.access]))


# --- a target ----------------------------------------------------------------------------------------------------------


def test_a_target_merges_system_partition_and_environment_in_that_order_and_fills_in_resources(write: Write) -> None:
    write(MINE)
    target = site.find("mine")
    assert target.name == "mine:gpu" and target.environ == "tuned"
    assert target.modules == ("base", "cuda/12.4", "horovod")
    assert target.env_vars == (("LEVEL", "environment"), ("ONLY_SYSTEM", "1"))
    assert target.prepare_cmds == ("echo system", "echo partition", "echo environment")
    assert (target.time_limit_s, target.cores_per_node, target.gpus_per_node) == (5400, 64, 4)
    assert target.extras.address == "{host}-hsn0"
    assert target.extras.port == 30000 and target.extras.mpi == "pmi2"
    assert target.gpu_options(2) == ["--gres=gpu:2", "--exclusive"] and site.find("mine:cpu").gpu_options(2) == []


def test_variables_of_a_profile_add_to_what_there_is_wherever_processes_start(write: Write, harness: Harness) -> None:
    own = '["PATH", "/a b/bin:$PATH"], ["WISH", "it\'s \\"$(reboot)\\" ${PATH}:$NEVER_SET"]'
    mine = MINE.replace('python = "~/envs/tuned", ', "")
    write(mine.replace('["LEVEL", "partition"]', own).replace('["LEVEL", "environment"]', '["PATH", "$PATH:/tuned"]'))
    target = site.find("mine")
    expected = {"PATH": "/a b/bin:/usr/bin:/bin:/tuned", "LEVEL": "system", "ONLY_SYSTEM": "1"}
    expected["WISH"] = f'it\'s "$(reboot)" {expected["PATH"]}:'
    here = target.environment({"PATH": "/usr/bin:/bin", "OTHER": "x"})
    assert here == expected | {"OTHER": "x"}

    shown = 'env | grep -E "^(PATH|WISH|LEVEL|ONLY_SYSTEM)="'
    script = harness("run", "--backend", "horovod", "--site", "mine", "--dry-run", "--json").succeeded().json["script"]
    exports = "\n".join(line for line in script.splitlines() if line.startswith("export "))
    # ssh runs what its modules and commands need in a login shell, which this machine's may have other ideas of a PATH in
    plain = target.model_copy(update={"modules": (), "prepare_cmds": ()})
    remote = ssh.command(["python"], Path("/runs/x"), 1, 0, plain).split(" bash python ")[0] + f" bash sh -c '{shown}'"
    for command in (f"{exports}\n{shown}", remote):
        done = subprocess.run(["bash", "-c", command], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
        assert dict(line.split("=", 1) for line in done.stdout.splitlines()) == expected, (command, done)


def test_an_environment_is_chosen_by_name_or_by_the_backend_it_is_for(write: Write) -> None:
    write(MINE)
    assert site.find("mine", "plain").environ == "plain"
    assert site.find("mine", backend="pytorch").environ == "plain"
    assert site.find("mine", backend="horovod").python == Path("~/envs/tuned").expanduser()
    assert site.find("mine:cpu").environ is None and site.find("mine:cpu").python is None


def test_paths_are_expanded_when_they_are_needed(
    write: Write, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    file = write(MINE)
    monkeypatch.delenv("HARNESS_TEST_SCRATCH", raising=False)
    target = site.find("mine")
    with wording("output").raises(InvalidInput, FILE=file):
        _ = target.output
    monkeypatch.setenv("HARNESS_TEST_SCRATCH", "/scratch/me")
    assert target.output == Path("/scratch/me/runs")


@pytest.mark.parametrize(("text", "seconds"), [("30m", 1800), ("1h30m", 5400), ("1d2h3m4s", 93784), ("90s", 90)])
def test_time_limits_are_reframes(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@cases
def test_other_time_limits_are_refused(case: Case) -> None:
    with case.raises(ValueError):
        duration_s(eval(case.request))


# --- which file is meant -----------------------------------------------------------------------------------------------


def test_a_users_file_replaces_the_built_in_one_of_that_name(write: Write, wording: Wording) -> None:
    write(MINE, "daint-gpu.toml")
    assert site.find("daint-gpu").name == "mine:gpu"
    with wording("daint").raises(InvalidInput):
        site.find("daint")


def test_a_users_system_replaces_the_built_in_one_of_that_name(write: Write) -> None:
    write(MINE.replace('"mine"', '"daint"'))
    assert site.find("daint").modules[0] == "base"
    assert site.find("daint-gpu").modules == ("daint-gpu",)
    names = [row["name"] for row in site.survey()[0]]
    assert names.count("daint:gpu") == 1 and "daint:mc" not in names


def test_json_is_read_as_toml_is_also_beside_a_file_whose_name_differs_in_its_ending_alone(write: Write) -> None:
    partition = {"name": "main", "scheduler": "local", "launcher": "local", "time_limit": None}
    path = write(json.dumps({"systems": [{"name": "other", "partitions": [partition]}]}), "ours.json")
    write(MINE, "ours.toml")
    assert site.find("other").name == site.find(str(path)).name == "other:main"
    assert site.find("mine:gpu").name == "mine:gpu"
    assert {"other:main", "mine:gpu"} <= {row["name"] for row in site.survey()[0]}


def test_a_path_finds_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here.toml").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    assert site.find("here.toml").file == site.find("./here.toml").file == tmp_path / "here.toml"


@cases
def test_what_no_file_has_is_refused_with_what_there_is(write: Write, case: Case) -> None:
    write(MINE)
    with case.raises(InvalidInput):
        site.find(*case.words())


def test_a_broken_file_stops_only_those_who_want_it(write: Write, wording: Wording) -> None:
    broken = write(MINE.replace('"srun"', '"srunn"'))
    replaced = write("[[systems]\n", "cori-knl.toml")
    assert site.find("alps").name == "alps:normal"
    with wording("mine").raises(InvalidInput, FILE=broken):
        site.find("mine")
    for name in ("cori", "cori-knl", "cori:knl"):  # rather than the built-in profile that this file replaces
        with wording("cori").raises(InvalidInput, FILE=replaced):
            site.find(name)


# --- what is wrong -----------------------------------------------------------------------------------------------------

GPU = "systems[0].partitions[0]"


@cases
def test_a_problem_names_the_field_and_what_would_be_right(write: Write, case: Case) -> None:
    right, _, wrong = case.request.partition(" =>")
    assert right in MINE
    path = write(MINE.replace(right, wrong.lstrip(), 1))
    case.answered(mistakes("mine")[0], FILE=path)


@cases
def test_problems_of_systems_and_environments(write: Write, case: Case) -> None:
    right, _, wrong = case.request.partition(" =>")
    assert right in MINE
    path = write(MINE.replace(right, wrong.lstrip()))
    case.answered("\n".join(map(str, mistakes("mine"))), FILE=path)


@cases
def test_what_is_no_site_file_is_refused_by_line(folder: Path, case: Case) -> None:
    ending, _, text = case.text.partition(" ")
    path = folder / f"mine.{ending}"
    path.write_bytes(text.encode("latin-1"))
    case.answered(mistakes(str(path))[0], FILE=path)


def test_two_files_with_one_system_are_reported(write: Write, wording: Wording) -> None:
    first, second = write(MINE), write(MINE, "other.toml")
    wording("other").answered(mistakes("other")[0], FIRST=first, SECOND=second)


# --- commands ----------------------------------------------------------------------------------------------------------


def test_list_sites_shows_built_in_and_own_profiles(harness: Harness, write: Write, wording: Wording) -> None:
    write(MINE)
    file = write("oops", "broken.toml")
    done = harness("list", "sites")
    assert done.code == 0 and "mine:gpu" in done.stdout and "yours" in done.stdout and "daint:gpu" in done.stdout
    wording("broken").ended(done, 0, FOLDER=file.parent)
    rows = harness("list", "sites", "--json").json
    assert {row["name"]: row["origin"] for row in rows}["mine:gpu"] == "yours"


def test_site_check_without_a_name_checks_all_and_fails_for_what_is_wrong(
    harness: Harness, write: Write, wording: Wording
) -> None:
    assert harness("site", "check", "--offline").code == 0
    path = write(MINE.replace('"srun"', '"srunn"', 1))
    done = harness("site", "check", "--offline")
    wording("--offline").ended(done, 2)
    assert f"{path}: {GPU}.launcher: " in done.stdout
    assert any(line.startswith("valid  daint:gpu  ") for line in done.stdout.splitlines())
    assert harness("site", "check", "daint", "local", "--offline").code == 0
    done = harness("site", "check", str(path), "--offline", "--json")
    assert done.code == 2 and [problem["field"] for problem in done.json[0]["problems"]] == [f"{GPU}.launcher"]
    wording("nowhere").refused(harness("site", "check", "nowhere"))


def test_without_sbatch_the_check_says_so(harness: Harness, write: Write, tmp_path: Path) -> None:
    done = harness("site", "check", "daint", PATH=str(tmp_path))
    assert done.code == 0
    assert done.stdout.count("(not tried against Slurm: no sbatch on PATH)") == 2


def test_site_show_prints_the_merged_profile(harness: Harness, write: Write) -> None:
    write(MINE)
    shown = harness("site", "show", "mine").stdout
    assert "modules                  base | cuda/12.4 | horovod\n" in shown
    as_json = harness("site", "show", "mine", "--environ", "plain", "--json").json
    assert as_json["modules"] == ["base", "cuda/12.4"] and as_json["time_limit_s"] == 5400
    assert harness("site", "show", "mine:nothing").code == 2
    assert harness("site", "path", "mine").stdout == f"{site.user_folder()}/mine.toml\n"


def test_planning_many_runs_reads_every_site_file_once(harness: Harness, folder: Path) -> None:
    site_file._read.cache_clear()
    backends = "parameter_server,pytorch,horovod"
    compared = ["run", "--backend", backends, "--nodes", "2,4", "--site", "daint-gpu", "--dry-run"]
    assert harness(*compared).code == 0
    assert site_file._read.cache_info().misses == len(site.files())
