"""The ssh launcher: every process of the plan on a machine of the host file, which need not share a folder with this one.

Each process has an ssh of its own, which starts a task (``worker/task.py --channel``) over there. The task's stdin and
stdout are the only line between the two: the run directory goes out; events, logs and MPI's start-up talk come back; no
port is opened for it. The task ends its process when the line breaks, be it by the controller, ssh, the network or sshd.
"""

from __future__ import annotations

import json
import os
import re
import resource
import secrets
import selectors
import shlex
import signal
import socket
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.plan import LaunchPlan
from harness.errors import InvalidInput, RunFailed
from harness.launch import failure, pmi
from harness.launch.local import CLOSING_S
from harness.launch.watch import Followed, Progress, Watch
from harness.worker.agent.channel import CHUNK, FILES, nonce_file

if TYPE_CHECKING:
    from harness.sites.site import Site

TASK = Path(__file__).parents[1] / "worker" / "agent" / "task.py"
# A profile's own options come first, and ssh takes the first value that it is given of each.
OPTIONS = (
    "-T",
    "-oBatchMode=yes",  # nobody is there to answer a question
    "-oConnectTimeout=20",
    "-oServerAliveInterval=10",  # a connection that is dead is noticed after 30 s
    "-oServerAliveCountMax=3",
    "-oControlMaster=no",  # one process's connection must not carry another's
    "-oControlPath=none",
    "-oClearAllForwardings=yes",
    "-oForwardAgent=no",
    "-oForwardX11=no",
)
# Between hosts MPI talks TCP. MPICH is told to use libfabric for it, which is much faster at that than UCX (see local.py).
MPI_ENV = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}

SSH_FAILED = 255
POLL_S = 0.5  # each look at 512 processes costs this machine a little
ALIVE_S = 5.0  # between signs of life to the tasks
GRACE_S = 8.0  # for tasks to end their processes (3 s for those that do not want to) and to say so
SETTLE_S = 1.5  # after the first failure, for its cause to be heard: tasks look at their processes every 0.5 s
# After the first timeout. Connections are not made at the same moment, and what is stopped takes 3 s longer to end.
SETTLE_TIMEOUT_S = 20.0
LATE_S = 30.0  # tasks mind --timeout themselves; this much later they are not expected to any more


def options(target: Site) -> list[str]:
    """What stands between ``ssh`` and the machine's name."""
    return [*(word for option in target.extras.launcher_options for word in shlex.split(option)), *OPTIONS]


def mpi_env(target: Site) -> dict[str, str]:
    """What MPI is told, unless the profile tells it something else."""
    own = dict(target.env_vars)
    return {name: value for name, value in MPI_ENV.items() if name not in own}


def cores(target: Site, host: str) -> int:
    """Physical cores of a machine. Raises InvalidInput when it cannot be asked."""
    return _cores(tuple(options(target)), host)


@cache  # several runs of one command use the same machines
def _cores(chosen: tuple[str, ...], host: str) -> int:
    argv = ["ssh", *chosen, "--", host, "lscpu -p=CORE,SOCKET,NODE"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    found = set(re.findall(r"^\d*,\d*,\d*$", done.stdout, re.MULTILINE))
    if done.returncode == 0 and found:
        return len(found)
    raise InvalidInput(f"cannot ask {host} how many cores it has: {_words(done.stderr) or 'no lscpu'}; give --threads")


def command(process_argv: Sequence[str], run_dir: Path, repeat: int, index: int, target: Site) -> str:
    """The command line of a task, for the shell that sshd hands it to."""
    task = [
        process_argv[0],
        str(TASK),
        "--channel",
        "--run",
        str(run_dir),
        "--repeat",
        str(repeat),
        "--index",
        str(index),
    ]
    exported = [f"{name}={value}" for name, value in target.env_vars]
    argv = [*(["env", *exported] if exported else []), *task]
    first = [*target.prepare_cmds, *(f"module load {shlex.quote(module)}" for module in target.modules)]
    if first:  # in the order of a batch job
        argv = ["bash", "-lc", "\n".join(["set -o errexit", *first, 'exec "$@"']), "bash", *argv]
    return shlex.join(argv)


class SshLauncher:
    """Runs one repeat of a plan after another."""

    def __init__(self, plan: LaunchPlan, run_dir: Path, timeout_s: float, target: Site) -> None:
        self._plan = plan
        self._run_dir = run_dir
        self._timeout_s = timeout_s
        self._target = target

    def run(self, repeat: int, on_progress: Callable[[Progress], None]) -> Watch:
        """Run one repeat to its end. Returns its events.

        Raises RunFailed naming the process, its host and the last lines of its log when a process fails or hangs, or its
        host is out of reach. Whatever interrupts it (Ctrl-C among others), every task is told to end, and its end awaited.
        """
        repeat_dir = self._run_dir / f"repeat-{repeat}"
        for folder in ("events", "logs"):
            (repeat_dir / folder).mkdir(parents=True, exist_ok=True)
        nonce = secrets.token_hex(8)
        (repeat_dir / nonce_file(nonce)).touch()
        files = {name: path for name in FILES if (path := self._run_dir / name).exists()}
        opening = _message(
            files={name: path.read_bytes().decode("latin-1") for name, path in files.items()}, nonce=nonce
        )
        watch = Watch(self._plan, repeat_dir)
        world = pmi.world(self._plan)
        _allow_files(5 * len(self._plan.processes) + 100)
        with selectors.DefaultSelector() as selector:
            lines: list[Line] = []
            try:
                for followed in watch.followed:
                    process = followed.process
                    remote = command(process.argv, self._run_dir, repeat, process.index, self._target)
                    argv = ["ssh", *options(self._target), "--", process.host, remote]
                    lines.append(Line(argv, followed, repeat_dir, selector))
                    lines[-1].send(opening)
                    lines[-1].start(world)
                _supervise(watch, lines, selector, on_progress, self._timeout_s)
            finally:
                try:
                    _end(lines, selector)
                finally:
                    for line in lines:
                        line.close()
                    if world:
                        world.close()
                    (repeat_dir / nonce_file(nonce)).unlink(missing_ok=True)
        watch.poll()
        return watch


class Line:
    """One ssh with the task at its other end."""

    def __init__(self, argv: list[str], followed: Followed, repeat_dir: Path, selector: selectors.BaseSelector) -> None:
        self.followed = followed
        self.heard = False
        self.problem: str | None = None
        process = followed.process
        self._log = repeat_dir / "logs" / f"{process.name}.log"
        self._files = {
            "log": self._log,
            "events": followed.path,
            "parameters": repeat_dir / f"parameters-{process.rank}.npz",
        }
        self._selector = selector
        self._outgoing: deque[memoryview] = deque()
        self._unread = bytearray()
        self._pmi: socket.socket | None = None
        self._noted = 0
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._popen = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0, start_new_session=True
        )
        assert self._popen.stdin and self._popen.stdout
        self._stdin, self._stdout = self._popen.stdin, self._popen.stdout
        os.set_blocking(self._stdin.fileno(), False)
        selector.register(self._stdout, selectors.EVENT_READ, self._read)

    @property
    def code(self) -> int | None:
        """ssh's exit code, once it has ended and all that it brought was taken in."""
        return self._popen.poll() if self._stdout.closed else None

    @property
    def exit(self) -> dict[str, Any]:
        """How the process ended, as its task has told; empty while it has not."""
        return self.followed.events.get("exit", {})

    @property
    def words(self) -> str:
        """What ssh, the shell or Python has complained of, in one line."""
        return _words(self._complaints())

    def start(self, world: pmi.World | None) -> None:
        """Let the task start its process, as a rank of ``world`` if it is one."""
        process, start = self.followed.process, {}
        if world and process.role == "worker":
            variables, self._pmi = world.member(process.rank)
            start = {**variables, "shared_memory": world.shared_memory_names}
            self._selector.register(self._pmi, selectors.EVENT_READ, self._relay)
        self.send(_message(start=start))

    def send(self, message: bytes) -> None:
        """Send bytes, now or as soon as ssh takes them."""
        if self._stdin.closed:
            return
        if not self._outgoing:
            self._selector.register(self._stdin, selectors.EVENT_WRITE, self._write)
        self._outgoing.append(memoryview(message))

    def hang_up(self) -> None:
        """Tell the task that nobody is interested any more."""
        if not self._stdin.closed:
            if self._outgoing:
                self._selector.unregister(self._stdin)
                self._outgoing.clear()
            self._stdin.close()

    def kill(self) -> None:
        """End ssh itself."""
        with suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()

    def close(self) -> None:
        """Let go of everything."""
        self.hang_up()
        self._end_of_output()
        self.note()
        self._errors.close()
        if self._pmi:
            self._pmi.close()

    def note(self) -> None:
        """Append what ssh has complained of to the process's log."""
        complaints = self._complaints()
        with suppress(OSError), self._log.open("a") as log:
            log.write(complaints[self._noted :])
        self._noted = len(complaints)

    def _complaints(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def _write(self) -> None:
        try:
            written = os.write(self._stdin.fileno(), self._outgoing[0])
        except BlockingIOError:
            return
        except OSError:  # ssh has ended; its exit code tells more
            self.hang_up()
            return
        self._outgoing[0] = self._outgoing[0][written:]
        if not self._outgoing[0]:
            self._outgoing.popleft()
            if not self._outgoing:
                self._selector.unregister(self._stdin)

    def _read(self) -> None:
        said = os.read(self._stdout.fileno(), CHUNK)
        if not said:
            self._end_of_output()
            return
        self._unread += said
        if b"\n" in said:
            *whole, self._unread = self._unread.split(b"\n")
            for line in whole:
                self._take(bytes(line))

    def _take(self, line: bytes) -> None:
        message = _parsed(line)
        if message is None:  # a shell's greeting
            self._append("log", line + b"\n")
            return
        self.heard = True
        for name in self._files:
            if name in message:
                self._append(name, message[name].encode("latin-1"))
        if "pmi" in message and self._pmi:
            self._pmi.sendall(message["pmi"].encode("latin-1"))
        if "exit" in message:
            self.followed.events["exit"] = message["exit"]
        self.problem = message.get("problem", self.problem)

    def _append(self, name: str, new: bytes) -> None:
        with self._files[name].open("ab") as file:
            file.write(new)

    def _relay(self) -> None:
        """What the server side of PMI says to this rank."""
        assert self._pmi
        said = self._pmi.recv(CHUNK)
        if said:
            self.send(_message(pmi=said.decode("latin-1")))
        else:
            self._selector.unregister(self._pmi)

    def _end_of_output(self) -> None:
        if not self._stdout.closed:
            self._selector.unregister(self._stdout)
            self._stdout.close()
            if self._pmi and self._pmi in self._selector.get_map():
                self._selector.unregister(self._pmi)


def _supervise(
    watch: Watch,
    lines: list[Line],
    selector: selectors.BaseSelector,
    on_progress: Callable[[Progress], None],
    timeout_s: float,
) -> None:
    began = spoke = time.monotonic()
    first_left: float | None = None
    waiting = lines
    while waiting:
        _pass_on(selector, POLL_S)
        codes = [line.code for line in waiting]
        if any(codes):
            raise _failure(watch, lines, selector, timeout_s)
        waiting = [line for line, code in zip(waiting, codes, strict=True) if code is None]
        now = time.monotonic()
        if first_left is None and len(waiting) < len(lines):
            first_left = now
        if now - spoke > ALIVE_S:
            spoke = now
            for line in waiting:
                line.send(b"\n")
        on_progress(watch.poll())
        left = [line.followed.process.index for line in waiting]
        if now - began > timeout_s + LATE_S:
            raise failure.hang(watch, left, [], f"no end after {timeout_s:g} s (--timeout)")
        if first_left is not None and now - first_left > CLOSING_S:
            raise failure.hang(watch, left, [], f"still there {CLOSING_S:g} s after the first process had left")


def _pass_on(selector: selectors.BaseSelector, seconds: float) -> None:
    """Carry messages for some time, or until an ssh closes its output."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if not (before := len(selector.get_map())):
            time.sleep(min(left, 0.05))  # only their exit codes are left to wait for
            return
        for key, _ in selector.select(left):
            if key.fd in selector.get_map():  # not let go of by the one before it
                key.data()
        if len(selector.get_map()) < before:
            return


def _failure(watch: Watch, lines: list[Line], selector: selectors.BaseSelector, timeout_s: float) -> RunFailed:
    """The error of a repeat in which an ssh has ended with another code than 0; its cause may be heard a little later."""
    began = time.monotonic()
    settle_s = SETTLE_S
    while time.monotonic() - began < settle_s and any(line.code is None for line in lines):
        _pass_on(selector, 0.1)
        if any(line.exit.get("how") == "timeout" for line in lines):
            settle_s = SETTLE_TIMEOUT_S
    watch.poll()
    failed = [line for line in lines if line.code]
    for line in failed:
        line.note()
    # A machine that is gone comes first: what happens to the processes of the others is a consequence.
    for line in failed:
        if what := _trouble(line):
            return failure.failure(watch, line.followed, what)
    line = failed[0]
    how = (
        f"was told to end on its machine: {line.exit['asked']}"
        if "asked" in line.exit
        else f"exited with code {line.code}"
    )
    return failure.from_exit_events(watch, timeout_s) or failure.failure(watch, line.followed, how)


def _trouble(line: Line) -> str | None:
    """What kept ssh from bringing news of how the process ended; None when there were such news."""
    process = line.followed.process
    if line.exit:
        return None
    if line.problem:
        return f"cannot be started: {line.problem}"
    assert line.code
    if line.code == SSH_FAILED or line.code < 0:
        words = line.words if line.code > 0 else f"ssh was killed by {signal.Signals(-line.code).name}"
        state = f"connection to {process.host} lost" if line.heard else "no connection"
        return f"is out of reach: {state}: {words}"
    if not line.heard:
        program = str(TASK) if "can't open file" in line.words else process.argv[0]
        if line.code in (126, 127) or program == str(TASK):
            return (
                f"cannot be started: {program} is not there on {process.host}: harness and its environments must be at the "
                "same paths on every machine"
            )
    return f"exited with code {line.code}: {line.words}"


def _end(lines: list[Line], selector: selectors.BaseSelector) -> None:
    """Let every task end its process, and wait a little for that. What does not answer is cut off, with the same effect."""
    try:
        for line in lines:
            line.hang_up()
            if not line.heard:
                line.kill()  # it may still be connecting
        deadline = time.monotonic() + GRACE_S
        while time.monotonic() < deadline and any(line.code is None for line in lines):
            _pass_on(selector, 0.1)
    finally:
        for line in lines:
            line.kill()


def _message(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def _parsed(line: bytes) -> dict[str, Any] | None:
    with suppress(ValueError):
        message = json.loads(line)
        if isinstance(message, dict):
            return message
    return None


def _words(complaints: str) -> str:
    """The last line, which is the one that counts."""
    return next((line.strip() for line in reversed(complaints.splitlines()) if line.strip()), "no reason given")


def _allow_files(wanted: int) -> None:
    """Raise this process's limit of open files as far as it may: each ssh takes several."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
