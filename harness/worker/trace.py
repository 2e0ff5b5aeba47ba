"""A trace of a few steps: when layers compute, and when gradients and parameters leave, arrive and are applied.

Traced steps come after the measured window, and what notes them is put in place after it: a measured step costs the same.
Each process notes by a clock of its own. Rank 0 asks all of them for it, before and after the steps (``offsets``).
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Any, Dict, Tuple

from harness.worker import emulation
from harness.worker.agent.seating import name_of
from harness.worker.job import Job
from harness.worker.network import listen
from harness.worker.notes import Notes
from harness.worker.trainer import Trainer

LEAD, TAIL = 1, 1  # steps before those to trace, in which the pipeline fills, and after them, in which it empties
LOOKS = 16  # at each clock
CLOCKS = struct.Struct("dd")
PATIENCE_S = 60.0


class Echo:
    """Answers with this process's clock whoever asks, until the process ends; on its planned address alone."""

    def __init__(self, job: Job) -> None:
        self._listener = listen(job.process["address"], port_of(job, job.process))
        threading.Thread(target=self._answer, name="clock", daemon=True).start()

    def _answer(self) -> None:
        while True:
            asking, _ = self._listener.accept()
            with asking, suppress(OSError):  # who asked may be gone
                asking.settimeout(PATIENCE_S)
                asking.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while asking.recv(1):
                    asking.sendall(CLOCKS.pack(time.perf_counter(), time.time()))


def port_of(job: Job, process: Dict[str, Any]) -> int:
    """The port at which a process of the plan tells the time: behind all that are planned."""
    return int(process["port"]) + len(job.plan["processes"])


def offsets(job: Job) -> Dict[str, Tuple[float, float, float, float]]:
    """For each process: a time of this clock, what the process's clock and its time of day are ahead of it, and how far
    these may be off; all in seconds.

    A clock is read between a question and its answer, so their middle is off by half of what lies between them at most.
    Of several questions that with the fastest answer counts (Cristian 1989, doi:10.1007/BF01784024).
    """
    seen = {}
    for process in job.plan["processes"]:
        with socket.create_connection((process["address"], port_of(job, process)), timeout=PATIENCE_S) as asked:
            asked.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            looks = []
            for _ in range(LOOKS):
                begin = time.perf_counter()
                asked.sendall(b"?")
                there = CLOCKS.unpack(asked.recv(CLOCKS.size, socket.MSG_WAITALL))
                end = time.perf_counter()
                looks.append(((end - begin) / 2, (begin + end) / 2, there))
        error, middle, (clock, day) = min(looks)
        seen[name_of(process)] = (middle, clock - middle, day - middle, error)
    return seen


def trace(trainer: Trainer, job: Job, notes: Notes) -> Dict[str, Any]:
    """Trace steps after the measured ones, all workers together. Returns the fields of the event to emit.

    ``marks_s`` are taken on this host as each step begins, and when the last has ended. A GPU ends each step before the
    next begins, so that its events lie between its marks.
    """
    clocks, marks = [], []
    trainer.barrier()
    if job.rank == 0:
        clocks.append(offsets(job))
    if job.emulation:
        emulation.note_in(notes, job)
    trainer.trace(notes)
    trainer.barrier()
    for step in range(LEAD + job.traced_steps + TAIL):
        notes.step = step
        marks.append(time.perf_counter())
        trainer.step()
        trainer.synchronize()
    marks.append(time.perf_counter())
    trainer.barrier()
    if job.rank == 0:
        clocks.append(offsets(job))
    trainer.barrier()
    return {"marks_s": marks, "clocks": clocks, **fields(notes)}


def fields(notes: Notes) -> Dict[str, Any]:
    """The notes of a process as fields of an event."""
    return {"events": notes.events(), "missing": notes.missing}
