"""Site profiles: the site files that there are, and the one that a run means.

What comes out of ``find`` is a Target, the merge of a system, one of its partitions and one of its environments; a launcher
needs nothing else.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import InvalidInput
from harness.sites.file import (
    CONTROL,
    Environment,
    EnvironmentExtras,
    Launcher,
    Partition,
    PartitionExtras,
    Problem,
    Resource,
    Scheduler,
    Site,
    SiteFile,
    System,
    duration_s,
    listed,
    read,
    suggestion,
    there_are,
)

BUILT_IN = Path(__file__).parents[1] / "jobs" / "sites"
SUFFIXES = (".toml", ".json")


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

    @property
    def queued(self) -> bool:
        """A batch system carries runs out, elsewhere and later."""
        return self.scheduler in ("slurm", "squeue")

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

    @property
    def output(self) -> Path | None:
        """The folder for run directories. Raises InvalidInput if its variables are not set here."""
        if self.extras.output is None and self.prefix is not None:
            return self._path("prefix", self.prefix, "runs")
        return self._path("output", self.extras.output)

    @property
    def hosts(self) -> Path | None:
        """The host file. Raises InvalidInput as ``output`` does."""
        return self._path("hosts", self.extras.hosts)

    @property
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
        raise InvalidInput(f"site {system.name} has no partition '{partition_name}'; it has {listed(partitions)}")
    environment = _environment(file.site, f"{system.name}:{partition.name}", partition, environ, backend)
    return _merged(file.path, system, partition, environment)


def _is_path(name: str) -> bool:
    return "/" in name or name.endswith(SUFFIXES)


def _file(name: str) -> tuple[SiteFile, str | None]:
    """The file that ``name`` means, and the partition that it names."""
    if _is_path(name):
        path = Path(name).expanduser().absolute()
        if not path.is_file():
            raise InvalidInput(f"site file {name}: no such file")
        return read(path), None
    system, colon, partition = name.partition(":")
    every = files()
    meant = [*_meant(every, system, built_in=False), *_meant(every, system, built_in=True)]
    if meant:
        return meant[0], partition if colon else None
    known = [known for file in every for known in file.names]
    also = [*(one.partition(":")[0] for one in known), *(file.path.stem for file in every), *known]
    close = suggestion(name, also) or suggestion(system, also)
    raise InvalidInput(f"unknown site '{name}'; {close + ' ' if close else ''}known sites are {listed(known)}")


def _meant(every: list[SiteFile], name: str, built_in: bool) -> list[SiteFile]:
    """The files of one origin that ``name`` may mean: first by the names of their systems, then by their own."""
    origin = [file for file in every if file.built_in == built_in]
    return [file for file in origin if name in _systems(file)] + [file for file in origin if file.path.stem == name]


def _systems(file: SiteFile) -> frozenset[str]:
    """Names of systems. A broken file stands for those of the built-in file that it replaces, too."""
    if file.site is None and not file.built_in:
        return file.claimed | read(BUILT_IN / f"{file.path.stem}.toml").claimed
    return file.claimed


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
            raise InvalidInput(f"--environ {wanted}: at {target} it is for {listed(one.extras.backends)}")
    raise InvalidInput(f"--environ {wanted}: {target} has {listed(one.name for one in every) or 'no environments'}")


def _suits(extras: EnvironmentExtras, backend: str) -> bool:
    meant = {name.replace("-", "_") for name in extras.backends}
    return not meant or backend.replace("-", "_") in meant


def _merged(file: Path, system: System, partition: Partition, environment: Environment | None) -> Target:
    layers = (system, partition, *((environment,) if environment else ()))
    processor = partition.processor
    cores = (
        processor.num_cpus // processor.num_cpus_per_core
        if processor.num_cpus and processor.num_cpus_per_core
        else None
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
    from harness.core.backend import names

    for e, environment in enumerate(file.site.environments if file.site else ()):
        for b, name in enumerate(environment.extras.backends):
            if name.replace("-", "_") not in names():
                field = f"environments[{e}].extras.backends[{b}]"
                message = f"unknown backend '{name}'; {suggestion(name, names()) or there_are(names())}"
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
