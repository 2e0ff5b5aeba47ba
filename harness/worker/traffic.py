"""Bytes that this process has moved over TCP, as the kernel counts them for each of its sockets (Linux, sock_diag(7)).

What does not pass through TCP (shared memory, InfiniBand, Cray's network) the kernel does not see. The cards count it, for
the whole host (see ``cards``).
"""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from harness.worker import cards
from harness.worker.network import interface_of

# linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY = 4, 20
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_REQUEST_DUMP = 0x301
INET_DIAG_INFO = 2
EVERY_STATE = 0xFFFFFFFF
HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
REQUEST = struct.Struct("=BBBBI48x")  # inet_diag_req_v2: family, protocol, extensions, padding, states, no socket
ATTRIBUTE = struct.Struct("=HH")  # nlattr: length, type
SOURCE, INODE, ATTRIBUTES = 8, 68, 72  # offsets in inet_diag_msg
BYTES_ACKED, END_OF_BYTES = 120, 136  # offsets in tcp_info: tcpi_bytes_acked, tcpi_bytes_received

UNKNOWN = (-1, -1)  # what a process says to others where the kernel does not tell

Sockets = Dict[int, Tuple[str, int, int]]  # inode → local address, bytes sent and acknowledged, bytes received


@dataclass(frozen=True)
class Traffic:
    """Bytes sent and received, the interfaces (by name) that carried them, and what each card of the host carried."""

    sent: int
    received: int
    interfaces: List[str]
    cards: cards.Counts


class Look(NamedTuple):
    """Counters at a moment."""

    sockets: Optional[Sockets]
    cards: cards.Counts


def look() -> Look:
    """Read all counters, while everybody stands still."""
    return Look(sockets(), cards.read())


def sockets() -> Optional[Sockets]:
    """The counters of this process's TCP sockets; None where the kernel does not tell."""
    opened = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            opened.add(str(entry.readlink()))
    try:
        return {
            inode: (address, sent, received)
            for family in (socket.AF_INET, socket.AF_INET6)
            for inode, address, sent, received in _dump(family)
            if f"socket:[{inode}]" in opened
        }
    except OSError:
        return None


def total() -> Tuple[int, int]:
    """Bytes sent and received by the sockets that this process has open; ``UNKNOWN`` where the kernel does not tell."""
    if (now := sockets()) is None:
        return UNKNOWN
    return sum(sent for _, sent, _ in now.values()), sum(got for _, _, got in now.values())


def known(counts: Iterable[Sequence[float]]) -> List[Tuple[int, int]]:
    """The first two numbers of each server's answer, its ``total``; none if one of them is not known."""
    pairs = [(int(sent), int(received)) for sent, received, *_ in counts]
    return [] if UNKNOWN in pairs else pairs


def between(before: Look, after: Look) -> Optional[Traffic]:
    """Bytes moved between two looks; those of a socket that was closed in between are lost."""
    if before.sockets is None or after.sockets is None:
        return None
    sent, received, addresses = 0, 0, set()
    for inode, (address, sent_after, received_after) in after.sockets.items():
        _, sent_before, received_before = before.sockets.get(inode, (address, 0, 0))
        sent += sent_after - sent_before
        received += received_after - received_before
        if (sent_after, received_after) != (sent_before, received_before):
            addresses.add(address)
    carried = cards.between(before.cards, after.cards)
    return Traffic(sent, received, sorted(set(map(_interface, addresses))), carried)


def _interface(address: str) -> str:
    try:
        return interface_of(address)
    except (OSError, RuntimeError):
        return address


def _dump(family: int) -> Iterator[Tuple[int, str, int, int]]:
    """Inode, local address, bytes sent and received of every TCP socket in this network namespace."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        request = REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0, EVERY_STATE)
        kernel.send(HEADER.pack(HEADER.size + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST_DUMP, 1, 0) + request)
        while True:
            answer = kernel.recv(1 << 20)
            at = 0
            while at < len(answer):
                length, kind, _, _, _ = HEADER.unpack_from(answer, at)
                if kind == NLMSG_DONE:
                    return
                if kind == NLMSG_ERROR:
                    raise OSError("the kernel does not list sockets")
                yield from _counters(family, answer[at + HEADER.size : at + length])
                at += (length + 3) & ~3


def _counters(family: int, message: bytes) -> Iterator[Tuple[int, str, int, int]]:
    size = 4 if family == socket.AF_INET else 16
    address = socket.inet_ntop(family, message[SOURCE : SOURCE + size]).replace("::ffff:", "")
    (inode,) = struct.unpack_from("=I", message, INODE)
    at = ATTRIBUTES
    while at + ATTRIBUTE.size <= len(message):
        length, kind = ATTRIBUTE.unpack_from(message, at)
        if kind == INET_DIAG_INFO and length - ATTRIBUTE.size >= END_OF_BYTES:
            yield (inode, address, *struct.unpack_from("=QQ", message, at + ATTRIBUTE.size + BYTES_ACKED))
        at += max((length + 3) & ~3, ATTRIBUTE.size)
