"""The head and the nodes of a virtual cluster: who runs, and how each is started in namespaces of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import links
from files import Cluster
from links import address
from namespaces import (
    BIND,
    NAMESPACES,
    RECURSIVE,
    SHARED,
    SLAVE,
    Failure,
    Refused,
    alive,
    command,
    detach,
    environment,
    mount,
    reap,
    register,
    tail,
    unshare,
    wait_until,
)


def head_pid(cluster: Cluster) -> int | None:
    """The PID of the head's first process, with which everything dies."""
    return alive(cluster.state / "head.pid")


def node_pid(cluster: Cluster, node: str) -> int | None:
    """The PID of a node's first process, with which everything in the node dies."""
    return alive(cluster.state / f"{node}.pid")


def on(cluster: Cluster) -> dict[str, int]:
    """The PID of the first process of every node that is on."""
    return {node: pid for node in cluster.nodes if (pid := node_pid(cluster, node))}


def powered(cluster: Cluster, node: str) -> int:
    """The PID of the first process of a node, which must be on."""
    if pid := node_pid(cluster, node):
        return pid
    raise Refused(f"{node} is off")


def members(cluster: Cluster) -> Iterator[int]:
    """The PIDs of all processes that have this cluster's /etc/hosts mounted, whoever started them."""
    try:
        mine = cluster.hosts.stat()
    except OSError:
        return
    for entry in Path("/proc").glob("[1-9]*"):
        with contextlib.suppress(OSError):
            if os.path.samestat((entry / "root/etc/hosts").stat(), mine):
                yield int(entry.name)


# --- The head ---------------------------------------------------------------------------------------------------------


def start_head(cluster: Cluster) -> str:
    """Fork the head into namespaces of its own; ``ready``, or what went wrong."""
    report, theirs = os.pipe()
    if not (child := os.fork()):
        try:
            unshare("mnt", "net", "uts", "pid")
            if not os.fork():
                head(cluster, theirs)
        except BaseException as error:
            os.write(theirs, str(error).encode())
        os._exit(0)
    os.close(theirs)
    os.waitpid(child, 0)
    with os.fdopen(report) as news:
        return news.read()


def head(cluster: Cluster, report: int) -> NoReturn:
    """Be the first process of the cluster's namespaces: start everything, tell ``up``, then bury the dead."""
    try:
        detach("cluster-head", cluster.log("head"), keep=report)
        register(cluster.state / "head.pid")
        socket.sethostname("head")
        # What the host mounts later is seen here, what is mounted here is seen in the nodes, and never the other way round.
        mount("none", "/", flags=RECURSIVE | SLAVE)
        mount("none", "/", flags=RECURSIVE | SHARED)
        mount("tmpfs", "/run", "tmpfs", options="mode=755")
        for name in ("hosts", "resolv.conf", "nsswitch.conf"):
            if Path("/etc", name).exists():
                mount(cluster.state / "etc" / name, f"/etc/{name}", flags=BIND)
        mount("sysfs", "/sys", "sysfs")  # the one that was there shows the host's network
        links.make_router()
        start_controller(cluster)
        boot(cluster, cluster.nodes)
        os.write(report, b"ready")
        os.close(report)
    except BaseException as error:  # whatever it is, `up` has to hear of it, and nothing may survive
        with contextlib.suppress(OSError):
            os.write(report, (str(error) if isinstance(error, Failure) else repr(error)).encode())
        os._exit(1)
    reap()


def start_controller(cluster: Cluster) -> None:
    """munge, with accounting its two daemons, then slurmctld."""
    state = cluster.state
    files = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munged.pid", "seed-file": "munge.seed"}
    options = [f"--{option}={state}/{name}" for option, name in files.items()]
    # --force, because the state directory is open to more people than munged likes.
    command("munged", "--force", *options, f"--log-file={cluster.log('munged')}", log=cluster.log("head"))
    if cluster.accounting:
        start_accounting(cluster)
    command("slurmctld", extra=cluster.slurm, log=cluster.log("head"))
    wait_until(lambda: bool(node_states(cluster)), 15, "slurmctld did not answer", cluster.log("slurmctld"))


def start_accounting(cluster: Cluster) -> None:
    """A database of the cluster's own, slurmdbd, and the one account that jobs may use."""
    data, log = cluster.state / "mysql", cluster.log("mariadb")
    only_here = ["--no-defaults", f"--datadir={data}", "--user=root"]
    command("mariadb-install-db", *only_here, "--skip-test-db", "--auth-root-authentication-method=normal", log=log)
    # Nobody outside this network namespace can reach it, so it asks nobody for a password. Durability is of no use to it.
    database = ["mariadbd", *only_here, "--skip-grant-tables", "--bind-address=127.0.0.1", f"--socket={data}/socket"]
    tuning = ["--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900", "--innodb-flush-log-at-trx-commit=0"]
    with log.open("a") as output:
        subprocess.Popen([*database, *tuning], stdout=output, stderr=output, env=environment(), cwd="/")
    wait_until(lambda: answers(3306), 20, "MariaDB did not answer", log)
    command("slurmdbd", extra=cluster.slurm, log=cluster.log("head"))
    wait_until(lambda: answers(6819), 20, "slurmdbd did not answer", cluster.log("slurmdbd"))
    for change in (
        ["add", "cluster", "harness"],
        ["add", "account", "project"],
        ["add", "user", "root", "account=project"],
        ["modify", "user", "root", "set", "defaultaccount=project"],
    ):
        command("sacctmgr", "-i", *change, extra=cluster.slurm)


def answers(port: int) -> bool:
    """Whether something listens on a port of the head."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def node_states(cluster: Cluster) -> dict[str, str]:
    """Slurm's opinion of every node, as idle or down*; nothing if slurmctld does not answer."""
    with contextlib.suppress(Failure):
        return dict(line.split() for line in command("sinfo", "-hN", "-o", "%N %T", extra=cluster.slurm).splitlines())
    return {}


# --- The nodes --------------------------------------------------------------------------------------------------------


def boot(cluster: Cluster, nodes: Sequence[str]) -> None:
    """Power nodes on and wait until Slurm gives them work. To be called in the head's namespaces."""
    channels = {node: first_process(cluster, node) for node in nodes}
    for node, channel in channels.items():
        hear(channel, b"here", node)
    links.lay_cables({node: powered(cluster, node) for node in nodes}, cluster.link, cluster.nodes)
    for channel in channels.values():
        channel.sendall(b"wired")
    for node, channel in channels.items():
        hear(channel, b"ready", node)
        channel.close()

    def asleep() -> list[str]:
        states = node_states(cluster)
        return [node for node in nodes if states.get(node) not in ("idle", "mixed", "allocated", "completing")]

    deadline = time.monotonic() + 15 + len(nodes) / 2
    while late := asleep():
        if time.monotonic() > deadline:
            log = cluster.log(late[0])
            raise Failure(f"Slurm does not know of {', '.join(late)}; {log} ends with:\n{tail(log)}")
        time.sleep(0.1)


def hear(channel: socket.socket, word: bytes, node: str) -> None:
    """Wait for a word of a node's first process, which may say what went wrong instead."""
    if (news := channel.recv(4096)) != word:
        raise Failure(f"{node} did not start: {news.decode() or 'it died'}")


def first_process(cluster: Cluster, node: str) -> socket.socket:
    """Fork a node's first process; what it says and waits for goes through the socket."""
    ours, theirs = socket.socketpair()
    if child := os.fork():
        theirs.close()
        os.waitpid(child, 0)
        return ours
    try:
        unshare(*NAMESPACES)
        if not os.fork():
            be_node(cluster, node, theirs)
    except BaseException as error:
        theirs.sendall(str(error).encode())
    os._exit(0)  # a process of the caller that went on from here would do the caller's work twice


def be_node(cluster: Cluster, node: str, channel: socket.socket) -> NoReturn:
    """Be the first process of a node's namespaces: mount what is the node's own, start its daemons, bury the dead."""
    log = cluster.log(f"{node}.init")
    detach(f"cluster-{node}", log, keep=channel.fileno())
    register(cluster.state / f"{node}.pid")
    socket.sethostname(node)
    mount("none", "/", flags=RECURSIVE | SLAVE)
    channel.sendall(b"here")
    if channel.recv(16) != b"wired":
        os._exit(1)
    for kind, folder in {"proc": "/proc", "sysfs": "/sys", "tmpfs": "/dev/shm"}.items():  # noqa: S108
        mount(kind, folder, kind)
    mount("tmpfs", "/run", "tmpfs", options="mode=755")
    Path("/run/pmix").mkdir()
    links.join_network(node, cluster.link, cluster.nodes)
    if cluster.sshd:
        start_sshd(cluster, node, log)
    command("slurmd", extra=cluster.slurm, log=log)
    channel.sendall(b"ready")
    channel.close()
    reap()


def start_sshd(cluster: Cluster, node: str, log: Path) -> None:
    """In /run, which is the node's: StrictModes would not trust keys in a directory under /tmp."""
    folder = cluster.state / "ssh"
    Path("/run/sshd").mkdir(mode=0o755)
    shutil.copy(folder / "id.pub", "/run/sshd/authorized_keys")
    where = ["-o", f"ListenAddress={address(node)}", "-h", str(folder / node)]
    command(
        "/usr/sbin/sshd", "-f", str(folder / "sshd_config"), *where, "-E", str(cluster.log(f"{node}.sshd")), log=log
    )
