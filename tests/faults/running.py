"""A ``harness run`` in a process of its own, followed and disturbed from outside, and what must hold afterwards."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psutil

from tests.conftest import PATIENCE_S, SMALLEST
from tests.made import content

# What becomes of a process is the same whatever it trains.
TINY = [*SMALLEST, "--repeats", "1", "--threads", "1"]
LONG = "100000"  # steps that no test waits for
GONE_WITHIN_S = 30.0
LOOPBACK = re.compile(r"(::ffff:)?127\.\d+\.\d+\.\d+|::1")
# In a pipe a run says once a minute how far it is, so that on a slow machine some such lines come before the error.
PROGRESS = re.compile(r"^[^\n]+ × \d+  [^\n]+\n", re.MULTILINE)
# Hosts of the virtual cluster are reached by whoever reaches its network, and TensorFlow's servers let everybody in.
EXPOSED = re.compile(r"^harness: the servers of [a-z_]+ let in [^\n]+\n")
Value = TypeVar("Value")


def named(process: str) -> str:
    """``worker-1`` as messages call it. Worker i and server i sit on node i."""
    role, rank = process.split("-")
    return f"{role} rank {rank} on node{rank}"


class Run:
    """``harness run`` with tiny settings, or another command. ``wrapper`` is a command that starts it."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        command: Sequence[str] = ("run", *TINY),
        wrapper: Sequence[str] = (),
        **environ: str,
    ) -> None:
        self.output = folder / "runs"
        self.process = subprocess.Popen(
            [*wrapper, sys.executable, "-m", "harness", *command, "--output", str(self.output), *arguments],
            cwd=folder,
            env={**os.environ, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.code = -1
        self.stdout = self.stderr = ""
        self.ranks: set[int] = set()

    # --- while it runs ---

    @property
    def folder(self) -> Path:
        """The run directory."""
        (folder,) = [path.parent for path in self.output.glob("*/plan.json")]
        return folder

    @property
    def plan(self) -> dict[str, Any]:
        return self.eventually(lambda: json.loads((self.folder / "plan.json").read_text()))

    def events(self, name: str) -> dict[str, dict[str, Any]]:
        """What a process (``worker-0``) has reported so far."""
        lines = (self.folder / "repeat-1" / "events" / f"{name}.jsonl").read_text().split("\n")[:-1]
        return {event["event"]: event for event in map(json.loads, lines)}

    def reaches(self, name: str, event: str) -> dict[str, Any]:
        """Wait until a process has reported an event; returns the event."""
        found: dict[str, Any] = self.eventually(lambda: self.events(name)[event])
        return found

    def in_the_window(self) -> Run:
        """Itself, once both workers take the steps that are measured."""
        for worker in ("worker-0", "worker-1"):
            self.pid(worker)
            self.reaches(worker, "window")
        return self

    def pid(self, name: str) -> int:
        pid = int(self.reaches(name, "started")["pid"])
        self.ranks.add(pid)
        return pid

    def shared_memory(self, name: str) -> set[Path]:
        """Files in /dev/shm that a process of the run has mapped."""
        maps = Path(f"/proc/{self.pid(name)}/maps").read_text()
        return {Path(word) for word in maps.split() if word.startswith("/dev/shm/")}

    def send(self, name: str, sent: signal.Signals) -> None:
        os.kill(self.pid(name), sent)

    def eventually(self, look: Callable[[], Value]) -> Value:
        """What ``look`` finds, once it finds it. A controller that ends before is shown."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return look()
            except (OSError, KeyError, ValueError):
                assert self.process.poll() is None, self.process.communicate()
                assert time.monotonic() < deadline, "nothing happened"
                time.sleep(0.005)

    # --- afterwards ---

    def end(self) -> Run:
        """Wait for the controller; nothing of it may be left half a minute later."""
        self.stdout, stderr = self.process.communicate(timeout=PATIENCE_S)
        self.stderr = EXPOSED.sub("", PROGRESS.sub("", stderr))
        self.code = self.process.returncode
        deadline = time.monotonic() + GONE_WITHIN_S
        while left := list(self._left()):
            assert time.monotonic() < deadline, f"left behind: {left}"
            time.sleep(0.1)
        return self

    def _left(self) -> Iterator[str]:
        """Processes that belong to the run: they name its folder, or are in the session of one of its ranks."""
        for process in psutil.process_iter(["cmdline", "status"]):
            command = " ".join(process.info["cmdline"] or [])
            if process.info["status"] == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                continue
            try:
                session = os.getsid(process.pid)
            except ProcessLookupError:
                continue
            if f"--run {self.output}" in command or session in self.ranks:
                yield f"{process.pid} {command}"

    @property
    def record(self) -> dict[str, Any]:
        return content(self.folder / "record.json")

    def failed_saying(self, *fragments: str) -> None:
        """One error that says what and where; logs and a record, but no number."""
        assert (self.code, self.stdout) == (1, ""), self.stderr
        self._kept_everything_but_a_number("failed")
        for fragment in fragments:
            assert fragment in self.stderr and fragment in self.record["reason"], self.stderr
        error = self.stderr[self.stderr.index("harness: ") :]  # after the lines on how far a run of minutes is
        assert error.startswith(f"harness: {self.record['spec']['backend']}: ")
        assert self.stderr.rstrip().endswith(f"logs and record: {self.folder}")
        assert self.stderr.count("harness: ") == 1

    def was_interrupted_by(self, name: str) -> None:
        assert (self.code, self.stdout) == (130, ""), self.stderr
        said = f"harness: interrupted by {name}; no process is left running\nlogs and record: {self.folder}\n"
        assert self.stderr.lstrip("\n") == said  # after the ^C
        self._kept_everything_but_a_number("interrupted")
        assert self.record["reason"] == f"interrupted by {name}"

    def _kept_everything_but_a_number(self, status: str) -> None:
        assert (self.record["status"], self.record["derived"]) == (status, None)
        logs = {path.stem for path in (self.folder / "repeat-1" / "logs").iterdir()}
        assert logs == {f"{process['role']}-{process['rank']}" for process in self.record["plan"]["processes"]}
