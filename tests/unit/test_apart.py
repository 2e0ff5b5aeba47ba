"""Servers that let in whoever reaches them: their network on this machine, and what is refused where there is none."""

import subprocess
import sys
from pathlib import Path

import pytest

from harness.core.spec import RunSpec
from harness.errors import InvalidInput
from harness.launch import apart
from harness.running.prepare import Place
from harness.running.run import Listener
from tests.wording import Wording

LISTENING = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""
OPEN = ("distributed_replicated", "multi_worker_mirrored", "parameter_server", "parameter_server_strategy")


@pytest.mark.parametrize("user", [[], ["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups"]])
def test_nobody_outside_reaches_a_port_in_a_network_of_its_own(user: list[str]) -> None:
    """As this user, and as one who is not root: that one's kernel calls are the same."""
    with subprocess.Popen(
        [*user, "/usr/bin/python3", "-c", apart.HOLDING], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout and holder.stdout.readline() == "up\n"
        own = ["--user", "--preserve-credentials"] if user else []
        inside = [*user, "nsenter", f"--target={holder.pid}", *own, "--net", "--"]
        with subprocess.Popen(
            [*inside, "/usr/bin/python3", "-c", LISTENING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as server:
            assert server.stdout
            port = server.stdout.readline().strip()
            reach = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
            assert subprocess.run([*inside, "/usr/bin/python3", "-c", reach]).returncode == 0
            outside = subprocess.run([sys.executable, "-c", reach], capture_output=True, text=True)
            assert "ConnectionRefusedError" in outside.stderr
            server.kill()
        holder.kill()


def test_backends_with_open_servers_are_known() -> None:
    from harness.core.backend import names

    assert tuple(name for name in names() if apart.is_open(name)) == OPEN


def test_on_a_machine_with_other_users_a_run_needs_a_network_of_its_own(
    monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    monkeypatch.setattr(apart, "others", lambda: ["alice", "bob"])
    monkeypatch.setattr(apart, "possible", lambda: False)
    spec = RunSpec.validated(backend="parameter_server", nodes=1, device="cpu", model="pointwise")
    place = Place()
    (refusal,) = place.refusals([place.prepare(spec)])
    wording("others").answered(refusal)
    with wording("others").raises(InvalidInput):
        place.check(place.prepare(spec))
    assert Place(force=True).refusals([place.prepare(spec)]) == []
    assert place.refusals([place.prepare(spec.model_copy(update={"backend": "pytorch"}))]) == []
    monkeypatch.setattr(apart, "possible", lambda: True)
    assert place.refusals([place.prepare(spec)]) == []


def test_a_cluster_is_told_who_can_reach_the_servers(wording: Wording) -> None:
    place = Place("daint", output=Path("/scratch/runs"), dry_run=True)
    spec = RunSpec.validated(backend="parameter_server", nodes=2)
    wording("servers").answered(place.exposed([place.prepare(spec)]))
    assert place.exposed([place.prepare(spec.model_copy(update={"backend": "pytorch"}))]) == ""
    Listener().remark("shown by nobody")
