"""``harness site check`` where there is a Slurm: what it would refuse is found before a job is."""

import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, Finished

from .submitted import SITE
from .virtual import VirtualCluster

pytestmark = pytest.mark.cluster


def check(cluster: VirtualCluster, site: Path, **environ: str) -> Finished:
    return cluster.run(sys.executable, "-m", "harness", "site", "check", str(site), **environ)


def test_the_profile_of_the_virtual_cluster_is_one_that_slurm_takes(cluster: VirtualCluster) -> None:
    done = check(cluster, ROOT / "cluster" / "site.toml")
    assert done.code == 0 and "Slurm takes its jobs" in done.stdout, done.stderr
    assert not cluster.queue()


@pytest.mark.parametrize(
    ("right", "wrong", "field", "words"),
    [
        ("--partition=normal", "--partition=nonsense", "systems[0].partitions[0].access", "invalid partition"),
        ("--partition=normal", "--constraint=nonsense", "systems[0].partitions[0].access", "Invalid feature"),
        ("resources =", 'extras = { mpi = "nonsense" }\nresources =', "systems[0].partitions[0].extras.mpi", "pmi2"),
    ],
)
def test_what_slurm_refuses_is_named_with_its_field(
    cluster: VirtualCluster, tmp_path: Path, right: str, wrong: str, field: str, words: str
) -> None:
    site = tmp_path / "site.toml"
    site.write_text(SITE.format(scheduler="squeue").replace(right, wrong))
    done = check(cluster, site)
    assert done.code == 2
    told = done.stdout + done.stderr
    assert f"{site}: {field}" in told and words in told


def test_an_account_that_is_not_ours_is_refused(accounting_cluster: VirtualCluster) -> None:
    done = check(accounting_cluster, ROOT / "cluster" / "site.toml", SBATCH_ACCOUNT="nonsense")
    assert done.code == 2 and "account" in (done.stdout + done.stderr).lower()
