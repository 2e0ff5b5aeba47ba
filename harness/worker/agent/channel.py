"""A task's line to a controller that may share no files with it: JSON objects, one per line, on stdin and stdout.

From the controller: ``files`` for the run directory with the ``nonce`` of its own one, ``start`` with the process's MPI
variables, ``pmi``, and empty lines, by which a task knows that its controller is there. To the controller: ``here``, what
was appended to the ``log``, the ``events`` and the ``parameters``, ``pmi``, and at the end ``exit``; or a ``problem`` that
keeps the process from being started. Bytes travel as text in Latin-1, in which any byte is a character.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional

from harness.files import whole_file
from harness.worker.network import interface_of

FILES = ("spec.json", "plan.json", "images.index", "validation.index")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where Linux keeps POSIX shared memory
CHUNK = 1 << 16
LOOK_S = 0.5  # each look costs the machine that is being measured a little
SILENCE_S = 60  # a controller writes far more often: this one is gone, or cut off
FLUSH_S = 10  # for the last words, on a line that may be dead


class Ended(Exception):
    """The launcher asked this task to end, or is gone."""


class Channel:
    """The task's end. ``opened``, then ``start`` and ``wait`` for the process, then ``close``."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._unread = bytearray()
        self._messages: List[Dict[str, Any]] = []
        self._tails: List[_Tail] = []
        self._start: Dict[str, Any] = {}
        self._pmi: Optional[socket.socket] = None
        self._theirs: Optional[socket.socket] = None
        self.shared = False

    @classmethod
    def opened(cls, run_dir: Path, repeat: int) -> Channel:
        """Take the run directory from the controller, unless it is the controller's own. Raises Ended when that fails."""
        channel = cls(run_dir)
        channel.say(here=socket.gethostname())
        run_files = channel._next()
        channel._start = channel._next()["start"]
        channel.shared = (run_dir / f"repeat-{repeat}" / nonce_file(run_files["nonce"])).exists()
        if not channel.shared:
            try:
                run_dir.mkdir(parents=True, exist_ok=True)
                for name in FILES:
                    if name in run_files["files"]:
                        _write(run_dir / name, run_files["files"][name].encode("latin-1"))
            except OSError as error:
                channel.say(problem=f"cannot write {error.filename or run_dir}: {error.strerror}")
                raise Ended("nowhere to write") from None
        return channel

    def follow(self, **files: Path) -> None:
        """Report what processes append to these files from now on; nothing where the controller sees them itself."""
        if not self.shared:
            self._tails += [_Tail(name, path) for name, path in files.items()]

    def say(self, **message: Any) -> None:
        """Send one message. Raises Ended when nobody is left to read it."""
        line = memoryview(json.dumps(message).encode() + b"\n")
        try:
            while line:
                line = line[os.write(1, line) :]
        except OSError:
            raise Ended("the controller is gone") from None

    def variables(self, process: Dict[str, Any], env: Dict[str, str]) -> Dict[str, str]:
        """``env`` for a process of the plan, with its place in the MPI world, if there is one, and the interface to use."""
        if "PMI_RANK" not in self._start:
            return env
        self._pmi, self._theirs = socket.socketpair()
        self._theirs.set_inheritable(True)
        place = {name: self._start[name] for name in ("PMI_RANK", "PMI_SIZE")}
        env = {**env, **place, "PMI_FD": str(self._theirs.fileno())}
        if env.get("FI_PROVIDER") == "tcp":
            # Of several interfaces libfabric takes the fastest, which need not lead to the other hosts.
            env.setdefault("FI_TCP_IFACE", interface_of(process["address"]))
        return env

    def wait(self, child: subprocess.Popen[bytes], timeout_s: float) -> int:
        """The exit code of a process, as ``Popen.wait`` has it, while messages pass.

        Raises TimeoutExpired after ``timeout_s`` seconds, Ended when the controller is gone.
        """
        deadline = time.monotonic() + timeout_s
        if self._theirs:
            self._theirs.close()  # the process has its own; its end must be seen here
        with selectors.DefaultSelector() as selector:
            selector.register(0, selectors.EVENT_READ, self._hear)
            if self._pmi:
                selector.register(self._pmi, selectors.EVENT_READ, lambda: self._relay(selector))
            while (code := child.poll()) is None:
                for key, _ in selector.select(LOOK_S):
                    key.data()
                self._tell()
                if time.monotonic() > deadline:
                    raise subprocess.TimeoutExpired(child.args, timeout_s)
        return code

    def close(self, end: Optional[Dict[str, Any]]) -> None:
        """The last words: the rest of all files, then how the process ended. A line that is dead is left alone."""
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(FLUSH_S)
        if end and end["code"] != 0:
            _remove(self._start.get("shared_memory", ()))
        with suppress(Ended):
            self._tell()
            if end:
                self.say(exit=end)
        signal.alarm(0)

    def _tell(self) -> None:
        for tail in self._tails:
            while new := tail.read():
                self.say(**{tail.name: new.decode("latin-1")})

    def _relay(self, selector: selectors.BaseSelector) -> None:
        """What the process says to its MPI's process manager, in whatever pieces it comes."""
        assert self._pmi
        try:
            answer = self._pmi.recv(CHUNK)
        except OSError:
            answer = b""
        if answer:
            self.say(pmi=answer.decode("latin-1"))
        else:
            selector.unregister(self._pmi)

    def _hear(self) -> None:
        self._receive()
        for message in self._messages:
            if self._pmi and "pmi" in message:
                with suppress(OSError):  # it has ended; the next look finds that out
                    self._pmi.sendall(message["pmi"].encode("latin-1"))
        self._messages.clear()

    def _next(self) -> Dict[str, Any]:
        while not self._messages:
            self._receive()
        return self._messages.pop(0)

    def _receive(self) -> None:
        received = os.read(0, CHUNK)
        if not received:
            raise Ended("the controller is gone")
        signal.alarm(SILENCE_S)
        self._unread += received
        if b"\n" in received:
            *lines, self._unread = self._unread.split(b"\n")
            self._messages += [json.loads(line) for line in lines if line]


class _Tail:
    """A file that grows."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self._path = path
        self._offset = 0

    def read(self) -> bytes:
        """What was appended since the last call, in pieces; empty when there is nothing new, or no file yet."""
        with suppress(OSError):
            if self._path.stat().st_size > self._offset:
                with self._path.open("rb") as file:
                    file.seek(self._offset)
                    new = file.read(CHUNK)
                self._offset += len(new)
                return new
        return b""


def _remove(shared_memory: Iterable[str]) -> None:
    """Remove what MPICH removes as it finalises, which killed ranks never do."""
    for pattern in shared_memory:
        for left in SHARED_MEMORY.glob(pattern):
            with suppress(OSError):
                left.unlink()


def nonce_file(nonce: str) -> str:
    """The file in the controller's ``repeat-K`` by which tasks know the folder again.

    Its name is new for every repeat, so that no network file system has cached that it is not there.
    """
    return f".controller-{nonce}"


def _write(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all, unless it is there: other tasks of this host write the same ones."""
    with suppress(FileNotFoundError):
        if path.read_bytes() == content:
            return
    with whole_file(path) as file:
        file.write(content)
