"""Processes of an emulated run that are forked from one that has imported their framework (see ``worker/fork.py``)."""

import json
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import NamedTuple

import psutil

from harness.core.plan import WORKER_MAIN
from harness.errors import RunFailed
from harness.launch.watch import Followed, Watch

FORK = WORKER_MAIN.with_name("fork.py")
GONE = 1  # the exit code of processes whose end nobody has seen
STARTED_S = 120.0  # for a framework to be imported on a busy machine


class StartRequest(NamedTuple):
    """A process to be started: it inherits ``fds``, and joins the ``namespaces`` of the process with this PID."""

    followed: Followed
    env: Mapping[str, str]
    fds: tuple[int, ...]
    namespaces: int | None


class Started(NamedTuple):
    """A process of the run."""

    pid: int
    poll: Callable[[], int | None]  # its exit code, None while it runs
    is_held: Callable[[], bool]  # nobody has reaped it, so that neither its number nor its group's is another's
    reap: Callable[[], object] = lambda: None  # what is forked goes with the process that it was forked from

    def status(self) -> str:
        try:
            return str(psutil.Process(self.pid).status())
        except psutil.NoSuchProcess:
            return str(psutil.STATUS_DEAD)


class Nursery:
    """The process that the others are forked from, if it can be: it must have no threads then."""

    def __init__(self, watch: Watch, starts: Sequence[StartRequest], inside: Sequence[str]) -> None:
        self.codes: dict[int, int] = {}
        self.news = threading.Condition()
        self._pids: dict[int, int] = {}
        self._refused = self.has_ended = False
        first, pipe = starts[0], subprocess.PIPE
        script = [first.followed.process.argv[0], str(FORK)]
        with first.followed.log.with_name("forking.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*inside, *script, "--run", str(watch.run_dir), "--repeat", str(watch.repeat)],
                env=first.env,
                stdin=pipe,
                stdout=pipe,
                stderr=log,
                text=True,
                start_new_session=True,
                pass_fds=[fd for start in starts for fd in start.fds],
            )
        threading.Thread(target=self._listen, name="nursery", daemon=True).start()

    def start(self, starts: Sequence[StartRequest]) -> dict[int, Started]:
        """Fork a process for each of ``starts``, by index; none if that is not safe. Raises RunFailed."""
        assert self._process.stdin
        with suppress(BrokenPipeError), self._process.stdin as requests:
            for start in starts:
                index, log = start.followed.process.index, str(start.followed.log)
                request = {"index": index, "env": start.env, "log": log, "pid": start.namespaces}
                requests.write(json.dumps(request) + "\n")
        with self.news:
            if not self.news.wait_for(lambda: self._refused or len(self._pids) == len(starts), STARTED_S):
                logs = starts[0].followed.log.parent
                raise RunFailed(f"processes are not forked in {STARTED_S:g} s; see {logs}/forking.log")
            return {
                index: Started(pid, partial(self.codes.get, index), lambda: not self.has_ended)
                for index, pid in ({} if self._refused else self._pids).items()
            }

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _listen(self) -> None:
        assert self._process.stdout
        with self._process.stdout as lines:
            # The end of the file means that the parent has exited, and its unreported children with it.
            for message in map(json.loads, chain(lines, ["{}"])):
                with self.news:
                    if "pid" in message:
                        self._pids[message["index"]] = message["pid"]
                    elif "code" in message:
                        self.codes[message["index"]] = message["code"]
                    else:
                        self.has_ended, self._refused = True, not self._pids
                        self.codes.update(dict.fromkeys(self._pids.keys() - self.codes.keys(), GONE))
                    self.news.notify_all()
