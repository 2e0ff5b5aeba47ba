"""Runs over ssh: real sshds on nodes with a network, a host name and, where it matters, a disk of their own."""

import json
import os
import pwd
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.records.launch import LaunchRecord
from tests.conftest import FEW_STEPS, PATIENCE_S, ROOT, Finished
from tests.faults.running import LONG, Run

from .virtual import VirtualCluster

pytestmark = pytest.mark.cluster
MANY = ["--warmup", "1", "--steps", LONG]
MODEL_BYTES = 12e6  # of the gradients of `pointwise`, which every step moves between two nodes
PYTORCH = ["--backend", "pytorch", "--transport", "gloo"]
SITE = """
[[systems]]
name = "test"
[[systems.partitions]]
name = "default"
scheduler = "ssh"
launcher = "ssh"
{more}
[systems.partitions.extras]
launcher_options = ["-F {config}"]
"""
# The machines have names here that they do not know themselves, as EC2's public ones.
PUBLIC = """
Host public-{number}
  HostName {address}
  HostKeyAlias node{number}
  User root
  IdentityFile {state}/ssh/id
  UserKnownHostsFile {state}/ssh/known_hosts
"""


class Site:
    """The cluster as a site, with a host file of its first two nodes under public names."""

    def __init__(self, cluster: VirtualCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.runs: list[Run] = []
        self.hosts("public-1 10.77.0.1", "public-2 10.77.0.2")
        addresses = {1: "10.77.0.1", 2: "10.77.0.2", 9: "10.77.0.99"}  # nobody has the last
        blocks = [PUBLIC.format(number=n, address=at, state=cluster.state) for n, at in addresses.items()]
        (folder / "ssh_config").write_text("".join(blocks))
        self.profile()

    def hosts(self, *lines: str) -> None:
        (self.folder / "hosts").write_text("\n".join(lines))

    def profile(self, more: str = "") -> None:
        (self.folder / "site.toml").write_text(SITE.format(config=self.folder / "ssh_config", more=more))

    @property
    def where(self) -> list[str]:
        return ["--site", str(self.folder / "site.toml"), "--hosts", str(self.folder / "hosts"), "--nodes", "2"]

    def begin(self, *arguments: str) -> Run:
        """``harness run`` on the head."""
        wrapper = self.cluster.argv("run", "--")
        self.runs.append(Run(self.folder, *self.where, *arguments, wrapper=wrapper, PYTHONPATH=str(ROOT)))
        return self.runs[-1]

    def launch(self, *arguments: str) -> Finished:
        """``harness launch`` on the head, to its end."""
        how = ["--threads", "1", "--timeout", "200", "--output", str(self.folder / "runs")]
        argv = [sys.executable, "-m", "harness", "launch", *self.where, *how, *arguments]
        return self.cluster.run(*argv, PYTHONPATH=str(ROOT))

    def in_the_window(self, *arguments: str) -> Run:
        run = self.begin(*arguments, *MANY)
        for worker in ("worker-0", "worker-1"):
            run.reaches(worker, "window")
        return run

    def send(self, node: str, sent: signal.Signals, command: str = "worker/main.py") -> None:
        """Signal the processes of a node whose command line has ``command`` in it."""
        pids = [str(pid) for pid, line in self.cluster.processes()[node] if command in line and "--channel" not in line]
        assert pids
        self.cluster.exec(node, "kill", f"-{sent.name.removeprefix('SIG')}", *pids).succeeded()

    def nothing_is_left(self) -> None:
        def left() -> list[str]:
            every = [line for lines in self.cluster.processes().values() for _, line in lines]
            return [line for line in every if str(self.folder) in line]

        self.cluster.wait(lambda: not left(), "nothing is left")


@pytest.fixture
def site(cluster: VirtualCluster, tmp_path: Path) -> Iterator[Site]:
    """Nodes that share the run directory."""
    made = Site(cluster, tmp_path)
    yield made
    for run in made.runs:
        if run.process.poll() is None:
            run.process.kill()
            run.process.communicate()


@pytest.fixture
def apart(site: Site) -> Iterator[Site]:
    """Nodes that have a disk each where the run directory is."""
    runs = site.folder / "runs"
    runs.mkdir()
    for node in ("node1", "node2"):
        site.cluster.exec(node, "mount", "-n", "-t", "tmpfs", "tmpfs", str(runs)).succeeded()
    yield site
    site.nothing_is_left()
    for node in ("node1", "node2"):
        site.cluster.exec(node, "umount", "-l", str(runs)).succeeded()


def measured(site: Site, *arguments: str) -> Run:
    """A run that ended well, whose ranks were on different machines and whose gradients went from one to the other."""
    before = site.cluster.bytes()
    run = site.begin(*arguments, *FEW_STEPS).end()
    after = site.cluster.bytes()
    assert run.code == 0, run.stderr
    assert [rank["host"] for rank in run.record["repeats"][0]["ranks"]] == ["node1", "node2"]
    assert [process["host"] for process in run.plan["processes"]][:2] == ["public-1", "public-2"]
    for node in ("node1", "node2"):
        sent, received = (now - then for now, then in zip(after[node], before[node], strict=True))
        assert min(sent, received) > 3 * MODEL_BYTES, (node, sent, received)
    site.nothing_is_left()
    return run


def counted(run: Run, name: str) -> dict[str, int]:
    """How often a process's events file has each event."""
    lines = (run.folder / "repeat-1" / "events" / f"{name}.jsonl").read_text().splitlines()
    names = [json.loads(line)["event"] for line in lines]
    return {name: names.count(name) for name in names}


# --- runs that end well ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_machines_that_share_no_folder_are_measured_and_bring_back_events_and_logs(apart: Site) -> None:
    run = measured(apart, *PYTORCH)
    there = apart.cluster.exec("node2", "find", str(run.folder), "-type", "f", "-printf", "%f\n").stdout.split()
    assert sorted(there) == ["plan.json", "spec.json", "worker-1.jsonl", "worker-1.log"]
    for name in ("worker-0", "worker-1"):
        assert set(counted(run, name).values()) == {1}
        assert (run.folder / "repeat-1" / "logs" / f"{name}.log").exists()
    assert counted(run, "worker-1").keys() >= {"started", "ready", "measured", "evidence", "closed", "exit"}


@pytest.mark.slow
def test_in_a_shared_folder_everything_is_written_once_with_the_profiles_settings(site: Site) -> None:
    value = """it's "here" $HOME"""
    site.profile(
        f"env_vars = [['MALLOC_WISH', '''{value}''']]\nprepare_cmds = ['echo prepared', 'export TF_WISH=\"a b\"']"
    )
    run = measured(site, *PYTORCH)
    assert set(counted(run, "worker-1").values()) == {1}
    home = pwd.getpwuid(os.getuid()).pw_dir
    assert run.record["variables"]["MALLOC_WISH"] == value.replace("$HOME", home)
    assert run.record["variables"]["TF_WISH"] == "a b"
    assert not list(run.folder.glob("repeat-1/.*"))


@pytest.mark.slow
def test_parameter_servers_and_workers_find_each_other(apart: Site) -> None:
    run = measured(apart, "--backend", "parameter_server", "--ps", "1")
    assert counted(run, "ps-0").keys() >= {"ready", "exit"}


@pytest.mark.slow
def test_mpi_starts_through_ssh_and_talks_between_the_machines(apart: Site) -> None:
    run = measured(apart, "--backend", "horovod", "--framework", "torch", "--transport", "mpi")
    assert run.record["variables"]["FI_TCP_IFACE"] == "eth0"
    assert run.record["variables"]["PMI_SIZE"] == "2"


def test_servers_of_a_program_end_when_its_workers_have_ended_elsewhere(apart: Site) -> None:
    program = [sys.executable, str(ROOT / "tests/programs/servers.py")]
    servers = ["--ps", "3", "--ps-per-node", "2", "--pattern", "total images/sec: ([0-9.]+)"]
    apart.launch(*servers, "--", *program).succeeded()
    (path,) = apart.folder.glob("runs/*/launch.json")
    ranks = LaunchRecord.read(path).repeats[0].ranks
    assert [(rank.role, rank.host, rank.code, rank.stopped) for rank in ranks] == [
        *(("worker", node, 0, False) for node in ("node1", "node2")),
        *(("ps", node, -signal.SIGTERM, True) for node in ("node1", "node1", "node2")),
    ]


def test_a_node_is_held_until_the_first_one_s_program_has_ended(apart: Site) -> None:
    apart.launch("--once", "--", "sh", "-c", "echo {hosts}").succeeded()
    (log,) = apart.folder.glob("runs/*/repeat-1/logs/worker-0.log")
    assert log.read_text() == "10.77.0.1,10.77.0.2\n"


def test_a_machine_is_asked_for_its_cores(site: Site) -> None:
    imports = "from harness.sites import site; from harness.launch import ssh"
    ask = f"{imports}; print(ssh.cores(site.find('./site.toml'), 'public-1'))"
    where = ["env", "--chdir", str(site.folder), f"PYTHONPATH={ROOT}", sys.executable, "-c", ask]
    assert 1 <= int(site.cluster.run(*where).succeeded().stdout) <= (os.cpu_count() or 1)


# --- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_stopped_rank_is_told_from_those_that_wait_for_it(apart: Site) -> None:
    run = apart.in_the_window(*PYTORCH, "--timeout", "25")
    apart.send("node2", signal.SIGSTOP)
    run.end().failed_saying("worker rank 1 on public-2 is stopped: no end after 25 s (--timeout)")


def test_a_machine_that_does_not_answer_is_named_in_sshs_words(site: Site) -> None:
    site.hosts("public-1 10.77.0.1", "public-9 10.77.0.99")
    run = site.begin(*PYTORCH, *FEW_STEPS).end()
    run.failed_saying(
        "worker rank 1 on public-9 is out of reach: no connection: ssh: connect to host 10.77.0.99 port 22"
    )


def test_an_address_of_another_machine_is_an_error_of_its_rank(site: Site) -> None:
    site.hosts("public-1 10.77.0.1", "public-2 10.77.0.3")
    run = site.begin(*PYTORCH, *FEW_STEPS).end()
    run.failed_saying("worker rank 1 on public-2 failed: RuntimeError: cannot listen on 10.77.0.3:")


@pytest.mark.slow
def test_a_connection_that_ends_in_the_middle_ends_the_process_behind_it(apart: Site) -> None:
    run = apart.in_the_window(*PYTORCH)
    (ssh,) = [
        pid for pid, line in apart.cluster.processes()["head"] if "-- public-2" in line and line.startswith("ssh ")
    ]
    apart.cluster.run("kill", "-KILL", str(ssh)).succeeded()
    lost = "connection to public-2 lost: ssh was killed by SIGKILL (last phase: window)"
    run.end().failed_saying(f"worker rank 1 on public-2 is out of reach: {lost}")
    apart.nothing_is_left()


@pytest.mark.slow
def test_a_machine_that_is_cut_off_is_noticed_on_both_sides(apart: Site) -> None:
    run = apart.in_the_window(*PYTORCH)
    apart.cluster.cut("node2")
    try:
        run.process.wait(PATIENCE_S)
        apart.cluster.wait(lambda: not apart.cluster.processes()["node2"], "the rank behind the cut has ended")
    finally:
        apart.cluster.join("node2")
    run.end().failed_saying("worker rank 1 on public-2 is out of reach: connection to public-2 lost: Timeout, server")


@pytest.mark.parametrize("what", ["environment", "harness"])
def test_what_is_missing_over_there_is_named(site: Site, what: str, environment: Callable[..., Path]) -> None:
    python = environment("pytorch")
    hidden = python.parent.parent if what == "environment" else ROOT / "harness"
    site.cluster.exec("node2", "mount", "-n", "-t", "tmpfs", "tmpfs", str(hidden)).succeeded()
    try:
        run = site.begin(*PYTORCH, *FEW_STEPS).end()
    finally:
        site.cluster.exec("node2", "umount", str(hidden)).succeeded()
    missing = python if what == "environment" else ROOT / "harness/worker/agent/task.py"
    run.failed_saying(
        f"worker rank 1 on public-2 cannot be started: {missing} is not there on public-2: harness and its"
    )


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_the_controller(apart: Site, sent: signal.Signals) -> None:
    run = apart.in_the_window(*PYTORCH)
    run.process.send_signal(sent)
    run.end()
    apart.nothing_is_left()
    if sent == signal.SIGINT:
        run.was_interrupted_by("SIGINT")
