"""MPI libraries under Slurm: ranks that srun starts meet through the plugin that their library understands."""

import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FEW_STEPS, SMALLEST
from tests.parity.test_mpi import BEGINS, library, provided

from .submitted import User
from .virtual import VirtualCluster

pytestmark = pytest.mark.cluster
__all__ = ["library"]  # a fixture

KERNEL = ["kernel", "allreduce", "--backend", "mpi4py", "--bytes", "1MiB"]
TRAINING = ["run", "--transport", "mpi", *SMALLEST, "--threads", "1"]
HOROVOD = [*TRAINING, "--backend", "horovod", "--framework", "torch"]
MPICH, OPEN_MPI = ("mpich", "libmpich.so.12", "libmpi.so.12"), ("openmpi-bin", "libmpi.so.40", "libmpi.so.40")


@pytest.fixture
def user(cluster: VirtualCluster, tmp_path: Path) -> User:
    return User(cluster, tmp_path)


def ranks(user: User, profile: str, *arguments: str) -> list[dict[str, Any]]:
    """What two of them, on a node each, say of a run; ``profile`` are more lines of the partition's."""
    user.site.write_text(user.site.read_text() + profile)
    few = ["--nodes", "2", *FEW_STEPS, "--repeats", "1", "--timeout", "240", "--json"]
    done = user.harness(*arguments, *few).succeeded()
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
    found = ranks(user, f'extras = {{ mpi = "{plugin}" }}\n', *KERNEL, *provided(name, library))
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
    ("package", "plugin", "beside", "arguments", "said"),
    [
        (MPICH, "pmi2", ["mpi4py"], KERNEL, "MPICH {} through mpi4py"),
        (MPICH, "pmi2", ["horovod", "torch"], HOROVOD, "MPICH {} in Horovod 0.28.1"),
        (MPICH, "pmi2", ["caffe2"], [*TRAINING, "--backend", "caffe2"], "MPICH {} in Caffe2"),
        (OPEN_MPI, "pmix", ["mpi4py"], KERNEL, "Open MPI v{} through mpi4py"),
        (OPEN_MPI, "pmix", ["horovod", "torch", "openmpi"], HOROVOD, "Open MPI v{} in Horovod 0.28.1"),
        (OPEN_MPI, "pmix", ["caffe2", None, "openmpi"], [*TRAINING, "--backend", "caffe2"], "Open MPI v{} in Caffe2"),
    ],
)
def test_a_sites_own_library_is_named_in_its_profile(
    user: User,
    environment: Callable[..., Path],
    package: tuple[str, str, str],
    plugin: str,
    beside: list[Any],
    arguments: list[str],
    said: str,
) -> None:
    """Debian's, which are older than the wheels'. MPICH's has another name there than what loads it looks for."""
    python = environment(*beside)
    name, library, wanted = package
    version = subprocess.check_output(["dpkg-query", "-Wf", "${source:Upstream-Version}", name], text=True)
    (file := user.folder / wanted).symlink_to(Path("/usr/lib", sysconfig.get_config_var("MULTIARCH"), library))
    found = ranks(user, OWN.format(plugin=plugin, file=file), *arguments, "--env", str(python))
    assert {rank["evidence"]["transport"] for rank in found} == {said.format(version)}
