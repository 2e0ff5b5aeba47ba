"""Bytes that the network cards of this host have carried, as their drivers count them: for all processes, of any user.

InfiniBand and RoCE count words of 4 bytes (InfiniBand Architecture, PortCounters), EFA bytes, Slingshot's Cassini octets
with a time (``123@1700000000.5``), and Ethernet bytes, of which the headers of TCP are taken off here. Only the card counts
messages without the kernel (RDMA). An Ethernet interface of the same card may count all others again.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Dict, Iterator, Tuple

ROOT = Path("/sys/class")
WORD = 4
HEADERS = 66  # bytes of a packet: Ethernet 14, IPv4 20, TCP with its timestamps 32
CASSINI = "device/telemetry/hni_sts_{}_ok_octets"

Counts = Dict[str, Tuple[int, int]]  # class/card → bytes sent and received


def read(root: Path = ROOT) -> Counts:
    """All cards: those with RDMA (``cxi/cxi0``, ``infiniband/mlx5_0``) and interfaces (``net/hsn0``, ``net/eth0``)."""
    counts: Counts = {}
    for name, *files, scale in _files(root):
        with suppress(OSError, ValueError):  # a port that is down, or a driver that does not tell
            sent, received = (_number(file) * scale for file in files)
            if name.startswith("net/"):
                sent -= HEADERS * _number(files[0].with_name("tx_packets"))
                received -= HEADERS * _number(files[1].with_name("rx_packets"))
            sent_before, received_before = counts.get(name, (0, 0))  # of another port
            counts[name] = (sent_before + sent, received_before + received)
    return counts


def between(before: Counts, after: Counts) -> Counts:
    """Bytes that each card carried between two looks."""
    return {
        name: (after[name][0] - sent, after[name][1] - received)
        for name, (sent, received) in before.items()
        if name in after
    }


def _files(root: Path) -> Iterator[Tuple[str, Path, Path, int]]:
    """Each card's name, the files of what it sent and received, and how many bytes they count at a time."""
    for card in sorted((root / "cxi").glob("*")):
        yield f"cxi/{card.name}", card / CASSINI.format("tx"), card / CASSINI.format("rx"), 1
    for port in sorted((root / "infiniband").glob("*/ports/*")):
        name, efa = f"infiniband/{port.parent.parent.name}", port / "hw_counters" / "tx_bytes"
        if efa.exists():
            yield name, efa, efa.with_name("rx_bytes"), 1
        else:
            yield name, port / "counters/port_xmit_data", port / "counters/port_rcv_data", WORD
    for link in sorted((root / "net").glob("*/statistics")):
        if link.parent.name != "lo":
            yield f"net/{link.parent.name}", link / "tx_bytes", link / "rx_bytes", 1


def _number(file: Path) -> int:
    return int(file.read_text().partition("@")[0])
