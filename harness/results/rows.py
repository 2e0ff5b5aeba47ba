"""The columns that all results have, measured and published ones, and the row that a record of a measurement is."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.analysis.differences import LENGTH
from harness.analysis.ratios import ALONE
from harness.core import backend as backends
from harness.core import emulation
from harness.core.spec import OTHER_TRAINING, SYNTHETIC
from harness.errors import InvalidInput
from harness.records.measurement import Record
from harness.records.record import AnyRecord
from harness.results.selection import LOCAL

if TYPE_CHECKING:
    import pandas

# What each column holds. Text is "" and a count 0 where it does not apply or is not known, a figure NaN.
COLUMNS: dict[str, type] = {
    "origin": str,  # "measured" or "published"
    "source": str,  # the record's file, or the publication
    "id": str,
    "status": str,
    "reason": str,
    "system": str,  # the site and partition, else the host; or the published system's name
    "site": str,  # the site and partition; "local" where no profile was used; "" if it was published
    "tag": str,  # what --tag said
    "processor": str,
    "backend": str,
    "family": str,  # harness.core.backend.Family
    "framework": str,
    "software": str,  # the framework and the backend with their versions
    "transport": str,
    "mpi": str,  # the MPI library, as it called itself, of runs over MPI whose results have several; else ""
    "model": str,
    "nodes": int,
    "devices_per_node": int,
    "workers": int,
    "ps": int,
    "batch_size": int,  # per device
    "image_size": int,
    "data": str,  # "synthetic" or "real"
    "device": str,
    "dilation": float,  # seconds that pass for a second of an emulated device, else 1
    "precision": str,
    "threads": int,  # per worker
    "warmup_steps": int,
    "steps": int,
    "training": str,  # options that make it another training than everyone's: "sync=none" (see ``other_training``)
    "options": str,  # JSON: the backend's own options without ps
    "spec": str,  # JSON: everything that makes two runs the same measurement
    "img_per_s": float,
    "stdev": float,
    "ci95": float,
    "values": list,  # img/s of each repeat
    "jobs": list,  # the job of each of these (see ``jobs_of``)
    "published_efficiency": float,  # where only an efficiency was published
    "published_base": int,  # the number of workers that it is relative to
    "step_p50_s": float,
    "step_p99_s": float,
    "jitter_s": float,
    "slowest_rank": int,
    "throttled": str,  # why GPUs were slowed down; "" if none was, or nobody looked
    "slowest_over_median": float,  # time of the slowest rank over that of the median rank
    "sent_bytes_per_step": float,  # per worker
    "received_bytes_per_step": float,
    "joules_per_image": float,
    "joules_values": list,  # joules per image of each repeat
    "energy": str,  # what these cover, and who counted: "package (powercap) + memory (powercap)"; "" without a figure
    "energy_note": str,  # why it covers no more, or why there is none
    "transport_seen": str,
    "fingerprint": str,  # JSON: what was computed (``harness.core.fingerprint``); "" where the record does not say
    "started": str,  # ISO 8601, UTC
    "ended": str,
    "note": str,  # of a publication, or what disturbed a run
    "environment": str,  # JSON: packages, machine, variables, nodes; what may explain a difference
}

_EMPTY: dict[type, Any] = {str: "", int: 0, float: float("nan"), list: ()}
_DTYPES = {str: "str", int: "int64", float: "float64", list: "object"}


def frame(rows: Sequence[Mapping[Any, Any]], columns: Mapping[str, type] = COLUMNS) -> pandas.DataFrame:
    """Rows as a DataFrame with all ``columns``. What a row lacks, or has as None, is "", 0, NaN or empty."""
    return joined([listed(rows, columns)], columns)


def listed(rows: Sequence[Mapping[Any, Any]], columns: Mapping[str, type]) -> dict[str, list[Any]]:
    """Rows as a list for each column."""
    return {
        name: [_EMPTY[kind] if (value := row.get(name)) is None else value for row in rows]
        for name, kind in columns.items()
    }


def joined(parts: Sequence[Mapping[str, list[Any]]], columns: Mapping[str, type]) -> pandas.DataFrame:
    """Rows that were ``listed`` part by part, as a DataFrame."""
    import pandas

    values = {name: [*chain.from_iterable(part[name] for part in parts)] for name in columns}
    return pandas.DataFrame(values).astype({name: _DTYPES[kind] for name, kind in columns.items()})


def with_libraries(frame: pandas.DataFrame) -> pandas.DataFrame:
    """``frame`` with the column ``mpi`` as it is where it tells runs apart, else without its values."""
    return frame if len(set(frame["mpi"].unique()) - {""}) > 1 else frame.assign(mpi="").astype({"mpi": "str"})


def as_backends_say(frame: pandas.DataFrame) -> pandas.DataFrame:
    """``frame`` with the two columns that backends decide on, ``family`` and ``training``.

    They are not kept with the rows: a backend may be installed, or change its mind, after a row was made.
    """
    keys = frame[["backend", "ps", "options"]]
    known: list[tuple[str, str]] = []
    for name, ps, options in keys.drop_duplicates().itertuples(index=False):
        try:
            backend = backends.backend(name)
        except InvalidInput:  # it is not installed here
            known.append(("parameter_servers" if ps else "toolkit", ""))
        else:
            known.append((backend.family, other_training(backend, json.loads(options))))
    numbers = keys.groupby(list(keys), sort=False).ngroup()  # in the order of ``known``
    families, trainings = ([known[number][column] for number in numbers] for column in (0, 1))
    return frame.assign(family=families, training=trainings).astype({"family": "str", "training": "str"})


def other_training(backend: backends.Backend, options: Mapping[str, Any]) -> str:
    """Those ``options`` of which ``backend`` says that they make another training than synchronous SGD in float32."""
    different = []
    for name, field in backend.options.model_fields.items():
        marked = field.json_schema_extra.get(OTHER_TRAINING) if isinstance(field.json_schema_extra, dict) else None
        if isinstance(marked, list) and options.get(name) in marked:
            different.append(f"{name}={options[name]}")
    return ", ".join(different)


# --- records -------------------------------------------------------------------------------------

_OF_RECORD = ("id", "status", "reason", "tag", "started", "ended")
_OF_SPEC = (
    *("backend", "framework", "transport", "nodes", "devices_per_node", "workers"),
    *("device", "precision", "threads", "warmup_steps", "steps"),
)
_OF_TRAINING = ("model", "batch_size", "image_size", "dilation")
# Fields of a spec that change neither what is measured nor how.
IRRELEVANT = {"repeats", "timeout_s", "straggler_limit", "save_parameters", "warmup_auto", *LENGTH}
_LABELS = {"tensorflow": "TensorFlow", "torch": "PyTorch", "caffe2": "Caffe2", "jax": "JAX"}
_BROUGHT_BY = {"caffe2": "torch"}  # a framework that is no package of its own, and the package that has it
# Variables that differ from job to job, and say nothing about the machine.
_PER_JOB = re.compile(r"SLURM_JOB_ID|PMIX?_\w+")
sorted_json = json.JSONEncoder(sort_keys=True).encode  # json.dumps would make a new encoder each time


def of_file(path: str) -> dict[str, Any]:
    """The row of a record's file, as of ``row``. Raises InvalidInput."""
    return row(Record.read(Path(path), figures=True), path)


def row(record: Record, source: Path | str) -> dict[str, Any]:
    """A record as a row, without what depends on the backends that are installed (see ``as_backends_say``)."""
    jobs = jobs_of(record.id, [repeat.job for repeat in record.repeats], record.variables.get("SLURM_JOB_ID"))
    common, own = _common(record), _own(record, source, jobs)
    return joined_row(common, own)


def jobs_of(run: str, noted: Sequence[str | None], allocation: str | None) -> list[str]:
    """The job of each repeat of a ``run``, as its record has ``noted`` them. Repeats of one job share nodes and an hour.

    Noted is the batch job, or the session of runs that took turns on one machine. Any other run is a job of its own, or
    belongs to the user's ``allocation`` ($SLURM_JOB_ID), within which it took no turns with another run.
    """
    alone = f"{ALONE}{allocation}" if allocation else run
    return [job or alone for job in noted]


def joined_row(common: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Both halves of a row, each of which has a part of what is in its environment."""
    both = [each["environment"][1:-1] for each in (common, own)]
    environment = f"{{{', '.join(filter(None, both))}}}"
    return common | own | {"environment": sys.intern(environment)}  # what is one object goes to another process once


def _common(record: Record) -> dict[str, Any]:
    """The columns that follow from spec, site, machine, software and variables, and from the MPI library."""
    spec, seen = record.spec, record.seen
    data = "real" if spec.data_cache == "as_found" else f"real, {spec.data_cache} cache"
    common = of_any_record(record, seen.transports)
    common |= {name: getattr(spec, name) for name in _OF_TRAINING}
    common |= {
        "data": "synthetic" if spec.data == SYNTHETIC else data,
        "spec": sorted_json(spec.model_dump(exclude=IRRELEVANT)),  # equal texts for equal measurements
    }
    if spec.emulated:
        device = record.plan["emulation"]["device"]
        common |= {"system": f"{common['system']}, {emulation.system(spec, device, seen.link_bytes_per_s)}"}
        common |= {"processor": f"emulated {device}"}
    return common


def _own(record: Record, source: Path | str, jobs: list[str]) -> dict[str, Any]:
    """The columns that a run has of its own: which one it is, and its figures."""
    derived, seen = record.derived, record.seen
    common = of_any_run(record, source, seen.hosts, seen.transports, seen.throttled)
    if derived is None:
        return common
    throughput, steps, energy = derived.img_per_s, derived.step_times, derived.energy
    used = energy.joules_per_image
    return common | {
        "img_per_s": throughput.mean,
        "values": list(throughput.values),
        "jobs": jobs if len(jobs) == len(throughput.values) else [record.id] * len(throughput.values),
        "step_p50_s": steps.p50_s,
        "step_p99_s": steps.p99_s,
        "transport_seen": seen.transports[0],
        "joules_per_image": used and used.mean,
        "joules_values": list(used.values) if used else [],
        "energy": energy.covers,
        "energy_note": "; ".join(energy.notes),
        "fingerprint": derived.fingerprint.model_dump_json(),
        "note": "; ".join(derived.notes),
        **{name: getattr(throughput, name) for name in ("stdev", "ci95")},
        **{name: getattr(steps, name) for name in ("jitter_s", "slowest_rank", "slowest_over_median")},
        **{name: getattr(seen, name) for name in ("sent_bytes_per_step", "received_bytes_per_step")},
    }


def varied_options(options: Iterable[str]) -> list[str]:
    """The options that differ between runs, from texts of the column ``options``; what a run lacks counts as None."""
    every = [json.loads(text or "{}") for text in options]
    names = dict.fromkeys(name for each in every for name in each)
    return [name for name in names if any(each.get(name) != every[0].get(name) for each in every)]


def of_any_run(
    record: AnyRecord,
    source: Path | str,
    hosts: Sequence[str],
    transports: Iterable[str],
    throttled: Sequence[str],
) -> dict[str, Any]:
    """The columns that say which run it is, on ``hosts`` over ``transports``, whatever was measured."""
    reasons = ", ".join(throttled)
    facts = {"nodes": ", ".join(hosts), "gradients": "; ".join(sorted(transports)), "machine gpu throttled by": reasons}
    return {name: getattr(record, name) for name in _OF_RECORD} | {
        "origin": "measured",
        "source": str(source),
        "throttled": reasons,
        "environment": sorted_json(_known(facts)),
    }


def of_any_record(record: AnyRecord, transports: Iterable[str]) -> dict[str, Any]:
    """The columns that say on what it was measured, whatever that is."""
    spec, machine = record.spec, record.machine
    gpu = (machine.get("gpus") or [{}])[0]
    return {
        **{name: getattr(spec, name) for name in _OF_SPEC},
        "system": record.site or machine.get("host") or "",
        "site": record.site or LOCAL,
        "processor": str(gpu["name"] if spec.device == "cuda" and gpu else machine.get("cpu") or ""),
        "software": _software(record),
        "mpi": _mpi_library(record, transports),
        "ps": int(spec.options.get("ps", 0)),
        "options": sorted_json({key: value for key, value in spec.options.items() if key != "ps"}),
        "environment": sorted_json(_environment(record, gpu)),
    }


def _mpi_library(record: AnyRecord, transports: Iterable[str]) -> str:
    """What carried the gradients called itself, or what was to carry them called itself on the command line."""
    if record.spec.transport != "mpi":
        return ""
    seen = next(iter(transports), "")  # "MPICH 5.0.2 through mpi4py"
    return re.split(r" (?:through|in) ", seen)[0] or record.spec.mpi or ""


def _software(record: AnyRecord) -> str:
    """``PyTorch 2.13.0+cpu, Horovod 0.28.1``, ``Caffe2 (PyTorch 1.10.2)``."""
    packages = record.software.get("packages", {})
    framework, backend = record.spec.framework or "", record.spec.backend
    package = _BROUGHT_BY.get(framework, framework)
    version = next((packages[name] for name in (package, f"{package}-cpu", f"{package}_cpu") if name in packages), "")
    text = f"{_LABELS.get(package, package)} {version}".strip()
    if package != framework:
        text = f"{_LABELS[framework]} ({text})"
    own = backend in packages and backend != package
    return f"{text}, {backend.capitalize()} {packages[backend]}" if own else text


def _environment(record: AnyRecord, gpu: Mapping[str, Any]) -> dict[str, str]:
    """What may explain a difference between two runs, flat: ``package torch``, ``machine kernel``, ``variable OMP_…``."""
    facts = {
        "site": record.site,
        "python": record.software.get("python"),
        "harness": f"{record.harness.get('version')} {record.harness.get('commit') or ''}".strip(),
        **{LENGTH[column]: value for column, value in record.spec.model_dump(include=set(LENGTH)).items()},
        **{f"package {name}": version for name, version in record.software.get("packages", {}).items()},
        **{f"machine {name}": value for name, value in record.machine.items() if name not in ("host", "gpus")},
        **{f"machine gpu {name}": value for name, value in gpu.items()},
        **{f"variable {name}": value for name, value in record.variables.items() if not _PER_JOB.fullmatch(name)},
    }
    return _known(facts)


def _known(facts: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in facts.items() if value not in ("", None)}
