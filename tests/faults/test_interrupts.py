"""Ctrl-C and its relatives: everything ends, the record says so, and there is no number."""

import signal
from pathlib import Path

import psutil
import pytest

from tests.conftest import SOONEST
from tests.faults.conftest import Begin
from tests.faults.running import LONG, LOOPBACK, Run
from tests.parity.conftest import ENOUGH, WAYS, Way, each, with_one_transport

MANY_STEPS = ["--warmup", "1", "--steps", LONG]
# Where it is another signal than that of Ctrl-C.
SENT = {
    "caffe2:caffe2:mpi": signal.SIGTERM,
    "horovod:tensorflow:gloo": signal.SIGTERM,
    "horovod:torch:gloo": signal.SIGHUP,
    "multi_worker_mirrored:tensorflow:grpc": signal.SIGTERM,
}


# CI has each backend on each of its frameworks over one transport, and MPI's launcher under one of them.
FOR_CI = {*with_one_transport("gloo"), *ENOUGH}


@pytest.mark.parametrize("way", each(WAYS, FOR_CI), ids=str)
def test_a_run_listens_to_this_machine_alone_and_is_recorded_as_interrupted(begin: Begin, way: Way) -> None:
    run = begin(way, *MANY_STEPS).in_the_window()
    # Caffe2's Gloo has stopped listening by then: tests/parity/test_transport.py.
    if way.transport == "mpi" or (way.transport == "gloo" and way.backend != "caffe2"):
        listens_to_this_machine_alone(run)
    sent = SENT.get(str(way), signal.SIGINT)
    run.process.send_signal(sent)
    run.end().was_interrupted_by(sent.name)


def listens_to_this_machine_alone(run: Run) -> None:
    """No socket of the ranks, their decoders or the launcher is bound to an address that other machines reach."""
    family = [psutil.Process(run.process.pid), *psutil.Process(run.process.pid).children(recursive=True)]
    assert {run.pid("worker-0"), run.pid("worker-1")} < {process.pid for process in family}
    connections = [one for process in family for one in process.net_connections(kind="inet")]
    assert any(one.status == psutil.CONN_ESTABLISHED for one in connections), "the ranks must be connected"
    bound = {one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN or not one.raddr}
    assert bound, "the look must have seen the listening sockets"
    assert all(map(LOOPBACK.fullmatch, bound)), bound


def test_ctrl_c_before_any_rank_is_ready_leaves_nothing(begin: Begin) -> None:
    run = begin("pytorch", *MANY_STEPS)
    run.pid("worker-0"), run.pid("worker-1")
    run.process.send_signal(signal.SIGINT)
    run.end().was_interrupted_by("SIGINT")


def test_a_run_under_nohup_goes_on_when_its_terminal_is_closed(begin: Begin) -> None:
    """Of two signals at once the handler of SIGHUP, if there is one, is called first."""
    run = begin(SOONEST, *MANY_STEPS, wrapper=["nohup"])
    run.pid("worker-0"), run.pid("worker-1")
    run.process.send_signal(signal.SIGHUP)
    run.process.send_signal(signal.SIGTERM)
    run.end().was_interrupted_by("SIGTERM")


def test_impatient_ctrl_c_does_not_cut_the_cleaning_up_short(begin: Begin) -> None:
    """A stopped rank makes the cleaning up take its full three seconds."""
    run = begin(SOONEST, *MANY_STEPS).in_the_window()
    run.send("worker-1", signal.SIGSTOP)
    for _ in range(5):
        run.process.send_signal(signal.SIGINT)
        run.process.send_signal(signal.SIGTERM)
    code = run.end().code
    assert code == 130
    assert run.record["status"] == "interrupted"


@pytest.mark.parametrize(
    ("backend", "number", "code"),
    [
        ("pytorch", signal.SIGKILL, -signal.SIGKILL),
        ("pytorch", signal.SIGINT, 130),
        pytest.param("caffe2", signal.SIGKILL, -signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
def test_ranks_and_their_decoders_die_with_a_controller_that_is_killed_or_interrupted(
    begin: Begin, images: Path, temporary: Path, backend: str, number: signal.Signals, code: int
) -> None:
    """And so do the folders of their sockets."""
    options = ["--data", str(images), "--data-threads", "2"]
    run = begin(backend, *MANY_STEPS, *options, TMPDIR=str(temporary)).in_the_window()
    assert len(list(temporary.glob("pymp-*"))) == 2
    run.process.send_signal(number)
    assert run.end().code == code
    assert not list(temporary.glob("pymp-*"))
    assert (run.folder / "record.json").exists() == (number == signal.SIGINT)


SERVERS = ("parameter_server", "distributed_replicated", "torch_parameter_server torch gloo")
WORKERS = ("multi_worker_mirrored", "pytorch torch mpi", "horovod tensorflow mpi", "caffe2 caffe2 mpi")


@pytest.mark.slow
@pytest.mark.parametrize("backend", [*WORKERS, *SERVERS])
def test_ranks_and_servers_die_with_a_controller_that_is_killed(begin: Begin, backend: str) -> None:
    run = begin(backend, *MANY_STEPS).in_the_window()
    if backend in SERVERS:
        run.pid("ps-0")
    shared = run.shared_memory("worker-0") | run.shared_memory("worker-1") if backend in WORKERS else set()
    run.process.kill()
    assert run.end().code == -signal.SIGKILL
    for left in shared:  # MPICH's; the launcher would have removed it
        left.unlink(missing_ok=True)
