"""Starts the processes of an emulated run on one machine by forking: the framework is imported once, and its memory shared.

    python fork.py --run DIR --repeat K

Each line of stdin is a process of the plan: its ``index``, ``env``, ``log`` and, if it is to be in another process's
network and UTS namespaces, that one's ``pid``. Each line of stdout is news: the ``pid`` of an ``index``, later its ``code``
as ``Popen`` has it. A process with threads must not be forked: if the framework starts some when it is imported, none is.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, Dict

sys.path.insert(0, str(Path(__file__).resolve().parent))
import bootstrap  # noqa: F401

from harness.worker import main as worker
from harness.worker import proc
from harness.worker.emulation import FORKED
from harness.worker.job import Job
from harness.worker.process import LAUNCHER, end_with_launcher, parser

CLONE_NEW = {"net": 0x40000000, "uts": 0x04000000}  # linux/sched.h


def _main() -> None:
    arguments = parser().parse_args()
    end_with_launcher()
    job = Job.load(arguments.run, arguments.repeat, 0)
    worker.load_trainer(job.plan["trainer"])
    importlib.import_module(f"harness.worker.emulation.{job.spec['framework']}")
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        return
    gc.collect()
    gc.freeze()  # else the collector would write into pages that are shared
    launcher, started = os.getpid(), {}
    for line in sys.stdin:
        process = json.loads(line)
        pid = os.fork()
        if not pid:
            try:
                _become(process, launcher)
                code = worker.run_process(arguments.run, arguments.repeat, process["index"])
            except BaseException:
                traceback.print_exc()
                code = 1
            os._exit(code)
        started[pid] = process["index"]
        _tell(index=process["index"], pid=pid)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    # Nothing is reaped before the launcher ends this, so that no other process gets one of their numbers.
    while True:
        for pid in list(started):
            ended = proc.exit_code(pid)
            if ended is not None:
                _tell(index=started.pop(pid), code=ended)
        signal.sigwait({signal.SIGCHLD})


def _become(process: Dict[str, Any], launcher: int) -> None:
    """Be a process of its own: its session, log, namespaces and variables."""
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    log = os.open(process["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)
    if process["pid"]:
        for kind, flag in CLONE_NEW.items():
            namespace = os.open(f"/proc/{process['pid']}/ns/{kind}", os.O_RDONLY)
            if ctypes.CDLL(None, use_errno=True).setns(namespace, flag):
                raise OSError(ctypes.get_errno(), f"setns: {os.strerror(ctypes.get_errno())}")
            os.close(namespace)
    os.environ.clear()
    os.environ.update({**process["env"], LAUNCHER: str(launcher), FORKED: "1"})
    end_with_launcher()


def _tell(**news: int) -> None:
    sys.stdout.write(json.dumps(news) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _main()
