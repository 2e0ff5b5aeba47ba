"""Programs of the frameworks' own kinds under ``harness launch``: torch.distributed, torchrun, mpi4py, an mpiexec."""

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.records.launch import LaunchRecord
from tests.conftest import ROOT, Harness

PROGRAMS = ROOT / "tests" / "programs"
PATTERN = ["--nodes", "2", "--pattern", "total images/sec: ([0-9.]+)"]


def logs(folder: Path) -> str:
    return "".join(sorted(path.read_text() for path in folder.glob("runs/*/repeat-1/logs/worker-*.log")))


def test_ranks_of_torch_distributed_meet_and_its_bytes_are_seen(
    harness: Harness, environment: Callable[..., Path], tmp_path: Path
) -> None:
    harness("launch", *PATTERN, "--", str(environment("pytorch")), str(PROGRAMS / "allreduce.py")).succeeded()
    assert "rank 0 of 2" in logs(tmp_path) and "rank 1 of 2" in logs(tmp_path)
    (path,) = tmp_path.glob("runs/*/launch.json")
    record = LaunchRecord.read(path)
    assert record.img_per_s and record.img_per_s.mean == record.repeats[0].ranks[0].printed
    # Each of two ranks sends 1 MB in each of 4 allreduces.
    assert record.repeats[0].ranks[0].interfaces["lo"].sent > 8e6


@pytest.mark.slow
def test_a_torchrun_on_each_node_starts_two_ranks(
    harness: Harness, environment: Callable[..., Path], tmp_path: Path
) -> None:
    torchrun = str(environment("pytorch").with_name("torchrun"))
    places = ["--nnodes", "{nodes}", "--node_rank", "{node}", "--master_addr", "{master_addr}"]
    ranks = ["--master_port", "{master_port}", "--nproc_per_node", "2"]
    argv = [torchrun, *places, *ranks, str(PROGRAMS / "allreduce.py")]
    harness("launch", *PATTERN, "--devices-per-node", "2", "--", *argv).succeeded()
    assert all(f"rank {rank} of 4" in logs(tmp_path) for rank in range(4))


@pytest.mark.parametrize("own_launcher", [False, True], ids=["ours", "mpiexec"])
def test_ranks_of_mpi_are_one_world(
    harness: Harness, environment: Callable[..., Path], tmp_path: Path, own_launcher: bool
) -> None:
    python = environment("mpi4py")
    mpiexec = [str(python.with_name("mpiexec")), "-n", "{world_size}", "-hosts", "{hosts}"]
    how, before = ("--once", mpiexec) if own_launcher else ("--mpi", [])
    harness("launch", "--nodes", "2", how, "--", *before, str(python), str(PROGRAMS / "mpi.py")).succeeded()
    assert all(f"rank {rank} of 2, sum 1" in logs(tmp_path) for rank in range(2))
