"""The host file: which machines ssh is told to reach, and where their processes find each other."""

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import InvalidInput
from harness.launch import ssh
from tests.conftest import Harness, shell_program
from tests.wording import Case, Wording, cases

Machines = Callable[[str], list[tuple[str, str]]]


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machines:
    """The names and addresses in a host file with this text."""
    monkeypatch.chdir(tmp_path)

    def read_text(text: str) -> list[tuple[str, str]]:
        Path("hosts.txt").write_text(text)
        return [(node.name, node.address) for node in ssh.machines(Path("hosts.txt"))]

    return read_text


def test_public_names_are_for_ssh_and_private_addresses_for_the_processes(machines: Machines) -> None:
    text = "ubuntu@ec2-54-1-2-3.compute.amazonaws.com 10.0.0.11\n54.1.2.4\t10.0.0.12\n"
    assert machines(text) == [("ubuntu@ec2-54-1-2-3.compute.amazonaws.com", "10.0.0.11"), ("54.1.2.4", "10.0.0.12")]


def test_without_an_address_it_is_the_name_without_the_user(machines: Machines) -> None:
    assert machines("node1\nme@node2") == [("node1", "node1"), ("me@node2", "node2")]


def test_comments_and_blank_lines_are_nothing(machines: Machines) -> None:
    assert machines("# mine\n\n  node1 10.0.0.1  # rack 3\r\n\t\nnode2\n") == [
        ("node1", "10.0.0.1"),
        ("node2", "node2"),
    ]


@cases
def test_what_is_wrong_is_said_with_its_line_and_what_would_be_right(machines: Machines, case: Case) -> None:
    with case.raises(InvalidInput):
        machines(case.text)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, wording: Wording) -> None:
    with wording("missing").raises(InvalidInput, HERE=tmp_path):
        ssh.machines(tmp_path / "missing")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with wording("binary").raises(InvalidInput, HERE=tmp_path):
        ssh.machines(tmp_path / "binary")


def test_too_few_machines_are_refused_before_any_is_asked_for_its_cores(
    refused: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    (tmp_path / "hosts.txt").write_text("a\nb\n")
    monkeypatch.setenv("PATH", str(tmp_path))  # without ssh
    done = refused("run", "--backend", "pytorch", "--site", "ec2", "--hosts", "hosts.txt", "--nodes", "3")
    wording("--nodes").refused(done)


def test_a_machine_that_cannot_be_reached_is_not_asked_to_be_left_unasked(
    refused: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    (tmp_path / "hosts.txt").write_text("a\n")
    shell_program(tmp_path / "ssh", "echo 'ssh: connect to host a port 22: No route to host' >&2\nexit 255")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    wording("--hosts").refused(refused("run", "--backend", "pytorch", "--site", "ec2", "--hosts", "hosts.txt"))


def test_a_dry_run_reaches_no_machine_and_has_to_be_told_what_it_would_ask(refused: Harness, tmp_path: Path) -> None:
    run = ("run", "--backend", "pytorch", "--site", "ec2", "--nodes", "2", "--dry-run")
    refused(*run).refused("which machines? give --hosts FILE")
    (tmp_path / "hosts").write_text("me@a 10.0.0.1\nb 10.0.0.2\n")
    how_many = "how many cores has a node? set processor.num_cpus in its profile, or give --threads"
    refused(*run, "--hosts", "hosts").refused(how_many)
    plan = refused(*run, "--hosts", "hosts", "--threads", "2", "--json").succeeded().json["plan"]
    seats = [(process["host"], process["address"], process["port"]) for process in plan["processes"]]
    assert seats == [("me@a", "10.0.0.1", 20000), ("b", "10.0.0.2", 20001)]
