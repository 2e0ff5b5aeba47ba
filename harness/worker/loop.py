"""The measured loop: the only place where the suite takes the time of what becomes img/s.

Every backend trains through this function, so img/s means the same for all of them:

    img/s of a repeat = workers × images per device and step / time of a steady step

which follows from the marks that are taken here (``steady.py``). The window opens after a barrier of all workers and closes
after a second one, which a worker enters only when its device has finished the last step. Each worker reads one monotonic
clock of its own; no clocks of different hosts are compared.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

from harness.worker import cores, traffic
from harness.worker.energy import Meter
from harness.worker.trainer import Trainer


@dataclass(frozen=True)
class Window:
    """One worker's raw times, in seconds from the opening of its window.

    ``marks_s`` has ``steps + 1`` entries, the first taken as the window opens, then one as each step ends: on a CPU when
    ``step`` returns, on a GPU when the device passes that point. ``finished_s`` is when this worker's device was done,
    ``window_s`` when all workers' devices were. ``network`` is what this process moved over TCP meanwhile (None: not
    known), ``servers`` what each parameter server did (bytes sent and received; known to rank 0). ``energy`` is what the
    counters of this node said, ``cores`` how busy its cores were (None: another rank reads them, or nobody).
    ``warmup_steps`` were made before.
    """

    marks_s: List[float]
    finished_s: float
    window_s: float
    network: Optional[traffic.Traffic]
    servers: List[Tuple[int, int]]
    energy: Optional[Dict[str, Any]]
    warmup_steps: int
    cores: Optional[Dict[str, Any]] = None


def measure(
    trainer: Trainer,
    warmup_steps: int,
    steps: int,
    announce: Callable[..., None],
    meter: Optional[Meter] = None,
    settled: Optional[Callable[[List[float]], bool]] = None,
    run_dir: Optional[Path] = None,
) -> Window:
    """Train ``warmup_steps`` steps, then ``steps`` measured ones, and return the raw times.

    Warm-up ends sooner if ``settled`` says so of the seconds of its steps so far, at the same step on all workers.

    ``announce(phase, step_s=…)`` is called outside the window only, with the seconds that a warm-up step took. The
    ``meter`` and, of a run in ``run_dir`` on CPUs, its cores are read just before it opens and just after it has closed.
    """
    announce("warmup", step_s=0.0)
    began = time.perf_counter()
    ends = [began]
    for step in range(1, warmup_steps + 1):
        trainer.step()
        if settled:
            trainer.synchronize()
            ends.append(time.perf_counter())
            if settled([after - before for before, after in zip(ends, ends[1:])]):
                warmup_steps = step
                break
    trainer.synchronize()
    announce("window", step_s=(time.perf_counter() - began) / max(warmup_steps, 1))

    marks = trainer.marks(steps + 1)
    trainer.barrier()  # everybody stands still while bytes are counted
    network, servers = traffic.look(), trainer.server_bytes()
    busy = cores.read(run_dir) if run_dir else None
    energy = meter.read() if meter else None
    trainer.barrier()
    opened = time.perf_counter()
    marks.take(0)
    for step in range(1, steps + 1):
        trainer.step()
        marks.take(step)
    trainer.synchronize()
    finished = time.perf_counter()
    trainer.barrier()
    closed = time.perf_counter()
    used = meter.between(energy, meter.read()) if meter and energy else None
    load = cores.between(busy, cores.read(run_dir)) if run_dir else None
    moved = traffic.between(network, traffic.look())
    served = [
        (sent - sent_before, received - received_before)
        for (sent_before, received_before), (sent, received) in zip(servers, trainer.server_bytes())
    ]
    trainer.barrier()

    return Window(marks.seconds(), finished - opened, closed - opened, moved, served, used, warmup_steps, load)
