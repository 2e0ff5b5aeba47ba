"""What Linux says of processes (proc(5), waitid(2)). Python 3.9; standard library."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Dict, List, Optional


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
    every: Dict[int, List[str]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if entry.isdigit():
            with suppress(OSError):  # it has ended meanwhile
                every[int(entry)] = stat(int(entry))
    below: List[int] = []
    last = [os.getpid()]
    while last:
        last = [pid for pid, fields in every.items() if int(fields[1]) in last]
        below += last
    return {pid: every[pid] for pid in below}
