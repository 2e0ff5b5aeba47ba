"""The site that is meant where none is typed, the user's own defaults, and runs that this machine cannot hold."""

import os
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from harness import api as harness_api
from harness.core.spec import RunSpec
from harness.errors import InvalidInput
from harness.launch import local, slurm
from harness.running import prepare
from harness.running.prepare import Place
from harness.sites import config
from harness.sites import site as sites
from tests.conftest import Harness, shell_program
from tests.wording import Case, Wording, cases

SITE = """
[[systems]]
name = "mine"
hostnames = ['login\\d+']
[[systems.partitions]]
name = "gpu"
scheduler = "slurm"
launcher = "srun"
processor = {num_cpus = 8, num_cpus_per_core = 1}
"""
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write the user's config, on a machine that is called login3 and has a site of its own but no Slurm."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in (prepare.SITE_VARIABLE, "SLURM_JOB_ID", "SLURMD_NODENAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(prepare.socket, "gethostname", lambda: "login3")
    (tmp_path / "bin").mkdir()
    sites.user_folder().mkdir(parents=True)
    (sites.user_folder() / "mine.toml").write_text(SITE)

    def text(content: str) -> Path:
        path = tmp_path / "config" / "harness" / "config.toml"
        path.write_text(content)
        return path

    return text


# --- the site ----------------------------------------------------------------------------------------------------------


def test_without_a_slurm_it_is_this_machine(write: Write) -> None:
    assert prepare.chosen_site(None) == (None, "")


def test_the_site_whose_hostnames_match_is_taken_where_its_slurm_is(write: Write, tmp_path: Path) -> None:
    shell_program(tmp_path / "bin" / "sbatch")
    assert prepare.chosen_site(None) == ("mine", "its hostnames match this host, login3")


@pytest.mark.parametrize(
    ("sinfo", "chosen"), [("echo normal", "generic-slurm"), ("exit 1", None), ("exec /bin/sleep 60", None)]
)
def test_a_slurm_without_a_profile_is_generic_if_it_answers_soon(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sinfo: str, chosen: str | None
) -> None:
    monkeypatch.setattr(prepare.socket, "gethostname", lambda: "elsewhere")
    monkeypatch.setattr(slurm, "QUICK_S", 0.5)
    shell_program(tmp_path / "bin" / "sbatch")
    shell_program(tmp_path / "bin" / "sinfo", sinfo)
    assert prepare.chosen_site(None)[0] == chosen


def test_what_was_typed_counts_before_the_study_the_variable_the_config_and_the_host(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell_program(tmp_path / "bin" / "sbatch")
    path = write('site = "cori"')
    assert prepare.chosen_site(None) == ("cori", str(path))
    monkeypatch.setenv("HARNESS_SITE", "local")
    assert prepare.chosen_site(None) == ("local", "$HARNESS_SITE")
    assert prepare.chosen_site(None, "alps") == ("alps", "")
    assert prepare.chosen_site("daint", "alps") == ("daint", "")


def test_within_a_job_runs_stay_in_it(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell_program(tmp_path / "bin" / "sbatch")
    write('site = "cori"')
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert prepare.chosen_site(None) == (None, "")
    assert prepare.chosen_site("daint") == ("daint", "")


def test_within_an_allocation_nothing_is_measured_on_the_login_node(
    write: Write, harness: Harness, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    wording("login3").refused(harness("run", "--backend", "pytorch", "--dry-run"))
    harness("run", "--backend", "pytorch", "--dry-run", "--site", "local").succeeded()
    monkeypatch.setenv("SLURMD_NODENAME", "node7")
    harness("run", "--backend", "pytorch", "--dry-run").succeeded()


def test_a_site_that_was_not_typed_is_said_in_a_line(
    write: Write, tmp_path: Path, harness: Harness, wording: Wording
) -> None:
    shell_program(tmp_path / "bin" / "sbatch")
    done = harness("run", "--backend", "pytorch", "--dry-run")
    assert done.stdout.startswith("#!/bin/bash") and "--nodes=1" in done.stdout
    wording("mine:gpu").ended(done, 0)
    here = harness("run", "--backend", "pytorch", "--dry-run", "--site", "local")
    assert "#SBATCH" not in here.stdout and here.stderr == ""


def test_from_python_it_is_the_site_of_the_command_with_its_account_and_folder(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shell_program(tmp_path / "bin" / "sbatch")
    why = "its hostnames match this host, login3 (--site local is this machine)"
    assert harness_api.plan("pytorch", nodes=2).processes[1].address == "node1"
    assert capsys.readouterr() == ("", f"harness: runs at mine:gpu: {why}\n")
    assert harness_api.plan("pytorch", nodes=2, site="local").processes[1].address == "127.0.0.1"
    assert capsys.readouterr().err == ""
    path = write(f'site = "daint"\naccount = "s9"\noutput = "{tmp_path}/all"\n')
    place, _ = harness_api._place(None, None, {}, dry_run=True)
    assert capsys.readouterr().err.startswith(f"harness: runs at daint:gpu: {path} (")
    assert (place.site, place.account, place.folder) == ("daint", "s9", tmp_path / "all")
    given, _ = harness_api._place("local", "runs", {})
    assert (given.account, given.folder) == (None, Path("runs"))


def test_a_home_that_nobody_has_is_a_name_like_any_other(write: Write, harness: Harness) -> None:
    write('output = "~nobody-is-called-this/runs"\n')
    planned = ("run", "--backend", "pytorch", "--dry-run", "--json")
    assert "/~nobody-is-called-this/runs/" in harness(*planned).succeeded().stdout
    harness(*planned, "--env", "~nobody-is-called-this/venv").refused("~nobody-is-called-this/venv")


def test_tests_have_no_config_of_a_users() -> None:
    usual = Path("~/.config/harness").expanduser()
    assert config.folder() != usual and not config.folder().exists()


# --- defaults ----------------------------------------------------------------------------------------------------------


def test_defaults_are_taken_where_nothing_is_typed_and_only_where_they_mean_something(
    write: Write, harness: Harness
) -> None:
    write('account = "s9"\nsite = "daint"\n')
    planned = ("run", "--backend", "pytorch", "--dry-run", "--json")
    assert "#SBATCH --account=s9\n" in harness(*planned).json["script"]
    assert "#SBATCH --account=s1\n" in harness(*planned, "--account", "s1").json["script"]
    assert harness("run", "--backend", "pytorch", "--site", "local", "--dry-run").code == 0
    harness("run", "--backend", "pytorch", "--site", "local", "--account", "s9", "--dry-run").refused("no batch system")


@cases
def test_a_wrong_default_is_refused_with_its_file(write: Write, harness: Harness, case: Case) -> None:
    path = write(case.text)
    for command in (["config"], ["run", "--backend", "pytorch", "--dry-run"]):
        case.refused(harness(*command), FILE=path)
    assert harness("run", "--help").code == 0


def test_config_shows_what_counts(write: Write, harness: Harness, wording: Wording) -> None:
    assert "You have no defaults. They would be in " in harness("config").succeeded().stdout
    path = write('site = "daint"\naccount = "s9"\n')
    shown = harness("config").succeeded().stdout
    assert shown.startswith(f"runs take place at daint:gpu: {path}\n") and "    account  s9\n" in shown
    assert harness("config", "--json").json == {
        "file": str(path),
        "values": {"site": "daint", "account": "s9"},
        "site": "daint:gpu",
        "because": str(path),
    }
    write('site = "nowhere"')
    wording("nowhere").ended(harness("config"), 2)


def test_the_folder_of_the_config_may_have_variables(
    write: Write, harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRATCH", str(tmp_path))
    write('output = "$SCRATCH/all"')
    assert f"{tmp_path}/all/" in harness("run", "--backend", "pytorch", "--dry-run").stdout


# --- what this machine can hold ----------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of two cores with 8 GB of free memory."""
    memory = psutil.virtual_memory()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory._replace(available=8_000_000_000))
    monkeypatch.setattr(local, "ROOT", tmp_path / "no control groups")


def checked(place: Place, **fields: object) -> None:
    run = place.prepare(RunSpec.validated(**({"backend": "pytorch", "batch_size": 1, "image_size": 64} | fields)))
    run.check = lambda: None  # type: ignore[method-assign]  # its environment need not be built
    place.check(run)


@pytest.mark.parametrize("fields", [{"nodes": 20}, {"image_size": 224, "batch_size": 64}])
def test_what_fits_this_machine_runs(here: None, tmp_path: Path, fields: dict[str, object]) -> None:
    checked(Place(output=tmp_path), **fields)


def test_a_dry_run_says_once_that_the_run_would_be_refused(here: None, refused: Harness, wording: Wording) -> None:
    wanted = ["--backend", "pytorch,horovod:torch:gloo", "--nodes", "128", "--site", "local", "--dry-run"]
    done = refused("run", *wanted)
    assert "worker 123 more" in done.stdout
    wording("--nodes").ended(done, 0)
    assert refused("run", *wanted, "--force").stderr == ""


@pytest.mark.parametrize("version", [1, 2])
def test_the_smallest_limit_of_the_control_groups_counts(
    here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """A job or a container may have less memory than the machine, and may be within another one."""
    monkeypatch.setattr(local, "ROOT", tmp_path)
    (tmp_path / "proc/self").mkdir(parents=True)
    own, mount = ("0::/job/step", "") if version == 2 else ("9:cpu:/\n4:memory:/job/step\n0::/", "memory")
    limit, usage, files = local.CGROUP_2 if version == 2 else local.CGROUP_1
    (tmp_path / "proc/self/cgroup").write_text(own + "\n")

    def group(name: str, most: str, used: int, held: int) -> None:
        folder = tmp_path / "sys/fs/cgroup" / mount / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in ((limit, most), (usage, str(used)), ("memory.stat", f"{files} {held}\nother 5")):
            (folder / file).write_text(text + "\n")

    assert local.free_memory() == 8_000_000_000, "there are no groups to be seen"
    group("job/step", "9223372036854771712" if version == 1 else "max", 10, 0)
    assert local.free_memory() == 8_000_000_000
    group("job", "3000000000", 2_000_000_000, 500_000_000)
    assert local.free_memory() == 1_500_000_000
    group("", "2000000000", 2_500_000_000, 100_000_000)
    assert local.free_memory() == 0


@cases
def test_what_does_not_is_refused_with_what_would_do_unless_forced(here: None, tmp_path: Path, case: Case) -> None:
    fields = eval(f"dict({case.request})")
    with case.raises(InvalidInput):
        checked(Place(output=tmp_path), **fields)
    checked(Place(output=tmp_path, force=True), **fields)
    checked(Place("daint", output=tmp_path), **fields)
