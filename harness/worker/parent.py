"""The end with the parent, however it dies. Standard library only; Python 3.9."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from multiprocessing import parent_process
from threading import Thread

LAUNCHER = "HARNESS_LAUNCHER_PID"  # the variable that says who started a process of a run
PR_SET_PDEATHSIG = 1


def end_with_launcher() -> None:
    """Have Linux kill this process when its launcher dies. Exits at once if the launcher is gone already."""
    if LAUNCHER not in os.environ:
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(os.environ[LAUNCHER]):
        sys.exit("the launcher is gone")


def end_with_parent() -> None:
    """End this process of ``multiprocessing`` when the one that asked for it dies.

    Of themselves such processes wait on: for tasks in a pipe whose other end they hold open too, or for the fork server,
    which lives as long as its children. (The fork server is their parent for Linux, so that it cannot kill them.)
    """
    parent = parent_process()
    assert parent

    def wait() -> None:
        parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()
