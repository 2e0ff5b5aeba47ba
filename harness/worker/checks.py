"""Evidence that the training was real, gathered by each worker after its window; the controller judges it."""

from __future__ import annotations

import hashlib
import math
import platform
from importlib import metadata
from typing import Any, Dict, Union

import numpy as np

from harness import models
from harness.models.initial import initial_value
from harness.worker.job import Job
from harness.worker.trainer import State


def evidence(job: Job, state: State) -> Dict[str, Any]:
    """JSON-ready facts: a digest of all parameters, whether they are finite and changed, the losses, the world's size."""
    specification = models.specification(job.spec["model"])
    digest = hashlib.sha256()
    finite = True
    for tensor in specification.tensors:
        values = np.ascontiguousarray(state.parameters[tensor.name], dtype=np.float32)
        if values.shape != tensor.shape:
            raise RuntimeError(f"{tensor.name} has the shape {values.shape}, the model specifies {tensor.shape}")
        digest.update(values.tobytes())
        finite = finite and bool(np.isfinite(values).all())
    # The last kernel has a gradient from the first step on, whatever the others are initialised to.
    index, last = [pair for pair in enumerate(specification.tensors) if pair[1].name.endswith("kernel")][-1]
    initial = initial_value(last, index, job.spec["seed"])
    return {
        "digest": digest.hexdigest(),
        "finite": finite and all(map(math.isfinite, state.losses)),
        "changed": not np.array_equal(initial, state.parameters[last.name]),
        "loss": _json(state.losses[-1]),
        "losses": [_json(loss) for loss in state.losses],
        "updates": state.updates,
        "world_size": state.world_size,
        "transport": state.transport,
        "device": state.device,
        "details": state.details,
        "input_wait_s": state.input_wait_s[-job.spec["steps"] :],
    }


def _json(number: float) -> Union[float, str]:
    return number if math.isfinite(number) else str(number)


def software() -> Dict[str, Any]:
    """Python and every package of this process's environment, by name."""
    packages = {dist.metadata["Name"]: dist.version for dist in metadata.distributions() if dist.metadata["Name"]}
    return {
        "python": platform.python_version(),
        "packages": dict(sorted(packages.items(), key=lambda kv: kv[0].lower())),
    }
