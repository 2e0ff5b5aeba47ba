"""A first profile of the cluster around here, of what its Slurm says: partitions, cores, GPUs, MPI plugins."""

import json
import os
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from harness.core.parts import part
from harness.core.text import templates
from harness.errors import HarnessError, InvalidInput
from harness.launch import slurm

# Partition, nodes, longest job, CPUs, threads per core and generic resources of a node: a line for nodes that are alike.
COLUMNS = "%P|%a|%D|%l|%c|%Z|%G"
GPUS = re.compile(r"gpu(?::([A-Za-z][^:,()]*))?:(\d+)")


@dataclass(frozen=True)
class Described:
    """A partition as Slurm describes most of its nodes. ``cpus`` are hardware threads, ``time_limit`` is "" for none."""

    name: str
    default: bool
    nodes: int
    mixed: bool
    time_limit: str
    cpus: int
    cpus_per_core: int
    gpus: int
    gpu_model: str

    @property
    def profile_name(self) -> str:
        """Its name with the characters that a profile allows."""
        name = re.sub(r"[^A-Za-z0-9_-]", "_", self.name)
        return name if re.match("[A-Za-z_]", name) else f"_{name}"


def profile(name: str) -> str:
    """A site file for the system ``name``, in TOML. Raises InvalidInput where no Slurm answers, SlurmSilent."""
    if not slurm.answers():
        raise InvalidInput(
            "no Slurm answers here (`sinfo`): call this on the cluster's login node, or copy a profile, such as "
            "the one of `harness site path generic-slurm`"
        )
    partitions = described(slurm.ask("sinfo", "-h", "-o", COLUMNS).stdout)
    if not partitions:
        raise InvalidInput("Slurm has no partition that is up; see `sinfo`")
    plugins = _plugins()
    environment = templates(part("jobs"))
    environment.filters["toml"] = json.dumps  # TOML's basic strings are written as JSON's
    return environment.get_template("site.toml.j2").render(
        name=name,
        hostname=re.sub(r"\d+", lambda _: r"\d+", re.escape(socket.gethostname())) + "$",
        partitions=partitions,
        mpi=next((plugin for plugin in ("pmi2", "pmix", *plugins) if plugin in plugins), ""),
        plugins=", ".join(plugins),
        output="$SCRATCH/harness/runs" if os.environ.get("SCRATCH") else "",
    )


def described(lines: str) -> list[Described]:
    """The partitions of sinfo's ``lines`` in COLUMNS that are up, the default one first."""
    groups: dict[str, list[list[str]]] = {}
    for name, up, *fields in (line.strip().split("|") for line in lines.splitlines() if line.count("|") == 6):
        if up == "up":
            groups.setdefault(name, []).append(fields)
    partitions = []
    for name, alike in groups.items():
        nodes, limit, cpus, per_core, resources = max(alike, key=lambda fields: int(fields[0]))
        models = GPUS.findall(resources)
        partitions.append(
            Described(
                name=name.removesuffix("*"),
                default=name.endswith("*"),
                nodes=int(nodes),
                mixed=len(alike) > 1,
                time_limit=_written(slurm.limit_s(limit)),
                cpus=int(cpus.rstrip("+")),
                cpus_per_core=int(per_core.rstrip("+")),
                gpus=sum(int(count) for _, count in models),
                gpu_model=models[0][0] if len(models) == 1 else "",
            )
        )
    return sorted(partitions, key=lambda partition: not partition.default)


def _written(seconds: float | None) -> str:
    """Seconds as a profile has them, such as ``1d12h``; "" for none."""
    minutes = int(seconds or 0) // 60
    parts: Iterable[tuple[int, str]] = ((minutes // 1440, "d"), (minutes // 60 % 24, "h"), (minutes % 60, "m"))
    return "".join(f"{count}{unit}" for count, unit in parts if count)


def _plugins() -> list[str]:
    """What srun's --mpi may be; none if it does not say."""
    try:
        done = slurm.ask("srun", "--mpi=list")
    except HarnessError:
        return []
    words = re.findall(r"\w+", (done.stdout + done.stderr).partition("are")[2])
    return [word for word in dict.fromkeys(words) if re.match(r"pmi|cray|openmpi", word)]
