"""MPI libraries under Slurm: ranks that srun starts meet through the plugin that their library understands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import FEW_STEPS
from tests.parity.test_mpi import BEGINS, library, provided

from .submitted import User
from .virtual import VirtualCluster

pytestmark = pytest.mark.cluster
__all__ = ["library"]  # a fixture


@pytest.fixture
def user(cluster: VirtualCluster, tmp_path: Path) -> User:
    return User(cluster, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "plugin"), [("mpich", "pmi2"), ("intel", "pmi2"), ("openmpi", "pmix")])
def test_each_library_finds_its_world_through_srun(
    user: User, environment: Callable[..., Path], library: Callable[[str], Path], name: str, plugin: str
) -> None:
    environment("mpi4py")
    user.site.write_text(user.site.read_text() + f'[systems.partitions.extras]\nmpi = "{plugin}"\n')
    few = ["--nodes", "2", "--bytes", "1MiB", *FEW_STEPS, "--repeats", "1", "--json"]
    done = user.harness("kernel", "allreduce", "--backend", "mpi4py", *provided(name, library), *few)
    assert done.code == 0, done.stderr
    (repeat,) = done.json["repeats"]
    assert len({rank["host"] for rank in repeat["ranks"]}) == 2
    assert all(rank["evidence"]["transport"].startswith(BEGINS[name]) for rank in repeat["ranks"])
