"""The share of a training step that is its forward pass, measured on this machine."""

import json
import os
import statistics
import subprocess
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from harness import models
from harness.core import backend as backends
from harness.core.plan import complete, with_options
from harness.core.spec import RunSpec, variant_of
from harness.core.statistics import summarise
from harness.environments import require
from harness.errors import InvalidInput, RunFailed
from harness.launch import local

SCRIPT = Path(__file__).parent.parent / "worker" / "split.py"


@dataclass(frozen=True)
class ForwardShare:
    """Median seconds of a forward pass and of a step; the mean share of forward and the half-width of its 95 % interval."""

    forward_s: float
    step_s: float
    share: float
    ci95: float


def device(spec: RunSpec, measured: ForwardShare, command: str) -> str:
    """This machine's device as a file for ``--device emulated:FILE``, in TOML (see ``core/emulation``)."""
    from harness.worker.machine import describe

    machine = describe()
    gpus = machine["gpus"] if spec.device != "cpu" else []
    step = {
        "img_per_s": round(spec.batch_size / measured.step_s, 3),
        "batch_size": spec.batch_size,
        "image_size": spec.image_size or models.specification(spec.model).image_size,
        "source": f"{command}, {date.today()}",
    }
    lines = [f"description = {json.dumps(gpus[0]['name'] if gpus else machine['cpu'])}"]
    lines += [f"forward_share = {measured.share:.3f}", "", f"[{spec.model}]"]
    return "\n".join([*lines, *(f"{name} = {json.dumps(value)}" for name, value in step.items()), ""])


def measure(spec: RunSpec) -> ForwardShare:
    """Measure ``spec`` on one device of this machine, with the backend's environment.

    Raises InvalidInput for a spec that this machine cannot run or whose environment is not built, and RunFailed with the
    last line that the framework said.
    """
    if spec.steps < 2:
        raise InvalidInput(f"--steps {spec.steps}: at least 2 are needed for an interval")
    backend = backends.backend(spec.backend)
    spec = complete(with_options(spec, backend), backend, local.allocation(1, 1, None))
    assert spec.framework is not None
    python = require(backend.environment(spec.framework, variant_of(spec.device)))
    environment = {**os.environ, "OMP_NUM_THREADS": str(spec.threads), "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(
        [str(python), str(SCRIPT)],
        input=spec.model_dump_json(),
        capture_output=True,
        text=True,
        env=environment,
        timeout=spec.timeout_s,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        raise RunFailed(f"measuring forward and backward of {spec.model} with {spec.framework} failed: {last}")
    times = json.loads(done.stdout)
    # They took turns: each pair is one measurement of the share.
    shares = [forward / step for forward, step in zip(times["forward_s"], times["step_s"], strict=True)]
    share = summarise(shares)
    assert share.ci95 is not None
    median = statistics.median
    return ForwardShare(median(times["forward_s"]), median(times["step_s"]), share.mean, share.ci95)
