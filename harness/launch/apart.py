"""A network of its own for the processes of a run on this machine, which nobody else on it reaches.

TensorFlow's servers listen on every interface and ask nobody for a name: whoever reaches one reads and writes the files of
the user that runs it. The kernel lets a user have a network namespace, within a user namespace, on most systems.
"""

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from harness.core import backend as backends
from harness.worker.process import ending_with_this

OPEN = "grpc"  # what carries the gradients of backends whose servers are open to everybody
USERS = 1000  # the first number of a person's account, by custom (UID_MIN of login.defs(5))

# Holds the namespaces until it is ended: in them this user is who they are, and the loopback interface is up.
HOLDING = """
import ctypes, fcntl, os, signal, socket, struct
uid, gid = os.getuid(), os.getgid()
new_user = 0x10000000 if uid else 0
if ctypes.CDLL(None, use_errno=True).unshare(0x40000000 | new_user):
    raise SystemExit(os.strerror(ctypes.get_errno()))
if uid:
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        open(f"/proc/self/{name}", "w").write(text)
with socket.socket() as probe:
    fcntl.ioctl(probe, 0x8914, struct.pack("16sh22x", b"lo", 1))
print("up", flush=True)
signal.pause()
"""


def is_open(backend: str) -> bool:
    """True if a backend's servers let in everybody who reaches them. A program's own are not known."""
    return backend in backends.names() and backends.backend(backend).transports == (OPEN,)


@contextmanager
def network() -> Iterator[list[str]]:
    """The words that put a command into a network of its own while the context lasts; none if that is not possible."""
    with subprocess.Popen(
        ending_with_this([sys.executable, "-ISc", HOLDING]), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as holder:
        assert holder.stdout
        try:
            up = holder.stdout.readline() == b"up\n" and shutil.which("nsenter")
            user = ["--user", "--preserve-credentials"] if os.getuid() else []
            yield ["nsenter", f"--target={holder.pid}", *user, "--net", "--"] if up else []
        finally:
            holder.kill()


@cache
def possible() -> bool:
    """True if this user gets a network of their own here."""
    with network() as inside:
        return bool(inside) and subprocess.run([*inside, "true"], capture_output=True).returncode == 0


def others() -> list[str]:
    """The names of other people who have processes on this machine."""
    owners = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            owners.add(process.stat().st_uid)
    names = set()
    for uid in {uid for uid in owners if uid >= USERS} - {os.getuid()}:
        with suppress(KeyError):
            names.add(pwd.getpwuid(uid).pw_name)
    return sorted(names - {"nobody"})
