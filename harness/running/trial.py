"""A site profile on trial: whether a run there would be taken, by this program and by Slurm.

Nothing is submitted unless images are to be opened.
"""

import re
import shutil
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from harness.core.spec import RunSpec
from harness.core.subject import Subject
from harness.errors import HarnessError, InvalidInput, RunFailed
from harness.launch import containers, slurm
from harness.running.prepare import Place
from harness.running.request import carry_out, jobs_of
from harness.sites import config
from harness.sites.file import Mistake, Partition, SiteEnvironment, SiteFile, SystemEntry
from harness.sites.site import merged

OPENING_S = 1800  # to fetch and unpack an image of 10 GB, too
NO_ENVIRONMENT: list[SiteEnvironment | None] = [None]


@dataclass(frozen=True)
class Trial:
    """What came of trying a partition: ``agreed`` if a run would be; what is wrong, or else a remark for people."""

    site: str
    agreed: bool = False
    remark: str = ""
    mistakes: tuple[Mistake, ...] = ()


def trials(file: SiteFile, offline: bool, named: bool, opening: bool = False) -> list[Trial]:
    """Try every partition of ``file``. A file that was not ``named`` is tried on its own hosts only.

    With ``opening`` the images of its environments are opened, each by a command on one node.
    """
    return [
        _trial(file, f"systems[{s}].partitions[{p}]", system, partition, offline, named, opening)
        for s, system in enumerate(file.systems)
        for p, partition in enumerate(system.partitions)
    ]


def _trial(
    file: SiteFile,
    field: str,
    system: SystemEntry,
    partition: Partition,
    offline: bool,
    named: bool,
    opening: bool,
) -> Trial:
    name = f"{system.name}:{partition.name}"
    queued = partition.launcher == "srun"
    if reason := _not_tried(system, partition, offline, named):
        return Trial(name, remark=reason)
    assert file.description
    environments = {environment.name: environment for environment in file.description.environments}
    mistakes = {
        mistake
        for environment in ([environments[name] for name in partition.environs] or NO_ENVIRONMENT)
        if (mistake := _refusal(file, field, system, partition, environment))
    }
    mistakes |= _closed(file, field, partition, environments.values()) if queued else set()
    complaint, plugins = _said("srun", "--mpi=list") if queued else ("", "")
    if plugins and not complaint and partition.extras.mpi not in re.findall(r"\w+", plugins):
        reason = f"srun has no MPI plugin '{partition.extras.mpi}': {plugins}"
        mistakes.add(Mistake(str(file.path), f"{field}.extras.mpi", reason))
    remarks = ["Slurm takes its jobs"] if queued else []
    if images := [each for each in map(environments.get, partition.environs) if each and each.extras.container]:
        if opening and not mistakes:
            mistakes = set(filter(None, (_unopened(file, field, system, partition, each) for each in images)))
        names = ", ".join(each.name for each in images)
        remarks.append(f"{'opened' if opening else 'not opened, see --open:'} the images of {names}")
    return Trial(name, not mistakes, "; ".join(remarks) * (not mistakes), tuple(sorted(mistakes, key=str)))


def _unopened(
    file: SiteFile, field: str, system: SystemEntry, partition: Partition, environment: SiteEnvironment
) -> Mistake | None:
    """The reason why a command on one node does not run in the image of an environment."""
    site = merged(file.path, system, partition, environment)
    try:
        place = Place(site, account=config.read().account if site.queued else None)
        carry_out(Subject(command=("true",)).specs({"timeout_s": OPENING_S}), place).check()
    except (InvalidInput, RunFailed) as error:
        return Mistake(str(file.path), f"{field}.environs", f"cannot open the image of {environment.name}: {error}")
    return None


def _closed(file: SiteFile, field: str, partition: Partition, environments: Iterable[SiteEnvironment]) -> set[Mistake]:
    """The platforms of a partition that are not there. Modules may bring them, which are not loaded here."""
    bringing = {each.type for each in partition.container_platforms if each.modules}
    named = {each.type for each in partition.container_platforms}
    named |= {
        each.extras.container.platform
        for each in environments
        if each.name in partition.environs and each.extras.container and each.extras.container.platform
    }
    mistakes = set()
    for name in sorted(named - bringing):
        try:
            reason = containers.lacking(name)
        except HarnessError as error:
            reason = str(error)
        if reason:
            mistakes.add(Mistake(str(file.path), f"{field}.container_platforms", reason))
    return mistakes


def _not_tried(system: SystemEntry, partition: Partition, offline: bool, named: bool) -> str:
    """Why a partition cannot be tried from here, "" if it can."""
    if offline:
        return "not tried"
    if partition.launcher == "ssh" and not partition.extras.hosts:
        return "not tried: a run needs --hosts FILE"
    if partition.launcher != "srun":
        return ""
    if shutil.which("sbatch") is None:
        return "not tried against Slurm: no sbatch on PATH"
    if not named and system.hostnames and not system.is_of(socket.gethostname()):
        return "not tried against Slurm: this host is not one of its hostnames"
    # What Slurm refuses while it does not answer is not the profile's fault.
    silence = _said("sinfo", "--noheader", "--format=%P")[0]
    return silence and f"not tried against Slurm, whose controller does not answer: {silence}"


def _refusal(
    file: SiteFile, field: str, system: SystemEntry, partition: Partition, environment: SiteEnvironment | None
) -> Mistake | None:
    """What is said against the job of a run on one node: a run is planned as ``harness run`` does it, and Slurm asked."""
    site = merged(file.path, system, partition, environment)
    backend = next(iter(site.environ_extras.backends), "pytorch")
    account = config.read().account if site.queued else None
    try:
        # Over ssh a machine would be asked for its cores, unless the threads are known.
        place = Place(site, account=account, dry_run=not site.queued)
        run = place.prepare(RunSpec.validated(backend=backend, threads=1))
        if not site.queued:
            return None
        ((_, script),) = jobs_of([run], place.options)
        if words := _said("sbatch", "--test-only", "--job-name=harness-site-check", text=script)[0]:
            options = re.findall(r"^#SBATCH (--(?!job-name|output|open-mode|no-requeue)\S+.*)", script, re.MULTILINE)
            return Mistake(str(file.path), f"{field}.access", f"Slurm refuses {' '.join(options)}: {words}")
        place.prepare(RunSpec.validated(backend=backend))  # whose threads need the nodes' cores
    except InvalidInput as error:
        of_file = str(error).startswith(str(file.path))
        return Mistake("", "", str(error)) if of_file else Mistake(str(file.path), field, str(error))
    return None


@cache
def _said(*argv: str, text: str = "") -> tuple[str, str]:
    """What a command of Slurm's complains of, "" if it ends well; and all that it writes, in a line."""
    try:
        done = slurm.ask(*argv, text=text)
    except HarnessError as error:
        return str(error), ""
    said = " ".join((done.stdout + done.stderr).split())  # older versions of srun write its plugins to stderr
    return slurm.words(done.stderr) if done.returncode else "", said
