"""The same run under each MPI library: the library that was asked for is loaded, and what it computes is the same."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.environments import mpi
from harness.environments.building import build
from tests.conftest import FEW_STEPS, Harness
from tests.faults.running import TINY

BEGINS = {"mpich": "MPICH 5.0.2 ", "intel": "Intel(R) MPI Library 2021.18.1 ", "openmpi": "Open MPI v5.0.11 "}
LIBRARIES = ["mpich", pytest.param("intel", marks=pytest.mark.slow)]  # Open MPI takes Slurm
TRAINED = [
    ("pytorch:mpi", []),
    pytest.param("horovod:torch:mpi", [], marks=pytest.mark.exhaustive),
    pytest.param("horovod:tensorflow:mpi", [], marks=pytest.mark.exhaustive),
    ("caffe2:mpi", ["--mpi-operators", "caffe2"]),
    ("caffe2:mpi", ["--mpi-operators", "mpi4py"]),
    pytest.param("torch_parameter_server:mpi", ["--ps", "2"], marks=pytest.mark.exhaustive),
]


@pytest.fixture(scope="session")
def library() -> Callable[[str], Path]:
    """The folder of an MPI library's environment, built if need be."""
    return lambda name: build(mpi.environment(name), lambda line: print(line, file=sys.stderr))


def provided(name: str, library: Callable[[str], Path]) -> list[str]:
    """The options that choose a library, which is there."""
    if name in mpi.LIBRARIES:
        library(name)
    return ["--mpi", name]


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_kernel_is_right_under_each_library_and_its_record_proves_which_it_was(
    harness: Harness, environment: Callable[..., Path], library: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    environment("mpi4py")
    few = ["--nodes", "2", "--bytes", "4KiB,1MiB", *FEW_STEPS, "--repeats", "1", "--json"]
    record = harness("kernel", "allreduce", "--backend", "mpi4py", *provided(name, library), *few).succeeded().json
    assert record["spec"]["mpi"] == name and record["status"] == "completed"
    for rank in record["repeats"][0]["ranks"]:
        assert rank["evidence"]["transport"].startswith(BEGINS[name])
        # Two "nodes" talk TCP under each: what a rank sends is counted.
        moved = rank["sizes"][-1]["network"]
        assert moved is None or moved["sent"] >= 3 * (1 << 20)
    (repeat,) = tmp_path.glob("runs/*/repeat-1")
    assert {path.name for path in repeat.iterdir()} == {"events", "logs"}


@pytest.mark.parametrize("name", LIBRARIES)
def test_ranks_find_the_world_of_their_launcher_and_not_the_one_that_it_is_in_itself(
    harness: Harness, environment: Callable[..., Path], library: Callable[[str], Path], name: str
) -> None:
    """As in a step that srun has started."""
    environment("mpi4py")
    few = ["--nodes", "2", "--bytes", "4KiB", *FEW_STEPS, "--repeats", "1", "--json"]
    which = ["kernel", "allreduce", "--backend", "mpi4py", *provided(name, library), *few]
    uri = "slurm.pmix.1.0;tcp4://127.0.0.1:1"
    step = {"PMIX_RANK": "0", "PMIX_NAMESPACE": "slurm.pmix.1.0", "PMIX_SERVER_URI4": uri, "PMIX_SERVER_URI41": uri}
    done = harness(*which, PMI_SIZE="7", PMI_PORT="localhost:1", PMI_ID="3", **step)
    assert done.succeeded().json["status"] == "completed"


@pytest.mark.slow
@pytest.mark.parametrize(("way", "options"), TRAINED)
def test_training_is_the_same_under_each_library(
    harness: Harness, environment: Callable[..., Path], library: Callable[[str], Path], way: str, options: list[str]
) -> None:
    names = ["mpich", "intel"]
    provided("intel", library)
    name, *qualifiers = way.split(":")
    environment(name, qualifiers[0] if len(qualifiers) > 1 else None)
    which = ["--backend", way, *options, "--nodes", "2", "--mpi", ",".join(names)]
    records = harness("run", *which, *TINY, *FEW_STEPS, "--json").succeeded().json
    assert [record["spec"]["mpi"] for record in records] == names
    ranks = [rank for record in records for rank in record["repeats"][0]["ranks"]]
    libraries = [name for name in names for _ in range(2)]
    for number, (rank, name) in enumerate(zip(ranks, libraries, strict=True)):
        assert rank["evidence"]["transport"].startswith(BEGINS[name])
        assert rank["network"]["interfaces"] == ["lo"]
        alike = ranks[number % 2]["evidence"]["losses"]  # of the same rank, on the same images, under the first library
        assert rank["evidence"]["losses"] == pytest.approx(alike, rel=1e-4)
