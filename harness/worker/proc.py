"""Linux's view of processes (proc(5), waitid(2)). Python 3.9; standard library."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Tuple

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def stat(pid: int) -> List[str]:
    """The fields of /proc/PID/stat behind the name: state, parent, and so on. Raises OSError once the process has ended."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        return file.read().rpartition(")")[2].split()  # a name may hold any bytes


def exit_code(child: int) -> Optional[int]:
    """The exit code of a child that has ended, as ``Popen`` has it, or None. It is not reaped: its number stays its own."""
    ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def family(chosen: Callable[[int, List[str]], bool]) -> Dict[int, List[str]]:
    """``stat`` of the processes that are ``chosen``, by number and ``stat``, and of those below them, parents first."""
    every: Dict[int, List[str]] = {}
    below: List[int] = []
    last: List[int] = []
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if entry.isdigit():
            with suppress(OSError):  # it has ended meanwhile
                every[int(entry)] = stat(int(entry))
                last += [int(entry)] if chosen(int(entry), every[int(entry)]) else []
    while last:
        below += last
        last = [pid for pid, fields in every.items() if int(fields[1]) in last]
    return {pid: every[pid] for pid in below}


def descendants() -> Dict[int, List[str]]:
    """``stat`` of the processes below this one that have not been waited for, parents first."""
    return family(lambda _, fields: int(fields[1]) == os.getpid())


def processor_s(family: Iterable[List[str]]) -> float:
    """Seconds that processors have spent on processes of this ``stat``, and on their children that were waited for."""
    return sum(int(ticks) for fields in family for ticks in fields[11:15]) / TICKS_PER_S


def read_bytes() -> int:
    """Bytes that this process and those below it have had from storage so far: the page cache's do not count (proc(5))."""
    read = 0
    for pid in [os.getpid(), *descendants()]:
        with suppress(OSError):  # it has ended meanwhile, or nobody may look
            counts = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
            read += int(counts["read_bytes"])
    return read


def control_groups(controller: str, root: Path = Path("/")) -> Iterator[Tuple[int, Path]]:
    """The folders of this process's control groups, each after its version: its own first, then those above (cgroups(7)).

    A limit holds for a group with all groups below it. Raises OSError where there are none.
    """
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" or controller in controllers.split(","):
            top = root / "sys/fs/cgroup" / ("" if number == "0" else controller)
            group = top / path.lstrip("/")
            yield from (
                (2 - bool(int(number)), each) for each in (group, *group.parents) if top in (each, *each.parents)
            )
