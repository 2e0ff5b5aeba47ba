"""Devices that wait instead of computing: a stream of deadlines, layers that take their time on it, and how it was kept.

The definitions beside this file have the signatures of those in ``harness.models``, so trainers do not know of them. A
layer waits for its parameters and for its time; its gradient exists when its time in the backward pass has passed. The
framework decides which of them overlap.

The gradient of a device is known, so that sums and means can be proven: that of ``f / 2 · (w + 1)²`` for each parameter w.
``f`` is ``2 (number + 1) / (devices + 1)``, which is another one for each device, and 1 on average. Losses mean nothing.
"""

from __future__ import annotations

import ctypes
import importlib
import itertools
import os
import re
import subprocess
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from harness import models
from harness.worker.job import Job
from harness.worker.network import interface_of
from harness.worker.notes import BACKWARD, FORWARD, Notes

INTER_OP_THREADS = 4  # of TensorFlow, for each device: a layer that waits holds one
FORKED = "HARNESS_FORKED"  # the variable that says that a process was forked from one that had imported the framework
SLICES = 20  # of a step, in each of which the machine's load is looked at
RATE, UNITS = re.compile(r"\brate ([\d.]+)([KMGT]?)bit\b"), {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
PR_SET_TIMERSLACK = 29  # linux/prctl.h
_numbers = itertools.count()
_streams: List[Stream] = []
_precise = threading.local()


class TimedUnit(NamedTuple):
    """A kernel and the small tensors behind it, by name: one layer. Real seconds that it takes on the device."""

    tensors: Tuple[str, ...]
    forward_s: float
    backward_s: float


def definition(job: Job, framework: str) -> Callable[..., Any]:
    """The model's ``build`` in a framework: that of ``harness.models``, or one whose layers only take their time."""
    if not job.emulation:
        return models.definition(job.spec["model"], framework)
    return partial(importlib.import_module(f"{__name__}.{framework}").build, job)


def units(job: Job) -> List[TimedUnit]:
    """The layers in creation order. A pass's time is spread over them by their multiply-adds."""
    specification, facts = job.specification, job.emulation
    multiply_adds = specification.multiply_adds(job.spec["image_size"])
    step_s = facts["step_s"] * job.spec["dilation"] / sum(multiply_adds)
    forward_s, backward_s = step_s * facts["forward_share"], step_s * (1 - facts["forward_share"])
    layers: List[Tuple[List[str], int]] = []
    for tensor, count in zip(specification.tensors, multiply_adds):
        if count:
            layers.append(([], count))
        layers[-1][0].append(tensor.name)
    return [TimedUnit(tuple(names), count * forward_s, count * backward_s) for names, count in layers]


class Stream:
    """One device of this process: its work in order, each piece with an absolute deadline, so that delays never add up.

    ``clock`` gives seconds. ``gradient_factor`` is the device's ``f``.
    """

    def __init__(self, job: Job, clock: Callable[[], float] = time.monotonic) -> None:
        number = job.rank * job.devices + next(_numbers) % job.devices
        self.gradient_factor = 2 * (number + 1) / (job.world_size * job.devices + 1)
        self.clock = clock
        self._layers = len(units(job))
        self.note: Callable[[int, float], None] = lambda layer, took_s: None
        self.reset()
        _streams.append(self)

    def reset(self) -> None:
        self._free = 0.0
        self._done = 0
        self.computed_s = 0.0
        self.late_s: List[float] = []
        # Before each layer of the forward pass; in the backward pass nothing is awaited.
        self.stalls_s = [0.0] * self._layers

    def run(self, ready: float, seconds: float) -> None:
        """Wait for work of ``seconds`` to end, which begins when its inputs are ``ready`` and earlier work has ended."""
        if not hasattr(_precise, "set"):
            _precise.set = ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0)  # 1 µs instead of 50
        begin = max(self._free, ready)
        layer = self._done % (2 * self._layers)
        if self._free and layer < self._layers:
            self.stalls_s[layer] += begin - self._free
        self._done += 1
        self._free = begin + seconds
        remaining = self._free - self.clock()
        if remaining > 0:
            time.sleep(remaining)
        now = self.clock()
        late_s = now - self._free
        self.late_s.append(late_s)
        self.computed_s += seconds + late_s
        self.note(layer, now - begin)


def note_in(notes: Notes, job: Job) -> None:
    """Have this process's devices note when their layers begin and end, each named by its first tensor."""
    names = [unit.tensors[0] for unit in units(job)]

    def note(layer: int, took_s: float) -> None:
        now, is_forward = notes.now(), layer < len(names)
        name = names[layer if is_forward else 2 * len(names) - 1 - layer]
        notes.note(FORWARD if is_forward else BACKWARD, name, now - took_s, now)

    for stream in _streams:
        stream.note = note


class CoreWatch:
    """Looks at how the machine and the device keep up from ``begin`` to ``report``. A thread reads the machine's load."""

    def __init__(self, job: Job) -> None:
        self._slice_s = job.emulation["step_s"] * job.spec["dilation"] / SLICES
        self._link_bytes_per_s = link_limit(interface_of(job.process["address"]))
        self._ended = threading.Event()
        self._busy: List[float] = []

    def begin(self) -> None:
        for stream in _streams:
            stream.reset()
        self._segments = _segments()
        threading.Thread(target=self._look, name="load", daemon=True).start()

    def report(self) -> Dict[str, Any]:
        """The fields of ``harness.core.emulation.Kept``."""
        self._ended.set()
        late_s = sorted(delay for stream in _streams for delay in stream.late_s)
        sent, resent = (after - before for before, after in zip(self._segments, _segments()))
        return {
            "busy": self._busy,
            "late_sum_s": sum(delay for delay in late_s if delay > 0),
            "late_p99_s": late_s[int(0.99 * len(late_s))] if late_s else 0.0,
            "stalled_s": sum(map(sum, (stream.stalls_s for stream in _streams))),
            "stalls_s": [round(seconds, 4) for seconds in _streams[0].stalls_s] if _streams else [],
            "computed_s": sum(stream.computed_s for stream in _streams),
            "sent": sent,
            "resent": resent,
            "link_bytes_per_s": self._link_bytes_per_s,
            "forked": FORKED in os.environ,
        }

    def _look(self) -> None:
        before = _cores()
        while not self._ended.wait(self._slice_s):
            now = _cores()
            idle, all_ = (after - earlier for earlier, after in zip(before, now))
            self._busy.append(round(1 - idle / max(1, all_), 3))
            before = now


def _cores() -> Tuple[int, int]:
    """Time that all cores were idle, and all of their time, the hypervisor's share included (proc(5), in ticks)."""
    times = [int(ticks) for ticks in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return times[3] + times[4], sum(times)


def link_limit(interface: str) -> Optional[float]:
    """The limit of an interface that ``tc`` shows, in bytes/s; None without a limit.

    It is a token bucket, or the fastest class: others are within it, such as those that share a link out among peers.
    """
    for kind in ("qdisc", "class"):
        with suppress(OSError, subprocess.SubprocessError):
            command = ["tc", kind, "show", "dev", interface]
            shown = subprocess.run(command, capture_output=True, check=True, timeout=10, text=True).stdout
            if rates := [float(number) * UNITS[unit] / 8 for number, unit in RATE.findall(shown)]:
                return max(rates)
    return None


def _segments() -> Tuple[int, int]:
    """TCP segments that were sent and sent again in this network namespace (RFC 1213's tcpOutSegs and tcpRetransSegs)."""
    with suppress(OSError, KeyError, ValueError):
        lines = Path("/proc/self/net/snmp").read_text().splitlines()
        names, values = (line.split() for line in lines if line.startswith("Tcp:"))
        counts = dict(zip(names, values))
        return int(counts["OutSegs"]), int(counts["RetransSegs"])
    return 0, 0
