"""A profile that is written from what Slurm says, and profiles tried against a Slurm; programs stand in for its own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.launch.describe import described
from harness.running import trial
from harness.sites import site as sites
from tests.conftest import Harness, shell_program
from tests.wording import Case, Wording, cases

SINFO = """\
debug|up|2|30:00|24|2|(null)
gpu*|up|8|1-12:00:00|128|2|gpu:a100:4(S:0-1),nvme:1
gpu*|up|1|1-12:00:00|64|2|gpu:v100:2
old|down|9|infinite|8|1|(null)
free@any|up|3|infinite|8+|1+|gpu:2,gpu:3
"""
TAKES = (
    """while read -r line; do case "$line" in *"$REFUSED"*) echo "sbatch: error: not that" >&2; exit 1;; esac; done"""
)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """A host called login3.cluster with a Slurm; a program of it can be replaced."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("REFUSED", "nothing of it")
    monkeypatch.delenv("SCRATCH", raising=False)
    monkeypatch.setattr("socket.gethostname", lambda: "login3.cluster")
    trial._reply.cache_clear()

    def program(name: str, body: str) -> None:
        shell_program(tmp_path / "bin" / name, body)

    program("sinfo", f"echo '{SINFO}'")
    program("srun", "echo 'MPI plugin types are...' >&2; echo 'none cray_shasta pmix pmi2' >&2")
    program("sbatch", TAKES)
    return program


Slurm = Callable[[str, str], None]


def test_sinfo_is_read_by_partition_the_default_first_with_what_most_nodes_have() -> None:
    gpu, debug, free = described(SINFO)
    assert (gpu.name, gpu.nodes, gpu.mixed, gpu.time_limit) == ("gpu", 8, True, "1d12h")
    assert (gpu.cores, gpu.fewest_cores, gpu.cpus_per_core, gpu.gpus, gpu.gpu_model) == (64, 32, 2, 4, "a100")
    assert (debug.time_limit, debug.gpus, debug.mixed) == ("30m", 0, False)
    assert (free.name, free.profile_name) == ("free@any", "free_any")
    assert (free.time_limit, free.gpus, free.gpu_model) == ("", 5, "")


def test_init_writes_a_profile_that_is_taken_and_is_this_hosts_site(
    slurm: Slurm, harness: Harness, wording: Wording
) -> None:
    done = harness("site", "init", "mine").succeeded()
    path = sites.user_folder() / "mine.toml"
    assert done.stdout.splitlines()[:2] == [f"wrote {path}", f"ok     mine:gpu  {path}  (Slurm takes its jobs)"]
    site = sites.find("mine")
    assert (site.cores_per_node, site.gpus_per_node, site.time_limit_s) == (64, 4, 129_600)
    assert site.access == ("--partition=gpu",) and site.extras.mpi == "pmi2" and site.output is None
    assert site.gpu_options(2) == ["--gres=gpu:2"]
    assert sites.of_host("login12.cluster") == "mine" and sites.of_host("login12.cluster2") is None
    wording("again").refused(harness("site", "init", "mine"), FILE=path)


def test_init_takes_what_this_cluster_has(slurm: Slurm, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm("srun", "echo 'MPI plugin types are... none pmix_v4 pmix'")
    monkeypatch.setenv("SCRATCH", "/scratch/me")
    harness("site", "init", "mine").succeeded()
    site = sites.find("mine")
    assert site.extras.mpi == "pmix" and site.output == Path("/scratch/me/harness/runs")


@cases
def test_init_is_refused_and_leaves_nothing(slurm: Slurm, harness: Harness, case: Case) -> None:
    name, sinfo = case.words()
    slurm("sinfo", sinfo)
    case.refused(harness("site", "init", name))
    assert not sites.user_folder().exists()


@cases
def test_a_partition_is_ok_only_if_a_run_would_be_taken(
    slurm: Slurm, harness: Harness, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    harness("site", "init", "mine").succeeded()
    path = sites.user_folder() / "mine.toml"
    changed = {"right": "", "wrong": "", "refused": "nothing of it"} | eval(f"dict({case.request})")
    assert changed["right"] in path.read_text()
    path.write_text(path.read_text().replace(changed["right"], changed["wrong"], 1))
    monkeypatch.setenv("REFUSED", changed["refused"])
    trial._reply.cache_clear()
    done = harness("site", "check", "mine")
    assert done.code == 2
    case.answered(done.stdout, FILE=path)


def test_the_account_of_the_config_is_the_trials(
    slurm: Slurm, harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness("site", "init", "mine").succeeded()
    (sites.user_folder().parent / "config.toml").write_text('account = "s123"')
    monkeypatch.setenv("REFUSED", "--account=s123")
    trial._reply.cache_clear()
    assert "--account=s123: not that" in harness("site", "check", "mine").stdout


def test_what_was_not_tried_is_valid_and_not_ok(slurm: Slurm, harness: Harness) -> None:
    shown = harness("site", "check", "daint", "generic-slurm", "ec2", "--offline").succeeded().stdout
    assert [line.split()[0] for line in shown.splitlines()] == ["valid"] * 4
    slurm("sinfo", "echo 'sinfo: error: Unable to contact slurm controller' >&2; exit 1")
    trial._reply.cache_clear()
    shown = harness("site", "check", "generic-slurm").succeeded().stdout
    assert shown.startswith("valid") and "whose controller does not answer" in shown
