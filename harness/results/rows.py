"""A record of a measurement as a row: a dictionary by the names of ``columns.COLUMNS``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from harness.core.spec import SYNTHETIC, RunSpec
from harness.records.measurement import Record, Seen

_AS_IN_SPEC = (
    *("backend", "framework", "transport", "model", "nodes", "devices_per_node", "workers", "batch_size"),
    *("image_size", "device", "precision", "threads", "warmup_steps", "steps"),
)
# Fields of a spec that change neither what is measured nor how.
_IRRELEVANT = {"repeats", "timeout_s", "straggler_limit", "save_parameters"}
_LABELS = {"tensorflow": "TensorFlow", "torch": "PyTorch", "caffe2": "Caffe2"}
_BROUGHT_BY = {"caffe2": "torch"}  # a framework that is no package of its own, and the package that has it
# Variables that differ from job to job, and say nothing about the machine.
_PER_JOB = re.compile(r"SLURM_JOB_ID|PMIX?_\w+")
_sorted_json = json.JSONEncoder(sort_keys=True).encode  # json.dumps would make a new encoder each time


def row(record: Record, source: Path | str) -> dict[str, Any]:
    """A record as a row, without what depends on the backends that are installed (see ``columns.as_backends_say``)."""
    spec, seen = record.spec, record.seen
    common = {name: getattr(spec, name) for name in _AS_IN_SPEC} | {
        "origin": "measured",
        "source": str(source),
        "id": record.id,
        "status": record.status,
        "reason": record.reason,
        "system": record.site or record.machine.get("host") or "",
        "processor": _processor(record),
        "software": _software(record),
        "ps": int(spec.options.get("ps", 0)),
        "data": _data(spec),
        "options": _sorted_json({key: value for key, value in spec.options.items() if key != "ps"}),
        "spec": _sorted_json(spec.model_dump(exclude=_IRRELEVANT)),  # equal texts for equal measurements
        "started": record.started,
        "ended": record.ended,
        "environment": _sorted_json(_environment(record, seen)),
    }
    if record.derived is None:
        return common
    throughput, steps = record.derived.img_per_s, record.derived.step_times
    return common | {
        "img_per_s": throughput.mean,
        "stdev": throughput.stdev,
        "ci95": throughput.ci95,
        "values": list(throughput.values),
        "step_p50_s": steps.p50_s,
        "step_p99_s": steps.p99_s,
        "jitter_s": steps.jitter_s,
        "slowest_rank": steps.slowest_rank,
        "slowest_over_median": steps.slowest_over_median,
        "transport_seen": seen.transports[0],
        "sent_bytes_per_step": seen.sent_bytes_per_step,
        "received_bytes_per_step": seen.received_bytes_per_step,
    }


def _data(spec: RunSpec) -> str:
    """``synthetic``, ``real``, or ``real, cold cache``: images in memory and images on disk are two kinds of data."""
    if spec.data == SYNTHETIC:
        return "synthetic"
    return "real" if spec.data_cache == "as_found" else f"real, {spec.data_cache} cache"


def _processor(record: Record) -> str:
    gpus = record.machine.get("gpus") or []
    if record.spec.device == "cuda" and gpus:
        return str(gpus[0]["name"])
    return str(record.machine.get("cpu") or "")


def _software(record: Record) -> str:
    """``PyTorch 2.13.0+cpu, Horovod 0.28.1``, ``Caffe2 (PyTorch 1.10.2)``."""
    packages = record.software.get("packages", {})
    framework, backend = record.spec.framework or "", record.spec.backend
    package = _BROUGHT_BY.get(framework, framework)
    version = next((packages[name] for name in (package, f"{package}-cpu", f"{package}_cpu") if name in packages), "")
    text = f"{_LABELS.get(package, package)} {version}".strip()
    if package != framework:
        text = f"{_LABELS[framework]} ({text})"
    return f"{text}, {backend.capitalize()} {packages[backend]}" if backend in packages else text


def _environment(record: Record, seen: Seen) -> dict[str, str]:
    """What may explain a difference between two runs, flat: ``package torch``, ``machine kernel``, ``variable OMP_…``."""
    machine = {key: value for key, value in record.machine.items() if key not in ("host", "gpus")}
    for gpu in (record.machine.get("gpus") or [])[:1]:
        machine |= {f"gpu {key}": value for key, value in gpu.items()}
    facts = {
        "site": record.site,
        "nodes": ", ".join(seen.hosts),
        "python": record.software.get("python"),
        "harness": f"{record.harness.get('version')} {record.harness.get('commit') or ''}".strip(),
        "gradients": "; ".join(sorted(seen.transports)),
        **{f"package {name}": version for name, version in record.software.get("packages", {}).items()},
        **{f"machine {name}": value for name, value in machine.items()},
        **{f"variable {name}": value for name, value in record.variables.items() if not _PER_JOB.fullmatch(name)},
    }
    return {name: str(value) for name, value in facts.items() if value not in ("", None)}
