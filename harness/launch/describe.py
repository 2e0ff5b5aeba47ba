"""The cluster around here, as its Slurm describes it: partitions, cores, GPUs, MPI plugins; and a first profile of it."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.core.parts import part
from harness.core.text import listed, plural, templates
from harness.errors import HarnessError, InvalidInput
from harness.launch import containers, slurm
from harness.sites.site import Site

# Partition, nodes, longest job, CPUs, threads per core and generic resources of a node, its sockets and their cores: a line
# for nodes that are alike.
COLUMNS = "%P|%a|%D|%l|%c|%Z|%G|%X|%Y"
# An entry of generic resources is name[:type][:count][(sockets or indices)]. A type may begin with a digit, as 3090 does.
GPU = re.compile(r"(?:gres/)?gpu(?:[:=]([^:=()]+|\(null\)))??(?:[:=](\d+))?(?:\(.*\))?")


@dataclass(frozen=True)
class Described:
    """A partition as Slurm describes most of its nodes, and the fewest cores of any. ``time_limit`` is "" for none."""

    name: str
    default: bool
    nodes: int
    mixed: bool
    longest_s: float | None
    cores: int
    fewest_cores: int
    cpus_per_core: int
    gpus: int
    gpu_model: str

    def __str__(self) -> str:
        gpus = f", {self.gpus} × {self.gpu_model or 'GPU'} each" if self.gpus else ""
        return f"{self.name} ({plural(self.nodes, 'node')}{gpus})"

    @property
    def time_limit(self) -> str:
        """The longest job as a profile has it, such as ``1d12h``; "" for no limit."""
        minutes = int(self.longest_s or 0) // 60
        parts = ((minutes // 1440, "d"), (minutes // 60 % 24, "h"), (minutes % 60, "m"))
        return "".join(f"{count}{unit}" for count, unit in parts if count)

    @property
    def profile_name(self) -> str:
        """Its name with the characters that a profile allows."""
        name = re.sub(r"[^A-Za-z0-9_-]", "_", self.name)
        return name if re.match("[A-Za-z_]", name) else f"_{name}"


def profile(name: str) -> str:
    """A site file for the system ``name``, in TOML. Raises InvalidInput where no Slurm answers, SlurmSilent."""
    if not slurm.answers():
        instead = "copy a profile, such as the one of `harness site path generic-slurm`"
        raise InvalidInput(f"no Slurm answers here (`sinfo`): call this on the cluster's login node, or {instead}")
    if not (partitions := _partitions()):
        raise InvalidInput("Slurm has no partition that is up and has nodes; see `sinfo`")
    plugins = _plugins()
    environment = templates(part("jobs"))
    environment.filters["toml"] = json.dumps  # TOML's basic strings are written as JSON's
    return environment.get_template("site.toml.j2").render(
        name=name,
        hostname=re.sub(r"\d+", lambda _: r"\d+", re.escape(socket.gethostname())) + "$",
        partitions=partitions,
        mpi=next((plugin for plugin in ("pmi2", "pmix", *plugins) if plugin in plugins), ""),
        plugins=", ".join(plugins),
        platforms=containers.available(),
        output="$SCRATCH/harness/runs" if os.environ.get("SCRATCH") else "",
    )


def described(lines: str) -> list[Described]:
    """The partitions of sinfo's ``lines`` in COLUMNS that are up and have nodes, the default one first."""
    groups: dict[str, list[Described]] = {}
    for name, up, *fields in (line.strip().split("|") for line in lines.splitlines() if line.count("|") >= 6):
        if up == "up" and (group := _group(name, *fields)):
            groups.setdefault(name, []).append(group)
    partitions = []
    for alike in groups.values():
        largest, fewest_cores = max(alike, key=lambda group: group.nodes), min(group.cores for group in alike)
        partitions.append(replace(largest, mixed=len(alike) > 1, fewest_cores=fewest_cores))
    return sorted(partitions, key=lambda partition: not partition.default)


def _group(
    name: str, nodes: str, limit: str, cpus: str, per_core: str, resources: str, *of_sockets: str
) -> Described | None:
    """Nodes that are alike, from their columns; None where a count is none, or 0."""
    try:  # CPUs may be cores, or without those set aside
        count, threads = _count(nodes), _count(per_core)
        cores = math.prod(map(_count, of_sockets)) if of_sockets else max(1, _count(cpus) // threads)
        gpus = gpus_of(resources)
    except (ValueError, ZeroDivisionError):
        return None
    if not (count and cores):
        return None
    longest_s = slurm.limit_s(limit)
    return Described(name.removesuffix("*"), name.endswith("*"), count, False, longest_s, cores, cores, threads, *gpus)


def _count(text: str) -> int:
    """``128``, ``8+`` (nodes differ) and ``1.2K``. Raises ValueError."""
    number = text.rstrip("+")
    return int(1000 * float(number[:-1])) if number.endswith("K") else int(number)


def gpus_of(resources: str) -> tuple[int, str]:
    """The number of GPUs in generic resources, and their model if they have one, else ""."""
    entries = (GPU.fullmatch(entry.strip()) for entry in re.split(r",(?![^(]*\))", resources))
    gpus = [(match[1] or "", int(match[2] or 1)) for match in entries if match]
    models = {"" if model == "(null)" else model for model, _ in gpus}
    return sum(count for _, count in gpus), models.pop() if len(models) == 1 else ""


def known() -> list[Described]:
    """The partitions of the Slurm that is here; none where there is none, or it is silent."""
    try:
        return _partitions() if shutil.which("sinfo") else []
    except slurm.SlurmSilent:
        return []


def _partitions() -> list[Described]:
    """The partitions of the Slurm that is here. Raises SlurmSilent."""
    return described(slurm.ask("sinfo", "-h", "-o", COLUMNS).stdout)


def asked_about(site: Site, options: Sequence[str]) -> Site:
    """``site`` with the cores that its profile leaves open and the longest time limit, as Slurm, where it is, knows them.

    They are those of the partition among a person's own ``options``, else of the site's, else of Slurm's default one.
    """
    chosen = slurm.partitions_in(options)
    if site.cores_per_node and site.time_limit_s and not chosen:
        return site
    chosen = chosen or slurm.partitions_in(site.access)
    used = [partition for partition in known() if (partition.name in chosen if chosen else partition.default)]
    longest_s = max((partition.longest_s for partition in used if partition.longest_s), default=None)
    limits_s = [seconds for seconds in (site.time_limit_s, longest_s) if seconds]
    cores = site.cores_per_node or min((partition.fewest_cores for partition in used), default=None)
    return site.model_copy(update={"cores_per_node": cores, "time_limit_s": min(limits_s, default=None)})


def check_partition(options: Sequence[str]) -> None:
    """Check that the options of a job name a partition, or that Slurm has a default one. Raises InvalidInput."""
    if slurm.partitions_in(options) or not (partitions := known()) or any(each.default for each in partitions):
        return
    raise InvalidInput(f"Slurm has no default partition: give -J partition=NAME, of {listed(partitions, 'or')}")


def unused(options: Sequence[str]) -> str:
    """A line about partitions and GPUs that a run without a profile leaves alone, "" if there are none."""
    partitions, remarks = known(), []
    if len(partitions) > 1 and not slurm.partitions_in(options):
        remarks.append("-J partition=NAME chooses")
    if any(partition.gpus for partition in partitions):
        remarks.append("no GPU is used without a profile: `harness site init NAME` writes one")
    return "; ".join([f"Slurm has {listed(partitions)}", *remarks]) if remarks else ""


def _plugins() -> list[str]:
    """The values of srun's --mpi; none if it does not list them."""
    try:
        done = slurm.ask("srun", "--mpi=list")
    except HarnessError:
        return []
    words = re.findall(r"\w+", (done.stdout + done.stderr).partition("are")[2])
    return [word for word in dict.fromkeys(words) if re.match(r"pmi|cray|openmpi", word)]
