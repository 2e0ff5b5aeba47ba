"""The ssh launcher: every process of the plan on a machine of the host file, which need not share a folder with this one.

Each process has an ssh of its own, which starts a task (``worker/agent/task.py --channel``) over there. The task's stdin
and stdout are the only line between the two: the run directory goes out; events, logs and MPI's start-up talk come back;
no port is opened for it. The task ends its process when the line breaks, be it by the controller, ssh, the network or
sshd.
"""

import json
import os
import re
import resource
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue

from harness.core.plan import Node
from harness.core.text import last_line
from harness.errors import InvalidInput, RunFailed, signal_name
from harness.launch import pmi
from harness.launch.local import MPI_ENV
from harness.launch.script import expanding
from harness.launch.watch import Followed, Progress, Watch, failure, from_exit_events, supervise
from harness.sites.site import Site
from harness.worker.agent.channel import CHUNK, nonce_file
from harness.worker.agent.seating import PLAN, SPEC

FILES = (SPEC, PLAN, "images.index", "validation.index")  # of a run directory, for tasks
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

HOST = r"[A-Za-z0-9._:][A-Za-z0-9._:-]*"
HOST_LINE = re.compile(rf"(?P<name>({HOST}@)?(?P<host>{HOST}))(\s+(?P<address>{HOST}))?")
HOST_SHAPE = "must be NAME or NAME ADDRESS, such as `ubuntu@203.0.113.7 10.0.0.11`"
SSH_FAILED = 255
ALIVE_S = 5.0  # between signs of life to the tasks
GRACE_S = 8.0  # for tasks to end their processes (3 s for stubborn ones) and to say so
SETTLE_S = 1.5  # after the first failure, for its cause to be heard: tasks look at their processes every 0.5 s
# After the first timeout. Connections are not made at the same moment, and stopped processes take 3 s longer to end.
SETTLE_TIMEOUT_S = 20.0
LATE_S = 30.0  # tasks mind --timeout themselves; this much later they are not expected to any more


def machines(path: Path) -> tuple[Node, ...]:
    """The machines of a host file, in its order, without GPUs. Raises InvalidInput naming the first wrong line.

        # NAME                    ADDRESS (default: NAME without user@)
        ubuntu@ec2-54-1-2-3       10.0.0.11

    NAME is what ssh gets, ADDRESS where the machine's processes listen and how those of other machines reach them.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"--hosts {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"--hosts {path}: not a text file") from None
    nodes: list[Node] = []
    lines: dict[tuple[str, str], int] = {}  # where each name and each address is
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].strip()
        if not words:
            continue
        match = HOST_LINE.fullmatch(words)
        if not match:
            raise InvalidInput(f"{path}:{number}: '{words}' names no machine; a line {HOST_SHAPE}")
        node = Node(match["name"], match["address"] or match["host"])
        for entry in (("machine", node.name), ("address", node.address)):
            if lines.setdefault(entry, number) != number:
                again = f"{' '.join(entry)} is on line {lines[entry]} already; name each machine once"
                raise InvalidInput(f"{path}:{number}: {again}")
        nodes.append(node)
    if not nodes:
        raise InvalidInput(f"{path}: lists no machines; each line {HOST_SHAPE}")
    return tuple(nodes)


def options(site: Site) -> list[str]:
    """The words between ``ssh`` and the machine's name."""
    return [*(word for option in site.extras.launcher_options for word in shlex.split(option)), *OPTIONS]


def mpi_env(site: Site) -> dict[str, str]:
    """MPI's settings, as on one machine, except the interface and those that the profile makes."""
    return {name: value for name, value in MPI_ENV.items() if name not in {"FI_TCP_IFACE", *dict(site.env_vars)}}


@cache  # several runs of one command use the same machines
def cores(site: Site, host: str) -> int:
    """Physical cores of a machine. Raises InvalidInput when it cannot be asked."""
    if not shutil.which("ssh"):
        raise InvalidInput(f"--site {site.name}: ssh is not on PATH")
    argv = ["ssh", *options(site), "--", host, "lscpu -p=CORE,SOCKET,NODE"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    cores = set(re.findall(r"^\d*,\d*,\d*$", done.stdout, re.MULTILINE))
    if done.returncode == 0 and cores:
        return len(cores)
    if done.returncode == SSH_FAILED:
        raise InvalidInput(f"{host} cannot be reached, to ask how many cores it has: {last_line(done.stderr)}")
    raise InvalidInput(f"cannot ask {host} how many cores it has: {last_line(done.stderr)}; give --threads")


def command(process_argv: Sequence[str], run_dir: Path, repeat: int, index: int, site: Site) -> str:
    """The command line of a task, for the shell that sshd hands it to."""
    numbers = ("--repeat", str(repeat), "--index", str(index))
    task = [process_argv[0], str(TASK), "--channel", "--run", str(run_dir), *numbers]
    first = [*site.prepare_cmds, *(f"module load {shlex.quote(module)}" for module in site.modules)]
    exported = [f"export {name}={expanding(value)}" for name, value in site.env_vars]
    if first or exported:  # in the order of a batch job
        lines = ["set -o errexit", *first, *exported, 'exec "$@"']
        task = ["bash", "-lc" if first else "-c", "\n".join(lines), "bash", *task]
    return shlex.join(task)


def run(watch: Watch, on_progress: Callable[[Progress], None], site: Site) -> None:
    """As ``local.run``, on the machines of ``site``: one out of reach is a failure, and tasks are asked to end."""
    plan, run_dir = watch.plan, watch.run_dir
    nonce = secrets.token_hex(8)
    ours = watch.repeat_dir / nonce_file(nonce)
    ours.touch()
    files = {name: path.read_bytes().decode("latin-1") for name in FILES if (path := run_dir / name).exists()}
    opening = _message(files=files, nonce=nonce)
    world = pmi.world(plan)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each ssh takes several open files
    connections: list[Connection] = []

    # Servers of a program, and nodes that are held for it, look for the ends of its workers on their own machine's disk.
    awaited = list(watch.workers())[: 1 if plan.details["once"] else None] if "once" in plan.details else []

    def pass_on(progress: Progress) -> None:
        if awaited and all(connections[each.process.index].code == 0 for each in awaited):
            ends = {str(each.path.relative_to(run_dir)): each.path.read_text("latin-1") for each in awaited}
            for connection in connections:
                connection.say(files=ends)
            awaited.clear()
        on_progress(progress)

    try:
        for followed in watch.followed:
            process = followed.process
            remote = command(process.argv, run_dir, watch.repeat, process.index, site)
            argv = ["ssh", *options(site), "--", process.host, remote]
            connections.append(Connection(argv, followed, opening, world))
        supervise(
            watch,
            lambda index: connections[index].code,
            lambda codes: _failure(watch, connections),
            pass_on,
            LATE_S,
        )
    finally:
        try:
            _end(connections)
        finally:
            if world:
                world.close()
            for connection in connections:
                connection.reader.join(1.0)
            ours.unlink(missing_ok=True)


class Connection:
    """One ssh with the task at its other end. Three threads write to it, read from it, and hear its MPI world."""

    def __init__(self, argv: list[str], followed: Followed, opening: bytes, world: pmi.MpiWorld | None) -> None:
        process, log = followed.process, followed.log
        self.followed = followed
        self.heard = False
        self.problem: str | None = None
        parameters = log.parents[1] / f"parameters-{process.rank}.npz"
        self._files = {"log": log, "events": followed.path, "parameters": parameters}
        self._complaints = log.with_suffix(".ssh")
        self._cannot_write: OSError | None = None
        self._outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        self._pmi: socket.socket | None = None
        with self._complaints.open("wb") as complaints:
            try:
                self._popen = subprocess.Popen(
                    argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints, start_new_session=True
                )
            except FileNotFoundError:  # whoever catches an OSError takes it for a file that cannot be written
                raise RunFailed(f"{argv[0]} is not on PATH") from None
        self._outgoing.put(opening)
        start: dict[str, object] = {}
        if world:
            variables, self._pmi = world.member(process.index)
            start = {**variables, "shared_memory": world.shared_memory_names}
            threading.Thread(target=self._relay, args=[self._pmi], daemon=True).start()
        self.say(start=start)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        threading.Thread(target=self._write, daemon=True).start()

    @property
    def code(self) -> int | None:
        """ssh's exit code, once it has ended and all that it brought is kept. Raises OSError if it cannot be."""
        if self._cannot_write:
            raise self._cannot_write
        return None if self.is_open else self._popen.returncode

    @property
    def is_open(self) -> bool:
        return self.reader.is_alive() or self._popen.poll() is None

    @property
    def exit(self) -> dict[str, object]:
        return self.followed.events.get("exit", {})

    @property
    def words(self) -> str:
        return last_line(self._complaints.read_text(errors="replace"))

    def say(self, **fields: object) -> None:
        self._outgoing.put(_message(**fields))

    def hang_up(self) -> None:
        """Tell the task that nobody is interested any more."""
        self._outgoing.put(None)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()

    def _write(self) -> None:
        """Pass messages on, and while there are none a sign of life from time to time."""
        assert self._popen.stdin
        with suppress(OSError), self._popen.stdin as stdin:  # when ssh has ended, its exit code tells more
            while True:
                try:
                    message = self._outgoing.get(timeout=ALIVE_S)
                except Empty:
                    message = b"\n"
                if message is None:
                    return
                stdin.write(message)
                stdin.flush()

    def _read(self) -> None:
        assert self._popen.stdout
        try:
            with self._popen.stdout as stdout:
                for line in stdout:
                    if line.endswith(b"\n"):  # not cut off by the end of ssh
                        self._take(line)
        except OSError as error:
            self._cannot_write = error

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):  # a shell's greeting
            self._append("log", line)
            return
        self.heard = True
        for name in self._files.keys() & message.keys():
            self._append(name, message[name].encode("latin-1"))
        if "pmi" in message and self._pmi:
            with suppress(OSError):  # the world has ended
                self._pmi.sendall(message["pmi"].encode("latin-1"))
        if "exit" in message:
            self.followed.events["exit"] = message["exit"]
        self.problem = message.get("problem", self.problem)

    def _append(self, name: str, new: bytes) -> None:
        with self._files[name].open("ab") as file:
            file.write(new)

    def _relay(self, pmi_socket: socket.socket) -> None:
        """Pass on messages of the server side of PMI to this rank, until the world is closed."""
        with suppress(OSError), pmi_socket:
            while chunk := pmi_socket.recv(CHUNK):
                self.say(pmi=chunk.decode("latin-1"))


def _failure(watch: Watch, connections: list[Connection]) -> RunFailed:
    """The error of a repeat in which an ssh has ended with another code than 0; its cause may be heard a little later."""
    began = time.monotonic()
    settle_s = SETTLE_S
    while time.monotonic() - began < settle_s and any(connection.code is None for connection in connections):
        time.sleep(0.1)
        if any(connection.exit.get("how") == "timeout" for connection in connections):
            settle_s = SETTLE_TIMEOUT_S
    watch.poll()
    failed = [connection for connection in connections if connection.code]
    # A machine that is gone comes first: what happens to the processes of the others is a consequence.
    for connection in failed:
        if trouble := _trouble(connection):
            return failure(connection.followed, trouble)
    first = failed[0]
    asked = first.exit.get("asked")
    how = f"was asked to end on its machine: {asked}" if asked else f"exited with code {first.code}"
    return from_exit_events(watch) or failure(first.followed, how)


def _trouble(connection: Connection) -> str | None:
    """The reason why ssh did not report how the process ended; None if it did."""
    process, code = connection.followed.process, connection.code
    if connection.exit:
        return None
    if connection.problem:
        return f"cannot be started: {connection.problem}"
    assert code
    if code == SSH_FAILED or code < 0:
        words = connection.words if code > 0 else f"ssh was killed by {signal_name(-code)}"
        state = f"connection to {process.host} lost" if connection.heard else "no connection"
        return f"is out of reach: {state}: {words}"
    no_task = "can't open file" in connection.words
    if not connection.heard and (no_task or code in (126, 127)):
        return (
            f"cannot be started: {TASK if no_task else process.argv[0]} is not there on {process.host}: "
            "harness and its environments must be at the same paths on every machine: see `harness env build --hosts`"
        )
    return f"exited with code {code}: {connection.words}"


def _end(connections: list[Connection]) -> None:
    """Let every task end its process, and wait a little. A task that does not answer is cut off, with the same effect."""
    try:
        for connection in connections:
            connection.hang_up()
            if not connection.heard:
                connection.kill()  # it may still be connecting
        deadline = time.monotonic() + GRACE_S
        while time.monotonic() < deadline and any(connection.is_open for connection in connections):
            time.sleep(0.1)
    finally:
        for connection in connections:
            connection.kill()


def _message(**fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"
