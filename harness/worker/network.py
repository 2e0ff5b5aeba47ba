"""The meeting of a run's processes: sockets bound to the planned address alone, and the interface that owns it."""

from __future__ import annotations

import array
import fcntl
import os
import re
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import List

SIOCGIFCONF = 0x8912
NCCL_SAYS = re.compile(r"NCCL INFO (?:Using network ([^,]+)|NET/OFI Selected [Pp]rovider is ([^, ]+))")
ADDRESS_BYTES, MOST_ADDRESSES = 40, 1024  # of struct ifreq; of a host


def listen(address: str, port: int) -> socket.socket:
    """A listening socket on ``address`` alone (a host name or IPv4 address). Raises RuntimeError naming a busy port."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind((address, port))
        server.listen(4096)  # every rank connects at once
    except OSError as error:
        server.close()
        raise RuntimeError(f"cannot listen on {address}:{port}: {error.strerror}") from None
    return server


def wait_for_listener(address: str, port: int, timeout_s: float) -> None:
    """Return once somebody listens on ``address``. Raises RuntimeError after ``timeout_s`` seconds."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            socket.create_connection((address, port), timeout=timeout_s).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise RuntimeError(f"nobody listens on {address}:{port} after {timeout_s:g} s: {error}") from None
        time.sleep(0.1)


def interface_of(address: str) -> str:
    """The name of this host's interface that owns ``address``. Raises RuntimeError when none does."""
    ipv4 = socket.gethostbyname(address)
    if ipv4.startswith("127."):
        return "lo"  # owns all of 127/8, reports only its first address
    table = array.array("B", bytes(ADDRESS_BYTES * MOST_ADDRESSES))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("iL", len(table), table.buffer_info()[0])
        size, _ = struct.unpack("iL", fcntl.ioctl(probe, SIOCGIFCONF, request))
    for entry in (table[at : at + ADDRESS_BYTES].tobytes() for at in range(0, size, ADDRESS_BYTES)):
        if socket.inet_ntoa(entry[20:24]) == ipv4:
            return entry[:16].rstrip(b"\0").decode().partition(":")[0]  # a second address may have a label, eth0:1
    raise RuntimeError(f"no network interface of this host has the address {address} ({ipv4})")


def nccl_meets_on(address: str, folder: Path) -> None:
    """Have NCCL meet the other ranks on the interface that owns ``address``, unless its variable names another one.

    Its messages about the network go into a file of ``folder``, unless the user's variable chooses other ones.
    """
    os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface_of(address)}")  # "=": eth1 alone, not eth10 as well
    if "NCCL_DEBUG" not in os.environ:
        file = str(folder / f"nccl-{os.getpid()}.log")
        os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET", NCCL_DEBUG_FILE=file)


def nccl(version: str) -> str:
    """The carrier of NCCL's messages, with its network by its own words: ``nccl 2.21.5 over AWS Libfabric, cxi``."""
    names: List[str] = []
    with suppress(KeyError, OSError):
        for line in Path(os.environ["NCCL_DEBUG_FILE"]).read_text(errors="replace").splitlines():
            names += [name.strip() for match in NCCL_SAYS.finditer(line) for name in match.groups() if name]
    over = f" over {', '.join(dict.fromkeys(names[::-1]))}" if names else ""  # the network is named after its provider
    return f"nccl {version}".strip() + over
