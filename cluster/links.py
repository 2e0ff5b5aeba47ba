"""The links of the virtual nodes: one cable from each node to the head, which routes; limits both ways; their measurement.

Routed, not bridged: behind a bridge every node knows the hardware address of every other one, and Linux drops packets once
all namespaces together know 1024 (``gc_thresh3``). Here a node knows the head's, the head knows each node's, and both are
written down for good: they neither count nor expire, and no question for them waits behind data in a full queue.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import socket
import termios
import time
from array import array
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from namespaces import Failure, Refused, command, enter

NETWORK = "10.77.0"  # a cluster's network namespace is private, so every cluster may use the same one
HEAD_ADDRESS = f"{NETWORK}.254"
HEAD_HARDWARE = "02:00:00:00:ff:fe"  # at the head's end of every cable
MTU = 9000
LEAST_BUFFER = 64 * 1024  # bytes: TCP hands a device packets of up to that size
TCP = {
    # Reno shares a link evenly, both ways; BBR, some hosts' default, does not.
    "tcp_congestion_control": "reno",
    # A training step is a burst after a pause: it must not begin slowly each time, nor as the last connection ended.
    "tcp_slow_start_after_idle": "0",
    "tcp_no_metrics_save": "1",
    # No link loses anything; a probe for what was lost would be sent again for nothing, and count as such.
    "tcp_early_retrans": "0",
}
# Bytes that a connection has under way at most. Of 128 senders into one link they make 64 MiB, a quarter of its queue. With
# more, the first who ask a server for parameters have megabytes before the last one has those of its first layer.
UNDER_WAY = 512 * 2**10
# Of them, what may wait in a queue of the node that sends. Else Linux allows what the connection sends in a millisecond on
# the clock (TCP small queues): on fast links, or in time that is hardly dilated, one gets more of a queue than another.
IN_QUEUE = LEAST_BUFFER
# Frames in a packet for a queue, of which it holds two. Else Linux makes packets longer for connections that began on an
# idle link, and those have several times as much of it as others for good.
FRAMES = LEAST_BUFFER // MTU
LEAST_WAIT_S = 0.2  # Linux's, before TCP takes a segment for lost
LONGEST_WAIT_S = 60.0

TOLERANCE = 0.03
CHECK_S = 0.6  # how long data flows over a link, each way
# Packets arrive in buffers, and the last of them may be counted or not. Of 40 that is as much as the tolerance, so a slow
# link has longer, for more of them.
SLOW_CHECK_S, MOST_BUFFERS = 3.0, 160
CARRIED = 3e9  # bit/s that two cores carry at once while links are measured
TRIES = 3
SO_SNDBUFFORCE = 32  # Linux's, which Python does not name


@dataclass(frozen=True)
class Link:
    """Limits of a link, each way: rate in bit/s (none: unlimited), burst and queue in bytes; scales of time and bytes.

    The burst is what may follow a pause at once. The queue is what waits before packets are dropped. Its default is so deep
    that the windows of TCP bound it, as on networks that lose nothing; in many-to-many traffic a shallow one costs time.
    Where time is dilated TCP's own has to be, too: what waits in a queue for a second would be taken for lost. Of tensors
    that are smaller a connection has less under way: else more of them waits in queues than of whole ones.
    """

    rate: float | None = 200e6
    burst: int | None = None
    queue: int = 256 * 2**20
    dilation: float = 1.0
    bytes_scale: float = 1.0

    def __str__(self) -> str:
        if not self.rate:
            return "unlimited links"
        queue = f"{self.queue / 2**20:g} MiB" if self.queue >= 2**20 else f"{self.queue / 2**10:g} KiB"
        buffers = f"bursts of {self.burst_size / 2**10:.0f} KiB and queues of {queue}"
        dilated = f", in time dilated {self.dilation:g} times" if self.dilation != 1 else ""
        scaled = f", for {self.bytes_scale:g} of the bytes" if self.bytes_scale != 1 else ""
        return f"links of {self.rate / 1e6:g} Mbit/s each way, with {buffers}{dilated}{scaled}"

    @property
    def burst_size(self) -> int:
        """In bytes: unless told, 2 ms of the rate, which covers the lateness of a timer."""
        return self.burst or max(LEAST_BUFFER, int((self.rate or 0) / 8 * 0.002))

    def discipline(self, device: str, side: str, peers: Sequence[str]) -> str:
        """The commands for ``tc -batch`` that make a device send so, with counters at zero.

        Packets of each peer, their ``src`` or ``dst``, wait in a queue of their own, and queues are served in turn, as
        where switches control the flow on their links. In a common one a connection has what share its packets have of the
        queue, and where its acknowledgements wait behind others' data, a half of that. Slurm's daemons would wait, and
        nodes that work hard be taken for dead ones. The last queue is for whoever is no peer: the head.
        """
        lines = [f"qdisc replace dev {device} root noqueue"]
        if self.rate:
            turn, last = self.scaled(LEAST_BUFFER), len(peers) + 2
            shape = f"rate {self.rate:.0f}bit burst {self.burst_size}b cburst {self.burst_size}b quantum {LEAST_BUFFER}"
            # What a queue has at least, and no limit of its own.
            share = (
                f"rate {self.rate / last:.0f}bit ceil {2 * self.rate:.0f}bit burst {turn}b cburst {self.burst_size}b"
            )
            lines += [
                f"qdisc replace dev {device} root handle 1: htb default {last:x}",
                f"class add dev {device} parent 1: classid 1:1 htb {shape}",
            ]
            for queue in range(2, last + 1):
                lines += [
                    f"class add dev {device} parent 1:1 classid 1:{queue:x} htb {share} quantum {turn}",
                    f"qdisc add dev {device} parent 1:{queue:x} bfifo limit {self.queue}b",
                ]
            match = f"filter add dev {device} parent 1: protocol ip prio 1 u32 match ip {side}"
            lines += [f"{match} {address(peer)}/32 flowid 1:{queue:x}" for queue, peer in enumerate(peers, 2)]
        return "\n".join([*lines, ""])

    def scaled(self, size: int) -> int:
        """Bytes, of tensors that may have less."""
        return max(4096, round(self.bytes_scale * size))

    @property
    def frames(self) -> int:
        """In a packet for a queue."""
        return max(1, round(self.bytes_scale * FRAMES))

    @property
    def shares(self) -> dict[str, str]:
        """Settings of TCP that bound what a connection has under way, so that each gets as much as the others."""
        least, at_first, most, queued = (str(self.scaled(size)) for size in (4096, 16384, UNDER_WAY, IN_QUEUE))
        return {
            "tcp_wmem": f"{least} {at_first} {most}",
            "tcp_limit_output_bytes": queued,
            "tcp_min_tso_segs": str(self.frames),
        }

    def route(self, node: str) -> str:
        """The commands for ``ip -batch`` that make a node send everything to the head, in packets of as many frames."""
        wait = f"rto_min {1000 * min(LEAST_WAIT_S * self.dilation, LONGEST_WAIT_S):.0f}ms"
        return (
            f"link set dev eth0 gso_max_segs {self.frames}\n"
            f"route replace default via {HEAD_ADDRESS} dev eth0 onlink src {address(node)} {wait}\n"
        )


def parse_rate(text: str) -> float | None:
    """200mbit is 200 times 10⁶ bit/s."""
    if text == "none":
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?)bit", text)
    if not match or not float(match[1]):
        raise Refused(f"a rate is a number and bit, kbit, mbit or gbit, as in 200mbit, or none; not {text!r}")
    return float(match[1]) * {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}[match[2]]


def parse_size(text: str) -> int:
    """256mib is 256 times 2²⁰ bytes."""
    match = re.fullmatch(r"(\d+)([km])ib", text)
    size = int(match[1]) * {"k": 2**10, "m": 2**20}[match[2]] if match else 0
    if not LEAST_BUFFER <= size < 2**32:
        raise Refused(f"a burst or queue is a number and kib or mib, from 64kib to 4095mib; not {text!r}")
    return size


def address(node: str) -> str:
    """node7 has the seventh address."""
    return f"{NETWORK}.{node.removeprefix('node')}"


def hardware_address(node: str) -> str:
    """A machine keeps its network card when it is booted again."""
    return f"02:00:00:00:00:{int(node.removeprefix('node')):02x}"


def inside(pid: int, *argv: str, stdin: str = "") -> str:
    """Run a tool in the network namespace of a process."""
    return command("nsenter", "-t", str(pid), "-n", *argv, stdin=stdin)


def tune(**settings: str) -> None:
    """Settings of TCP and more for this network namespace."""
    for name, value in {**TCP, **settings}.items():
        Path("/proc/sys/net/ipv4", name).write_text(value)


def spread(*devices: str) -> None:
    """Let one core receive all of a connection, whichever sent it, and any core any connection.

    Else what a process sent from two cores may overtake itself, and TCP takes it for lost: Caffe2 sent 0.3 % again so.
    """
    mask = f"{(1 << (os.cpu_count() or 1)) - 1:x}"
    head = len(mask) % 8
    words = [mask[:head]] * bool(head) + [mask[at : at + 8] for at in range(head, len(mask), 8)]
    with contextlib.suppress(FileNotFoundError):  # a kernel without it
        for device in devices:
            Path("/sys/class/net", device, "queues/rx-0/rps_cpus").write_text(",".join(words))


def make_router() -> None:
    """In this network namespace, the head's. To an address that no node has there is no route, as nobody would answer."""
    tune(ip_forward="1")
    lines = ["link set lo up", f"addr add {HEAD_ADDRESS}/32 dev lo", f"route add unreachable {NETWORK}.0/24"]
    command("ip", "-batch", "-", stdin="\n".join(lines))


def lay_cables(nodes: Mapping[str, int], link: Link, peers: Sequence[str]) -> None:
    """A cable from the head, whose network namespace this is, to each node, which is named with its PID."""
    with contextlib.suppress(Failure):  # of a node that failed a moment ago: the kernel takes its time to remove it
        command("ip", "-force", "-batch", "-", stdin="".join(f"link del to-{node}\n" for node in nodes))
    cables = ""
    for node, pid in nodes.items():
        far = f"name eth0 mtu {MTU} address {hardware_address(node)} netns /proc/{pid}/ns/net"
        cables += f"link add to-{node} mtu {MTU} address {HEAD_HARDWARE} type veth peer {far}\n" + plugged(node)
    command("ip", "-batch", "-", stdin=cables)
    spread(*(f"to-{node}" for node in nodes))
    command("tc", "-batch", "-", stdin="".join(link.discipline(f"to-{node}", "src", peers) for node in nodes))


def plugged(node: str) -> str:
    """The commands for ``ip -batch`` that connect a node's cable to the head."""
    device = f"dev to-{node}"
    return (
        f"link set to-{node} up\n"
        f"neigh replace {address(node)} lladdr {hardware_address(node)} {device} nud permanent\n"
        f"route replace {address(node)}/32 {device} src {HEAD_ADDRESS}\n"
    )


def join_network(node: str, link: Link, peers: Sequence[str]) -> None:
    """The node's end of its cable, in this network namespace, the node's."""
    tune(**link.shares)
    lines = f"""\
link set lo up
addr add {address(node)}/32 dev eth0
link set eth0 up
neigh replace {HEAD_ADDRESS} lladdr {HEAD_HARDWARE} dev eth0 nud permanent
"""
    command("ip", "-batch", "-", stdin=lines + link.route(node))
    spread("eth0")
    command("tc", "-batch", "-", stdin=link.discipline("eth0", "dst", peers))


def limit(head: int, nodes: Mapping[str, int], link: Link, peers: Sequence[str]) -> None:
    """Change the limits of links that are there. Processes are named by their PIDs."""
    inside(head, "tc", "-batch", "-", stdin="".join(link.discipline(f"to-{node}", "src", peers) for node in nodes))
    for node, pid in nodes.items():
        inside(pid, "tc", "-batch", "-", stdin=link.discipline("eth0", "dst", peers))
        inside(pid, "ip", "-batch", "-", stdin=link.route(node))
        for name, value in link.shares.items():
            inside(pid, "tee", f"/proc/sys/net/ipv4/{name}", stdin=value)


def cut(head: int, nodes: Iterable[str]) -> None:
    """Unplug cables."""
    inside(head, "ip", "-batch", "-", stdin="".join(f"link set to-{node} down\n" for node in nodes))


def join(head: int, nodes: Iterable[str]) -> None:
    """Plug cables in again."""
    inside(head, "ip", "-batch", "-", stdin="".join(map(plugged, nodes)))


def traffic(nodes: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Bytes sent and received by each node's link."""
    counted = {}
    for node, pid in nodes.items():
        lines = Path(f"/proc/{pid}/net/dev").read_text().splitlines()
        numbers = next(line for line in lines if line.strip().startswith("eth0:")).partition(":")[2].split()
        counted[node] = (int(numbers[8]), int(numbers[0]))
    return counted


# --- Their measurement ------------------------------------------------------------------------------------------------


@dataclass
class Checked:
    """A link as measured: bit/s of TCP's payload each way (0: nothing arrived), packets dropped since it was limited."""

    sent: float = 0.0
    received: float = 0.0
    drops: int = 0

    def right(self, link: Link) -> bool:
        """Whether both rates are what they should be."""
        return all(abs(measured / (link.rate or 1) - 1) <= TOLERANCE for measured in (self.sent, self.received))


def check(head: int, nodes: Mapping[str, int], link: Link) -> dict[str, Checked]:
    """Measure every link, first what its node sends, then what it receives, as many at once as two cores carry.

    A link that seems wrong is measured again, and the higher rate counts: no link sends faster than it can, but a machine
    that is busy with something else makes links slower.
    """
    if not link.rate:
        raise Refused("the links have no limit, so there is no rate that they should have (cluster.py rate RATE)")
    os.nice(-20)  # what else the machine does must not show as a slow link
    checked = {node: Checked() for node in nodes}
    group = max(1, int(CARRIED / link.rate))
    for _ in range(TRIES):
        wrong = [node for node in nodes if not checked[node].right(link)]
        for some in (wrong[at : at + group] for at in range(0, len(wrong), group)):
            for way in ("sent", "received"):
                pairs = {node: connection(head, nodes[node], node) for node in some}
                flows = {
                    node: (ours, theirs) if way == "sent" else (theirs, ours) for node, (ours, theirs) in pairs.items()
                }
                for node, measured in measure(flows, link).items():
                    setattr(checked[node], way, max(measured, getattr(checked[node], way)))
    at_head = drops(head)
    for node, pid in nodes.items():
        checked[node].drops = at_head[f"to-{node}"] + drops(pid)["eth0"]
    return checked


def connection(head: int, pid: int, node: str) -> tuple[socket.socket, socket.socket]:
    """A connection between a node and the head: the node's end and the head's. A socket stays where it was made."""
    enter(pid, "net")
    with socket.create_server((address(node), 0)) as server:
        enter(head, "net")
        theirs = socket.socket()
        theirs.settimeout(2.0)
        if theirs.connect_ex(server.getsockname()):  # the link is cut: nothing will flow
            return socket.socket(), theirs
        ours, _ = server.accept()
    return ours, theirs


def measure(flows: Mapping[str, tuple[socket.socket, socket.socket]], link: Link) -> dict[str, float]:
    """Send data from the first end of each connection to the second, over all at once: bit/s of payload."""
    rate = (link.rate or 0) / 8
    slow = min(int(rate * SLOW_CHECK_S), MOST_BUFFERS * LEAST_BUFFER)
    size = max(int(rate * CHECK_S), slow, 40 * LEAST_BUFFER, 8 * link.burst_size)
    patience = 4 * size * 8 / (link.rate or 1)
    with ThreadPoolExecutor(2 * len(flows)) as threads:
        rates = {node: threads.submit(receive, receiver, size, patience) for node, (_, receiver) in flows.items()}
        for sender, _ in flows.values():
            threads.submit(send, sender, size, patience)
        return {node: rate.result() for node, rate in rates.items()}


def send(sender: socket.socket, size: int, patience: float) -> None:
    """Send so many bytes, and wait until the other end has done with them."""
    with sender, contextlib.suppress(OSError):
        sender.settimeout(patience)
        sender.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, size // 4)  # so that the link waits for no process
        sender.sendall(bytes(size))
        sender.recv(1)


def receive(receiver: socket.socket, size: int, patience: float) -> float:
    """Bit/s at which data arrives, once the burst has passed and until all is there; 0 if that cannot be said.

    What has arrived is known at the moment of asking, whether it was fetched or not, so a late process measures as well. If
    it was interrupted while it asked, the moment is not known.
    """
    buffer, waiting = bytearray(2**20), array("i", [0])
    deadline = time.monotonic() + patience
    came, arrived, known = 0, 0, []
    with receiver, contextlib.suppress(OSError):
        receiver.settimeout(patience)
        while arrived < size and time.monotonic() < deadline and (more := receiver.recv_into(buffer)):
            before = time.monotonic()
            fcntl.ioctl(receiver, termios.FIONREAD, waiting)
            after = time.monotonic()
            came, arrived = came + more, came + more + waiting[0]
            if size / 5 <= arrived < size and after - before < 0.001:
                known.append((after, arrived))
    if not known or known[-1][1] - known[0][1] < size / 3:
        return 0.0
    (begin, first), (end, last) = known[0], known[-1]
    return 8 * (last - first) / (end - begin)


def drops(pid: int) -> dict[str, int]:
    """Packets that the queues of the devices in the network namespace of a process dropped."""
    queues = json.loads(inside(pid, "tc", "-s", "-j", "qdisc", "show"))
    return {queue["dev"]: queue["drops"] for queue in queues if queue.get("root")}


def neighbour_overflows() -> int | None:
    """How often this machine's table of neighbours, one for all namespaces, was full since it was booted, if it says."""
    with contextlib.suppress(OSError, ValueError):
        names, *cores = [line.split() for line in Path("/proc/1/net/stat/arp_cache").read_text().splitlines()]
        return sum(int(core[names.index("table_fulls")], 16) for core in cores)
    return None
