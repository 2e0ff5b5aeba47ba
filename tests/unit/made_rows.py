"""Results with chosen figures, for tests of what is made of results. Nothing that measures is tested so."""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from harness.results.result import Result

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
HOROVOD = {
    "backend": "horovod",
    "family": "toolkit",
    "software": "TensorFlow 2.16.1, Horovod 0.28.1",
    "transport": "mpi",
    "options": {"fusion_mb": 64},
}
SERVERS = {"options": {"placement": "greedy", "sync": "accumulate"}, "ps": 1}
CONTROL = {"backend": "multi_worker_mirrored", "family": "collectives"}
_NUMBERS = itertools.count(1)


def run(workers: int, img_per_s: Sequence[float] | float, **fields: Any) -> dict[str, Any]:
    """The fields of a result with these throughputs of its repeats, or a published mean; parameter servers on daint:gpu
    unless told.
    """
    values = list(img_per_s) if isinstance(img_per_s, Sequence) else []
    mean = sum(values) / len(values) if values else float(img_per_s)  # type: ignore[arg-type]
    number = next(_NUMBERS)
    usual = {
        "origin": "measured",
        "source": f"runs/{number}/record.json",
        "id": f"run-{number}",
        "status": "completed",
        "system": "daint:gpu",
        "processor": "Tesla P100",
        "backend": "parameter_server",
        "family": "parameter_servers",
        "framework": "tensorflow",
        "software": "TensorFlow 2.16.1",
        "transport": "grpc",
        "model": "inception3",
        "nodes": -(-workers // fields.get("devices_per_node", 1)),
        "devices_per_node": 1,
        "workers": workers,
        "batch_size": 64,
        "image_size": 299,
        "data": "synthetic",
        "device": "cuda",
        "precision": "fp32",
        "threads": 12,
        "warmup_steps": 10,
        "steps": 100,
        "rate": mean,
        "ci95": math.nan,
        "values": tuple(values),
        "jobs": tuple(f"{number}.{repeat}" for repeat in range(len(values))),  # each repeat in a job of its own
        "started": "2026-01-01T00:00:00.000+00:00",
    }
    return usual | fields


def listed(rows: Iterable[dict[str, Any]]) -> list[Result]:
    return [Result(**row) for row in rows]
