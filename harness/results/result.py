"""Results: measurements and publications, each with all that tells it from others, and their making from records.

A training or a program is one result, each size of a kernel's run another. Results are made from a record's own file,
without its raw times.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from harness.core import backend as backends
from harness.core import emulation
from harness.core.fingerprint import Fingerprint
from harness.core.spec import OTHER_TRAINING, SYNTHETIC, RunSpec
from harness.core.statistics import Summary
from harness.errors import InvalidInput
from harness.records.kernel import KernelRecord, kernel_of, sizes_of
from harness.records.launch import LaunchRecord
from harness.records.measurement import Record
from harness.records.record import ALONE, AnyRecord, Seen, Status
from harness.records.training import LABELS, TrainingRecord

NAN = math.nan
LOCAL = "local"  # the site of what no site's profile was used for
# How long a measurement took: it may differ without making another measurement, and is named. Fields, and their names.
LENGTH = {"warmup_steps": "warm-up steps", "steps": "measured steps", "dilation": "dilation"}
UNKNOWN = Fingerprint(note="nothing tells what was computed")
# Fields of a spec that change neither what is measured nor how.
IRRELEVANT = {"repeats", "timeout_s", "straggler_limit", "save_parameters", "trace_steps", "warmup_auto", *LENGTH}
_LABELS = {"tensorflow": "TensorFlow", "torch": "PyTorch", "caffe2": "Caffe2", "jax": "JAX"}
_BROUGHT_BY = {"caffe2": "torch"}  # a framework that is no package of its own, and the package that has it
_PER_JOB = re.compile(r"SLURM_JOB_ID|PMIX?_\w+")  # variables that say nothing about the machine
sorted_json = json.JSONEncoder(sort_keys=True).encode  # json.dumps would make a new encoder each time


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """One result. Text is "" and a count 0 where it does not apply or is not known, a figure NaN.

    The columns of tables and exports are fields, in this order.

    ``rate`` is the mean of ``values``, one for each repeat, in ``unit``; so are ``stdev`` and ``ci95``, the half-width of
    the interval. A training has a ``model``, a kernel a name and a ``size``: bytes of a message, or N.
    """

    origin: Literal["measured", "published"] = "measured"
    source: str = ""  # the record's file, or the publication
    id: str = ""
    status: Status = "completed"
    reason: str = ""
    system: str = ""  # the site and partition, else the host; or the published system's name
    site: str = ""  # the site and partition; "local" where no profile was used; "" if it was published
    tag: str = ""  # of --tag
    processor: str = ""
    kernel: str = ""
    backend: str = ""
    family: str = ""  # harness.core.backend.Family
    framework: str = ""
    software: str = ""  # the framework and the backend with their versions
    transport: str = ""
    mpi: str = ""  # the MPI library by its own name, of runs over MPI whose results have several; else ""
    model: str = ""
    nodes: int = 0
    devices_per_node: int = 0
    workers: int = 0
    ps: int = 0
    size: int = 0  # of a kernel
    batch_size: int = 0  # per device
    image_size: int = 0
    data: str = ""  # "synthetic" or "real"
    device: str = ""
    dilation: float = NAN  # seconds that pass for a second of an emulated device, else 1
    precision: str = ""
    threads: int = 0  # per worker
    warmup_steps: int = 0
    warmup: str = ""  # these for people: "10", or "up to 200" of --warmup auto
    steps: int = 0
    epochs: int = 0  # of a training to an accuracy, whose rate is that while it trained
    target: str = ""  # the accuracy that was wanted, "top-1 0.759"
    top1: float = NAN  # the best of its epochs
    time_to_accuracy_s: float = NAN
    training: str = ""  # options that make it another training than the usual one: "sync=none"
    variant: str = ""  # of a publication: what else sets it apart
    link_gb_s: float = NAN  # of a publication: the line rate of a node's link, in GB/s
    options: Mapping[str, object] = field(default_factory=dict)  # the backend's own, without ps; an unusual data_format
    spec: Mapping[str, object] = field(default_factory=dict)  # all fields but ``IRRELEVANT`` ones
    unit: str = "img/s"
    rate: float = NAN
    stdev: float = NAN
    ci95: float = NAN
    values: tuple[float, ...] = ()
    jobs: tuple[str, ...] = ()  # the job of each of these (see ``_rate``)
    runs: int = 0  # that a published mean and deviation are of; 0 if not known
    published_efficiency: float = NAN  # where only an efficiency was published
    published_base: int = 0  # the number of workers that it is relative to
    bus_bytes_per_s: float = NAN  # of messages only
    p50_s: float = NAN  # of a step, or of a message
    p99_s: float = NAN
    jitter_s: float = NAN
    slowest_rank: int = 0
    throttled: str = ""  # why GPUs were slowed down; "" if none was, or nobody looked
    slowest_over_median: float = NAN  # time of the slowest rank over that of the median rank
    sent_bytes: float = NAN  # per worker and step
    received_bytes: float = NAN
    joules: float = NAN  # per image, or of a kernel's window
    work_per_joule: float = NAN  # bytes or operations of a kernel
    joules_values: tuple[float, ...] = ()  # joules of each repeat, per image, byte or operation
    energy: str = ""  # what these cover, and who counted: "package (powercap) + memory (powercap)"; "" without a figure
    energy_note: str = ""  # why it covers no more, or why there is none
    transport_seen: str = ""
    fingerprint: Fingerprint = UNKNOWN
    started: str = ""  # ISO 8601, UTC
    ended: str = ""
    note: str = ""  # of a publication, or what disturbed a run
    environment: Mapping[str, str] = field(default_factory=dict)  # packages, machine, variables: what may differ

    @property
    def img_per_s(self) -> float:
        """The rate of a training; NaN of a kernel, and where only an efficiency was published."""
        return NAN if self.kernel else self.rate

    @property
    def completed(self) -> bool:
        return self.status == "completed"

    @property
    def measured(self) -> bool:
        return self.origin == "measured"

    @cached_property
    def key(self) -> str:
        """Equal for results of the same measurement; "" if it was published."""
        return sorted_json(backends.differing(self.spec)) if self.spec else ""

    @property
    def publication(self) -> tuple[str, ...]:
        """The identity among several publications of one configuration, which are alternatives and never averaged."""
        return () if self.measured else (self.source, self.variant, self.note)

    @cached_property
    def tuned(self) -> str:
        """The options as JSON, equal for equal ones."""
        return sorted_json(self.options)


_KINDS = {
    each.name: (int, float) if isinstance(each.default, float) else type(each.default)
    for each in fields(Result)
    if isinstance(each.default, str | int | float | tuple)
}


def with_libraries(results: Sequence[Result]) -> list[Result]:
    """``results`` with ``mpi`` as it is where it tells runs apart, else without."""
    several = len({result.mpi for result in results} - {""}) > 1
    return [*results] if several else [replace(result, mpi="") if result.mpi else result for result in results]


def of_backend(name: str, ps: int, options: Mapping[str, object]) -> dict[str, str]:
    """The ``family`` and the ``training`` by the installed backend; a guess without it."""
    try:
        backend = backends.backend(name)
    except InvalidInput:
        return {"family": "parameter_servers" if ps else "toolkit", "training": ""}
    return {"family": backend.family, "training": other_training(backend, options)}


def other_training(backend: backends.Backend, options: Mapping[str, object]) -> str:
    """The ``options`` that, by ``backend``, make another training than synchronous SGD in float32."""
    different = []
    for name, option in backend.options.model_fields.items():
        marked = option.json_schema_extra.get(OTHER_TRAINING) if isinstance(option.json_schema_extra, dict) else None
        if isinstance(marked, list) and options.get(name) in marked:
            different.append(f"{name}={options[name]}")
    return ", ".join(different)


def varied_options(every: Iterable[Mapping[str, object]]) -> list[str]:
    """The options that differ between runs; an option that a run lacks counts as None."""
    options = [*every]
    names = dict.fromkeys(name for each in options for name in each)
    return [name for name in names if any(each.get(name) != options[0].get(name) for each in options)]


# --- of records -----------------------------------------------------------------------------------


def of_record(record: AnyRecord, source: Path | str) -> list[Result]:
    """The results of a record of any kind, also of a run without a number.

    Raises ValueError and others if it holds something else than text, a number or a rate above 0 where these should be.
    """
    if isinstance(record, KernelRecord):
        results = of_kernel(record, source)
    elif isinstance(record, TrainingRecord):
        results = [of_accuracy(record, source)]
    elif isinstance(record, LaunchRecord):
        results = [of_program(record, source)]
    else:
        assert isinstance(record, Record)
        results = [of_training(record, source)]
    for result in results:
        for name, kind in _KINDS.items():
            if not isinstance(getattr(result, name), kind):
                raise ValueError(f"{name} cannot be {getattr(result, name)!r}")
        if not all(0 < rate < math.inf for rate in result.values):
            raise ValueError(f"{result.unit} cannot be {min(result.values)}")
    return results


def of_training(record: Record, source: Path | str) -> Result:
    spec, seen = record.spec, record.seen
    data = "real" if spec.data_cache == "as_found" else f"real, {spec.data_cache} cache"
    facts = _facts(record, source, seen) | {"data": "synthetic" if spec.data == SYNTHETIC else data}
    facts |= {name: getattr(spec, name) for name in ("model", "batch_size", "image_size", "dilation")}
    if spec.emulated:
        device = record.plan["emulation"]["device"]
        facts["system"] += f", {emulation.system(spec, device, seen.link_bytes_per_s)}"
        facts["processor"] = f"emulated {device}"
    if (derived := record.derived) is None:
        return Result(**facts)
    energy, used = derived.energy, derived.energy.joules_per_image
    return Result(
        **facts,
        **_rate(derived.img_per_s, record),
        **derived.step_times.model_dump(),
        sent_bytes=known(seen.sent_bytes_per_step),
        received_bytes=known(seen.received_bytes_per_step),
        transport_seen=seen.transports[0],
        joules=used.mean if used else NAN,
        joules_values=used.values if used else (),
        energy=energy.covers,
        energy_note="; ".join(energy.notes),
        fingerprint=derived.fingerprint,
        note="; ".join(derived.notes),
    )


def of_accuracy(record: TrainingRecord, source: Path | str) -> Result:
    spec, training = record.spec, record.spec.training
    assert training
    facts = _facts(record, source, Seen(hosts=tuple(record.nodes))) | {"data": "real"}
    facts |= {name: getattr(spec, name) for name in ("model", "batch_size", "image_size")}
    facts |= {"epochs": training.epochs, "top1": known(record.best_top1), "rate": known(record.img_per_s)}
    until = training.until
    target = f"{LABELS[until.metric]} {until.value:g}" if until else ""
    return Result(**facts, target=target, time_to_accuracy_s=known(record.time_to_accuracy_s))


def of_program(record: LaunchRecord, source: Path | str) -> Result:
    """The result of a program, whose img/s are by its own clock."""
    return Result(**_facts(record, source, Seen()), **_rate(record.img_per_s, record) if record.img_per_s else {})


def of_kernel(record: KernelRecord, source: Path | str) -> list[Result]:
    """A result for each size."""
    spec, kernel = record.spec, kernel_of(record.spec)
    facts = _facts(record, source, record.seen) | {"kernel": spec.subject, "unit": kernel.unit}
    dumped = facts.pop("spec") | {"kernel": spec.subject}
    if record.derived is None:
        sizes = kernel.sizes(sizes_of(spec).sizes, record.plan["world_size"])
        return [Result(**facts, size=size, spec=dumped | {"size": size}) for size in sizes]
    results = []
    for figures in record.derived:
        bus, joules, per_joule = figures.bus_bytes_per_s, figures.energy.joules, figures.work_per_joule
        results.append(
            Result(
                **facts,
                **_rate(figures.rate, record),
                size=figures.size,
                spec=dumped | {"size": figures.size},
                p50_s=figures.p50_s,
                p99_s=figures.p99_s,
                bus_bytes_per_s=NAN if bus is None else bus.mean,
                sent_bytes=known(figures.sent_bytes),
                work_per_joule=known(per_joule),
                joules=joules.mean if joules else NAN,
                joules_values=tuple(each / joules.mean / per_joule for each in joules.values)
                if joules and per_joule
                else (),
                energy=figures.energy.covers,
                energy_note="; ".join(figures.energy.notes),
                transport_seen=record.seen.transports[0],
            )
        )
    return results


def _measurement(spec: RunSpec) -> dict[str, object]:
    """All fields of a spec that decide on the measurement, in order."""
    fields = sorted(spec.model_dump(exclude=IRRELEVANT).items())
    return {name: dict(sorted(value.items())) if name == "options" else value for name, value in fields}


def known(value: float | None) -> float:
    """``value``, or NaN for None."""
    return NAN if value is None else value


def _rate(rate: Summary, record: Record | KernelRecord | LaunchRecord) -> dict[str, Any]:
    """The rate, and the job of each repeat. Repeats of one job share nodes and an hour.

    A record notes the batch job, or the session of runs that took turns on one machine. Any other run is a job by itself,
    or belongs to the user's allocation ($SLURM_JOB_ID), within which it took no turns with another run.
    """
    allocation = record.variables.get("SLURM_JOB_ID")
    alone = f"{ALONE}{allocation}" if allocation else record.id
    jobs = tuple(repeat.job or alone for repeat in record.repeats)
    spread = {"stdev": known(rate.stdev), "ci95": known(rate.ci95)}
    return {"rate": rate.mean, "values": rate.values, "jobs": jobs} | spread


def _facts(record: AnyRecord, source: Path | str, seen: Seen) -> dict[str, Any]:
    """The fields that records of all kinds have: those of the run, and of its place."""
    spec, machine = record.spec, record.machine
    gpu: dict[str, str] = next((gpu for gpu in machine.get("gpus") or [] if "name" in gpu), {})
    ps, throttled = int(spec.options.get("ps", 0)), ", ".join(seen.throttled)
    options = {name: value for name, value in sorted(spec.options.items()) if name != "ps"}
    options |= {} if spec.data_format == "auto" else {"data_format": spec.data_format}
    return {
        **{name: getattr(record, name) for name in ("id", "status", "tag", "started", "ended")},
        **{name: getattr(spec, name) for name in ("backend", "nodes", "devices_per_node", "workers")},
        **{name: getattr(spec, name) for name in ("device", "precision", "warmup_steps", "warmup", "steps")},
        **of_backend(spec.backend, ps, options),
        "reason": record.reason or "",
        "framework": spec.framework or "",
        "transport": spec.transport or "",
        "threads": spec.threads or 0,
        "source": str(source),
        "system": record.site or machine.get("host") or "",
        "site": record.site or LOCAL,
        "processor": str(gpu["name"] if spec.device == "cuda" and gpu else machine.get("cpu") or ""),
        "software": _software(record),
        "mpi": _mpi_library(record, seen),
        "ps": ps,
        "options": options,
        "spec": _measurement(spec),
        "throttled": throttled,
        "environment": _environment(record, gpu, seen, throttled),
    }


def _mpi_library(record: AnyRecord, seen: Seen) -> str:
    """The name that the carrier of the gradients gave itself, or its name on the command line."""
    if record.spec.transport != "mpi":
        return ""
    carrier = next(iter(seen.transports), "")  # "MPICH 5.0.2 through mpi4py"
    return re.split(r" (?:through|in) ", carrier)[0] or record.spec.mpi or ""


def _software(record: AnyRecord) -> str:
    """``PyTorch 2.13.0+cpu, Horovod 0.28.1``, ``Caffe2 (PyTorch 1.10.2)``."""
    packages = record.software.get("packages", {})
    framework, backend = record.spec.framework or "", record.spec.backend
    package = _BROUGHT_BY.get(framework, framework)
    version = next((packages[name] for name in (package, f"{package}-cpu", f"{package}_cpu") if name in packages), "")
    text = f"{_LABELS.get(package, package)} {version}".strip()
    if package != framework:
        text = f"{_LABELS[framework]} ({text})"
    versioned = backend in packages and backend != package
    return f"{text}, {backend.capitalize()} {packages[backend]}" if versioned else text


def _environment(record: AnyRecord, gpu: Mapping[str, object], seen: Seen, throttled: str) -> dict[str, str]:
    """Facts that may explain a difference between two runs: ``package torch``, ``machine kernel``, ``variable OMP_…``."""
    facts = {
        "site": record.site,
        "python": record.software.get("python"),
        "harness": f"{record.harness.get('version')} {record.harness.get('commit') or ''}".strip(),
        LENGTH["warmup_steps"]: record.spec.warmup,
        LENGTH["steps"]: "" if record.spec.program else record.spec.steps,
        LENGTH["dilation"]: record.spec.dilation if record.spec.emulated else "",
        **{f"package {name}": version for name, version in record.software.get("packages", {}).items()},
        **{f"machine {name}": value for name, value in record.machine.items() if name not in ("host", "gpus")},
        **{f"machine gpu {name}": value for name, value in gpu.items()},
        **{f"variable {name}": value for name, value in record.variables.items() if not _PER_JOB.fullmatch(name)},
        "nodes": ", ".join(seen.hosts),
        "gradients": "; ".join(sorted(seen.transports)),
        "machine gpu throttled by": throttled,
    }
    return {name: str(value) for name, value in facts.items() if value not in ("", None)}
