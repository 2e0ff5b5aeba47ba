"""Processes of an emulated run that are forked from one that has imported their framework (see ``worker/fork.py``)."""

import json
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from harness.core.plan import WORKER_MAIN, LaunchPlan, Process
from harness.errors import RunFailed

FORK = WORKER_MAIN.with_name("fork.py")
GONE = 1  # the exit code of those whose end nobody has seen
STARTED_S = 120.0  # for a framework to be imported on a busy machine


class StartRequest(NamedTuple):
    """How a process is to be started: it inherits ``fds``, and joins the ``namespaces`` of the process with this PID."""

    process: Process
    env: Mapping[str, str]
    log: Path
    fds: tuple[int, ...]
    namespaces: int | None


class Forked:
    """One of the processes. What it was forked from does not reap it, so that its number is its own while that is there."""

    def __init__(self, nursery: "Nursery", index: int, pid: int) -> None:
        self.pid, self._index, self._nursery = pid, index, nursery

    @property
    def is_held(self) -> bool:
        return not self._nursery.has_ended

    def poll(self) -> int | None:
        return self._nursery.codes.get(self._index)

    def status(self) -> str:
        try:
            return str(psutil.Process(self.pid).status())
        except psutil.NoSuchProcess:
            return str(psutil.STATUS_DEAD)

    def reap(self) -> None:
        """It goes with the process that it was forked from."""


class Nursery:
    """The process that the others are forked from, if it can be: it must have no threads then."""

    def __init__(self, plan: LaunchPlan, run_dir: Path, repeat: int, starts: Sequence[StartRequest]) -> None:
        self.codes: dict[int, int] = {}
        self.news = threading.Condition()
        self._pids: dict[int, int] = {}
        self._refused = self.has_ended = False
        first, pipe = starts[0], subprocess.PIPE
        with first.log.with_name("forking.log").open("wb") as log:
            self._process = subprocess.Popen(
                [first.process.argv[0], str(FORK), "--run", str(run_dir), "--repeat", str(repeat)],
                env=first.env,
                stdin=pipe,
                stdout=pipe,
                stderr=log,
                text=True,
                start_new_session=True,
                pass_fds=[fd for start in starts for fd in start.fds],
            )
        threading.Thread(target=self._listen, name="nursery", daemon=True).start()

    def start(self, starts: Sequence[StartRequest]) -> dict[int, Forked]:
        """Fork a process for each of ``starts``, by index; none if that is not safe. Raises RunFailed."""
        assert self._process.stdin
        with suppress(BrokenPipeError), self._process.stdin as requests:
            for start in starts:
                asked = {"index": start.process.index, "env": start.env, "log": str(start.log)}
                requests.write(json.dumps(asked | {"pid": start.namespaces}) + "\n")
        with self.news:
            if not self.news.wait_for(lambda: self._refused or len(self._pids) == len(starts), STARTED_S):
                raise RunFailed(f"processes are not forked in {STARTED_S:g} s; see {starts[0].log.parent}/forking.log")
            return {} if self._refused else {index: Forked(self, index, pid) for index, pid in self._pids.items()}

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _listen(self) -> None:
        assert self._process.stdout
        with self._process.stdout as news:
            for line in news:
                self._hear(json.loads(line))
        self._hear({})

    def _hear(self, news: dict[str, int]) -> None:
        """Nothing is the last news: it has ended, and with it those whose end it has not seen."""
        with self.news:
            if "pid" in news:
                self._pids[news["index"]] = news["pid"]
            elif "code" in news:
                self.codes[news["index"]] = news["code"]
            else:
                self.has_ended, self._refused = True, not self._pids
                self.codes = {index: self.codes.get(index, GONE) for index in self._pids}
            self.news.notify_all()
