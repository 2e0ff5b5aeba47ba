"""Entry point of every process of a run: ``python main.py --run DIR --repeat K --index I``.

It runs in the backend's environment, where ``harness`` is not installed (see ``bootstrap.py``).
"""

from __future__ import annotations

import gc
import importlib.util
import os
import socket
import sys
import threading
import traceback
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Callable, List, NoReturn, Optional

import numpy as np

# At import: processes that a trainer spawns import this module first, and need the package too.
sys.path.insert(0, str(Path(__file__).resolve().parent))
import bootstrap  # noqa: F401

from harness.worker import kernel, machine, proc
from harness.worker.emulation import CoreWatch
from harness.worker.energy import meter
from harness.worker.gpus import EVERY_MS, EVERY_MS_OF_TRAININGS, GpuWatch
from harness.worker.job import Job
from harness.worker.loop import measure
from harness.worker.network import listen
from harness.worker.notes import Notes
from harness.worker.process import Events, end_with_launcher, parser, remove_sockets
from harness.worker.steady import settled
from harness.worker.trace import Echo, fields, trace
from harness.worker.trainer import Learner, Trainer
from harness.worker.training import train

LEAVE_S = 60.0  # MPICH 4.0.2 over UCX 1.13.1 (Debian 12's) does not return from one MPI_Finalize in ten on busy cores


def run_process(run_dir: Path, repeat: int, index: int) -> int:
    """Be a process of the plan. Returns its exit code."""
    job = Job.load(run_dir, repeat, index)
    events = Events(job.repeat_dir / "events" / f"{job.name}.jsonl")
    events.emit("started", pid=os.getpid(), host=socket.gethostname())
    try:
        # Servers may share a port without an error (gRPC does), and then the world falls apart. So look first.
        listen(job.process["address"], job.process["port"]).close()
        if job.traced_steps:
            _kept.append(Echo(job))
        trainer_module = load_trainer(job.plan["trainer"])
        if job.process["role"] == "ps":
            if notes := trainer_module.serve(job, lambda: _ready(events)):
                events.emit("trace", **fields(notes))
        elif job.kernel:
            _kernel(job, events, trainer_module)
        else:
            _work(job, events, trainer_module)
        events.emit("closed")
        return 0
    except BaseException as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        summary = " ".join(lines[:2]) or type(error).__name__
        with suppress(OSError):  # a full disk may be the very error; then the exit code has to do
            traceback.print_exc()
        with suppress(OSError):
            events.emit("error", type=type(error).__name__, message=summary[:500])
        return 1


def load_trainer(path: str) -> Any:
    """A trainer is loaded by its file, so that it may come from any package.

    Until the process is ready there is no search for garbage: a framework makes a million objects that stay, and looking
    at them again and again takes a fifth of its start. The measured loop has Python's usual collector.
    """
    gc.disable()
    spec = importlib.util.spec_from_file_location("harness_trainer", path)
    assert spec and spec.loader
    sys.modules["harness_trainer"] = trainer_module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(trainer_module)
    return trainer_module


def _ready(events: Events) -> None:
    gc.enable()
    events.emit("ready")


# Trainers are never taken apart: at their end TensorFlow's sessions and callables talk to the servers, and may wait for
# ever for one that has gone. ``os._exit`` comes first.
_kept: List[Any] = []


def _work(job: Job, events: Events, trainer_module: Any) -> None:
    cache = job.cache_images() if job.real_data else {}
    trainer = trainer_module.create(job)
    _kept.append(trainer)
    trainer.setup()
    _ready(events)
    gpus = _watch(job, EVERY_MS_OF_TRAININGS if job.training else EVERY_MS)
    trainer.barrier()
    if job.training:
        gpus.begin()
        state = train(trainer, job, events, meter(job.plan, job.process))
        seen = gpus.end()
    else:
        warmup, steps = job.spec["warmup_steps"], job.spec["steps"]
        watch = CoreWatch(job) if job.emulation else None

        def announce(phase: str, step_s: float) -> None:
            events.emit(phase, step_s=step_s)
            if watch and phase == "window":
                watch.begin()
            if phase == "window":
                gpus.begin()
                if cache:
                    cache["data_cache"]["read_bytes"] = -proc.read_bytes()

        # The waits in place of an emulated device say nothing about its energy.
        gauge = None if watch else meter(job.plan, job.process)
        of_cores = job.run_dir if gauge and job.spec["device"] == "cpu" else None
        window = measure(trainer, warmup, steps, announce, gauge, _settled(trainer, job), of_cores)
        if cache:
            cache["data_cache"]["read_bytes"] += proc.read_bytes()
        events.emit("measured", **asdict(window), kept=watch.report() if watch else None)
        seen = gpus.end()
        state = trainer.state()
    if job.spec["save_parameters"]:
        np.savez(job.repeat_dir / f"parameters-{job.rank}.npz", **state.parameters)  # type: ignore[arg-type]
    events.emit("evidence", **state.evidence(job), **cache, **seen)
    if job.traced_steps:
        events.emit("trace", **trace(trainer, job, Notes(job.name)))
    _leave(job, events, trainer)


def _settled(trainer: Trainer, job: Job) -> Optional[Callable[[List[float]], bool]]:
    """The test of ``--warmup auto``: the steps so far are steady on all workers, who agree on it."""
    if not job.spec.get("warmup_auto"):
        return None
    if not isinstance(trainer, Learner):
        raise TypeError(
            f"{job.spec['backend']}: its workers cannot agree on when steps are steady; give --warmup a number"
        )

    def all_settled(durations_s: List[float]) -> bool:
        is_settled = settled(durations_s, scatters=not job.emulation or job.real_data)
        return is_settled is not None and not any(trainer.total([float(not is_settled)]))

    return all_settled


def _kernel(job: Job, events: Events, fabric_module: Any) -> None:
    fabric = fabric_module.create(job)
    _kept.append(fabric)
    _ready(events)
    gpus = _watch(job, EVERY_MS)
    gpus.begin()
    fabric.barrier()
    evidence = kernel.run(job, events, fabric, meter(job.plan, job.process))
    events.emit("evidence", **evidence, **gpus.end())
    _leave(job, events, fabric)


def _watch(job: Job, every_ms: int) -> GpuWatch:
    return GpuWatch(os.environ["CUDA_VISIBLE_DEVICES"] if job.spec["device"] == "cuda" else "", every_ms)


def _leave(job: Job, events: Events, joined: Any) -> None:
    """Note the machine and the software, and leave the trainer's or the fabric's world."""
    if job.rank == 0:
        facts = {"machine": machine.describe(), "variables": machine.relevant_variables(os.environ)}
        events.emit("software", **machine.software(), **facts)
    joined.barrier()  # nobody leaves, and no server ends, while a worker still reads parameters
    late = threading.Timer(LEAVE_S, _leave_late, [events])
    late.daemon = True
    late.start()
    joined.close()
    late.cancel()


def _leave_late(events: Events) -> None:
    """End a process that has reported all measurements, and that its library does not let go."""
    print(f"harness: ended {LEAVE_S:.0f} s after its last barrier: its library's end (MPI_Finalize) has not returned")
    events.emit("closed")
    _end(0)


def _main() -> None:
    arguments = parser("--index").parse_args()
    end_with_launcher()
    _end(run_process(arguments.run, arguments.repeat, arguments.index))


def _end(code: int) -> NoReturn:
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    remove_sockets()
    # Frameworks keep threads that can block an orderly exit after a failed peer; everything of ours is on disk by now.
    os._exit(code)


if __name__ == "__main__":
    _main()
