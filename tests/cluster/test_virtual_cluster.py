"""The virtual cluster is what tests on it believe it to be."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import PATIENCE_S, Clock

from .virtual import PROGRAM, VirtualCluster

pytestmark = pytest.mark.cluster
NODES = ["node1", "node2", "node3", "node4"]
# In a node: take what so many senders send. In another: send to it until then, and wait until it has all.
SINK = """
import socket, sys, threading
def take(connection):
    while connection.recv(1 << 20): pass
    connection.close()
with socket.create_server((socket.gethostname(), 5556)) as server:
    print("here", flush=True)
    takers = [threading.Thread(target=take, args=(server.accept()[0],)) for _ in range(int(sys.argv[1]))]
    for taker in takers: taker.start()
    for taker in takers: taker.join()
"""
FLOOD = """
import socket, sys, time
connection, end = socket.create_connection((sys.argv[2], 5556)), float(sys.argv[1])
last = 0
while time.monotonic() < end:
    connection.sendall(bytes(1 << 16))
    last += time.monotonic() > end - 1
connection.shutdown(socket.SHUT_WR)
connection.recv(1)
print(last)  # pieces, in the last second
"""
SEND = str(Path(__file__).with_name("send.py"))


def in_seconds(seconds: float) -> str:
    """When FLOOD is to end, by the clock that all nodes have."""
    return str(time.monotonic() + seconds)


@contextmanager
def sinks(cluster: VirtualCluster, **senders: int) -> Iterator[None]:
    """Let nodes take what so many senders send."""
    started = [
        cluster.popen_in(node, sys.executable, "-c", SINK, str(count), stdout=subprocess.PIPE)
        for node, count in senders.items()
    ]
    try:
        assert all(sink.stdout and sink.stdout.readline() == "here\n" for sink in started)
        yield
    finally:
        for sink in started:
            sink.kill()
            sink.wait(PATIENCE_S)


def flood(cluster: VirtualCluster, sender: str, receiver: str, end: str) -> subprocess.Popen[str]:
    popen = cluster.popen if sender == "head" else partial(cluster.popen_in, sender)
    return popen(sys.executable, "-c", FLOOD, end, receiver, stdout=subprocess.PIPE)


def pieces(sender: subprocess.Popen[str]) -> int:
    """That a sender had sent in its last second, once it is done."""
    return int(sender.communicate(timeout=PATIENCE_S)[0])


def send(cluster: VirtualCluster, size: int, sender: str, receiver: str) -> float:
    """Send bytes from a node to another; seconds."""
    nodes = ["srun", "--nodes", "2", "--ntasks", "2", f"--nodelist={sender},{receiver}"]
    return float(cluster.run(*nodes, sys.executable, SEND, str(size), sender, receiver).succeeded().stdout)


def test_nodes_have_names_addresses_and_shared_memory_of_their_own_and_files_in_common(
    cluster: VirtualCluster, tmp_path: Path
) -> None:
    ask = "import socket; name = socket.gethostname(); print(name, socket.gethostbyname(name))"
    answers = cluster.run("srun", "--nodes", "4", sys.executable, "-c", ask).succeeded().stdout.splitlines()
    assert sorted(answers) == [f"node{k} 10.77.0.{k}" for k in range(1, 5)]
    cluster.exec("node1", "touch", "/dev/shm/mine", str(tmp_path / "file")).succeeded()
    assert cluster.exec("node2", "test", "-e", "/dev/shm/mine").code == 1
    assert not Path("/dev/shm/mine").exists()
    cluster.run("srun", "--nodelist=node2", "test", "-e", str(tmp_path / "file")).succeeded()
    assert (tmp_path / "file").exists()


def test_bytes_show_on_the_two_links_they_pass_and_on_no_other(cluster: VirtualCluster) -> None:
    size, slack = 5_000_000, 500_000
    before = cluster.bytes()
    send(cluster, size, "node1", "node2")
    after = cluster.bytes()
    sent = {node: after[node][0] - before[node][0] for node in NODES}
    received = {node: after[node][1] - before[node][1] for node in NODES}
    assert size <= sent["node1"] < size + slack
    assert size <= received["node2"] < size + slack
    assert max(sent[node] for node in NODES if node != "node1") < slack
    assert max(received[node] for node in NODES if node != "node2") < slack


@pytest.mark.alone
def test_links_are_as_fast_as_asked(cluster: VirtualCluster) -> None:
    for rate, size in {"200mbit": 20_000_000, "80mbit": 10_000_000}.items():
        cluster.rate(rate)
        mbit_per_s = size * 8e-6 / send(cluster, size, "node3", "node4")
        assert mbit_per_s == pytest.approx(float(rate.removesuffix("mbit")), rel=0.2)


@pytest.mark.alone
def test_every_link_is_measured_both_ways(cluster: VirtualCluster) -> None:
    cluster.rate("100mbit")
    checked = cluster.control("check-links", "--json").succeeded().json
    stated = {"rate": 100e6, "burst": 64 * 2**10, "queue": 256 * 2**20, "wrong": [], "neighbour_overflows": 0}
    assert {name: checked[name] for name in stated} == stated
    assert list(checked["nodes"]) == NODES
    for measured in checked["nodes"].values():
        # What is missing are the headers: 66 bytes of each frame of 9014.
        assert measured["sent"] == pytest.approx(100e6 * 8948 / 9014, rel=0.03)
        assert measured["received"] == pytest.approx(100e6 * 8948 / 9014, rel=0.03)
        assert measured["drops"] == 0


@pytest.mark.alone
def test_links_of_another_rate_are_found(cluster: VirtualCluster) -> None:
    """One that sends too slowly, and one that receives too fast."""
    cluster.rate("100mbit")
    change = ["tc", "class", "change", "classid", "1:1"]
    cluster.exec("node2", *change, "dev", "eth0", "htb", "rate", "90mbit", "burst", "64kb").succeeded()
    cluster.run(*change, "dev", "to-node3", "htb", "rate", "110mbit", "burst", "64kb").succeeded()
    checked = cluster.control("check-links", "--json")
    assert checked.code == 1 and "2 of 4 links: node2, node3" in checked.stderr
    assert checked.json["wrong"] == ["node2", "node3"]
    assert checked.json["nodes"]["node2"]["sent"] == pytest.approx(90e6, rel=0.03)
    assert checked.json["nodes"]["node3"]["received"] == pytest.approx(110e6, rel=0.03)


def test_a_cut_link_carries_nothing_until_it_is_joined_and_is_found(cluster: VirtualCluster) -> None:
    reach = [sys.executable, "-c", "import socket; socket.create_connection(('node3', 22), 1)"]
    cluster.rate("50mbit")
    cluster.cut("node3")
    try:
        assert cluster.exec("node1", *reach).code == 1
        checked = cluster.control("check-links")
    finally:
        cluster.join("node3")
    assert checked.code == 1
    assert "node3          0.00       0.00        0  wrong" in checked.stdout.splitlines()
    cluster.exec("node1", *reach).succeeded()
    cluster.settle()


def test_links_without_a_limit_cannot_be_checked(cluster: VirtualCluster) -> None:
    cluster.rate("none")
    assert "unlimited links" in cluster.control("status").stdout
    refused = cluster.control("check-links")
    assert refused.code == 2 and "no rate" in refused.stderr and len(refused.stderr.splitlines()) == 1


def test_connections_have_as_much_less_under_way_as_bytes_are_scaled(cluster: VirtualCluster) -> None:
    def most() -> int:
        return int(cluster.exec("node2", "cat", "/proc/sys/net/ipv4/tcp_wmem").succeeded().stdout.split()[2])

    whole = most()
    cluster.rate("1gbit", "--bytes-scale", "0.25")
    assert most() == whole / 4
    assert "0.25 of the bytes" in cluster.control("check-links").succeeded().stdout
    cluster.rate("1gbit")
    assert most() == whole


@pytest.mark.alone
@pytest.mark.parametrize(
    ("receiver", "rate"),
    [
        ("node1", "300mbit"),
        ("node3", "900mbit"),
        pytest.param("node1", "900mbit", marks=pytest.mark.slow),
        pytest.param("node3", "300mbit", marks=pytest.mark.slow),
    ],
)
def test_a_connection_that_begins_late_gets_as_much_of_a_link_as_others(
    cluster: VirtualCluster, receiver: str, rate: str
) -> None:
    """It had between a third and two thirds, for as long as both sent."""
    cluster.rate(rate)
    end = in_seconds(4)
    with sinks(cluster, **{"node1": 1, receiver: 1 + (receiver == "node1")}):
        early = flood(cluster, "node2", "node1", end)
        time.sleep(0.8)
        late = flood(cluster, "node2", receiver, end)
        assert 0.8 < pieces(late) / pieces(early) < 1.25


@pytest.mark.alone
def test_a_sender_whose_way_back_is_busy_gets_as_much_of_a_link_as_others(cluster: VirtualCluster) -> None:
    """In one queue its acknowledgements would wait behind what another sends it."""
    cluster.rate("100mbit")
    end = in_seconds(5)
    with sinks(cluster, node1=2, node2=2):
        others = [flood(cluster, node, "node2", end) for node in ("head", "node3")]
        busy, idle = (flood(cluster, node, "node1", end) for node in ("node2", "node4"))
        assert 0.8 < pieces(busy) / pieces(idle) < 1.25
        assert all([pieces(other) for other in others])


@pytest.mark.parametrize("queue", ["64kib", "256mib"])
def test_a_queue_drops_what_it_cannot_hold(cluster: VirtualCluster, queue: str) -> None:
    """Two nodes send to a third, as fast as they can: its queue is the head's end of its cable."""
    cluster.rate("40mbit", "--queue", queue, "--burst", "96kib")
    end = in_seconds(2)
    with sinks(cluster, node1=2):
        assert all([pieces(sender) for sender in [flood(cluster, node, "node1", end) for node in ("node2", "node3")]])
        stated = cluster.control("status").stdout
        checked = cluster.control("check-links", "--json").json
    assert bool(checked["nodes"]["node1"]["drops"]) is (queue == "64kib")
    assert checked["burst"] == 96 * 1024
    assert f"bursts of 96 KiB and queues of {queue.replace('kib', ' KiB').replace('mib', ' MiB')}" in stated


def test_a_node_that_sends_nothing_does_not_wait_behind_others_data(cluster: VirtualCluster) -> None:
    """Else Slurm takes a node to which many send for dead."""
    connect = "import socket, time; t = time.time(); socket.create_connection(('node1', 22)); print(time.time() - t)"

    def waited(node: str) -> float:
        run = cluster.run if node == "head" else partial(cluster.exec, node)
        return float(run(sys.executable, "-c", connect).succeeded().stdout)

    cluster.rate("20mbit")
    senders = []
    with sinks(cluster, node1=2):
        try:
            senders = [flood(cluster, node, "node1", in_seconds(PATIENCE_S)) for node in ("node2", "node4")]
            cluster.wait(lambda: waited("node2") > 0.2, "one who sends waits behind its own data")
            assert waited("node3") < waited("node2") / 3
            assert waited("head") < waited("node2") / 3
        finally:
            for sender in senders:
                sender.kill()
                sender.wait(PATIENCE_S)
    cluster.rate("1gbit")  # or Slurm waits behind what is left
    cluster.settle()


@pytest.mark.parametrize(
    "hosts",
    [["node2", "node1", "node3", "node1"], ["node4", "node4", "node4", "node1"]],
    ids=lambda hosts: "-".join(host.removeprefix("node") for host in hosts),
)
def test_task_i_runs_on_line_i_of_the_host_file(cluster: VirtualCluster, tmp_path: Path, hosts: list[str]) -> None:
    (tmp_path / "hosts").write_text("\n".join([*hosts, ""]))
    step = ["srun", f"--ntasks={len(hosts)}", "--distribution=arbitrary", "--overcommit", "--label", "hostname"]
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\nexport SLURM_HOSTFILE={tmp_path}/hosts\nexec {' '.join(step)}\n")
    where = ["--nodes", str(len(set(hosts))), f"--nodelist={','.join(sorted(set(hosts)))}"]
    cluster.run("sbatch", "--wait", *where, f"--output={tmp_path}/out", str(script)).succeeded()
    placed = sorted((tmp_path / "out").read_text().splitlines(), key=lambda line: int(line.partition(":")[0]))
    assert placed == [f"{i}: {host}" for i, host in enumerate(hosts)]


def test_a_gpu_is_given_to_who_asks(cluster: VirtualCluster) -> None:
    show = ["sh", "-c", "echo gpu=$CUDA_VISIBLE_DEVICES"]
    assert cluster.run("srun", "--gres=gpu:1", *show).succeeded().stdout == "gpu=0\n"
    assert cluster.run("srun", *show).succeeded().stdout == "gpu=\n"


@pytest.mark.parametrize("kind", ["pmi2", "pmix"])
def test_tasks_are_told_their_rank(cluster: VirtualCluster, kind: str) -> None:
    show = ["sh", "-c", "echo $PMI_RANK$PMIX_RANK"]
    ranks = cluster.run("srun", f"--mpi={kind}", "--nodes", "2", *show).succeeded().stdout
    assert sorted(ranks.split()) == ["0", "1"]


def test_ssh_goes_to_a_node_without_a_question(cluster: VirtualCluster) -> None:
    ssh = ["ssh", "-F", str(cluster.state / "ssh_config")]
    assert cluster.run(*ssh, "node2", "hostname").succeeded().stdout == "node2\n"
    assert cluster.exec("node3", *ssh, "node1", "hostname").succeeded().stdout == "node1\n"


def test_what_is_mounted_on_the_head_is_seen_on_the_nodes_and_not_on_the_host(
    cluster: VirtualCluster, tmp_path: Path
) -> None:
    cluster.run("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)).succeeded()
    try:
        cluster.run("srun", "--nodelist=node3", "touch", str(tmp_path / "file")).succeeded()
        assert cluster.exec("node4", "ls", str(tmp_path)).stdout == "file\n"
        assert not list(tmp_path.iterdir())
    finally:
        cluster.run("umount", str(tmp_path)).succeeded()
    assert cluster.exec("node4", "ls", str(tmp_path)).stdout == ""


def test_what_runs_is_listed_where_it_runs(cluster: VirtualCluster) -> None:
    job = cluster.popen("srun", "--nodelist=node2", "sleep", "321", stderr=subprocess.DEVNULL)
    try:
        cluster.wait(lambda: "sleep 321" in str(cluster.processes()["node2"]), "the task is listed")
        assert "srun" in str(cluster.processes()["head"])
        assert not cluster.processes()["node1"]
    finally:
        cluster.run("scancel", "--user=root").succeeded()
        job.wait(PATIENCE_S)
    cluster.settle()
    cluster.wait(lambda: not any(cluster.processes().values()), "nothing is left")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_to_run_reaches_the_command(cluster: VirtualCluster, number: signal.Signals) -> None:
    command = cluster.popen("sh", "-c", "echo here; exec sleep 60", stdout=subprocess.PIPE)
    assert command.stdout and command.stdout.readline() == "here\n"
    command.send_signal(number)
    assert command.wait(PATIENCE_S) == -number


def test_run_has_the_commands_exit_code_and_this_directory(cluster: VirtualCluster) -> None:
    assert cluster.run("sh", "-c", "exit 7").code == 7
    assert cluster.run("sacct").code != 0, "without accounting sacct fails"
    assert cluster.run("pwd").stdout.strip() == str(Path.cwd())


@pytest.mark.slow
def test_a_failed_node_goes_down_and_comes_back(cluster: VirtualCluster, tmp_path: Path) -> None:
    output = ["--no-requeue", f"--output={tmp_path}/out", "--nodelist=node3"]
    job = cluster.run("sbatch", "--parsable", *output, "--wrap", "sleep 300").succeeded().stdout.strip()
    cluster.wait(lambda: "sleep 300" in str(cluster.processes()["node3"]), "the job runs")
    cluster.fail("node3")
    assert "node3" not in cluster.processes()
    cluster.wait(lambda: cluster.states()["node3"].rstrip("*") == "down", "Slurm notices")
    assert "JobState=NODE_FAIL" in cluster.run("scontrol", "show", "job", job).stdout
    cluster.boot("node3")
    cluster.settle()
    assert cluster.run("srun", "--nodelist=node3", "hostname").succeeded().stdout == "node3\n"


def test_a_node_that_is_booted_again_has_its_network_card(cluster: VirtualCluster) -> None:
    """Its neighbours remember its network card; once they sent their first words to one that was no longer there."""
    before = cluster.exec("node4", "ip", "-brief", "link", "show", "eth0").succeeded().stdout.split()[2]
    cluster.fail("node4")
    cluster.boot("node4")
    assert cluster.exec("node4", "ip", "-brief", "link", "show", "eth0").succeeded().stdout.split()[2] == before
    cluster.settle()


@pytest.mark.parametrize(
    "arguments",
    [
        ["fail", "node9"],
        ["exec", "node9", "--", "true"],
        ["rate", "fast"],
        ["rate", "1gbit", "--queue", "1kib"],
        ["rate", "1gbit", "--bytes-scale", "4"],
        ["run"],
        ["boot", "node1"],
        ["up"],
    ],
)
def test_nonsense_is_refused_in_one_line(cluster: VirtualCluster, arguments: list[str]) -> None:
    refused = cluster.control(*arguments)
    assert refused.code == 2 and len(refused.stderr.splitlines()) == 1


def test_accounting_knows_how_jobs_ended_and_refuses_unknown_accounts(accounting_cluster: VirtualCluster) -> None:
    submit = ["sbatch", "--parsable", "--output=/dev/null"]
    refused = accounting_cluster.run(*submit, "--account=nonsense", "--wrap", "true")
    assert refused.code == 1 and "Invalid account" in refused.stderr
    good = accounting_cluster.run(*submit, "--account=project", "--wrap", "true").succeeded().stdout.strip()
    bad = accounting_cluster.run(*submit, "--wrap", "exit 3").succeeded().stdout.strip()  # project is the default
    ended = f"{good}|project|COMPLETED|0:0\n{bad}|project|FAILED|3:0\n"
    ask = ["sacct", "-XnP", "-j", f"{good},{bad}", "-o", "jobid,account,state,exitcode"]
    accounting_cluster.wait(lambda: accounting_cluster.run(*ask).stdout == ended, "sacct knows")


def left(cluster: VirtualCluster) -> list[str]:
    """What there is of a cluster on the host: processes and mounts."""
    lines = []
    for entry in Path("/proc").glob("[1-9]*/cmdline"):
        with suppress(OSError):  # it may end while we look
            lines.append(entry.read_bytes().decode(errors="replace"))
    lines += Path("/proc/mounts").read_text().splitlines()
    return [line for line in lines if str(cluster.state) in line]


@pytest.mark.parametrize("end", ["down", pytest.param("killed", marks=pytest.mark.slow)])
def test_nothing_is_left(end: str) -> None:
    def host() -> list[str]:
        links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
        return [links, *sorted(str(entry) for top in ("/etc", "/run") for entry in Path(top).iterdir())]

    before = host()
    virtual = VirtualCluster("--nodes", "2", "--sshd")
    virtual.up()
    stray = virtual.popen("sleep", "300")
    virtual.run("sbatch", "--output=/dev/null", "--nodes=2", "--wrap", "srun sleep 300").succeeded()
    virtual.wait(lambda: "sleep" in str(virtual.processes()["node2"]), "the job runs")
    assert left(virtual)
    if end == "killed":  # with the first process of the namespaces everything inside goes
        os.kill(int((virtual.state / "head.pid").read_text().split()[0]), signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE_S
        while left(virtual) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not left(virtual)
    virtual.down()
    assert stray.wait(PATIENCE_S) == -signal.SIGKILL
    assert not left(virtual)
    assert not virtual.state.exists()
    assert host() == before


def test_missing_packages_are_named(tmp_path: Path) -> None:
    """Without Slurm's packages the message names them: an empty /usr/sbin is enough to see it."""
    argv = [sys.executable, str(PROGRAM), "up", "--state", str(tmp_path / "state")]
    script = 'mount -n -t tmpfs tmpfs /usr/sbin && exec "$@"'
    done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", *argv], capture_output=True, text=True)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1 and "munge" in done.stderr and "make cluster-packages" in done.stderr


def test_a_failed_start_says_whose_fault_it_was_and_leaves_nothing() -> None:
    virtual = VirtualCluster("--nodes", "2")
    script = 'mount -n --bind /bin/false "$(readlink -f /usr/sbin/slurmctld)" && exec "$@"'
    argv = ["unshare", "-m", "sh", "-c", script, "sh", *virtual.argv("up", *virtual.options)]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 1
    assert "slurmctld" in done.stderr and "Traceback" not in done.stderr
    assert not left(virtual)
    assert not virtual.state.exists()


@pytest.mark.alone
@pytest.mark.slow
def test_128_nodes_reach_each_other(clock: Clock) -> None:
    """A bridge would overflow the machine's table of neighbours: 128 times 127 of them, where 1024 have room."""
    virtual = VirtualCluster("--nodes", "128", "--rate", "400mbit")
    try:
        begin = time.monotonic()
        virtual.up()
        clock("128 virtual nodes", time.monotonic() - begin, 60)
        all_ = "[socket.create_connection((f'node{k}', 6818)).close() for k in range(1, 129)]"
        reach = f"import socket; {all_}; print('all')"
        said = virtual.run("srun", "--nodes", "128", sys.executable, "-c", reach).succeeded().stdout
        assert said.split() == ["all"] * 128
        checked = virtual.control("check-links", "--json").succeeded().json
    finally:
        virtual.down()
    assert len(checked["nodes"]) == 128 and checked["neighbour_overflows"] == 0
    assert not left(virtual)
