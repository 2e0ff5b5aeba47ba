"""Proof of transport: a record names what carried the gradients, as seen at run time, and a wrong world is no result."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness import environments
from harness.backends.caffe2.trainer.library import LIBRARY
from harness.core.backend import backend
from tests.conftest import FEW_STEPS, ROOT, Finished, Harness, laid_out
from tests.faults.running import LONG, LOOPBACK, TINY, Run
from tests.parity.conftest import TRAINED_IN_CI, WAYS, Record, Way, each

OVER_MPI = [way for way in WAYS if way.transport == "mpi"]
CAFFE2_OVER_MPI = Way("caffe2", "caffe2", "mpi")
CAFFE2_OVER_GLOO = Way("caffe2", "caffe2", "gloo")


def addresses(record: Record, role: str) -> list[str]:
    """Where the plan put the processes of a role."""
    processes = [process for process in record["plan"]["processes"] if process["role"] == role]
    return [f"{process['address']}:{process['port']}" for process in processes]


def caffe2_folder() -> Path:
    return environments.path(backend("caffe2").environments("cpu")[0])


def expected(record: Record, way: Way) -> str:
    """What must have carried the gradients: the libraries' versions are those of the packages that the record lists."""
    packages = record["software"]["packages"]
    if way.transport == "grpc":
        servers = addresses(record, "ps")
        return "grpc to " + ", ".join(servers) if servers else "grpc among " + ", ".join(addresses(record, "worker"))
    carrier = f"MPICH {packages['mpich']}" if way.transport == "mpi" else "gloo on lo"
    if way.backend == "horovod":
        return f"{carrier} in Horovod {packages['horovod']}"
    if way == CAFFE2_OVER_MPI and (caffe2_folder() / LIBRARY).exists():
        return f"{carrier} in Caffe2"
    return f"{carrier} through mpi4py" if way.transport == "mpi" else carrier


@pytest.mark.parametrize("way", each(WAYS, TRAINED_IN_CI), ids=str)
def test_every_rank_names_what_carried_its_gradients_and_the_interface_that_did(
    two_workers: Callable[[Way], Record], way: Way
) -> None:
    record = two_workers(way)
    ranks = record["repeats"][0]["ranks"]
    assert {rank["evidence"]["transport"] for rank in ranks} == {expected(record, way)}
    assert [rank["network"]["interfaces"] for rank in ranks] == [["lo"], ["lo"]]
    assert record["spec"]["transport"] == way.transport


@pytest.fixture
def over_mpi(harness: Harness, environment: Callable[..., Path], tmp_path: Path) -> Callable[..., Finished]:
    """Train Caffe2 with some ``--mpi-operators``, in its environment or in a copy without the compiled ones."""

    def run(operators: str, compiled: bool = True) -> Finished:
        environment("caffe2")
        where = [] if compiled else ["--env", str(without_library(caffe2_folder(), tmp_path / "copy"))]
        arguments = ["--nodes", "2", *TINY, *FEW_STEPS, "--json"]
        return harness("run", *CAFFE2_OVER_MPI.arguments, "--mpi-operators", operators, *where, *arguments)

    return run


def without_library(folder: Path, copy: Path) -> Path:
    """What an environment is where there was no compiler: all of it, but for the library, by links."""
    (copy / "lib").mkdir(parents=True)
    for kept in ("bin", "pyvenv.cfg", *(f"lib/{entry.name}" for entry in (folder / "lib").iterdir())):
        if kept != str(LIBRARY.parent):
            (copy / kept).symlink_to(folder / kept)
    return copy


@pytest.mark.parametrize(
    ("wanted", "compiled", "used"),
    [
        pytest.param("caffe2", True, "caffe2", marks=pytest.mark.slow),
        pytest.param("mpi4py", True, "mpi4py", marks=pytest.mark.slow),
        ("auto", False, "mpi4py"),
    ],
)
def test_caffe2_says_which_operators_called_mpi(
    over_mpi: Callable[..., Finished], wanted: str, compiled: bool, used: str
) -> None:
    record = over_mpi(wanted, compiled).succeeded().json
    carrier = f"MPICH {record['software']['packages']['mpich']}"
    for rank in record["repeats"][0]["ranks"]:
        assert rank["evidence"]["details"]["mpi_operators"] == used
        assert (
            rank["evidence"]["transport"]
            == {"caffe2": f"{carrier} in Caffe2", "mpi4py": f"{carrier} through mpi4py"}[used]
        )


def test_caffe2s_operators_that_could_not_be_compiled_are_an_error_that_says_what_to_do(
    over_mpi: Callable[..., Finished],
) -> None:
    done = over_mpi("caffe2", compiled=False)
    assert (done.code, done.stdout) == (1, "")
    assert (
        "--mpi-operators caffe2: this environment was built without them, as there was no C++ compiler" in done.stderr
    )
    assert "build it anew with one, or give --mpi-operators mpi4py" in done.stderr


@pytest.fixture
def planned(harness: Harness, environment: Callable[..., Path], tmp_path: Path) -> Callable[[Way], Path]:
    """The run directory of two workers that nobody launches. Returns the Python that would run them."""

    def plan(way: Way) -> Path:
        python = environment(way.backend, way.framework)
        laid_out(harness, tmp_path, *way.arguments, "--nodes", "2", *TINY, *FEW_STEPS, "--timeout", "60")
        return python

    return plan


def started(python: Path, run_dir: Path, index: int, env: dict[str, str]) -> subprocess.Popen[str]:
    main = ROOT / "harness" / "worker" / "main.py"
    arguments = ["--run", str(run_dir), "--repeat", "1", "--index", str(index)]
    return subprocess.Popen(
        [python, main, *arguments], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@pytest.mark.parametrize("way", each(OVER_MPI), ids=str)
def test_an_mpi_that_does_not_hear_its_launcher_is_an_error_that_names_its_world(
    planned: Callable[[Way], Path], tmp_path: Path, way: Way
) -> None:
    """Started without PMI's variables every rank is a world of its own, and would report a number of its own."""
    python = planned(way)
    plan = json.loads((tmp_path / "plan.json").read_text())
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("PMI", "MPI"))}
    ranks = [started(python, tmp_path, rank, {**ours, **plan["processes"][rank]["env"]}) for rank in range(2)]
    try:
        said = [rank.communicate(timeout=120)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            Path(f"/dev/shm/mpich_shm_{rank.pid:x}_0").unlink(missing_ok=True)  # of a world that has no launcher
    events = [_events(tmp_path, rank) for rank in range(2)]
    assert not any("measured" in of_rank or "window" in of_rank for of_rank in events)
    # Both see it, unless the end of the one that saw it first reaches the other one sooner.
    errors = [of_rank["error"]["message"] for of_rank in events]
    assert any(
        message.startswith("MPICH ")
        and f" sees rank 0 of 1, planned is rank {rank} of {len(plan['processes'])}" in message
        for rank, message in enumerate(errors)
    ), errors
    assert [rank.returncode for rank in ranks] == [1, 1], said


def _events(run_dir: Path, rank: int) -> dict[str, Any]:
    lines = (run_dir / "repeat-1" / "events" / f"worker-{rank}.jsonl").read_text().splitlines()
    return {event["event"]: event for event in map(json.loads, lines)}


def test_caffe2s_gloo_listens_on_the_planned_address_alone_and_no_longer_than_until_its_peer_is_there(
    environment: Callable[..., Path], tmp_path: Path
) -> None:
    """A peer that is held up before it joins gives the time to look."""
    environment("caffe2")
    run = Run(tmp_path, *CAFFE2_OVER_GLOO.arguments, "--nodes", "2", "--warmup", "1", "--steps", LONG)

    def bound(rank: str) -> set[str]:
        connections = psutil.Process(run.pid(rank)).net_connections(kind="inet")
        assert all(LOOPBACK.fullmatch(one.raddr.ip) for one in connections if one.raddr)
        return {one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN or not one.raddr}

    def listens() -> set[str]:
        if not (found := bound("worker-0")):
            raise ValueError("not yet")
        return found

    try:
        run.send("worker-1", signal.SIGSTOP)
        early = run.eventually(listens)
        assert "ready" not in run.events("worker-0")
        run.send("worker-1", signal.SIGCONT)
        run.in_the_window()
        late = bound("worker-0") | bound("worker-1")
    finally:
        run.process.send_signal(signal.SIGINT)
        run.end()
    assert early == {"127.0.0.1"}
    assert late == set()


def test_caffe2s_gloo_says_that_hosts_must_share_the_run_directory(
    planned: Callable[[Way], Path], tmp_path: Path
) -> None:
    """A rank that sees nothing of the first one, which runs elsewhere."""
    python = planned(CAFFE2_OVER_GLOO)
    spec, plan = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("spec", "plan"))
    (tmp_path / "spec.json").write_text(json.dumps({**spec, "timeout_s": 1}))
    (tmp_path / "repeat-1" / "events").mkdir(parents=True)
    rank = started(python, tmp_path, 1, {**os.environ, **plan["processes"][1]["env"]})
    said = rank.communicate(timeout=120)[0]
    assert rank.returncode == 1, said
    assert _events(tmp_path, 1)["error"]["message"] == (
        f"{tmp_path}/repeat-1/events/worker-0.jsonl of rank 0 is not there: with --transport gloo Caffe2's ranks meet in "
        "the run directory, which all hosts must share; otherwise use --transport mpi"
    )


@pytest.mark.slow
def test_what_caffe2s_ranks_met_through_is_gone_after_the_run(
    harness: Harness, environment: Callable[..., Path], tmp_path: Path
) -> None:
    """For Gloo every rank writes the addresses of all others: files that grow with the square of the ranks."""
    environment("caffe2")
    harness("run", *CAFFE2_OVER_GLOO.arguments, "--nodes", "3", *TINY, *FEW_STEPS).succeeded()
    (repeat,) = tmp_path.glob("runs/*/repeat-1")
    assert {path.name for path in repeat.iterdir()} == {"events", "logs"}
    assert [log.read_text() for log in (repeat / "logs").iterdir()] == [""] * 3
