"""An MPI world for processes that this launcher starts itself: the server side of MPI's process-management interface.

Under Slurm `srun` plays this part. `mpiexec` would stand between the launcher and its processes, so the launcher speaks
PMI-1 itself, the line protocol of MPICH and its descendants (Cray MPICH, Intel MPI, MVAPICH): each rank inherits one end of
a socket pair, no port is opened.
"""

import secrets
import socket
import threading
from collections import Counter
from contextlib import suppress

from harness.core.plan import LaunchPlan
from harness.worker.agent.channel import remove_shared_memory


class MpiWorld:
    """One MPI world of ``size`` ranks, under a name that no other world has: MPICH names shared memory after it."""

    def __init__(self, size: int, mapping: str | None) -> None:
        self.size = size
        self.name = f"harness-{secrets.token_hex(8)}"
        self._values = {"PMI_process_mapping": mapping} if mapping else {}
        self._answers = {
            "init": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
            "get_maxes": "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024",  # as MPICH's own managers say
            "get_appnum": "cmd=appnum appnum=0",
            "get_my_kvsname": f"cmd=my_kvsname kvsname={self.name}",
            "get_universe_size": f"cmd=universe_size size={self.size}",
            "finalize": "cmd=finalize_ack rc=0",
        }
        self._at_barrier: list[socket.socket] = []
        self._conversations: list[tuple[socket.socket, threading.Thread]] = []
        self._lock = threading.Lock()

    def member(self, rank: int) -> tuple[dict[str, str], socket.socket]:
        """A rank's variables, and the socket that it must inherit; the caller closes its own copy after the start."""
        ours, theirs = socket.socketpair()
        thread = threading.Thread(target=self._serve, args=[ours], name=f"pmi-{rank}", daemon=True)
        self._conversations.append((ours, thread))
        thread.start()
        return {"PMI_RANK": str(rank), "PMI_SIZE": str(self.size), "PMI_FD": str(theirs.fileno())}, theirs

    def close(self) -> None:
        """Stop answering, and remove what killed ranks left. Ranks that are still there see the end of the file."""
        for ours, thread in self._conversations:
            with suppress(OSError):  # it has ended already
                ours.shutdown(socket.SHUT_RDWR)
            thread.join()
        remove_shared_memory(self.shared_memory_names)

    @property
    def shared_memory_names(self) -> list[str]:
        """Patterns of what MPICH keeps in shared memory, and removes as it finalises, which killed ranks never do."""
        number = 2166136261  # MPICH's number of a world: FNV-1a of its name
        for byte in self.name.encode():
            number = (number ^ byte) * 16777619 % 2**32
        return [f"mpich_{kind}_{number:x}_*" for kind in ("shm", "vci")]

    def _serve(self, member: socket.socket) -> None:
        """Hold the conversation with a rank, line by line, until it ends."""
        with suppress(OSError), member, member.makefile(errors="replace") as lines:
            for line in lines:
                with self._lock:
                    answer = self._answer(member, line)
                if answer:
                    _say(member, answer)

    def _answer(self, member: socket.socket, line: str) -> str | None:
        """The reply to one line, ``cmd=NAME key=value …``."""
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        match words.get("cmd"):
            case "put":
                self._values[words.get("key", "")] = words.get("value", "")
                return "cmd=put_result rc=0 msg=success"
            case "get" if (value := self._values.get(words.get("key", ""))) is not None:
                return f"cmd=get_result rc=0 msg=success value={value}"
            case "get":
                return "cmd=get_result rc=-1 msg=key_not_found value=unknown"
            case "barrier_in":
                self._at_barrier.append(member)
                if len(self._at_barrier) == self.size:
                    for waiting in self._at_barrier:
                        _say(waiting, "cmd=barrier_out rc=0")
                    self._at_barrier.clear()
                return None
            case "abort":
                return None  # the rank ends itself; the launcher sees its exit
            case command:
                return self._answers.get(command or "", f"cmd={command}_result rc=-1 msg=unknown_command")


def world(plan: LaunchPlan) -> MpiWorld | None:
    """The MPI world of a plan's processes, None for a plan without one."""
    return MpiWorld(len(plan.processes), process_mapping(plan)) if plan.mpi else None


def process_mapping(plan: LaunchPlan) -> str | None:
    """``(vector,(first node, nodes, ranks on each))``; None unless ranks fill the nodes evenly and in order."""
    nodes = [process.node for process in plan.processes]
    per_node = Counter(nodes)
    each = per_node[nodes[0]]
    if nodes != [node for node in range(len(per_node)) for _ in range(each)]:
        return None
    return f"(vector,(0,{len(per_node)},{each}))"


def _say(member: socket.socket, line: str) -> None:
    with suppress(OSError):  # it has ended; the launcher will notice
        member.sendall(line.encode() + b"\n")
