"""Starts a process of somebody's own program, tells it its place in the run, waits for it, and notes how it ended.

    python program.py --run DIR --index I --repeat K

What the program has started ends with it, also in sessions of its own. Python 3.9; standard library.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parent))
import bootstrap  # noqa: F401

from harness.files import end_of
from harness.worker import machine, proc
from harness.worker.agent.seating import HOLDING, arguments, folder_of, name_of, plan_of, variables
from harness.worker.process import LAUNCHER, PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, Events, end_with_launcher, parser

GRACE_S = 2.0  # between asking processes to end and killing them; whoever started this one gives it 3 s
LOOK_S = 0.5  # between a server's looks at whether the workers have ended
NOT_STARTED = 127  # as shells have it

Bytes = Dict[str, Tuple[int, int]]  # by network interface: sent, received


class Asked(Exception):
    """Somebody asks this process to end."""


def interfaces() -> Bytes:
    """Bytes that this host's network interfaces have sent and received; of a network namespace, those of its own."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()
    pairs = [line.split(":", 1) for line in lines if ":" in line]
    return {name.strip(): (int(counts.split()[8]), int(counts.split()[0])) for name, counts in pairs}


def _main() -> int:
    options = parser("--index").parse_args()
    repeat_dir, plan = folder_of(options.run, options.repeat), plan_of(options.run, options.repeat)
    process = plan["processes"][options.index]
    name = name_of(process)
    events = Events(repeat_dir / "events" / f"{name}.jsonl")
    argv = arguments(plan, process)
    env = {**os.environ, **variables(plan, process)}
    end_with_launcher(signal.SIGTERM)  # asked, so that everything that the program has started can be ended before
    env.pop(LAUNCHER, None)
    workers = [each for each in plan["processes"] if each["role"] == "worker"][: 1 if plan["details"]["once"] else None]
    reports = [repeat_dir / "events" / f"{name_of(each)}.jsonl" for each in workers]
    # Servers have no end of their own, and a node is to be held for as long as the first one's program needs it.
    is_over = (lambda: all(map(_has_ended, reports))) if process["role"] == "ps" or argv is HOLDING else None

    events.emit("started", pid=os.getpid(), host=socket.gethostname())
    before, began, failure = interfaces(), time.monotonic(), ""
    try:
        code, stopped = _attend(argv, env, plan["details"]["folder"], is_over)
    except Asked:
        code, stopped = -signal.SIGTERM, True
    except OSError as error:
        code, stopped, failure = NOT_STARTED, False, f"{error.filename or argv[0]}: {error.strerror}"
    finally:
        _end_all()
    moved = {
        interface: [now - then for now, then in zip(after, before.get(interface, after))]
        for interface, after in interfaces().items()
    }
    facts = {"code": code, "stopped": stopped, "seconds": time.monotonic() - began, "argv": argv}
    events.emit("ended", **facts, bytes={interface: counts for interface, counts in moved.items() if any(counts)})
    if code == 0 or (stopped and is_over and is_over()):
        if options.index == 0:
            events.emit("software", machine=machine.describe(), variables=machine.relevant_variables(env))
        events.emit("closed")
        return 0
    if not stopped:
        kind = "cannot be started" if failure else f"exit code {code}"
        events.emit("error", type=kind, message=failure or _last_line(repeat_dir / "logs" / f"{name}.log"))
    if code < 0:  # end as the program did
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has left its own, if it was to
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _attend(
    argv: List[str], env: Mapping[str, str], folder: str, is_over: Optional[Callable[[], bool]]
) -> Tuple[int, bool]:
    """Start the program and wait for its end, or until it ``is_over``. Returns its exit code, and if it was stopped.

    Raises OSError if it cannot be started, Asked when this process shall end.
    """

    def end(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Asked

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    # Files that the launcher has opened for an MPI rank (close_fds) belong to the program, which dies with this process.
    child = subprocess.Popen(
        argv, env=env, cwd=folder, close_fds=False, preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    )
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG if is_over else 0)  # orphans of the program's are waited for, too
        if pid == child.pid:
            return os.waitstatus_to_exitcode(status), False
        if is_over and is_over():
            return -signal.SIGTERM, True
        if is_over:
            time.sleep(LOOK_S)


def _end_all() -> None:
    """End whatever the program has left behind: ask, wait a little, kill."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    deadline, number = time.monotonic() + GRACE_S, signal.SIGTERM
    signalled: List[int] = []
    while below := list(proc.descendants()):
        if time.monotonic() > deadline:
            number, signalled = signal.SIGKILL, []
        for pid in below:
            if pid not in signalled:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        signalled = below
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.02)


def _has_ended(report: Path) -> bool:
    with suppress(OSError):
        return '"event": "ended"' in report.read_text()
    return False


def _last_line(log: Path) -> str:
    """The last words of the program, "" where its log cannot be read; the whole log is kept."""
    with suppress(OSError):
        lines = [line.strip() for line in end_of(log).splitlines() if line.strip()]
        return lines[-1][:500] if lines else "it has printed nothing"
    return ""


if __name__ == "__main__":
    sys.exit(_main())
