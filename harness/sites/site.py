"""Site profiles: the site files, and the Site that a run names, which is all that a launcher needs."""

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.core.text import did_you_mean
from harness.errors import InvalidInput
from harness.files import at_home
from harness.sites import config
from harness.sites.config import expanded
from harness.sites.file import (
    BUILT_IN,
    WITH_HOSTS,
    EnvironmentExtras,
    Mistake,
    Partition,
    SiteEnvironment,
    SiteFile,
    SystemEntry,
    duration_s,
    instead,
    read,
)

SUFFIXES = (".toml", ".json")
VARIABLE = re.compile(r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\})")  # in the value of a site's variable


def user_folder() -> Path:
    """Where users keep their own profiles: ``$XDG_CONFIG_HOME/harness/sites``."""
    return config.folder() / "sites"


def files() -> list[SiteFile]:
    """All site files, the user's first. One replaces the built-in one of its name, and if broken claims its systems."""
    users = [read(path) for path in _in_folder(user_folder())]
    stems = {file.path.stem for file in users}
    built_in = {path.stem: read(path) for path in _in_folder(BUILT_IN)}
    for i, file in enumerate(users):
        if file.mistakes and (replaced := built_in.get(file.path.stem)):
            users[i] = replace(file, claimed=file.claimed | replaced.claimed)
    return [*users, *(file for stem, file in built_in.items() if stem not in stems)]


def _in_folder(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.suffix in SUFFIXES)


class Site(Partition):
    """The place of a run: one of a system's partitions, merged with the system and one of its environments.

    ``name`` is ``system:partition``; ``cores_per_node`` counts physical cores. Modules, variables and commands are in the
    order system, partition, environment. Paths may hold ``~`` and variables until they are asked for.
    """

    name: str
    file: Path
    modules_system: str
    time_limit_s: float | None
    cores_per_node: int | None
    gpus_per_node: int
    prefix: str | None
    environ: str | None
    environ_extras: EnvironmentExtras

    @property
    def queued(self) -> bool:
        """A batch system carries runs out, elsewhere and later."""
        return self.scheduler in ("slurm", "squeue")

    @property
    def usual_platform(self) -> str | None:
        """The platform that runs images if none is named: the partition's default one, or its only one."""
        platforms = self.container_platforms
        return next((each.type for each in platforms if each.default or len(platforms) == 1), None)

    def with_platform(self, name: str) -> "Site":
        """This site, with the modules and variables of a container platform."""
        named = [platform for platform in self.container_platforms if platform.type.casefold() == name.casefold()]
        modules = (*self.modules, *(module for platform in named for module in platform.modules))
        env_vars = _in_turn([*self.env_vars, *(variable for platform in named for variable in platform.env_vars)])
        return self.model_copy(update={"modules": modules, "env_vars": env_vars})

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """``environ`` with the site's variables, in which ``$NAME`` and ``${NAME}`` are what they were before."""
        changed = dict(environ)
        for name, value in self.env_vars:
            changed[name] = VARIABLE.sub(lambda match: changed.get(match[0].strip("${}"), ""), value)
        return changed

    def gpu_options(self, gpus_per_node: int) -> list[str]:
        """The scheduler options that ask for GPUs; none if the partition has no resource ``gpu``."""
        options = [option for resource in self.resources if resource.asks_for_gpus for option in resource.options]
        return [option.format(num_gpus_per_node=gpus_per_node) for option in options]

    @property
    def output(self) -> Path | None:
        """The folder for run directories. Raises InvalidInput if its variables are not set here."""
        if self.extras.output is None and self.prefix is not None:
            return self._path("prefix", self.prefix, "runs")
        return self._path("output", self.extras.output)

    @property
    def hosts(self) -> Path | None:
        return self._path("hosts", self.extras.hosts)

    def namespaces_of(self, host: str) -> int | None:
        """The PID, first in its file, in the host's network and UTS namespaces; None for machines. Raises InvalidInput."""
        path = self._path("namespaces", self.extras.namespaces and self.extras.namespaces.format(host=host))
        if path is None:
            return None
        try:
            return int(path.read_text().split()[0])
        except (OSError, ValueError, IndexError):
            raise InvalidInput(f"{path}: no process has the namespaces of {host}: is it up?") from None

    @property
    def python(self) -> Path | None:
        """The Python environment that the site provides. Raises InvalidInput as ``output`` does."""
        return self._path("python", self.environ_extras.python)

    def _path(self, field: str, text: str | None, *below: str) -> Path | None:
        """``text`` as a path; a relative one starts from the site file."""
        if text is None:
            return None
        return (self.file.parent / expanded(text, f"{self.file}: {field}")).joinpath(*below)

    def as_dict(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude={"environs", "time_limit", "processor", "devices"})


def find(name: str, environ: str | None = None, backend: str | None = None) -> Site:
    """The site that ``name`` stands for: ``system``, ``system:partition``, a file's stem, or a path of a site file.

    Without a partition it is the first; without ``environ`` the first of its environments that is meant for ``backend``, if
    any is. Raises InvalidInput for what is not known, and for a file that is broken.
    """
    file, system_name, partition_name = _located(name)
    if file.description is None:
        more = len(file.mistakes) - 1
        more_of_them = f" (and {more} more; see `harness site check {file.path}`)" if more else ""
        raise InvalidInput(f"{file.mistakes[0]}{more_of_them}")
    system = next((system for system in file.systems if system.name == system_name), file.systems[0])
    partitions = {partition.name: partition for partition in system.partitions}
    partition = partitions.get(partition_name) if partition_name else system.partitions[0]
    if partition is None:
        raise InvalidInput(f"site {system.name} has no partition '{partition_name}'; it has {', '.join(partitions)}")
    if environ is not None and environ not in partition.environs:
        named = ", ".join(partition.environs) or "no environments"
        raise InvalidInput(f"--environ {environ}: {system.name}:{partition.name} has {named}")
    environments = {environment.name: environment for environment in file.description.environments}
    candidates = [environments[name] for name in (partition.environs if environ is None else [environ])]
    suited = (each for each in candidates if not backend or backend in (each.extras.backends or [backend]))
    return merged(file.path, system, partition, next(suited, None))


def of_host(host: str) -> str | None:
    """The system whose ``hostnames`` match ``host``, the user's own first; None if there is none.

    One that Slurm serves is left out where there is no ``sbatch``, and one that is this machine alone changes nothing.
    """
    slurm = shutil.which("sbatch") is not None
    for file in files():
        for system in file.systems:
            scheduler = system.partitions[0].scheduler
            if system.is_of(host) and scheduler != "local" and (slurm or scheduler in WITH_HOSTS):
                return system.name
    return None


def _located(name: str) -> tuple[SiteFile, str, str]:
    """The file that ``name`` means (its own name before a system's), its system and partition; "" is the first."""
    if "/" in name or name.endswith(SUFFIXES):
        path = at_home(name).absolute()
        if not path.is_file():
            raise InvalidInput(f"site file {name}: no such file")
        return read(path), "", ""
    system, _, partition = name.partition(":")
    known_files = files()
    matches = [file for file in known_files if system == file.path.stem or system in file.claimed]
    if matches:
        return min(matches, key=lambda file: (file.built_in, system != file.path.stem)), system, partition
    known = [f"{each.name}:{part.name}" for file in known_files for each in file.systems for part in each.partitions]
    names = [*(site.partition(":")[0] for site in known), *(file.path.stem for file in known_files), *known]
    close = did_you_mean(name, names) or did_you_mean(system, names)
    raise InvalidInput(f"unknown site '{name}'; {close + ' ' if close else ''}known sites are {', '.join(known)}")


def _in_turn(variables: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """``variables`` without those that a later one replaces; one whose value has its own ``$NAME`` adds to the earlier."""
    kept: dict[str, list[str]] = {}
    for name, value in variables:
        adds = any(reference.strip("${}") == name for reference in VARIABLE.findall(value))
        kept[name] = [*(kept.get(name, []) if adds else []), value]
    return tuple((name, value) for name, values in kept.items() for value in values)


def merged(file: Path, system: SystemEntry, partition: Partition, environment: SiteEnvironment | None) -> Site:
    """The site of a run: the fields of a system, of one of its partitions and of one of that one's environments."""
    layers = (system, partition, *((environment,) if environment else ()))
    cpus, cpus_per_core = partition.processor.num_cpus, partition.processor.num_cpus_per_core
    fields = {
        "name": f"{system.name}:{partition.name}",
        "file": file,
        "descr": ", ".join(text for text in (system.descr, partition.descr) if text),
        "modules_system": system.modules_system,
        "modules": tuple(dict.fromkeys(module for layer in layers for module in layer.modules)),
        "env_vars": _in_turn([variable for layer in layers for variable in layer.env_vars]),
        "prepare_cmds": tuple(command for layer in layers for command in layer.prepare_cmds),
        "time_limit_s": None if partition.time_limit is None else duration_s(partition.time_limit),
        "cores_per_node": cpus // cpus_per_core if cpus and cpus_per_core else None,
        "gpus_per_node": sum(device.num_devices for device in partition.devices if device.type == "gpu"),
        "prefix": system.prefix,
        "environ": environment.name if environment else None,
        "environ_extras": environment.extras if environment else EnvironmentExtras(),
    }
    return Site(**vars(partition) | fields)


def names() -> list[str]:
    """The names that ``find`` knows: systems, and their partitions as SYSTEM:PARTITION."""
    partitions = [row["name"] for row in survey()[0]]
    return sorted({*partitions, *(name.partition(":")[0] for name in partitions)})


def survey() -> tuple[list[dict[str, str]], list[SiteFile]]:
    """All partitions that ``find`` knows, as ``harness list sites`` shows them, and the files that are broken."""
    known_files, taken, rows = files(), set[str](), []
    for file in known_files:
        free = [system for system in file.systems if system.name not in taken]
        for site in [merged(file.path, system, part, None) for system in free for part in system.partitions]:
            cpus = [f"{site.processor.num_cpus} CPUs"] if site.processor.num_cpus else []
            devices = [f"{device.num_devices} × {device.model or device.type}" for device in site.devices]
            row = {
                "name": site.name,
                "scheduler": site.scheduler,
                "node": ", ".join(cpus + devices),
                "descr": site.descr,
                "origin": "built in" if file.built_in else "yours",
                "file": str(file.path),
            }
            rows.append(row)
        taken |= file.claimed
    return rows, [file for file in known_files if file.mistakes]


def checked_files(names: Iterable[str]) -> list[SiteFile]:
    """The files of ``names``, which are as for ``find``; without names all files. Raises InvalidInput."""
    chosen = [_located(name)[0] for name in names]
    return list({file.path: file for file in chosen}.values()) if chosen else files()


def mistakes(file: SiteFile) -> list[Mistake]:
    """All mistakes in ``file``, also with regard to other files and to this program."""
    from harness.core.backend import names

    problems = {}
    for e, environment in enumerate(file.description.environments if file.description else ()):
        for b, name in enumerate(environment.extras.backends):
            if name not in names():
                unknown = f"unknown backend '{name}'; {instead(name, names())}"
                problems[f"environments[{e}].extras.backends[{b}]"] = unknown
    # Which of two files of the user's with one system is meant depends on their names, and should not.
    users = _in_folder(user_folder())
    owners = {name: path for path in users if path != file.path for name in read(path).claimed}
    for s, system in enumerate(file.systems if file.path in users else ()):
        if owner := owners.get(system.name):
            problems[f"systems[{s}].name"] = f"'{system.name}' is also in {owner}"
    return [*file.mistakes, *(Mistake(str(file.path), field, reason) for field, reason in problems.items())]


def values(site: Site) -> dict[str, str]:
    """``site`` as text, field by field, for people. Fields without a value are left out."""
    fields = site.as_dict()
    extras = fields.pop("extras") | fields.pop("environ_extras")
    if site.launcher != "srun":
        del extras["mpi"]
    fields["env_vars"] = [f"{name}={value}" for name, value in site.env_vars]
    fields |= {f"resources.{resource['name']}": resource["options"] for resource in fields.pop("resources")}
    fields |= {f"extras.{name}": value for name, value in extras.items()}
    return {
        name: " | ".join(value) if isinstance(value, list) else str(value)
        for name, value in fields.items()
        if value not in (None, [], "", 0)
    }
