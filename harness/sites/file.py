"""Site files: a cluster, its partitions and its environments, in TOML or JSON with ReFrame's field names."""

import json
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, Strict, ValidationError, model_validator

from harness.core.parts import part
from harness.core.plan import LAST_PORT
from harness.core.spec import Frozen, Underscored
from harness.core.text import did_you_mean
from harness.core.validation import mistakes

BUILT_IN = part("jobs") / "sites"
TIME_LIMIT = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
WITH_HOSTS = ("ssh", "namespaces")  # schedulers whose machines a host file lists


def duration_s(text: str) -> float:
    """Seconds of a time limit such as ``1d2h3m4s``, every part of which may be left out. Raises ValueError."""
    matched = TIME_LIMIT.fullmatch(text)
    days, hours, minutes, seconds = (int(number or 0) for number in matched.groups()) if matched else (0, 0, 0, 0)
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if not total:
        raise ValueError(f"'{text}' is not a time limit such as 30m, 1h30m or 1d12h")
    return float(total)


# --- values ------------------------------------------------------------------------------------------------------------
# Everything may end up in a job script, so nothing may hold a line break.


def _option(value: str) -> str:
    if "#" in value:
        raise ValueError(f"'{value}' has a #, where a comment would begin in a job script")
    return _word_option(value)


def _word_option(value: str) -> str:
    """An option that is quoted wherever it is used."""
    if not value.startswith("-"):
        raise ValueError(f"'{value}' is not an option: it must start with -")
    try:
        shlex.split(value)
    except ValueError:
        raise ValueError(f"'{value}' has a quote that is not closed") from None
    return value


def _module_name(value: object) -> object:
    """The name of a module, for which ReFrame has a table as another form."""
    return value["name"] if isinstance(value, dict) and value.keys() == {"name"} else value


def _shaped(pattern: str, description: str) -> AfterValidator:
    """A check that a text has the ``pattern``, of which a complaint has the ``description``."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"{value!r} is not {description}")
        return value

    return AfterValidator(check)


OneLine = Annotated[
    str, _shaped(r"[^\x00-\x1f\x7f\x85\u2028\u2029]*", "one line: it holds a line break or another control character")
]
NAME = "[A-Za-z_][A-Za-z0-9_-]*"
SiteName = Annotated[str, _shaped(NAME, "a name: letters, digits, _ and -, beginning with a letter")]
VariableName = Annotated[str, _shaped("[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable")]
ModuleName = Annotated[
    str, BeforeValidator(_module_name), _shaped("[A-Za-z0-9_][A-Za-z0-9_.+/:@%=~-]*", "the name of a module")
]
Option = Annotated[OneLine, AfterValidator(_option)]
LauncherOption = Annotated[OneLine, AfterValidator(_word_option)]
TimeLimit = Annotated[str, AfterValidator(lambda text: duration_s(text) and text)]
Positive = Annotated[int, Strict(), Field(ge=1)]


class Processor(Frozen):
    """The processors of a node. As in ReFrame a CPU is a hardware thread."""

    arch: OneLine | None = None
    model: OneLine | None = None
    num_cpus: Positive | None = None
    num_cpus_per_core: Positive | None = None
    num_cpus_per_socket: Positive | None = None
    num_sockets: Positive | None = None

    @model_validator(mode="after")
    def _counts_agree(self) -> Self:
        cpus, per_core, sockets = self.num_cpus, self.num_cpus_per_core, self.num_sockets
        if cpus and per_core and cpus % per_core:
            raise ValueError(f"num_cpus, {cpus}, is not a multiple of num_cpus_per_core, {per_core}")
        if cpus and sockets and self.num_cpus_per_socket and cpus != sockets * self.num_cpus_per_socket:
            raise ValueError(f"num_cpus, {cpus}, is not num_sockets × num_cpus_per_socket")
        return self


class Device(Frozen):
    """Devices of one kind in every node. Workers can train on devices of type ``gpu``."""

    type: SiteName
    arch: OneLine | None = None
    model: OneLine | None = None
    num_devices: Positive = 1


class Resource(Frozen):
    """Scheduler options under a name, with {placeholders} for what a run asks for."""

    name: SiteName
    options: tuple[Option, ...] = ()

    @property
    def asks_for_gpus(self) -> bool:
        """True if these options ask for a node's GPUs, by our name or by ReFrame's."""
        return self.name in ("gpu", "_rfm_gpu")

    @model_validator(mode="after")
    def _can_be_filled_in(self) -> Self:
        if self.asks_for_gpus:
            try:
                [option.format(num_gpus_per_node=1) for option in self.options]
            except (AttributeError, LookupError, ValueError):
                raise ValueError("options must have no placeholder but {num_gpus_per_node}") from None
        return self


class ContainerPlatform(Frozen):
    """A way to run images that a partition has: modules and variables that it takes. The ``default`` one needs no name."""

    type: SiteName
    modules: tuple[ModuleName, ...] = ()
    env_vars: tuple[tuple[VariableName, OneLine], ...] = ()
    default: bool = False


class Container(Frozen):
    """An image that processes run in. ``mounts`` are SOURCE or SOURCE:TARGET; without a platform it is the partition's."""

    platform: SiteName | None = None
    image: OneLine = Field(min_length=1)
    mounts: tuple[OneLine, ...] = ()
    options: tuple[OneLine, ...] = ()


class PartitionExtras(Frozen):
    """Fields of a partition that a run needs and ReFrame does not have."""

    mpi: Annotated[str, _shaped("[A-Za-z0-9_]+", "a value for srun's --mpi")] = "pmi2"
    address: Annotated[
        str,
        _shaped(r"[A-Za-z0-9._-]*\{host\}[A-Za-z0-9._-]*", "{host} with letters, digits, dots and dashes around it"),
    ] = "{host}"
    launcher_options: tuple[LauncherOption, ...] = ()
    hosts: OneLine | None = Field(default=None, min_length=1)
    namespaces: Annotated[str, _shaped(r".*\{host\}.*", "a file whose name has {host} in it")] | None = None
    output: OneLine | None = Field(default=None, min_length=1)
    port: Annotated[int, Strict(), Field(ge=1, le=LAST_PORT)] | None = None


class SiteSettings(Frozen):
    """A table with a name that adds modules, variables and commands to a run."""

    name: SiteName
    modules: tuple[ModuleName, ...] = ()
    env_vars: tuple[tuple[VariableName, OneLine], ...] = ()
    prepare_cmds: tuple[OneLine, ...] = ()


def _named_once(tables: tuple[Resource | SiteSettings, ...]) -> tuple[Resource | SiteSettings, ...]:
    names = [table.name for table in tables]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise ValueError(f"'{name}' is there twice")
    return tables


NamedOnce = AfterValidator(_named_once)


class Partition(SiteSettings):
    """A part of a system with nodes that are all alike, and the way to get them."""

    descr: OneLine = ""
    scheduler: Literal["local", "slurm", "squeue", "ssh", "namespaces"]
    launcher: Literal["local", "srun", "ssh", "namespaces"]
    access: tuple[Option, ...] = ()
    environs: tuple[SiteName, ...] = ()
    time_limit: TimeLimit | None = None
    max_jobs: Positive | None = None
    resources: Annotated[tuple[Resource, ...], NamedOnce] = ()
    processor: Processor = Processor()
    devices: tuple[Device, ...] = ()
    features: tuple[SiteName, ...] = ()
    container_platforms: tuple[ContainerPlatform, ...] = ()
    extras: PartitionExtras = PartitionExtras()

    @model_validator(mode="after")
    def _fits_its_scheduler(self) -> Self:
        right = "srun" if self.scheduler in ("slurm", "squeue") else self.scheduler  # others are launchers themselves
        if self.launcher != right:
            names = f"launcher '{self.launcher}' does not go with scheduler '{self.scheduler}'"
            raise ValueError(f"{names}; must be {right}")
        misplaced = {
            "access": self.launcher != "srun" and self.access,
            "resources": self.launcher != "srun" and self.resources,
            "extras.mpi": self.launcher != "srun" and "mpi" in self.extras.model_fields_set,
            "extras.hosts": self.scheduler not in WITH_HOSTS and self.extras.hosts,
            "extras.namespaces": self.launcher != "namespaces" and self.extras.namespaces,
            "extras.launcher_options": self.launcher == "local" and self.extras.launcher_options,
        }
        if self.launcher == "namespaces" and not self.extras.namespaces:
            raise ValueError("launcher namespaces needs extras.namespaces")
        if wrong := [field for field, value in misplaced.items() if value]:
            raise ValueError(f"launcher {self.launcher} takes no {' and no '.join(wrong)}")
        return self


class SystemEntry(SiteSettings):
    """A cluster."""

    descr: OneLine = ""
    hostnames: tuple[re.Pattern[str], ...] = ()
    modules_system: Literal["nomod", "tmod", "tmod31", "tmod32", "tmod4", "lmod"] = "nomod"
    prefix: OneLine | None = Field(default=None, min_length=1)
    partitions: Annotated[tuple[Partition, ...], NamedOnce, Field(min_length=1)]

    def is_of(self, host: str) -> bool:
        """``host`` is one of its ``hostnames``, each of which is the beginning of a name, as in ReFrame."""
        return any(pattern.match(host) for pattern in self.hostnames)


class EnvironmentExtras(Frozen):
    """Fields of an environment that a run needs and ReFrame does not have."""

    python: OneLine | None = Field(default=None, min_length=1)
    container: Container | None = None
    backends: tuple[Annotated[SiteName, Underscored], ...] = ()


class SiteEnvironment(SiteSettings):
    """An environment, which partitions list in ``environs``."""

    extras: EnvironmentExtras = EnvironmentExtras()


class SiteDescription(Frozen):
    """The content of a site file."""

    systems: Annotated[tuple[SystemEntry, ...], NamedOnce, Field(min_length=1)]
    environments: Annotated[tuple[SiteEnvironment, ...], NamedOnce] = ()


# --- files -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mistake:
    """A mistake in a site file: the file, the field, and the reason."""

    file: str
    field: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.field, self.message) if part)


@dataclass(frozen=True)
class SiteFile:
    """A site file: its description, or its mistakes."""

    path: Path
    description: SiteDescription | None
    mistakes: tuple[Mistake, ...] = ()
    claimed: frozenset[str] = frozenset()  # the names of its systems, as far as a file with mistakes can be read
    left_out: tuple[str, ...] = ()  # fields of ReFrame's that a run does not need

    @property
    def built_in(self) -> bool:
        return self.path.parent == BUILT_IN

    @property
    def systems(self) -> tuple[SystemEntry, ...]:
        return self.description.systems if self.description else ()


def read(path: Path) -> SiteFile:
    """Read and check a site file. Never raises: problems are in ``mistakes``."""
    try:
        return _read(path, path.stat().st_mtime_ns)
    except OSError as error:
        return SiteFile(path, None, (Mistake(str(path), "", error.strerror or str(error)),))


@lru_cache(maxsize=64)  # a command that plans several runs asks for their site again and again
def _read(path: Path, changed: int) -> SiteFile:
    try:
        text = path.read_text(encoding="utf-8")
        raw = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        return SiteFile(path, None, (Mistake(str(path), "", str(error)),))
    claimed: frozenset[str] = frozenset()
    with suppress(TypeError, KeyError):
        claimed = frozenset(str(system["name"]) for system in raw["systems"])
    description, problems = None, list[tuple[str, str]]()
    raw, left_out = without_others(raw)
    try:
        description = SiteDescription.model_validate(raw)
    except ValidationError as error:
        problems += mistakes(error, SiteDescription)
    with suppress(AttributeError, TypeError, KeyError):  # where tables are no tables, this is the only complaint
        problems += _across_tables(raw)
    all_mistakes = tuple(Mistake(str(path), field, message) for field, message in problems)
    return SiteFile(path, None if problems else description, all_mistakes, claimed, tuple(sorted(set(left_out))))


# Fields that ReFrame's tests need and a run does not, by table; and launchers that srun takes the place of.
OF_REFRAME = {
    "file": "autodetect_methods autodetect_xthostname general logging modes schedulers storage",
    "systems": "max_local_jobs outputdir resourcesdir sched_options stagedir",
    "partitions": "remote_detect sched_options",
    "processor": "info num_cores num_cores_per_numa_node num_cores_per_socket num_numa_nodes platform topology vendor",
    "environments": "cc cflags cppflags cxx cxxflags features fflags ftn ldflags nvcc prog_environments resources "
    "target_systems",
}
LAUNCHERS = {"alps", "clush", "ibrun", "lrun", "lrun-gpu", "mpiexec", "mpirun", "pdsh", "srunalloc", "upcrun"}


def without_others(table: Any, name: str = "file") -> tuple[Any, list[str]]:
    """A table without fields that only ReFrame needs, nor ``extras`` of others that are no slips; and their names."""
    if isinstance(table, list):
        pairs = [without_others(entry, name) for entry in table]
        return [entry for entry, _ in pairs], [field for _, fields in pairs for field in fields]
    if not isinstance(table, dict):
        return table, []
    models: dict[str, type[Frozen]] = {"partitions": PartitionExtras, "environments": EnvironmentExtras}
    kept: dict[str, Any] = {}
    left_out: list[str] = []
    for field, value in table.items():
        if field in OF_REFRAME.get(name, "").split():
            left_out.append(field)
        elif field == "extras" and name in models and isinstance(value, dict):
            known = models[name].model_fields
            others = {extra for extra in value if extra not in known and not did_you_mean(extra, known)}
            left_out += [f"extras.{extra}" for extra in others]
            kept[field] = {extra: text for extra, text in value.items() if extra not in others}
        elif field == "launcher" and value in LAUNCHERS and table.get("scheduler") in ("slurm", "squeue"):
            left_out.append(f"launcher {value}")
            kept[field] = "srun"
        else:
            kept[field], more = without_others(value, field)
            left_out += more
    return kept, left_out


def _across_tables(raw: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The fields that contradict other tables of a site file, and the reasons."""
    known = {environment["name"]: environment for environment in raw.get("environments", ())}
    for s, system in enumerate(raw["systems"]):
        for p, partition in enumerate(system["partitions"]):
            field, environs = f"systems[{s}].partitions[{p}]", partition.get("environs")
            environs = environs if isinstance(environs, list) else []
            for e, name in enumerate(environs):
                if name not in known:
                    yield f"{field}.environs[{e}]", f"'{name}' is not in environments; {instead(name, known)}"
            layers = (system, partition, *(known[name] for name in environs if name in known))
            if system.get("modules_system", "nomod") == "nomod" and any(layer.get("modules") for layer in layers):
                right = "name the system's own, such as 'lmod' or 'tmod'"
                yield field, f"modules cannot be loaded with modules_system 'nomod'; {right}"


def instead(name: str, known: Iterable[str]) -> str:
    """The known names to use instead of an unknown one."""
    known = list(known)
    return did_you_mean(name, known) or (f"there are {', '.join(known)}" if known else "there are none")
