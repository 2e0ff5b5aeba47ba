"""Processes in namespaces of their own: how to make and enter them, mount in them, and see whether they still run."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

NAMESPACES = {"mnt": 0x00020000, "uts": 0x04000000, "ipc": 0x08000000, "pid": 0x20000000, "net": 0x40000000}
BIND, RECURSIVE, SLAVE, SHARED = 1 << 12, 1 << 14, 1 << 19, 1 << 20  # flags of mount(2)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LIBC = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """The command makes no sense as given, or here: one line, exit 2."""


class Failure(Exception):
    """Something that should have worked did not: what, where and the end of its log, exit 1."""


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of daemons and tools: not those of the person who started the cluster."""
    return {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", **(extra or {})}


def command(*argv: str, extra: Mapping[str, str] | None = None, stdin: str = "", log: Path | None = None) -> str:
    """Run a tool, or a daemon that goes to the background once it has read its configuration; its output."""
    with (log or Path(os.devnull)).open("a+") as output:  # a daemon would keep a pipe open, and us waiting
        start = output.seek(0, os.SEEK_END)
        done = subprocess.run(
            argv,
            input=stdin,
            env=environment(extra),
            cwd="/",
            stdout=output if log else subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        output.seek(start)
        text = done.stdout or output.read()
    if done.returncode:
        raise Failure(f"{' '.join(argv)} exited with {done.returncode}: {text.strip()}")
    return text


def wait_until(true: Callable[[], bool], seconds: float, otherwise: str, log: Path) -> None:
    """Wait, but not for ever; ``otherwise`` says what did not happen."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise Failure(f"{otherwise} within {seconds:.0f} s; {log} ends with:\n{tail(log)}")
        time.sleep(0.05)


def tail(log: Path) -> str:
    """The last lines of a log, indented; of no log, that."""
    try:
        return "\n".join(f"  {line}" for line in log.read_text(errors="replace").splitlines()[-5:])
    except OSError as error:
        return f"  ({error})"


def called(result: int, call: str) -> None:
    """Raise the error of a call of the C library that returned one."""
    if result:
        raise OSError(ctypes.get_errno(), f"{call}: {os.strerror(ctypes.get_errno())}")


def unshare(*kinds: str) -> None:
    """New namespaces for this process (of the kind pid: for its children). Python's own os.unshare came with 3.12."""
    called(LIBC.unshare(sum(NAMESPACES[kind] for kind in kinds)), f"unshare {', '.join(kinds)}")


def enter(pid: int, *kinds: str) -> None:
    """Move this thread into the namespaces of another process."""
    for descriptor in [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY) for kind in kinds]:
        called(LIBC.setns(descriptor, 0), "setns")
        os.close(descriptor)


def mount(source: str | Path, target: str, kind: str = "none", flags: int = 0, options: str = "") -> None:
    """Mount in this namespace, without a note of it in /run/mount, which may be the host's."""
    arguments = [os.fsencode(source), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode()]
    called(LIBC.mount(*arguments), f"mount {target}")


def detach(name: str, log: Path, keep: int) -> None:
    """Let go of the terminal and of every open file but ``keep``; be called ``name``."""
    os.setsid()
    os.chdir("/")
    os.umask(0o022)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # else daemons started under nohup would inherit its deaf ear
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream in (1, 2):
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    os.closerange(3, keep)
    os.closerange(keep + 1, 65536)
    Path("/proc/self/comm").write_text(name)


def reap() -> NoReturn:
    """Reap the orphans of a PID namespace for ever, as its first process has to."""
    while True:
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(1)


def register(path: Path) -> None:
    """Note this process's PID on the host, and when it started, for PIDs are used again."""
    pid = int(Path("/proc/self").readlink().name)  # os.getpid() is the PID inside the namespace
    path.write_text(f"{pid} {started(pid)}")


def started(pid: int) -> str:
    """When a process started, in the kernel's clock ticks; of a dead one, nothing."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    return ""


def alive(path: Path) -> int | None:
    """The PID on the host of a process that registered itself, if it still runs."""
    with contextlib.suppress(OSError, ValueError):
        pid, when = path.read_text().split()
        return int(pid) if started(int(pid)) == when else None
    return None


def namespace(pid: int, kind: str) -> str | None:
    """The name of a namespace that a process is in; of a dead process, none."""
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{pid}/ns/{kind}").readlink())
    return None


def program(pid: int) -> str:
    """The name of the file that a process executes."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/exe").readlink().name
    return ""


def describe(pid: int) -> list[tuple[int, str]]:
    """A process as (PID inside, command line); nothing if it is dead."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        inside = next(line for line in lines if line.startswith("NSpid:")).split()[-1]
        if started(pid):
            return [(int(inside), Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip())]
    return []
