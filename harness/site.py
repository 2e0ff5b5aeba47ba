"""Site profiles: what a run has to know about a cluster, in a file with ReFrame's field names.

A file is TOML or JSON. It is checked in two passes: each value by itself (the models), then what values say together
(``_contradictions``). What comes out of ``find`` is a Target, the merge of a system, one of its partitions and one of its
environments; a launcher needs nothing else.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import string
import tomllib
import typing
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict, ValidationError
from pydantic_core import ErrorDetails

from harness.errors import InvalidInput
from harness.plan import LAST_PORT

BUILT_IN = Path(__file__).parent / "jobs" / "sites"
SUFFIXES = (".toml", ".json")
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


def _time_limit(value: str) -> str:
    duration_s(value)
    return value


def _address(value: str) -> str:
    if not ADDRESS.fullmatch(value):
        raise ValueError(f"'{value}' must be {{host}} with letters, digits, dots and dashes around it")
    return value


Line = Annotated[str, AfterValidator(_one_line)]
Name = Annotated[str, _shaped(NAME, "a name: letters, digits, _ and -, beginning with a letter")]
VariableName = Annotated[str, _shaped(VARIABLE, "the name of an environment variable")]
ModuleName = Annotated[str, BeforeValidator(_module), _shaped(MODULE, "the name of a module")]
Option = Annotated[Line, AfterValidator(_option)]
Count = Annotated[int, Strict(), Field(ge=1)]


class Table(BaseModel):
    """Base of all tables of a site file: frozen, and closed to unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Processor(Table):
    """The processors of a node. As in ReFrame a CPU is what the system schedules on: a hardware thread, if cores have several."""

    arch: Line | None = None
    model: Line | None = None
    num_cpus: Count | None = None
    num_cpus_per_core: Count | None = None
    num_cpus_per_socket: Count | None = None
    num_sockets: Count | None = None


class Device(Table):
    """Devices of one kind in every node. Those of type ``gpu`` are what workers can train on."""

    type: Name
    arch: Line | None = None
    model: Line | None = None
    num_devices: Count = 1


class Resource(Table):
    """Scheduler options under a name, with {placeholders} for what a run asks for."""

    name: Name
    options: tuple[Annotated[Option, AfterValidator(_template)], ...] = ()


class PartitionExtras(Table):
    """What a run needs to know of a partition and ReFrame has no field for."""

    mpi: Annotated[str, _shaped(MPI, "a value for srun's --mpi")] = "pmi2"
    address: Annotated[Line, AfterValidator(_address)] = "{host}"
    launcher_options: tuple[Option, ...] = ()
    hosts: Line | None = Field(None, min_length=1)
    output: Line | None = Field(None, min_length=1)
    port: Annotated[int, Strict(), Field(ge=1, le=LAST_PORT)] | None = None


class Partition(Table):
    """A part of a system with nodes that are all alike, and the way to get them."""

    name: Name
    descr: Line = ""
    scheduler: Scheduler
    launcher: Launcher
    access: tuple[Option, ...] = ()
    environs: tuple[Name, ...] = ()
    modules: tuple[ModuleName, ...] = ()
    env_vars: tuple[tuple[VariableName, Line], ...] = ()
    prepare_cmds: tuple[Line, ...] = ()
    time_limit: Annotated[str, AfterValidator(_time_limit)] | None = None
    max_jobs: Count | None = None
    resources: tuple[Resource, ...] = ()
    processor: Processor = Processor()
    devices: tuple[Device, ...] = ()
    features: tuple[Name, ...] = ()
    extras: PartitionExtras = PartitionExtras()


class System(Table):
    """A cluster."""

    name: Name
    descr: Line = ""
    hostnames: tuple[Annotated[Line, AfterValidator(_hostname)], ...] = ()
    modules_system: Literal["nomod", "tmod", "tmod31", "tmod32", "tmod4", "lmod"] = "nomod"
    modules: tuple[ModuleName, ...] = ()
    env_vars: tuple[tuple[VariableName, Line], ...] = ()
    prepare_cmds: tuple[Line, ...] = ()
    prefix: Line | None = Field(None, min_length=1)
    partitions: tuple[Partition, ...] = Field(min_length=1)


class EnvironmentExtras(Table):
    """What a run needs to know of an environment and ReFrame has no field for."""

    python: Line | None = Field(None, min_length=1)
    backends: tuple[Name, ...] = ()


class Environment(Table):
    """Modules, variables and commands under a name, which partitions list in ``environs``."""

    name: Name
    modules: tuple[ModuleName, ...] = ()
    env_vars: tuple[tuple[VariableName, Line], ...] = ()
    prepare_cmds: tuple[Line, ...] = ()
    extras: EnvironmentExtras = EnvironmentExtras()


class Site(Table):
    """A site file."""

    systems: tuple[System, ...] = Field(min_length=1)
    environments: tuple[Environment, ...] = ()

    def environment(self, name: str) -> Environment | None:
        """The environment of that name, if there is one."""
        return next((one for one in self.environments if one.name == name), None)


# --- files -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """What is wrong in a site file: the file (with the line, if it cannot be read at all), the field, and why."""

    file: str
    field: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.field, self.message) if part)


@dataclass(frozen=True)
class SiteFile:
    """A site file as found: its contents, or else what is wrong with it."""

    path: Path
    built_in: bool
    site: Site | None
    problems: tuple[Problem, ...] = ()
    claimed: frozenset[str] = frozenset()

    @property
    def names(self) -> list[str]:
        """``system:partition`` of all its partitions."""
        systems = self.site.systems if self.site else ()
        return [f"{system.name}:{partition.name}" for system in systems for partition in system.partitions]


def read(path: Path, built_in: bool = False) -> SiteFile:
    """Read and check a site file. Never raises: what is wrong is in ``problems``."""
    try:
        raw = _parsed(path)
    except _Unreadable as unreadable:
        return SiteFile(path, built_in, None, (unreadable.problem,))
    claimed = frozenset(_claimed(raw))
    try:
        site = Site.model_validate(raw)
    except ValidationError as error:
        found = (Problem(str(path), _field(one["loc"]), _message(one)) for one in error.errors(include_url=False))
        return SiteFile(path, built_in, None, tuple(found), claimed)
    problems = tuple(Problem(str(path), field, message) for field, message in _contradictions(site))
    return SiteFile(path, built_in, None if problems else site, problems, claimed)


class _Unreadable(Exception):
    def __init__(self, file: str, message: str) -> None:
        self.problem = Problem(file, "", message)


def _parsed(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise _Unreadable(str(path), error.strerror or str(error)) from None
    except UnicodeDecodeError:
        raise _Unreadable(str(path), "is not UTF-8 text") from None
    try:
        return json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except json.JSONDecodeError as error:
        raise _Unreadable(f"{path}:{error.lineno}", error.msg) from None
    except tomllib.TOMLDecodeError as error:
        place = PLACE_IN_TOML.search(str(error))
        line = place[1] if place and place[1] else str(text.count("\n") + 1)
        raise _Unreadable(f"{path}:{line}", PLACE_IN_TOML.sub("", str(error))) from None
    except RecursionError:
        raise _Unreadable(str(path), "is nested too deeply") from None


def _claimed(raw: Any) -> Iterator[str]:
    """The names of a file's systems, as far as they can be told without it being right."""
    systems = raw.get("systems") if isinstance(raw, dict) else None
    for system in systems if isinstance(systems, list) else ():
        if isinstance(system, dict) and isinstance(system.get("name"), str):
            yield system["name"]


def _field(place: tuple[int | str, ...]) -> str:
    """Where in the file: ``systems[0].partitions[1].launcher``."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")


def _message(error: ErrorDetails) -> str:
    """Pydantic's complaint in the words of this program, without the field."""
    kind, value, name = error["type"], error["input"], str(error["loc"][-1]) if error["loc"] else ""
    if kind == "extra_forbidden":
        known = list(_table(error["loc"][:-1]).model_fields)
        return f"unknown field; {_suggestion(name, known) or 'must be one of ' + _listed(known)}"
    if kind == "value_error":
        return str(error["ctx"]["error"])
    if kind == "literal_error":
        choices = str(error["ctx"]["expected"]).replace("'", "")
        return f"'{value}' is not a {name.replace('_', ' ')}; must be {choices}"
    if kind in ("greater_than_equal", "less_than_equal"):
        bound = error["ctx"].get("ge", error["ctx"].get("le"))
        return f"{value}: must be at {'least' if kind.startswith('greater') else 'most'} {bound}"
    if kind == "missing":
        return "must be a [NAME, VALUE] pair" if "env_vars" in error["loc"] else "is required"
    if kind == "too_long" and "env_vars" in error["loc"]:
        return "must be a [NAME, VALUE] pair"
    if kind in ("too_short", "string_too_short"):
        return "must not be empty"
    wanted = {"string_type": "a string", "int_type": "a whole number", "tuple_type": "a list"}
    return f"must be {wanted.get(kind, 'a table')}, not {json.dumps(value, default=str)}"


def _table(place: Iterable[int | str]) -> type[Table]:
    """The model of the table at ``place``."""
    model: type[Table] = Site
    for part in place:
        if isinstance(part, str):
            model = next(_models(model.model_fields[part].annotation))
    return model


def _models(annotation: Any) -> Iterator[type[Table]]:
    if isinstance(annotation, type) and issubclass(annotation, Table):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from _models(inner)


def _contradictions(site: Site) -> Iterator[tuple[str, str]]:
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


def _in_partition(site: Site, system: System, partition: Partition) -> Iterator[tuple[str, str]]:
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
    for i, name in enumerate(partition.environs):
        environment = site.environment(name)
        if environment is None:
            known = [one.name for one in site.environments]
            yield f"environs[{i}]", f"'{name}' is not in environments; {_suggestion(name, known) or _there_are(known)}"
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


def _suggestion(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]}?" if close else ""


def _there_are(known: list[str]) -> str:
    return f"there are {_listed(known)}" if known else "there are none"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


# --- profiles ----------------------------------------------------------------------------------------------------------


def user_folder() -> Path:
    """Where users keep their own profiles: ``$XDG_CONFIG_HOME/harness/sites``."""
    base = Path(os.environ.get("XDG_CONFIG_HOME") or "")
    return (base if base.is_absolute() else Path("~/.config").expanduser()) / "harness" / "sites"


def files() -> list[SiteFile]:
    """All site files, the user's first. A built-in one with the name of a user's file is not among them."""
    own = [read(path) for path in _in_folder(user_folder())]
    stems = {file.path.stem for file in own}
    return own + [read(path, built_in=True) for path in _in_folder(BUILT_IN) if path.stem not in stems]


def _in_folder(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)
    except OSError:
        return []


@dataclass(frozen=True)
class Target:
    """Where and how a run runs: a system, one of its partitions and one of its environments, merged.

    Modules, variables and commands are in that order, and of a variable set twice the later value is kept. Options are as
    the file has them, one string each. ``cores_per_node`` counts physical cores; None: unknown. Paths may hold ``~`` and
    variables until ``output``, ``hosts`` or ``python`` is asked for.
    """

    name: str
    file: Path
    descr: str
    scheduler: Scheduler
    launcher: Launcher
    access: tuple[str, ...]
    modules_system: str
    modules: tuple[str, ...]
    env_vars: tuple[tuple[str, str], ...]
    prepare_cmds: tuple[str, ...]
    time_limit_s: float | None
    max_jobs: int | None
    cores_per_node: int | None
    gpus_per_node: int
    resources: tuple[Resource, ...]
    features: tuple[str, ...]
    extras: PartitionExtras
    prefix: str | None
    environ: str | None
    environ_extras: EnvironmentExtras

    def resource_options(self, name: str, **values: object) -> tuple[str, ...]:
        """The scheduler options of resource ``name`` with ``values`` filled in; none if the partition has no such resource.

        ``resource_options("gpu", num_gpus_per_node=4)``. Raises InvalidInput if a placeholder gets no usable value.
        """
        options = next((one.options for one in self.resources if one.name == name), ())
        for key, value in values.items():
            if CONTROL.search(str(value)):
                raise InvalidInput(f"{self.name}: resource {name}: {key} {value!r} must be one line")
        try:
            return tuple(option.format(**values) for option in options)
        except KeyError as missing:
            raise InvalidInput(f"{self.name}: resource {name} needs a value for {missing.args[0]}") from None

    def address(self, host: str) -> str:
        """The name under which other nodes reach ``host``."""
        return self.extras.address.replace("{host}", host)

    def suits(self, backend: str) -> bool:
        """Whether the environment is meant for ``backend``."""
        return _suits(self.environ_extras, backend)

    @cached_property
    def output(self) -> Path | None:
        """The folder for run directories. Raises InvalidInput if its variables are not set here."""
        if self.extras.output is None and self.prefix is not None:
            return self._path("prefix", self.prefix, "runs")
        return self._path("output", self.extras.output)

    @cached_property
    def hosts(self) -> Path | None:
        """The host file. Raises InvalidInput as ``output`` does."""
        return self._path("hosts", self.extras.hosts)

    @cached_property
    def python(self) -> Path | None:
        """The Python environment that the site provides. Raises InvalidInput as ``output`` does."""
        return self._path("python", self.environ_extras.python)

    def _path(self, field: str, text: str | None, *below: str) -> Path | None:
        """``text`` as a path; a relative one starts from the site file."""
        if text is None:
            return None
        expanded = os.path.expandvars(text)
        if unset := re.search(r"\$\{?\w+\}?", expanded):
            raise InvalidInput(f"{self.file}: {field} '{text}': {unset[0]} is not set here")
        return (self.file.parent / Path(expanded).expanduser()).joinpath(*below)

    def as_dict(self) -> dict[str, Any]:
        """All fields as plain values, for JSON."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        for name in ("extras", "environ_extras"):
            plain[name] = plain[name].model_dump()
        return plain | {"file": str(self.file), "resources": [one.model_dump() for one in self.resources]}


def find(name: str, environ: str | None = None, backend: str | None = None) -> Target:
    """The target that ``name`` stands for: ``system``, ``system:partition``, a file's stem, or a path of a site file.

    Without a partition it is the first; without ``environ`` the first of the partition's environments that is meant for
    ``backend``, if any is. The user's profiles are preferred to the built-in ones. Raises InvalidInput for what is not
    known, and for a file that is broken.
    """
    file, partition_name = _file(name)
    if file.site is None:
        raise InvalidInput(_broken(file))
    wanted = name if _is_path(name) else name.partition(":")[0]
    system = next((one for one in file.site.systems if one.name == wanted), file.site.systems[0])
    partitions = {partition.name: partition for partition in system.partitions}
    if partition_name is None:
        partition = system.partitions[0]
    elif partition_name in partitions:
        partition = partitions[partition_name]
    else:
        raise InvalidInput(f"site {system.name} has no partition '{partition_name}'; it has {_listed(partitions)}")
    environment = _environment(file.site, f"{system.name}:{partition.name}", partition, environ, backend)
    return _merged(file.path, system, partition, environment)


def _is_path(name: str) -> bool:
    return "/" in name or name.endswith(SUFFIXES)


def _file(name: str) -> tuple[SiteFile, str | None]:
    """The file that ``name`` means, and the partition that it names."""
    if _is_path(name):
        path = Path(name).expanduser().absolute()
        if not path.is_file():
            raise InvalidInput(f"--site {name}: no such file")
        return read(path), None
    system, colon, partition = name.partition(":")
    every = files()
    for one in (*_meant(every, system, False), *_meant(every, system, True)):
        return one, partition if colon else None
    known = [known for file in every for known in file.names]
    short = [known.partition(":")[0] for known in known]
    suggestion = _suggestion(name, known) or _suggestion(system, [*short, *(file.path.stem for file in every)])
    raise InvalidInput(
        f"unknown site '{name}'{f'; {suggestion}' if suggestion else ''} Known sites: {_listed(known)}".replace(
            "' Known", "'. Known"
        )
    )


def _meant(every: list[SiteFile], name: str, built_in: bool) -> list[SiteFile]:
    """The files of one origin that ``name`` may mean: first by the names of their systems, then by their own."""
    origin = [file for file in every if file.built_in == built_in]
    return [file for file in origin if name in _systems(file)] + [file for file in origin if file.path.stem == name]


def _systems(file: SiteFile) -> set[str]:
    """Names of systems. A broken file stands for those of the built-in file that it replaces, too."""
    if file.site is None and not file.built_in:
        return file.claimed | read(BUILT_IN / f"{file.path.stem}.toml").claimed
    return set(file.claimed)


def _broken(file: SiteFile) -> str:
    more = len(file.problems) - 1
    return f"{file.problems[0]}{f' (and {more} more; see `harness site check {file.path}`)' if more else ''}"


def _environment(
    site: Site, target: str, partition: Partition, wanted: str | None, backend: str | None
) -> Environment | None:
    every = [environment for environment in site.environments if environment.name in partition.environs]
    every.sort(key=lambda environment: partition.environs.index(environment.name))
    if wanted is None:
        return next((one for one in every if backend is None or _suits(one.extras, backend)), None)
    for one in every:
        if one.name == wanted:
            if backend is None or _suits(one.extras, backend):
                return one
            raise InvalidInput(f"--environ {wanted}: at {target} it is for {_listed(one.extras.backends)}")
    raise InvalidInput(f"--environ {wanted}: {target} has {_listed(one.name for one in every) or 'no environments'}")


def _suits(extras: EnvironmentExtras, backend: str) -> bool:
    meant = {name.replace("-", "_") for name in extras.backends}
    return not meant or backend.replace("-", "_") in meant


def _merged(file: Path, system: System, partition: Partition, environment: Environment | None) -> Target:
    layers = (system, partition, *((environment,) if environment else ()))
    processor = partition.processor
    cores = (
        processor.num_cpus // processor.num_cpus_per_core if processor.num_cpus and processor.num_cpus_per_core else None
    )
    variables: dict[str, str] = {}
    for layer in layers:
        variables |= dict(layer.env_vars)
    return Target(
        name=f"{system.name}:{partition.name}",
        file=file,
        descr=_descr(system, partition),
        scheduler=partition.scheduler,
        launcher=partition.launcher,
        access=partition.access,
        modules_system=system.modules_system,
        modules=tuple(dict.fromkeys(module for layer in layers for module in layer.modules)),
        env_vars=tuple(variables.items()),
        prepare_cmds=tuple(command for layer in layers for command in layer.prepare_cmds),
        time_limit_s=None if partition.time_limit is None else duration_s(partition.time_limit),
        max_jobs=partition.max_jobs,
        cores_per_node=cores,
        gpus_per_node=sum(device.num_devices for device in partition.devices if device.type == "gpu"),
        resources=partition.resources,
        features=partition.features,
        extras=partition.extras,
        prefix=system.prefix,
        environ=environment.name if environment else None,
        environ_extras=environment.extras if environment else EnvironmentExtras(),
    )


def _descr(system: System, partition: Partition) -> str:
    return ", ".join(text for text in (system.descr, partition.descr) if text)


@dataclass(frozen=True)
class Listed:
    """A partition, as ``harness list sites`` shows it."""

    name: str
    scheduler: str
    node: str
    descr: str
    origin: str
    file: str


def survey() -> tuple[list[Listed], list[SiteFile]]:
    """All partitions that ``find`` knows, and the files that are broken."""
    every = files()
    taken: set[str] = set()
    rows = []
    for file in every:
        for system in file.site.systems if file.site else ():
            if system.name not in taken:
                rows += [_row(file, system, partition) for partition in system.partitions]
        taken |= _systems(file)
    return rows, [file for file in every if file.problems]


def _row(file: SiteFile, system: System, partition: Partition) -> Listed:
    processor, devices = partition.processor, partition.devices
    cpus = f"{processor.num_cpus} CPUs" if processor.num_cpus else ""
    having = [cpus, *(f"{device.num_devices} × {device.model or device.type}" for device in devices)]
    return Listed(
        name=f"{system.name}:{partition.name}",
        scheduler=partition.scheduler,
        node=", ".join(text for text in having if text),
        descr=_descr(system, partition),
        origin="built in" if file.built_in else "yours",
        file=str(file.path),
    )


def checked_files(names: Iterable[str]) -> list[SiteFile]:
    """The files that ``names`` mean (names as for ``find``); all there are, if there are no names. Raises InvalidInput."""
    chosen = [_file(name)[0] for name in names]
    return list({file.path: file for file in chosen}.values()) if chosen else files()


def check(name: str) -> list[Problem]:
    """Everything that is wrong with the file that ``name`` means. Raises InvalidInput if there is none."""
    return problems(_file(name)[0])


def problems(file: SiteFile) -> list[Problem]:
    """Everything that is wrong with ``file``, also that which other files and this program make wrong."""
    return [*file.problems, *_unknown_backends(file), *_ambiguous(file)]


def _unknown_backends(file: SiteFile) -> Iterator[Problem]:
    from harness.backend import names

    for e, environment in enumerate(file.site.environments if file.site else ()):
        for b, name in enumerate(environment.extras.backends):
            if name.replace("-", "_") not in names():
                field = f"environments[{e}].extras.backends[{b}]"
                message = f"unknown backend '{name}'; {_suggestion(name, names()) or _there_are(names())}"
                yield Problem(str(file.path), field, message)


def _ambiguous(file: SiteFile) -> Iterator[Problem]:
    """A system of two files of the user's: which of them is meant depends on their names, and should not."""
    if file.path.parent != user_folder():
        return
    others = [read(path) for path in _in_folder(user_folder()) if path != file.path]
    counted = Counter(name for other in others for name in other.claimed)
    for s, system in enumerate(file.site.systems if file.site else ()):
        if counted[system.name]:
            where = next(other.path for other in others if system.name in other.claimed)
            yield Problem(str(file.path), f"systems[{s}].name", f"'{system.name}' is also in {where}")


def values(target: Target) -> Mapping[str, str]:
    """``target`` as text, field by field, for people. Fields without a value are left out."""
    gpus = str(target.gpus_per_node) if target.gpus_per_node else ""
    shown: dict[str, Any] = {
        "site": target.name,
        "file": target.file,
        "descr": target.descr,
        "scheduler": target.scheduler,
        "launcher": target.launcher,
        "access": target.access,
        "environ": target.environ,
        "modules_system": target.modules_system if target.modules else None,
        "modules": target.modules,
        "env_vars": tuple(f"{name}={value}" for name, value in target.env_vars),
        "prepare_cmds": target.prepare_cmds,
        "time_limit_s": target.time_limit_s,
        "max_jobs": target.max_jobs,
        "cores_per_node": target.cores_per_node,
        "gpus_per_node": gpus,
        "features": target.features,
        "prefix": target.prefix,
    }
    shown |= {f"resources.{one.name}": one.options for one in target.resources}
    extras = target.extras.model_dump()
    if target.launcher != "srun":
        del extras["mpi"]
    shown |= {f"extras.{name}": value for name, value in (extras | target.environ_extras.model_dump()).items()}
    return {
        name: " | ".join(value) if isinstance(value, tuple) else str(value)
        for name, value in shown.items()
        if value not in (None, (), "")
    }
