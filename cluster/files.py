"""A virtual cluster, and the files that its daemons read."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
from dataclasses import asdict, dataclass, field
from pathlib import Path

from links import HEAD_ADDRESS, Link, address
from namespaces import command

HERE = Path(__file__).resolve().parent

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
    """The options of ``up``, and the folder of everything about the cluster."""

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
    """The file with which ``ssh -F`` logs in to the nodes without a question."""
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


def load(state: Path) -> Cluster | None:
    """The cluster whose state this is, whether it runs or not."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        if state.stat().st_uid != os.getuid():
            return None  # what somebody else wrote in /tmp must not tell root which processes to kill
        known = json.loads((state / "cluster.json").read_text())
        return Cluster(**{**known, "state": state, "link": Link(**known["link"])})
    return None
