"""All results in one DataFrame: what we measured and what others published, one row per run, with the same columns.

A *source* is where results come from, as a person names it on the command line:

- a ``record.json``, or a folder with records somewhere below it;
- a CSV file of published measurements (``published.py`` says how it looks);
- ``reference`` for all published measurements that come with harness, ``reference:TEXT`` for those whose system, framework,
  backend, model or source contains TEXT;
- the name of a saved baseline.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.analysis import traffic
from harness.core import backend as backends
from harness.core.spec import OTHER_TRAINING, SYNTHETIC, RunSpec
from harness.errors import InvalidInput
from harness.records.measurement import Record, Status

if TYPE_CHECKING:
    import pandas

REFERENCE = "reference"

# What each column holds. Text is "" and a count 0 where it does not apply or is not known, a figure NaN.
COLUMNS: dict[str, type] = {
    "origin": str,  # "measured" or "published"
    "source": str,  # the record's file, or the publication
    "id": str,
    "status": str,
    "reason": str,
    "system": str,  # the site and partition, else the host; or the published system's name
    "processor": str,
    "backend": str,
    "family": str,  # harness.backend.Family
    "framework": str,
    "software": str,  # the framework and the backend with their versions
    "transport": str,
    "model": str,
    "nodes": int,
    "devices_per_node": int,
    "workers": int,
    "ps": int,
    "batch_size": int,  # per device
    "image_size": int,
    "data": str,  # "synthetic" or "real"
    "device": str,
    "precision": str,
    "threads": int,  # per worker
    "warmup_steps": int,
    "steps": int,
    "training": str,  # options that make it another training: "sync=none"
    "options": str,  # JSON: the backend's own options without ps
    "spec": str,  # JSON: everything that makes two runs the same measurement
    "img_per_s": float,
    "stdev": float,
    "ci95": float,
    "values": list,  # img/s of each repeat
    "published_efficiency": float,  # where only an efficiency was published
    "published_base": int,  # the number of workers that it is relative to
    "step_p50_s": float,
    "step_p99_s": float,
    "jitter_s": float,
    "slowest_rank": int,
    "slowest_over_median": float,  # time of the slowest rank over that of the median rank
    "sent_bytes_per_step": float,  # per worker
    "received_bytes_per_step": float,
    "transport_seen": str,
    "started": str,  # ISO 8601, UTC
    "ended": str,
    "note": str,
    "environment": str,  # JSON: packages, machine, variables, nodes; what may explain a difference
}

# Fields of a spec that change neither what is measured nor how.
_IRRELEVANT = {"repeats", "timeout_s", "straggler_limit", "save_parameters"}
_LABELS = {"tensorflow": "TensorFlow", "torch": "PyTorch", "caffe2": "Caffe2"}
_BROUGHT_BY = {"caffe2": "torch"}  # a framework that is no package of its own, and the package that has it
# Variables that differ from job to job, and say nothing about the machine.
_PER_JOB = re.compile(r"SLURM_JOB_ID|PMIX?_\w+")


def load(
    sources: Sequence[str | Path],
    status: Status | None = "completed",
    told: Callable[[int, int], None] = lambda done, of: None,
) -> pandas.DataFrame:
    """A DataFrame with the columns of ``COLUMNS`` and one row per run in ``sources``, by system, start and id.

    By default only runs that have a number; ``status=None`` gives all. ``told`` hears how many of the records that have to
    be read are read. Raises InvalidInput for a source that does not exist, or a file in it that is not what it should be.
    """
    frames = [_rows_of(str(source), told) for source in sources]
    import pandas  # now, so that a source that does not exist is refused at once

    frame = pandas.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]
    if status is not None:
        frame = frame[frame["status"] == status]
    # A run that is in two sources, such as a folder and the baseline saved from it, is one run.
    frame = frame[~((frame["origin"] == "measured") & frame["id"].duplicated())]
    return frame.sort_values(["started", "id"], kind="stable", ignore_index=True)


def expanded(frame: pandas.DataFrame) -> pandas.DataFrame:
    """``frame`` with each of the backends' own options in a column of its own, named after it; missing where it has none.

    An option that is called like another column gets the column ``option_NAME``.
    """
    import pandas

    which, texts = pandas.factorize(frame["options"])  # few of them are different
    own = [json.loads(text) for text in texts]
    names = dict.fromkeys(name for options in own for name in options)
    columns = {
        f"option_{name}" if name in frame else name: _option([options.get(name) for options in own]).take(which)
        for name in names
    }
    alike = {name: values.set_axis(frame.index) for name, values in columns.items()}
    return pandas.concat([frame.drop(columns="options"), pandas.DataFrame(alike, index=frame.index)], axis=1)


def _option(values: list[Any]) -> pandas.Series:
    """A column that keeps integers and truth values what they are beside missing ones."""
    import pandas

    kinds = {type(value) for value in values if value is not None}
    types: dict[type, str] = {bool: "boolean", int: "Int64", float: "float64", str: "str"}
    return pandas.Series(values, dtype=types.get(kinds.pop(), "object") if len(kinds) == 1 else "object")


def _rows_of(source: str, told: Callable[[int, int], None]) -> pandas.DataFrame:
    from harness.results import baselines, index, published

    if source == REFERENCE or source.startswith(f"{REFERENCE}:"):
        return published.frame(published.select(source.removeprefix(REFERENCE).removeprefix(":")))
    path = Path(source)
    try:
        there = path.exists()
    except OSError as error:  # such as a name that is too long
        raise InvalidInput(f"{source[:60]}…: {error.strerror}") from None
    if not there:
        if saved := baselines.find(source):
            return index.rows(saved, told)
        raise InvalidInput(
            f"{source}: no such file or folder, and no baseline of that name (see `harness baseline list`)"
        )
    if path.suffix == ".csv":
        return published.frame(published.read(path))
    return index.rows(path, told)


def family(backend: str, ps: int) -> backends.Family:
    """On which side of a comparison a backend stands, also one that is not installed here."""
    try:
        return backends.backend(backend).family
    except InvalidInput:
        return "parameter_servers" if ps else "toolkit"


def _other_training(spec: RunSpec) -> str:
    """The same for a run, also with a backend that is not installed here."""
    try:
        return other_training(backends.backend(spec.backend), spec.options)
    except InvalidInput:
        return ""


def other_training(backend: backends.Backend, options: Mapping[str, Any]) -> str:
    """Those ``options`` of which ``backend`` says that they make another training than everyone's synchronous SGD."""
    told = []
    for name, field in backend.options.model_fields.items():
        marked = field.json_schema_extra.get(OTHER_TRAINING) if isinstance(field.json_schema_extra, dict) else None
        if isinstance(marked, list) and options.get(name) in marked:
            told.append(f"{name}={options[name]}")
    return ", ".join(told)


def row(record: Record, source: Path) -> dict[str, Any]:
    """A record as a row."""
    spec = record.spec
    ps = int(spec.options.get("ps", 0))
    found = {
        "origin": "measured",
        "source": str(source),
        "id": record.id,
        "status": record.status,
        "reason": record.reason or "",
        "system": record.site or record.machine.get("host") or "",
        "processor": _processor(record),
        "backend": spec.backend,
        "family": family(spec.backend, ps),
        "framework": spec.framework or "",
        "software": _software(record),
        "transport": spec.transport or "",
        "model": spec.model,
        "nodes": spec.nodes,
        "devices_per_node": spec.devices_per_node,
        "workers": spec.workers,
        "ps": ps,
        "batch_size": spec.batch_size,
        "image_size": spec.image_size or 0,
        "data": _data(spec),
        "device": spec.device,
        "precision": spec.precision,
        "threads": spec.threads,
        "warmup_steps": spec.warmup_steps,
        "steps": spec.steps,
        "training": _other_training(spec),
        "options": json.dumps({key: value for key, value in sorted(spec.options.items()) if key != "ps"}),
        "spec": same_measurement(spec),
        "started": record.started,
        "ended": record.ended,
        "environment": json.dumps(_environment(record), sort_keys=True),
    }
    if record.derived:
        throughput, steps = record.derived.img_per_s, record.derived.step_times
        found |= throughput.model_dump(include={"stdev", "ci95"}) | {"img_per_s": throughput.mean}
        found |= {"values": list(throughput.values), "slowest_rank": steps.slowest_rank}
        found |= {"step_p50_s": steps.p50_s, "step_p99_s": steps.p99_s, "jitter_s": steps.jitter_s}
        found |= {"slowest_over_median": steps.slowest_over_median}
        found["transport_seen"] = record.repeats[0].ranks[0].evidence["transport"]
        if moved := traffic.of_workers(record.repeats, spec.steps):
            found |= {"sent_bytes_per_step": moved.sent, "received_bytes_per_step": moved.received}
    return found


def _data(spec: RunSpec) -> str:
    """``synthetic``, ``real``, or ``real, cold cache``: images in memory and images on disk are two kinds of data."""
    if spec.data == SYNTHETIC:
        return "synthetic"
    return "real" if spec.data_cache == "as_found" else f"real, {spec.data_cache} cache"


def same_measurement(spec: RunSpec) -> str:
    """What two runs must have in common to be the same measurement, as JSON text that is equal for equal ones."""
    return json.dumps(spec.model_dump(exclude=_IRRELEVANT), sort_keys=True)


def _processor(record: Record) -> str:
    gpus = record.machine.get("gpus") or []
    if record.spec.device == "cuda" and gpus:
        return str(gpus[0]["name"])
    return str(record.machine.get("cpu") or "")


def _software(record: Record) -> str:
    """``PyTorch 2.13.0+cpu, Horovod 0.28.1``, ``Caffe2 (PyTorch 1.10.2)``."""
    packages = record.software.get("packages", {})
    framework, own = record.spec.framework or "", record.spec.backend
    package = _BROUGHT_BY.get(framework, framework)
    version = next((packages[name] for name in (package, f"{package}-cpu", f"{package}_cpu") if name in packages), "")
    told = f"{_LABELS.get(package, package)} {version}".strip()
    if package != framework:
        told = f"{_LABELS[framework]} ({told})"
    return f"{told}, {own.capitalize()} {packages[own]}" if own in packages else told


def _environment(record: Record) -> dict[str, str]:
    """What may explain a difference between two runs, flat: ``package torch``, ``machine kernel``, ``variable OMP_…``."""
    machine = {key: value for key, value in record.machine.items() if key not in ("host", "gpus")}
    for gpu in (record.machine.get("gpus") or [])[:1]:
        machine |= {f"gpu {key}": value for key, value in gpu.items()}
    hosts = sorted({rank.host for repeat in record.repeats for rank in repeat.ranks})
    found = {
        "site": record.site or "",
        "nodes": ", ".join(hosts),
        "python": record.software.get("python", ""),
        "harness": f"{record.harness.get('version')} {record.harness.get('commit') or ''}".strip(),
        "gradients": "; ".join(
            sorted({rank.evidence["transport"] for repeat in record.repeats for rank in repeat.ranks})
        ),
        **{f"package {name}": version for name, version in record.software.get("packages", {}).items()},
        **{f"machine {name}": value for name, value in machine.items()},
        **{f"variable {name}": value for name, value in record.variables.items() if not _PER_JOB.fullmatch(name)},
    }
    return {name: str(value) for name, value in found.items() if value not in ("", None)}
