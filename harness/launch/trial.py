"""Ask Slurm whether it would take a site's jobs: nothing is submitted."""

from __future__ import annotations

import re
import shlex
import shutil
import socket
from dataclasses import dataclass
from functools import cache

from harness.errors import HarnessError
from harness.launch import slurm
from harness.sites.file import Mistake, Partition, SiteFile, System

SCRIPT = "#!/bin/sh\ntrue\n"
TEST = ("sbatch", "--test-only", "--job-name=harness-site-check", "--nodes=1", "--time=1", "--output=/dev/null")
PLUGIN = re.compile(r"^\s*(?:srun: )?(\w+)\s*$", re.ASCII | re.MULTILINE)
VERSIONED = re.compile(r"versions available:\s*(.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Trial:
    """What came of trying a partition: what Slurm refuses, or else a remark for people."""

    site: str
    remark: str = ""
    mistakes: tuple[Mistake, ...] = ()


def trials(file: SiteFile, offline: bool, named: bool) -> list[Trial]:
    """Try every partition of ``file``. A file that was not ``named`` is tried on its own hosts only."""
    return [
        _trial(file, f"systems[{s}].partitions[{p}]", system, partition, offline, named)
        for s, system in enumerate(file.systems)
        for p, partition in enumerate(system.partitions)
    ]


def _trial(file: SiteFile, field: str, system: System, partition: Partition, offline: bool, named: bool) -> Trial:
    name = f"{system.name}:{partition.name}"
    if partition.launcher != "srun" or offline:
        return Trial(name)
    if shutil.which("sbatch") is None:
        return Trial(name, "not tried against Slurm: no sbatch on PATH")
    here = socket.gethostname()
    if not named and system.hostnames and not any(pattern.match(here) for pattern in system.hostnames):
        return Trial(name, "not tried against Slurm: this host is not one of its hostnames")
    if silence := _complaint(
        "sinfo", "--noheader", "--format=%P"
    ):  # what Slurm refuses is else not the profile's fault
        return Trial(name, f"not tried against Slurm, whose controller does not answer: {silence}")
    mistakes = []
    access = [word for option in partition.access for word in shlex.split(option)]
    if refusal := _complaint(*TEST, *access, text=SCRIPT):
        options = " ".join(partition.access) or "a job without options"
        mistakes.append(Mistake(str(file.path), f"{field}.access", f"Slurm refuses {options}: {refusal}"))
    if (known := _mpi_plugins()) and partition.extras.mpi not in known:
        reason = f"srun has no MPI plugin '{partition.extras.mpi}'; it has {', '.join(known)}"
        mistakes.append(Mistake(str(file.path), f"{field}.extras.mpi", reason))
    return Trial(name, "" if mistakes else "Slurm takes its jobs", tuple(mistakes))


@cache
def _complaint(*argv: str, text: str = "") -> str:
    """What a command of Slurm's has to complain of; nothing if it ends well."""
    try:
        done = slurm.ask(*argv, text=text)
    except HarnessError as error:
        return str(error)
    return slurm.words(done.stderr) if done.returncode else ""


@cache
def _mpi_plugins() -> list[str]:
    """The values that srun knows for --mpi; none if it does not say."""
    try:
        done = slurm.ask("srun", "--mpi=list")
    except HarnessError:
        return []
    answer = "" if done.returncode else done.stdout + done.stderr  # older versions write to stderr
    versions = [word for line in VERSIONED.findall(answer) for word in re.split(r"[,\s]+", line.strip())]
    return list(dict.fromkeys([*PLUGIN.findall(answer), *versions]))
