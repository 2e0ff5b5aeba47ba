"""What Linux says of processes (proc(5), waitid(2)). Python 3.9; standard library."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Dict, List, Optional, Set


def stat(pid: int) -> List[str]:
    """The fields of /proc/PID/stat behind the name: state, parent, and so on. Raises OSError once the process has ended."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        return file.read().rpartition(")")[2].split()  # a name may hold any bytes


def exit_code(child: int) -> Optional[int]:
    """How a child has ended, as ``Popen`` has it, or None. It is not reaped: its number stays its own."""
    ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def descendants() -> Dict[int, List[str]]:
    """``stat`` of the processes below this one that have not been waited for, parents first."""
    return _below([os.getpid()], _every())


def family(words: List[str]) -> Dict[int, List[str]]:
    """``stat`` of the processes whose command has these ``words`` in a row, and of those below them."""
    wanted, first, every = "\0".join(["", *words, ""]), [], _every()
    for pid in every:
        with suppress(OSError):
            if wanted in Path(f"/proc/{pid}/cmdline").read_text(errors="replace"):
                first.append(pid)
    return {pid: every[pid] for pid in first} | _below(first, every)


def cores(pid: int) -> Set[int]:
    """The cores that the threads of a process may run on; none once it has ended."""
    allowed: Set[int] = set()
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with suppress(OSError):
                allowed |= os.sched_getaffinity(int(thread))
    return allowed


def _every() -> Dict[int, List[str]]:
    every: Dict[int, List[str]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if entry.isdigit():
            with suppress(OSError):  # it has ended meanwhile
                every[int(entry)] = stat(int(entry))
    return every


def _below(last: List[int], every: Dict[int, List[str]]) -> Dict[int, List[str]]:
    below: List[int] = []
    while last:
        last = [pid for pid, fields in every.items() if int(fields[1]) in last]
        below += last
    return {pid: every[pid] for pid in below}
