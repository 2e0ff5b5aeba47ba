"""MPI libraries under Slurm: ranks that srun starts meet through the plugin that their library understands."""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def ranks(user: User, profile: str, *arguments: str) -> list[dict[str, Any]]:
    """What two of them say of an allreduce, which are on a node each; ``profile`` are more lines of the partition's."""
    user.site.write_text(user.site.read_text() + profile)
    few = ["--nodes", "2", "--bytes", "1MiB", *FEW_STEPS, "--repeats", "1", "--timeout", "240", "--json"]
    done = user.harness("kernel", "allreduce", "--backend", "mpi4py", *arguments, *few)
    assert done.code == 0, done.stderr
    (repeat,) = done.json["repeats"]
    assert len({rank["host"] for rank in repeat["ranks"]}) == 2
    found: list[dict[str, Any]] = repeat["ranks"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("name", "plugin"), [("mpich", "pmi2"), ("intel", "pmi2"), ("openmpi", "pmix")])
def test_each_library_finds_its_world_through_srun(
    user: User, environment: Callable[..., Path], library: Callable[[str], Path], name: str, plugin: str
) -> None:
    environment("mpi4py")
    found = ranks(user, f'extras = {{ mpi = "{plugin}" }}\n', *provided(name, library))
    assert all(rank["evidence"]["transport"].startswith(BEGINS[name]) for rank in found)


OWN = """
environs = ["own-mpi"]
extras = {{ mpi = "{plugin}" }}

[[environments]]
name = "own-mpi"
env_vars = [["MPI4PY_LIBMPI", "{file}"], ["LD_LIBRARY_PATH", "{file.parent}"]]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "begins", "library", "name", "plugin"),
    [
        ("mpich", "MPICH ", "libmpich.so.12", "libmpi.so.12", "pmi2"),
        ("openmpi-bin", "Open MPI v", "libmpi.so.40", "libmpi.so.40", "pmix"),
    ],
)
def test_a_sites_own_library_is_named_in_its_profile(
    user: User, environment: Callable[..., Path], package: str, begins: str, library: str, name: str, plugin: str
) -> None:
    """Debian's, which are older than the wheels'. MPICH's has another name there than mpi4py looks for."""
    environment("mpi4py")
    version = subprocess.check_output(["dpkg-query", "-Wf", "${source:Upstream-Version}", package], text=True)
    (file := user.folder / name).symlink_to(Path("/usr/lib", sysconfig.get_config_var("MULTIARCH"), library))
    found = ranks(user, OWN.format(plugin=plugin, file=file))
    assert {rank["evidence"]["transport"] for rank in found} == {f"{begins}{version} through mpi4py"}
