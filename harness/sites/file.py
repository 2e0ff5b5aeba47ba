"""Site files: a cluster, its partitions and its environments, in TOML or JSON with ReFrame's field names.

A file is checked in two passes: each value by itself (the models), then what the values say together (``_contradictions``).
"""

from __future__ import annotations

import json
import re
import shlex
import string
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict, ValidationError

from harness.core.plan import LAST_PORT
from harness.core.text import did_you_mean
from harness.core.validation import mistakes

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
MODULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+/:@%=~-]*")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MPI = re.compile(r"[A-Za-z0-9_]+")
ADDRESS = re.compile(r"[A-Za-z0-9._-]*\{host\}[A-Za-z0-9._-]*")
TIME_LIMIT = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
PLACE_IN_TOML = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")

Scheduler = Literal["local", "slurm", "squeue", "ssh"]
Launcher = Literal["local", "srun", "ssh"]
LAUNCHERS: dict[Scheduler, Launcher] = {"local": "local", "slurm": "srun", "squeue": "srun", "ssh": "ssh"}


def duration_s(text: str) -> float:
    """Seconds of a time limit such as ``1d2h3m4s``, every part of which may be left out. Raises ValueError."""
    matched = TIME_LIMIT.fullmatch(text)
    days, hours, minutes, seconds = (int(part or 0) for part in matched.groups()) if matched else (0, 0, 0, 0)
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if not total:
        raise ValueError(f"'{text}' is not a time limit such as 30m, 1h30m or 1d12h")
    return float(total)


# --- values ------------------------------------------------------------------------------------------------------------
# Everything may end up in a job script, so nothing may hold a line break.


def _one_line(value: str) -> str:
    if CONTROL.search(value):
        raise ValueError(f"{value!r} holds a line break or another control character")
    return value


def _option(value: str) -> str:
    if not value.startswith("-"):
        raise ValueError(f"'{value}' is not an option: it must start with -")
    try:
        shlex.split(value)
    except ValueError:
        raise ValueError(f"'{value}' has a quote that is not closed") from None
    return value


def _template(value: str) -> str:
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(value) if field is not None]
    except ValueError:
        raise ValueError(f"'{value}' has a brace without its partner") from None
    for field in fields:
        if not VARIABLE.fullmatch(field):
            raise ValueError(f"'{value}': {{{field}}} must be a name such as {{num_gpus_per_node}}")
    return value


def _shaped(pattern: re.Pattern[str], what: str) -> AfterValidator:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(f"{value!r} is not {what}")
        return value

    return AfterValidator(check)


def _module(value: object) -> object:
    """ReFrame's long form of a module, of which only the name is used."""
    if isinstance(value, dict):
        if set(value) != {"name"}:
            raise ValueError("must be a module's name, or {name = ...} without other fields")
        return value["name"]
    return value


def _hostname(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"'{value}' is not a regular expression: {error}") from None
    return value


def _some(value: tuple[Any, ...]) -> tuple[Any, ...]:
    if not value:
        raise ValueError("must not be empty")
    return value


def _time_limit(value: str) -> str:
    duration_s(value)
    return value


Line = Annotated[str, AfterValidator(_one_line)]
Name = Annotated[str, _shaped(NAME, "a name: letters, digits, _ and -, beginning with a letter")]
VariableName = Annotated[str, _shaped(VARIABLE, "the name of an environment variable")]
ModuleName = Annotated[str, BeforeValidator(_module), _shaped(MODULE, "the name of a module")]
Option = Annotated[Line, AfterValidator(_option)]
NotEmpty = AfterValidator(_some)  # min_length would also count, and complain about, items that are wrong
Count = Annotated[int, Strict(), Field(ge=1)]


class SiteTable(BaseModel):
    """Base of all tables of a site file: frozen, and closed to unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Processor(SiteTable):
    """The processors of a node. As in ReFrame a CPU is a hardware thread."""

    arch: Line | None = None
    model: Line | None = None
    num_cpus: Count | None = None
    num_cpus_per_core: Count | None = None
    num_cpus_per_socket: Count | None = None
    num_sockets: Count | None = None


class Device(SiteTable):
    """Devices of one kind in every node. Those of type ``gpu`` are what workers can train on."""

    type: Name
    arch: Line | None = None
    model: Line | None = None
    num_devices: Count = 1


class Resource(SiteTable):
    """Scheduler options under a name, with {placeholders} for what a run asks for."""

    name: Name
    options: tuple[Annotated[Option, AfterValidator(_template)], ...] = ()


class PartitionExtras(SiteTable):
    """What a run needs to know of a partition and ReFrame has no field for."""

    mpi: Annotated[str, _shaped(MPI, "a value for srun's --mpi")] = "pmi2"
    address: Annotated[str, _shaped(ADDRESS, "{host} with letters, digits, dots and dashes around it")] = "{host}"
    launcher_options: tuple[Option, ...] = ()
    hosts: Line | None = Field(default=None, min_length=1)
    output: Line | None = Field(default=None, min_length=1)
    port: Annotated[int, Strict(), Field(ge=1, le=LAST_PORT)] | None = None


class Layer(SiteTable):
    """A table with a name that adds modules, variables and commands to what a run gets."""

    name: Name
    modules: tuple[ModuleName, ...] = ()
    env_vars: tuple[tuple[VariableName, Line], ...] = ()
    prepare_cmds: tuple[Line, ...] = ()


class Partition(Layer):
    """A part of a system with nodes that are all alike, and the way to get them."""

    descr: Line = ""
    scheduler: Scheduler
    launcher: Launcher
    access: tuple[Option, ...] = ()
    environs: tuple[Name, ...] = ()
    time_limit: Annotated[str, AfterValidator(_time_limit)] | None = None
    max_jobs: Count | None = None
    resources: tuple[Resource, ...] = ()
    processor: Processor = Processor()
    devices: tuple[Device, ...] = ()
    features: tuple[Name, ...] = ()
    extras: PartitionExtras = PartitionExtras()


class System(Layer):
    """A cluster."""

    descr: Line = ""
    hostnames: tuple[Annotated[Line, AfterValidator(_hostname)], ...] = ()
    modules_system: Literal["nomod", "tmod", "tmod31", "tmod32", "tmod4", "lmod"] = "nomod"
    prefix: Line | None = Field(default=None, min_length=1)
    partitions: Annotated[tuple[Partition, ...], NotEmpty]


class EnvironmentExtras(SiteTable):
    """What a run needs to know of an environment and ReFrame has no field for."""

    python: Line | None = Field(default=None, min_length=1)
    backends: tuple[Name, ...] = ()


class Environment(Layer):
    """What partitions list in ``environs``."""

    extras: EnvironmentExtras = EnvironmentExtras()


class SiteDescription(SiteTable):
    """All that a site file says."""

    systems: Annotated[tuple[System, ...], NotEmpty]
    environments: tuple[Environment, ...] = ()


# --- files -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mistake:
    """What is wrong in a site file: the file (with the line, if it cannot be read at all), the field, and why."""

    file: str
    field: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.field, self.message) if part)


@dataclass(frozen=True)
class SiteFile:
    """A site file as it is: what it describes, or what is wrong with it. Its systems are ``claimed`` in both cases."""

    path: Path
    built_in: bool
    description: SiteDescription | None
    mistakes: tuple[Mistake, ...] = ()
    claimed: frozenset[str] = frozenset()

    @property
    def names(self) -> list[str]:
        """``system:partition`` of all its partitions."""
        return [f"{system.name}:{partition.name}" for system in self.systems for partition in system.partitions]

    @property
    def systems(self) -> tuple[System, ...]:
        """Its systems; none if anything is wrong."""
        return self.description.systems if self.description else ()


def read(path: Path, built_in: bool = False) -> SiteFile:
    """Read and check a site file. Never raises: what is wrong is in ``mistakes``."""
    try:
        state = path.stat()
        return _read(path, built_in, (state.st_ino, state.st_mtime_ns, state.st_size))
    except OSError as error:
        return SiteFile(path, built_in, None, (Mistake(str(path), "", error.strerror or str(error)),))


@lru_cache(maxsize=64)  # a command that plans several runs asks for their site again and again
def _read(path: Path, built_in: bool, state: tuple[int, ...]) -> SiteFile:
    try:
        raw = _parsed(path)
    except _Unreadable as unreadable:
        return SiteFile(path, built_in, None, (unreadable.mistake,))
    claimed = frozenset(_claimed(raw))
    try:
        description = SiteDescription.model_validate(raw)
    except ValidationError as error:
        wrong = [Mistake(str(path), field, message) for field, message in mistakes(error, SiteDescription)]
        return SiteFile(path, built_in, None, tuple(wrong), claimed)
    wrong = [Mistake(str(path), field, message) for field, message in _contradictions(description)]
    return SiteFile(path, built_in, None if wrong else description, tuple(wrong), claimed)


class _Unreadable(Exception):
    def __init__(self, file: str, message: str) -> None:
        self.mistake = Mistake(file, "", message)


def _parsed(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except UnicodeDecodeError:
        raise _Unreadable(str(path), "is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise _Unreadable(f"{path}:{error.lineno}", error.msg) from None
    except tomllib.TOMLDecodeError as error:
        place = PLACE_IN_TOML.search(str(error))
        line = place[1] if place and place[1] else str(text.count("\n") + 1)
        raise _Unreadable(f"{path}:{line}", PLACE_IN_TOML.sub("", str(error))) from None
    except RecursionError:
        raise _Unreadable(str(path), "is nested too deeply") from None


def _claimed(raw: Any) -> Iterator[str]:
    """The names of a file's systems, as far as they are readable in a file that may be wrong."""
    systems = raw.get("systems") if isinstance(raw, dict) else None
    for system in systems if isinstance(systems, list) else ():
        if isinstance(system, dict) and isinstance(system.get("name"), str):
            yield system["name"]


def _contradictions(site: SiteDescription) -> Iterator[tuple[str, str]]:
    """What is wrong between values that are right by themselves: (field, message)."""
    yield from _twice("systems", [system.name for system in site.systems])
    yield from _twice("environments", [environment.name for environment in site.environments])
    for s, system in enumerate(site.systems):
        yield from _twice(f"systems[{s}].partitions", [partition.name for partition in system.partitions])
        for p, partition in enumerate(system.partitions):
            for field, message in _in_partition(site, system, partition):
                yield f"systems[{s}].partitions[{p}].{field}", message
        if system.modules_system == "nomod" and system.modules:
            yield f"systems[{s}].modules", _NO_MODULES


_NO_MODULES = "modules cannot be loaded with modules_system 'nomod'; name the system's own, such as 'lmod' or 'tmod'"


def _twice(field: str, names: list[str]) -> Iterator[tuple[str, str]]:
    for i, name in enumerate(names):
        if name in names[:i]:
            yield f"{field}[{i}].name", f"'{name}' is there twice"


def _in_partition(site: SiteDescription, system: System, partition: Partition) -> Iterator[tuple[str, str]]:
    right = LAUNCHERS[partition.scheduler]
    if partition.launcher != right:
        yield "launcher", f"'{partition.launcher}' does not go with scheduler '{partition.scheduler}'; must be {right}"
    if right != "srun":
        for field in ("access", "resources"):
            if getattr(partition, field):
                yield field, f"scheduler '{partition.scheduler}' takes no options"
        if "mpi" in partition.extras.model_fields_set:
            yield "extras.mpi", "is for launcher srun"
    if right != "ssh" and partition.extras.hosts:
        yield "extras.hosts", "is for scheduler ssh"
    if right == "local" and partition.extras.launcher_options:
        yield "extras.launcher_options", "launcher local takes no options"
    environments = {environment.name: environment for environment in site.environments}
    for i, name in enumerate(partition.environs):
        environment = environments.get(name)
        if environment is None:
            known = list(environments)
            yield f"environs[{i}]", f"'{name}' is not in environments; {did_you_mean(name, known) or there_are(known)}"
        elif environment.modules and system.modules_system == "nomod":
            yield f"environs[{i}]", f"'{name}' has modules: {_NO_MODULES}"
    if partition.modules and system.modules_system == "nomod":
        yield "modules", _NO_MODULES
    yield from _twice("resources", [resource.name for resource in partition.resources])
    yield from _in_processor(partition.processor)


def _in_processor(processor: Processor) -> Iterator[tuple[str, str]]:
    cpus, per_core, sockets = processor.num_cpus, processor.num_cpus_per_core, processor.num_sockets
    if cpus and per_core and cpus % per_core:
        yield "processor.num_cpus", f"{cpus} is not a multiple of num_cpus_per_core, {per_core}"
    if cpus and sockets and processor.num_cpus_per_socket and cpus != sockets * processor.num_cpus_per_socket:
        yield "processor.num_cpus", f"{cpus} is not num_sockets × num_cpus_per_socket"


def there_are(known: list[str]) -> str:
    """What there is instead of something unknown."""
    return f"there are {', '.join(known)}" if known else "there are none"
