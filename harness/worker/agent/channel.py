"""A task's line to a controller that may share no files with it: JSON objects, one per line, on stdin and stdout.

From the controller: ``files`` for the run directory with the ``nonce`` of its own one, ``start`` with the process's MPI
variables, ``pmi``, more ``files``, and empty lines, by which a task knows that its controller is there. To the controller:
``here``, what was appended to the ``log``, the ``events`` and the ``parameters``, ``pmi``, and at the end ``exit``; or a
``problem`` that keeps the process from being started. Bytes travel as text in Latin-1, in which any byte is a character.
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
from harness.worker import proc
from harness.worker.agent.seating import folder_of
from harness.worker.network import interface_of

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - where Linux keeps POSIX shared memory
CHUNK = 1 << 16
LOOK_S = 0.5  # each look costs the machine that is being measured a little
SILENCE_S = 60  # a controller writes far more often: this one is gone, or cut off
FLUSH_S = 10  # for the last words, on a line that may be dead


class Ended(Exception):
    """The launcher asked this task to end, or is gone."""


class Channel:
    """The task's end: ``follow`` files, get the process's ``variables``, ``wait`` for it, and ``close``."""

    def __init__(self, run_dir: Path, repeat: int) -> None:
        """Take the run directory from the controller, unless it is the controller's own. Raises Ended when that fails."""
        self._unread = bytearray()
        self._messages: List[Dict[str, Any]] = []
        self._followed: Dict[str, Path] = {}
        self._reported: Dict[str, int] = {}  # bytes of each of these files
        self._pmi: Optional[socket.socket] = None
        self._pmi_of_process: Optional[socket.socket] = None
        self._send(here=socket.gethostname())
        run_files, self._start = self._next(), self._next()["start"]
        self._run_dir = run_dir
        self._shared = (folder_of(run_dir, repeat) / nonce_file(run_files["nonce"])).exists()
        self._keep(run_files["files"])

    def follow(self, **files: Path) -> None:
        """Report what processes append to these files from now on; nothing where the controller sees them itself."""
        if not self._shared:
            self._followed, self._reported = files, dict.fromkeys(files, 0)

    def variables(self, process: Dict[str, Any], env: Dict[str, str]) -> Dict[str, str]:
        """``env`` for a process of the plan, with its place in the MPI world, if there is one, and the interface to use."""
        if "PMI_RANK" not in self._start:
            return env
        self._pmi, self._pmi_of_process = socket.socketpair()
        self._pmi_of_process.set_inheritable(True)
        place = {name: self._start[name] for name in ("PMI_RANK", "PMI_SIZE")}
        env = {**env, **place, "PMI_FD": str(self._pmi_of_process.fileno())}
        if env.get("FI_PROVIDER") == "tcp":
            # Libfabric takes the fastest of several interfaces, which need not lead to the other hosts.
            env.setdefault("FI_TCP_IFACE", interface_of(process["address"]))
        return env

    def wait(self, child: subprocess.Popen[bytes], timeout_s: float) -> int:
        """Do as ``child.wait(timeout_s)``, while messages pass. Raises Ended when the controller is gone."""
        deadline = time.monotonic() + timeout_s
        if self._pmi_of_process:
            self._pmi_of_process.close()  # the process has its own; its end must be seen here
        with selectors.DefaultSelector() as selector:
            selector.register(0, selectors.EVENT_READ)
            if self._pmi:
                selector.register(self._pmi, selectors.EVENT_READ)
            while proc.exit_code(child.pid) is None:  # unlike ``poll`` it reaps nothing, which a signal could lose
                for key, _ in selector.select(LOOK_S):
                    if key.fileobj == 0:
                        self._hear()
                    elif not self._relay():
                        selector.unregister(key.fileobj)
                self._report()
                if time.monotonic() > deadline:
                    raise subprocess.TimeoutExpired(child.args, timeout_s)
        return child.wait()

    def close(self, end: Optional[Dict[str, Any]]) -> None:
        """The last words: the rest of all files, then how the process ended. A line that is dead is left alone."""
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(FLUSH_S)
        if end and end["code"] != 0:
            remove_shared_memory(self._start.get("shared_memory", ()))
        with suppress(Ended):
            self._report()
            if end:
                self._send(exit={"event": "exit", "time": time.time(), **end})
        signal.alarm(0)

    def _send(self, **message: Any) -> None:
        """Send one message. Raises Ended when nobody is left to read it."""
        line = memoryview(json.dumps(message).encode() + b"\n")
        try:
            while line:
                line = line[os.write(1, line) :]
        except OSError:
            raise Ended("the controller is gone") from None

    def _report(self) -> None:
        for name, path in self._followed.items():
            with suppress(OSError):  # there is no file yet
                if path.stat().st_size > self._reported[name]:
                    with path.open("rb") as file:
                        file.seek(self._reported[name])
                        while new := file.read(CHUNK):
                            self._reported[name] += len(new)
                            self._send(**{name: new.decode("latin-1")})

    def _keep(self, files: Dict[str, str]) -> None:
        """Write the controller's files, by their names in the run directory. Raises Ended when that fails."""
        if self._shared:
            return
        try:
            for name, content in files.items():
                (self._run_dir / name).parent.mkdir(parents=True, exist_ok=True)
                with whole_file(self._run_dir / name) as file:  # other tasks of this host write the same ones
                    file.write(content.encode("latin-1"))
        except OSError as error:
            self._send(problem=f"cannot write {error.filename or self._run_dir}: {error.strerror}")
            raise Ended("nowhere to write") from None

    def _relay(self) -> bool:
        """Pass on the process's words to its MPI's process manager, in whatever pieces; False when it has ended."""
        assert self._pmi
        words = b""
        with suppress(OSError):
            words = self._pmi.recv(CHUNK)
        if words:
            self._send(pmi=words.decode("latin-1"))
        return bool(words)

    def _hear(self) -> None:
        self._receive()
        for message in self._messages:
            self._keep(message.get("files", {}))
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


def remove_shared_memory(patterns: Iterable[str]) -> None:
    """Remove the files that MPICH removes as it finalises, which killed ranks never do."""
    for left in (path for pattern in patterns for path in SHARED_MEMORY.glob(pattern)):
        with suppress(OSError):
            left.unlink()


def nonce_file(nonce: str) -> str:
    """The file by which tasks know ``repeat-K`` again. The name is new: no network file system has cached it."""
    return f".controller-{nonce}"
