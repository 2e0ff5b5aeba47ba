"""A process of a run: its arguments, the file of events that its controller reads, its end with others. Python 3.9."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from multiprocessing import parent_process, util
from pathlib import Path
from threading import Thread
from typing import Any, List

LAUNCHER = "HARNESS_LAUNCHER_PID"  # the variable that says who started a process of a run
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36  # processes whose parent has died become this process's children
PR_GET_CHILD_SUBREAPER = 37


def parser(*numbers: str) -> argparse.ArgumentParser:
    """A parser of every process's arguments: the run directory, the number of its repeat, and these other ``numbers``."""
    options = argparse.ArgumentParser()
    options.add_argument("--run", type=Path, required=True)
    for name in ("--repeat", *numbers):
        options.add_argument(name, type=int, required=True)
    return options


def end_with_launcher(number: int = signal.SIGKILL) -> None:
    """Have Linux send this process a signal when its launcher dies. Exits at once if the launcher is gone already."""
    if LAUNCHER not in os.environ:
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != int(os.environ[LAUNCHER]):
        sys.exit("the launcher is gone")


def ending_with_this(argv: List[str]) -> List[str]:
    """A command that becomes that of ``argv``, which is killed when the thread of this process that has started it ends.

    A ``preexec_fn`` would have Python fork, and after a fork memory that a network card writes to may not be this process's
    any more (ibv_fork_init(3)).
    """
    code = (
        f"import ctypes, os, sys; ctypes.CDLL(None).prctl({PR_SET_PDEATHSIG}, {int(signal.SIGKILL)}); "
        f"os.getppid() == {os.getpid()} and os.execvp(sys.argv[1], sys.argv[1:])"
    )
    return [sys.executable, "-ISc", code, *argv]


def end_with_parent(*_: object) -> None:
    """End this process of ``multiprocessing`` when the one that asked for it dies.

    Of themselves such processes wait on: for tasks in a pipe whose other end they hold open too, or for the fork server,
    which lives as long as its children. (The fork server is their parent for Linux, so that it cannot kill them.)
    """
    parent = parent_process()
    assert parent

    def wait() -> None:
        parent.join()
        remove_sockets()
        os._exit(1)

    Thread(target=wait, daemon=True).start()


def remove_sockets() -> None:
    """Remove the folder for this process's sockets, which ``multiprocessing`` would do at its end if that were orderly.

    Those that it starts share it, if it is there by then: ``multiprocessing.util.get_temp_dir`` makes it.
    """
    with suppress(OSError):  # where nothing can be made there is nothing to remove
        shutil.rmtree(util.get_temp_dir(), ignore_errors=True)  # others of this process's do the same


class Events:
    """A file of JSON lines, each complete on disk before the process goes on. Nothing is written in the window."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)

    def emit(self, event: str, **fields: Any) -> None:
        """Append one event with the wall-clock time (seconds since the epoch). Raises OSError when the disk is full."""
        line = (json.dumps({"event": event, "time": time.time(), **fields}) + "\n").encode()
        begin = self._file.seek(0, os.SEEK_END)
        try:
            while line:
                line = line[self._file.write(line) :]
        except OSError:
            self._file.truncate(begin)  # half a line tells nothing, and takes the room of the error's own event
            raise
