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
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NoReturn

import links
from files import Cluster, load, write_files
from links import Link
from machines import boot, head_pid, members, node_pid, on, powered, start_head
from namespaces import PATH, Failure, Refused, describe, enter, namespace, program

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


def check(cluster: Cluster) -> None:
    """Refuse what cannot work before anything is touched."""
    needed = PACKAGES | (ACCOUNTING_PACKAGES if cluster.accounting else {})
    missing = [package for program, package in needed.items() if not installed(program)]
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


def installed(program: str) -> bool:
    """Whether a program, or a file that matches a pattern, is installed."""
    return any(Path("/").glob(program[1:])) if "/" in program else bool(shutil.which(program, path=PATH))


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
    """Processes of each node besides its daemons, and on the head of ``run``: PID inside, command."""
    everything = list(members(cluster))
    running: dict[str, list[tuple[int, str]]] = {"head": []}
    head = head_pid(cluster) or 0
    for pid in everything:
        if namespace(pid, "mnt") == namespace(head, "mnt") and namespace(pid, "pid") != namespace(head, "pid"):
            running["head"] += describe(pid)
    for node in cluster.nodes:
        if first := node_pid(cluster, node):
            others = [pid for pid in everything if pid != first and namespace(pid, "pid") == namespace(first, "pid")]
            running[node] = [entry for pid in others if program(pid) not in DAEMONS for entry in describe(pid)]
    return running


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
    """The limits of links that the command line gives."""
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
            by_node = processes(cluster)
            lines = [f"{node} {pid} {line}" for node, entries in by_node.items() for pid, line in entries]
            print(json.dumps(by_node) if options.json else "\n".join(lines))
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
