"""Proof of transport: a record names what carried the gradients, as seen at run time, and a wrong world is no result."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import ROOT, Harness
from tests.faults.running import LONG, TINY, Run
from tests.parity.conftest import WAYS, Record, Way, each

OVER_MPI = [way for way in WAYS if way.transport == "mpi"]
LOOPBACK = re.compile(r"(::ffff:)?127\.\d+\.\d+\.\d+|::1")


def addresses(record: Record, role: str) -> list[str]:
    """Where the plan put the processes of a role."""
    processes = [process for process in record["plan"]["processes"] if process["role"] == role]
    return [f"{process['address']}:{process['port']}" for process in processes]


def expected(record: Record, way: Way) -> str:
    """What must have carried the gradients: the libraries' versions are those of the packages that the record lists."""
    packages = record["software"]["packages"]
    if way.transport == "grpc":
        servers = addresses(record, "ps")
        return "grpc to " + ", ".join(servers) if servers else "grpc among " + ", ".join(addresses(record, "worker"))
    carrier = f"MPICH {packages['mpich']}" if way.transport == "mpi" else "gloo on lo"
    if way.backend == "horovod":
        return f"{carrier} in Horovod {packages['horovod']}"
    return f"{carrier} through mpi4py" if way.transport == "mpi" else carrier


@pytest.mark.parametrize("way", each(WAYS), ids=str)
def test_every_rank_names_what_carried_its_gradients_and_the_interface_that_did(
    two_workers: Callable[[Way], Record], way: Way
) -> None:
    record = two_workers(way)
    ranks = record["repeats"][0]["ranks"]
    assert {rank["evidence"]["transport"] for rank in ranks} == {expected(record, way)}
    assert [rank["network"]["interfaces"] for rank in ranks] == [["lo"], ["lo"]]
    assert record["spec"]["transport"] == way.transport


@pytest.fixture
def planned(harness: Harness, environment: Callable[..., Path], tmp_path: Path) -> Iterator[Callable[[Way], Path]]:
    """The run directory of two workers that nobody launches. Returns the Python that would run them."""

    def plan(way: Way) -> Path:
        python = environment(way.backend, way.framework)
        arguments = ["run", *way.arguments, "--nodes", "2", *TINY, "--warmup", "1", "--steps", "3", "--timeout", "60"]
        shown = harness(*arguments, "--dry-run", "--json").json
        (tmp_path / "spec.json").write_text(json.dumps(shown["spec"]))
        (tmp_path / "plan.json").write_text(json.dumps(shown["plan"]))
        return python

    yield plan


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
        message.startswith("MPICH ") and f" sees rank 0 of 1, planned is rank {rank} of 2" in message
        for rank, message in enumerate(errors)
    ), errors
    assert [rank.returncode for rank in ranks] == [1, 1], said


def _events(run_dir: Path, rank: int) -> dict[str, Any]:
    lines = (run_dir / "repeat-1" / "events" / f"worker-{rank}.jsonl").read_text().splitlines()
    return {event["event"]: event for event in map(json.loads, lines)}


@pytest.mark.parametrize("way", each(way for way in WAYS if way.transport in ("mpi", "gloo")), ids=str)
def test_nothing_listens_on_an_address_that_other_machines_reach(
    environment: Callable[..., Path], tmp_path: Path, way: Way
) -> None:
    """Looked at while the ranks train: their sockets, their decoders' and the launcher's."""
    environment(way.backend, way.framework)
    run = Run(tmp_path, *way.arguments, "--nodes", "2", "--warmup", "1", "--steps", LONG)
    try:
        for rank in ("worker-0", "worker-1"):
            run.reaches(rank, "window")
        family = [psutil.Process(run.process.pid), *psutil.Process(run.process.pid).children(recursive=True)]
        assert {run.pid("worker-0"), run.pid("worker-1")} < {process.pid for process in family}
        connections = [one for process in family for one in process.net_connections(kind="inet")]
    finally:
        run.process.send_signal(signal.SIGINT)
        run.end()
    assert any(one.status == psutil.CONN_ESTABLISHED for one in connections), "the ranks must be connected"
    bound = {one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN or not one.raddr}
    assert bound, "the look must have seen the listening sockets"
    assert all(map(LOOPBACK.fullmatch, bound)), bound
