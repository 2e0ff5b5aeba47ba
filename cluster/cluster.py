#!/usr/bin/env python3
"""A real Slurm on one machine: virtual nodes with a network link each, all inside namespaces that die as one.

``up`` starts a *head* (munge, slurmctld, with ``--accounting`` slurmdbd and MariaDB) in network, mount, UTS and PID
namespaces of its own, and in it the *nodes*, each with network, mount, UTS, IPC and PID namespaces, a /dev/shm, a /run and
a slurmd. The nodes' links meet at the head, which routes, and are limited both ways (links.py). Files are the host's, at
the host's paths. The host sees nothing of this but the processes and the state directory. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NoReturn

import links
from links import HEAD_ADDRESS, Link, address
from namespaces import (
    BIND,
    NAMESPACES,
    PATH,
    RECURSIVE,
    SHARED,
    SLAVE,
    Failure,
    Refused,
    alive,
    command,
    describe,
    detach,
    enter,
    environment,
    mount,
    namespace,
    program,
    reap,
    register,
    tail,
    unshare,
    wait_until,
)

HERE = Path(__file__).resolve().parent
MOST_NODES = 250
LONGEST_STATE = 60  # characters; unix sockets live in it, whose paths may have 107
DAEMONS = {"slurmd", "slurmd-wlm", "sshd"}  # what a node runs of its own accord; Debian calls the file slurmd-wlm

# What is looked for (a program, or a file where the path has a slash) and the Debian package that has it.
PACKAGES = {
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
    "srun": "slurm-wlm",
    "munged": "munge",
    "ip": "iproute2",
    "cc": "gcc",
    "/usr/lib/*/pmix2/lib/libpmix.so.2": "libpmix2",
    "/usr/lib/*/pmix2/lib/libpmix.so": "libpmix-dev",  # what Slurm's pmix plugin opens
    "sshd": "openssh-server",
}
ACCOUNTING_PACKAGES = {
    "slurmdbd": "slurmdbd",
    "/usr/lib/*/slurm-wlm/accounting_storage_mysql.so": "slurm-wlm-mysql-plugin",
    "mariadbd": "mariadb-server",
}

# A site profile for runs that start processes in the nodes' namespaces by themselves: emulated ones can fork them. What
# waits there sleeps (nap.c), as nodes share their cores.
WITHOUT_SLURM = """\
[[systems]]
name = "virtual"

[[systems.partitions]]
name = "namespaces"
scheduler = "namespaces"
launcher = "namespaces"
env_vars = [["MPIR_CVAR_CH4_NETMOD", "ofi"], ["FI_PROVIDER", "tcp"], ["LD_PRELOAD", "{nap}"]]
processor = {{ num_cpus = 1, num_cpus_per_core = 1 }}
extras = {{ hosts = "machines", namespaces = "{{host}}.pid" }}
"""


@dataclass(frozen=True)
class Cluster:
    """What was asked for at ``up``, and where everything about it lies."""

    state: Path
    count: int = 4
    cpus: int = 2
    memory: int = 4096
    link: Link = field(default_factory=Link)
    accounting: bool = False
    sshd: bool = False
    overflows: int | None = None  # how often the machine's table of neighbours had been full before

    @property
    def nodes(self) -> list[str]:
        """Their names."""
        return [f"node{k}" for k in range(1, self.count + 1)]

    @property
    def slurm(self) -> dict[str, str]:
        """The variable with which Slurm's programs find this cluster."""
        return {"SLURM_CONF": str(self.state / "slurm.conf")}

    @property
    def hosts(self) -> Path:
        """The cluster's /etc/hosts: every process of the cluster has it mounted, which is how they are told apart."""
        return self.state / "etc" / "hosts"

    def log(self, name: str) -> Path:
        """Where a daemon's log lies."""
        return self.state / "log" / f"{name}.log"

    def save(self) -> None:
        """Write down what a later command needs to know."""
        (self.state / "cluster.json").write_text(json.dumps({**asdict(self), "state": str(self.state)}))


# --- The files of a cluster -------------------------------------------------------------------------------------------


def hosts_file(cluster: Cluster) -> str:
    """Every name with its address on the link, so that no node believes that it is 127.0.0.1."""
    nodes = [f"{address(node)} {node}" for node in cluster.nodes]
    return "\n".join(["127.0.0.1 localhost", "::1 localhost", f"{HEAD_ADDRESS} head", *nodes, ""])


def slurm_conf(cluster: Cluster) -> str:
    """Slurm's configuration: no cgroups, no patience, and more CPUs than the machine has."""
    state, nodes = cluster.state, f"node[1-{cluster.count}]"
    accounting = f"""\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=head
AccountingStoragePass={state}/munge.socket
AccountingStorageEnforce=associations,limits
AccountingStorageTRES=gres/gpu"""
    return f"""\
ClusterName=harness
SlurmctldHost=head
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# Credentials live for 5 s: that is how long a requeued job waits before it may start again (120 s by default).
AuthInfo=socket={state}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={state}/slurmctld
SlurmctldPidFile={state}/slurmctld.pid
SlurmctldLogFile={state}/log/slurmctld.log
SlurmdPidFile=/run/slurmd.pid
SlurmdSpoolDir=/run/slurmd
SlurmdLogFile={state}/log/%n.log
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=5
MpiDefault=none
SwitchType=switch/none
# The nodes' CPUs and memory are what is written here, whatever slurmd finds.
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=2,batch_sched_delay=0,sched_min_interval=0
ReturnToService=2
SlurmdTimeout=10
SlurmctldTimeout=30
InactiveLimit=0
KillWait=3
MessageTimeout=10
MinJobAge=600
JobRequeue=1
TreeWidth=65533
PropagateResourceLimits=NONE
JobCompType=jobcomp/filetxt
JobCompLoc={state}/log/jobcomp.txt
{accounting if cluster.accounting else "AccountingStorageType=accounting_storage/none"}
GresTypes=gpu
NodeName={nodes} CPUs={cluster.cpus} RealMemory={cluster.memory} Gres=gpu:1 State=UNKNOWN
PartitionName=normal Nodes={nodes} Default=YES MaxTime=01:00:00 State=UP
PartitionName=debug Nodes={nodes} MaxTime=00:10:00 State=UP
"""


def slurmdbd_conf(cluster: Cluster) -> str:
    """The accounting daemon's configuration."""
    return f"""\
AuthType=auth/munge
AuthInfo=socket={cluster.state}/munge.socket
DbdHost=head
SlurmUser=root
LogFile={cluster.log("slurmdbd")}
PidFile={cluster.state}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StorageUser=slurm
"""


def sshd_config(cluster: Cluster) -> str:
    """The nodes' sshd: root with the cluster's key, nobody and nothing else."""
    return f"""\
Port 22
PidFile /run/sshd.pid
AuthorizedKeysFile /run/sshd/authorized_keys
StrictModes yes
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
AllowUsers root
UsePAM no
SetEnv SLURM_CONF={cluster.state}/slurm.conf
"""


def ssh_config(cluster: Cluster) -> str:
    """What ``ssh -F`` reads to log in to the nodes without a question."""
    return f"""\
Host node*
  User root
  IdentityFile {cluster.state}/ssh/id
  IdentitiesOnly yes
  BatchMode yes
  StrictHostKeyChecking yes
  UserKnownHostsFile {cluster.state}/ssh/known_hosts
  GlobalKnownHostsFile /dev/null
"""


def write_files(cluster: Cluster) -> None:
    """Everything that is known before anything runs."""
    state = cluster.state
    for folder in ("etc", "log", "slurmctld", "ssh"):
        (state / folder).mkdir()
    cluster.hosts.write_text(hosts_file(cluster))
    # Without a name server to ask: else each reverse look-up waits for its time-out, which stalls rendezvous for long.
    (state / "etc" / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    databases = ["passwd", "group", "shadow", "gshadow", "hosts", "networks", "protocols", "services"]
    (state / "etc" / "nsswitch.conf").write_text("".join(f"{database}: files\n" for database in databases))
    (state / "slurm.conf").write_text(slurm_conf(cluster))
    nap = state / "nap.so"
    command("cc", "-shared", "-fPIC", "-O2", "-o", str(nap), str(HERE / "nap.c"))
    (state / "site.toml").write_text(WITHOUT_SLURM.format(nap=nap))
    (state / "machines").write_text("".join(f"{node} {address(node)}\n" for node in cluster.nodes))
    (state / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # detection fails where no cgroups are mounted
    (state / "mpi.conf").write_text(
        "PMIxCliTmpDirBase=/run/pmix\n"
    )  # in a shared /tmp the nodes' servers would collide
    os.mknod(state / "gpu0", 0o666 | stat.S_IFCHR, os.makedev(1, 3))  # a null device that passes for a GPU
    (state / "gres.conf").write_text(f"Name=gpu File={state}/gpu0\n")
    with secret(state / "munge.key") as key:
        key.write(secrets.token_bytes(1024))
    if cluster.accounting:
        with secret(state / "slurmdbd.conf") as conf:
            conf.write(slurmdbd_conf(cluster).encode())
    if cluster.sshd:
        write_keys(cluster)


def secret(path: Path) -> contextlib.closing:  # type: ignore[type-arg]
    """A new file that nobody else may ever read."""
    return contextlib.closing(os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb"))


def write_keys(cluster: Cluster) -> None:
    """A key to log in with, a key for each node, and what their users have to know of them."""
    folder = cluster.state / "ssh"
    for name in ("id", *cluster.nodes):
        command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name))
    known = [f"{node},{address(node)} {(folder / f'{node}.pub').read_text()}" for node in cluster.nodes]
    (folder / "known_hosts").write_text("".join(known))
    (folder / "sshd_config").write_text(sshd_config(cluster))
    (cluster.state / "ssh_config").write_text(ssh_config(cluster))


# --- Who runs --------------------------------------------------------------------------------------------------------


def head_pid(cluster: Cluster) -> int | None:
    """The PID of the head's first process, with which everything dies."""
    return alive(cluster.state / "head.pid")


def node_pid(cluster: Cluster, node: str) -> int | None:
    """The PID of a node's first process, with which everything in the node dies."""
    return alive(cluster.state / f"{node}.pid")


def on(cluster: Cluster) -> dict[str, int]:
    """The PID of the first process of every node that is on."""
    return {node: pid for node in cluster.nodes if (pid := node_pid(cluster, node))}


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


# --- The commands -----------------------------------------------------------------------------------------------------


def up(cluster: Cluster) -> None:
    """Start the cluster; if that fails, leave nothing."""
    if running(cluster.state):
        raise Refused(
            f"the cluster is up already (state in {cluster.state}); end it with: {usage(cluster.state, 'down')}"
        )
    check(cluster)
    down(cluster.state)  # what a cluster that was killed left behind
    begin = time.monotonic()
    cluster.state.mkdir(parents=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        cluster.save()
        write_files(cluster)
        if (news := start_head(cluster)) != "ready":
            raise Failure(news or "the head died")
    except BaseException:
        down(cluster.state)
        raise
    features = [
        f"{cluster.count} nodes with {cluster.cpus} CPUs each",
        str(cluster.link),
    ]
    features += ["sacct"] * cluster.accounting + [f"ssh -F {cluster.state}/ssh_config"] * cluster.sshd
    shell = usage(cluster.state, "run -- bash")
    print(
        f"Slurm is up after {time.monotonic() - begin:.1f} s: {', '.join(features)}. State and logs: {cluster.state}",
        usage(cluster.state, "run -- srun --nodes 2 hostname"),
        f"{shell}      # a shell on the head node, with sbatch, squeue and so on",
        usage(cluster.state, "down"),
        sep="\n  ",
    )


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


def check(cluster: Cluster) -> None:
    """Refuse what cannot work before anything is touched."""
    wanted = PACKAGES | (ACCOUNTING_PACKAGES if cluster.accounting else {})
    missing = [package for what, package in wanted.items() if not present(what)]
    if missing:
        raise Refused(
            f"missing Debian packages: {' '.join(dict.fromkeys(missing))} (make cluster-packages installs them)"
        )
    state = cluster.state
    if len(str(state)) > LONGEST_STATE:
        raise Refused(
            f"the path of the state directory has more than {LONGEST_STATE} characters, too long for sockets: {state}"
        )
    if any(state.is_relative_to(Path(private).resolve()) for private in ("/run", "/dev", "/proc", "/sys")):
        raise Refused(f"the state directory may not be in /{state.parts[1]}, of which every node has its own: {state}")
    if state.exists() and (not state.is_dir() or any(state.iterdir())) and not (state / "cluster.json").exists():
        raise Refused(f"{state} holds something else")


def present(what: str) -> bool:
    """Whether a program, or a file that matches a pattern, is installed."""
    return any(Path("/").glob(what[1:])) if "/" in what else bool(shutil.which(what, path=PATH))


def down(state: Path) -> None:
    """End every process of the cluster and remove its state."""
    cluster = load(state)
    if not cluster:
        if state.is_dir() and not any(state.iterdir()):
            state.rmdir()
        return
    deadline = time.monotonic() + 20
    while left := list(members(cluster)) + [pid for pid in [head_pid(cluster)] if pid]:
        if time.monotonic() > deadline:
            raise Failure(f"processes {left} of {state} do not end")
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    shutil.rmtree(state)


def load(state: Path) -> Cluster | None:
    """The cluster whose state this is, whether it runs or not."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        if state.stat().st_uid != os.getuid():
            return None  # what somebody else wrote in /tmp must not tell root which processes to kill
        known = json.loads((state / "cluster.json").read_text())
        return Cluster(**{**known, "state": state, "link": Link(**known["link"])})
    return None


def running(state: Path) -> Cluster | None:
    """The cluster whose state this is, if it is up."""
    cluster = load(state)
    return cluster if cluster and head_pid(cluster) else None


def run_on_head(cluster: Cluster, argv: Sequence[str]) -> NoReturn:
    """Become the command, on the head: signals, terminal and exit code are its own.

    It keeps the PID namespace of the caller (entering another takes a process in between, which would get the signals).
    """
    become(["nsenter", "-t", str(head_pid(cluster)), "-m", "-n", "-u", f"--wdns={Path.cwd()}", "--", *argv], cluster)


def run_on_node(cluster: Cluster, node: str, argv: Sequence[str]) -> NoReturn:
    """Run a command inside a node; it is killed when this process ends first."""
    inside = ["nsenter", "-t", str(powered(cluster, node)), "-m", "-n", "-u", "-i", "-p", f"--wdns={Path.cwd()}", "--"]
    become([*inside, "setpriv", "--pdeathsig", "KILL", "--", *argv], cluster)


def become(argv: Sequence[str], cluster: Cluster) -> NoReturn:
    """Replace this process, with the caller's variables and Slurm's configuration."""
    sys.stdout.flush()
    os.execvpe(argv[0], list(argv), {**os.environ, "SLURM_CONF": str(cluster.state / "slurm.conf")})  # noqa: S606


def powered(cluster: Cluster, node: str) -> int:
    """The PID of the first process of a node, which must be on."""
    if pid := node_pid(cluster, node):
        return pid
    raise Refused(f"{node} is off")


def fail(cluster: Cluster, node: str) -> None:
    """Power a node off, as if its plug were pulled."""
    os.kill(powered(cluster, node), signal.SIGKILL)
    while node_pid(cluster, node):
        time.sleep(0.01)


def power_on(cluster: Cluster, nodes: Sequence[str]) -> None:
    """Boot nodes that failed."""
    if on := [node for node in nodes if node_pid(cluster, node)]:
        raise Refused(f"{', '.join(on)}: on already")
    enter(head_pid(cluster) or 0, "mnt", "net", "uts", "pid")
    boot(cluster, nodes)


def set_link(cluster: Cluster, link: Link, nodes: Sequence[str]) -> None:
    """Change the limits of all links, also for nodes that boot later; or of these nodes' links until they boot again."""
    if not nodes:
        replace(cluster, link=link).save()
    limited = {node: powered(cluster, node) for node in nodes} if nodes else on(cluster)
    links.limit(head_pid(cluster) or 0, limited, link, cluster.nodes)


def check_links(cluster: Cluster, as_json: bool) -> None:
    """Measure every link and print what came out; a failure, unless all are as they should be."""
    nodes = {node: powered(cluster, node) for node in cluster.nodes}
    link, limit = cluster.link, f"{links.TOLERANCE:.0%}"
    checked = links.check(head_pid(cluster) or 0, nodes, link)
    wrong = [node for node, measured in checked.items() if not measured.right(link)]
    overflows = links.neighbour_overflows()
    if overflows is not None and cluster.overflows is not None:
        overflows -= cluster.overflows
    if as_json:
        stated = {"rate": link.rate, "burst": link.burst_size, "queue": link.queue, "tolerance": links.TOLERANCE}
        measured_json = {node: asdict(measured) for node, measured in checked.items()}
        print(json.dumps({**stated, "nodes": measured_json, "wrong": wrong, "neighbour_overflows": overflows}))
    else:
        print(f"{link}; measured, in Mbit/s of payload:\n{'node':8} {'sends':>10} {'receives':>10} {'drops':>8}")
        for node, measured in checked.items():
            rates = f"{measured.sent / 1e6:10.2f} {measured.received / 1e6:10.2f} {measured.drops:8}"
            print(f"{node:8} {rates}{'  wrong' * (node in wrong)}")
    if overflows:
        raise Failure(f"this machine's table of neighbours was full {overflows} times since the cluster is up")
    if wrong:
        names = ", ".join(wrong)
        raise Failure(f"off by more than {limit}, or the machine is busy: {len(wrong)} of {len(nodes)} links: {names}")


def processes(cluster: Cluster) -> dict[str, list[tuple[int, str]]]:
    """What runs in each node that is on besides its daemons, and on the head what ``run`` started: PID inside, command."""
    everything = list(members(cluster))
    found: dict[str, list[tuple[int, str]]] = {"head": []}
    head = head_pid(cluster) or 0
    for pid in everything:
        if namespace(pid, "mnt") == namespace(head, "mnt") and namespace(pid, "pid") != namespace(head, "pid"):
            found["head"] += describe(pid)
    for node in cluster.nodes:
        if first := node_pid(cluster, node):
            others = [pid for pid in everything if pid != first and namespace(pid, "pid") == namespace(first, "pid")]
            found[node] = [entry for pid in others if program(pid) not in DAEMONS for entry in describe(pid)]
    return found


def print_status(state: Path) -> int:
    """Whether the cluster is up and what Slurm says of it."""
    cluster = running(state)
    if not cluster:
        print(f"no cluster is up (state directory {state})")
        return 1
    off = [node for node in cluster.nodes if not node_pid(cluster, node)]
    print(f"up: {cluster.count} nodes, {cluster.link}; state and logs in {state}")
    print(f"powered off: {', '.join(off)}" if off else "all nodes are powered on", flush=True)
    run_on_head(cluster, ["sinfo"])


def print_traffic(counted: Mapping[str, tuple[int, int]]) -> None:
    """As a table."""
    print(f"{'node':8} {'sent':>14} {'received':>14}")
    for node, (sent, received) in counted.items():
        print(f"{node:8} {sent:14,} {received:14,}")


def usage(state: Path, arguments: str) -> str:
    """A command line for this program that works from here."""
    verb, _, rest = arguments.partition(" ")
    option = "" if state == default_state() else f" --state {state}"
    script = Path(os.path.relpath(__file__))
    return f"python3 {script} {verb}{option} {rest}".rstrip()


def default_state() -> Path:
    """One cluster for each user, unless told."""
    return Path(f"/tmp/harness-cluster-{os.getuid()}").resolve()  # noqa: S108


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(description="A real Slurm on one machine, with virtual nodes.")
    commands = top.add_subparsers(dest="verb", required=True, metavar="COMMAND")

    def shape(sub: argparse.ArgumentParser) -> None:
        sub.add_argument("--burst", help="what may follow a pause at once (default 2 ms of the rate, at least 64kib)")
        sub.add_argument("--queue", help="what waits for a link before packets are dropped (default 256mib)")
        sub.add_argument("--dilation", type=float, default=1.0, help="of time in the runs to come (default 1)")
        sub.add_argument("--bytes-scale", type=float, default=1.0, help="of the bytes in the runs to come (default 1)")

    def add(verb: str, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(verb, help=text, description=text)
        sub.add_argument(
            "--state", type=lambda text: Path(text).resolve(), default=default_state(), help="state directory"
        )
        return sub

    start = add("up", "start the cluster")
    start.add_argument("--nodes", type=int, default=4, help=f"1 to {MOST_NODES} (default 4)")
    start.add_argument("--cpus", type=int, default=2, help="CPUs that each node claims to have (default 2)")
    start.add_argument("--memory", type=int, default=4096, help="MB that each node claims to have (default 4096)")
    start.add_argument("--rate", default="200mbit", help="limit of each link, both ways, or none (default 200mbit)")
    shape(start)
    start.add_argument("--accounting", action="store_true", help="with slurmdbd and MariaDB, so that sacct works")
    start.add_argument("--sshd", action="store_true", help="with an sshd in every node")
    add("run", "run what follows -- on the head node")
    add("exec", "run what follows -- inside a node").add_argument("node")
    for verb, text in {"fail": "power nodes off", "boot": "power nodes on again"}.items():
        add(verb, text).add_argument("nodes", nargs="+", metavar="NODE")
    for verb, text in {"cut": "take nodes off the network", "join": "put nodes back on the network"}.items():
        add(verb, text).add_argument("nodes", nargs="+", metavar="NODE")
    add("bytes", "what each node's link sent and received").add_argument("--json", action="store_true")
    change = add("rate", "change the limits of links; what is not named takes its default")
    change.add_argument("rate")
    change.add_argument(
        "nodes", nargs="*", metavar="NODE", help="whose links alone, until they boot (default all links)"
    )
    shape(change)
    add("check-links", "measure every link, both ways; exit code 1 unless all keep their rate").add_argument(
        "--json", action="store_true"
    )
    add("status", "whether the cluster is up")
    add("processes", "what runs in the nodes besides their daemons").add_argument("--json", action="store_true")
    add("down", "end the cluster")
    return top


def limits(options: argparse.Namespace) -> Link:
    """What the command line says of links."""
    sizes = {name: links.parse_size(text) for name in ("burst", "queue") if (text := getattr(options, name))}
    if not 1 <= options.dilation <= 10_000:
        raise Refused(f"--dilation must be 1 to 10000, not {options.dilation:g}")
    if not 0.001 <= options.bytes_scale <= 1:
        raise Refused(f"--bytes-scale must be 0.001 to 1, not {options.bytes_scale:g}")
    return Link(links.parse_rate(options.rate), **sizes, dilation=options.dilation, bytes_scale=options.bytes_scale)


def carry_out(options: argparse.Namespace, tail: Sequence[str]) -> int:
    """Do what the command line says; the exit code."""
    if os.geteuid() != 0:
        raise Refused("only root can make namespaces and network links: run this as root")
    if options.verb in ("up", "rate"):
        link = limits(options)
    if options.verb == "up":
        if not 1 <= options.nodes <= MOST_NODES or options.cpus < 1 or options.memory < 1:
            raise Refused(f"--nodes must be 1 to {MOST_NODES}, --cpus and --memory at least 1")
        named = {name: getattr(options, name) for name in ("cpus", "memory", "accounting", "sshd")}
        before = links.neighbour_overflows()
        up(Cluster(options.state, options.nodes, **named, link=link, overflows=before))
        return 0
    if options.verb == "down":
        known = load(options.state)
        down(options.state)
        print("the cluster is down" if known else "no cluster was up")
        return 0
    if options.verb == "status":
        return print_status(options.state)
    cluster = running(options.state)
    if not cluster:
        raise Refused(
            f"no cluster is up (state directory {options.state}); start one with: {usage(options.state, 'up')}"
        )
    named_nodes = [options.node] if options.verb == "exec" else getattr(options, "nodes", [])
    if unknown := [node for node in named_nodes if node not in cluster.nodes]:
        raise Refused(f"no node is called {', '.join(unknown)}; there are node1 to {cluster.nodes[-1]}")
    if options.verb in ("run", "exec") and not tail:
        raise Refused(f"{options.verb}: the command to run is missing, after --")
    match options.verb:
        case "run":
            run_on_head(cluster, tail)
        case "exec":
            run_on_node(cluster, options.node, tail)
        case "fail":
            for node in options.nodes:
                fail(cluster, node)
        case "boot":
            power_on(cluster, options.nodes)
        case "cut" | "join":
            (links.cut if options.verb == "cut" else links.join)(head_pid(cluster) or 0, options.nodes)
        case "rate":
            set_link(cluster, link, options.nodes)
        case "check-links":
            check_links(cluster, options.json)
        case "bytes":
            counted = links.traffic(on(cluster))
            print(json.dumps(counted)) if options.json else print_traffic(counted)
        case "processes":
            found = processes(cluster)
            lines = [f"{node} {pid} {line}" for node, entries in found.items() for pid, line in entries]
            print(json.dumps(found) if options.json else "\n".join(lines))
    return 0


def main() -> int:
    """Everything after the first -- belongs to the command that is run."""
    argv = sys.argv[1:]
    cut = argv.index("--") if "--" in argv else len(argv)
    try:
        return carry_out(parser().parse_args(argv[:cut]), argv[cut + 1 :])
    except (Refused, Failure) as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 2 if isinstance(error, Refused) else 1
    except OSError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
