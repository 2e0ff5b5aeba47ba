"""A kernel beside its framework: each size in turn, by the loop that measures training, and whether results are right."""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite
from types import SimpleNamespace
from typing import Any, Dict, Optional, cast

from harness import kernels
from harness.worker.energy import Meter
from harness.worker.fabric import Fabric
from harness.worker.job import Job
from harness.worker.loop import measure
from harness.worker.process import Events
from harness.worker.trainer import Trainer


def run(job: Job, events: Events, fabric: Fabric, meter: Optional[Meter] = None) -> Dict[str, Any]:
    """Measure and check every size, or a smaller one (see ``Kernel.size``). Returns this rank's evidence."""
    name = job.kernel["name"]
    kernel, body = kernels.specification(name), kernels.body(name, fabric.servers)
    warmup, steps = job.spec["warmup_steps"], job.spec["steps"]
    for size in kernel.sizes(job.kernel["sizes"], fabric.size):
        work = body(fabric, size, job.spec["seed"])
        stepped = SimpleNamespace(  # the attributes of a ``Trainer`` that the loop uses
            marks=fabric.marks,
            step=work.step,
            synchronize=fabric.synchronize,
            barrier=fabric.barrier,
            server_bytes=list,
        )
        window = measure(cast(Trainer, stepped), warmup, steps, events.emit, meter)
        times = asdict(window)
        del times["servers"], times["cores"], times["warmup_steps"]
        times["collected_s"] = getattr(work, "collected_s", [])[-steps:]  # without the warm-up
        # This is before a check, which may take other steps. A record cannot hold NaN; the problem says so.
        history = [float(each) for each in getattr(work, "history", list)() if isfinite(each)]
        if kernel.own_times:
            times["own"] = work.own_times(steps)
        events.emit("size", size=size, **times, history=history, problem=work.problem())
    events.emit("measured")
    return {"world_size": fabric.size, "transport": fabric.transport()}
