"""The share of a training step that is its forward pass, measured on this machine."""

import json
import statistics
import subprocess
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from harness.core import backend as backends
from harness.core.plan import complete, with_options
from harness.core.spec import RunSpec
from harness.core.statistics import summarise
from harness.core.text import last_line
from harness.environments import require
from harness.environments.pythons import isolated
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
    """The device that ``spec`` was ``measured`` on, as a file for ``--device emulated:FILE`` (see ``core/emulation``)."""
    from harness.worker.machine import describe

    machine = describe()
    gpus = machine["gpus"] if spec.device == "cuda" else []
    step = {
        "img_per_s": round(spec.batch_size / measured.step_s, 3),
        "batch_size": spec.batch_size,
        "image_size": spec.image_size,
        "source": f"{command}, {date.today()}",
    }
    lines = [f"description = {json.dumps(gpus[0]['name'] if gpus else machine['cpu'])}"]
    lines += [f"forward_share = {measured.share:.3f}", "", f"[{spec.model}]"]
    return "\n".join([*lines, *(f"{name} = {json.dumps(value)}" for name, value in step.items()), ""])


def completed(spec: RunSpec) -> RunSpec:
    """``spec`` as it is measured here. Raises InvalidInput for what cannot be."""
    if spec.steps < 2:
        raise InvalidInput(f"--steps {spec.steps}: at least 2 are needed for an interval")
    if spec.emulated:
        raise InvalidInput(f"--device {spec.device}: its share is what its file says; give cpu or cuda")
    backend = backends.backend(spec.backend)
    return complete(with_options(spec, backend), backend, local.allocation(1, 1, None))


def measure(spec: RunSpec) -> ForwardShare:
    """Measure a ``completed`` spec on one device of this machine, with the backend's environment.

    Raises InvalidInput if that is not built, and RunFailed with the last line that the framework said.
    """
    assert spec.framework is not None
    backend = backends.backend(spec.backend)
    python = require(backend.environment(spec.framework, backend.variant(spec)))
    environment = {**isolated(), "OMP_NUM_THREADS": str(spec.threads), "TF_CPP_MIN_LOG_LEVEL": "2"}
    environment["CUDA_VISIBLE_DEVICES"] = local.local_gpus()[0] if spec.device == "cuda" else ""
    failed = f"measuring forward and backward of {spec.model} with {spec.framework} failed"
    try:
        done = subprocess.run(
            [str(python), str(SCRIPT)],
            input=spec.model_dump_json(),
            capture_output=True,
            text=True,
            env=environment,
            timeout=spec.timeout_s,
        )
    except subprocess.TimeoutExpired:
        raise RunFailed(f"{failed}: it had not ended after {spec.timeout_s:g} s") from None
    if done.returncode:
        raise RunFailed(f"{failed}: {last_line(done.stderr)}")
    times = json.loads(done.stdout)
    # They took turns: each pair is one measurement of the share.
    shares = [forward / step for forward, step in zip(times["forward_s"], times["step_s"], strict=True)]
    share = summarise(shares)
    assert share.ci95 is not None
    median = statistics.median
    return ForwardShare(median(times["forward_s"]), median(times["step_s"]), share.mean, share.ci95)
