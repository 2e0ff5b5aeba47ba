"""A trial of site profiles: would this program and Slurm take a run? Nothing is submitted unless images are opened."""

import re
import shutil
import socket
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
from harness.sites.site import Site, merged

OPENING_S = 1800  # to fetch and unpack an image of 10 GB, too
SITES_OPTION = re.compile(r"^#SBATCH (--(?!job-name|output|open-mode|no-requeue)\S+.*)", re.MULTILINE)


@dataclass(frozen=True)
class Trial:
    """The result of trying a partition: ``agreed`` if a run would be taken; the mistakes, or else a remark for people."""

    site: str
    agreed: bool = False
    remark: str = ""
    mistakes: tuple[Mistake, ...] = ()


def trials(file: SiteFile, offline: bool, named: bool, opening: bool = False) -> list[Trial]:
    """Try every partition of ``file``. A file that was not ``named`` is tried on its own hosts only.

    With ``opening`` the images of its environments are opened, each by a command on one node.
    """
    candidates = [
        _Candidate(file, f"systems[{s}].partitions[{p}]", system, partition)
        for s, system in enumerate(file.systems)
        for p, partition in enumerate(system.partitions)
    ]
    return [candidate.trial(offline, named, opening) for candidate in candidates]


@dataclass(frozen=True)
class _Candidate:
    """A partition of a site file, which describes it in ``field``."""

    file: SiteFile
    field: str
    system: SystemEntry
    partition: Partition

    @property
    def environments(self) -> list[SiteEnvironment]:
        assert self.file.description
        by_name = {environment.name: environment for environment in self.file.description.environments}
        return [by_name[name] for name in self.partition.environs]

    def trial(self, offline: bool, named: bool, opening: bool) -> Trial:
        name = f"{self.system.name}:{self.partition.name}"
        if reason := self._not_tried(offline, named):
            return Trial(name, remark=reason)
        queued, mpi = self.partition.launcher == "srun", self.partition.extras.mpi
        environments: list[SiteEnvironment | None] = [*self.environments]
        mistakes = set(filter(None, map(self._refusal, environments or [None])))
        if queued:
            mistakes |= self._missing_platforms()
            complaint, plugins = _reply("srun", "--mpi=list")
            if plugins and not complaint and mpi not in re.findall(r"\w+", plugins):
                mistakes.add(self._mistake(".extras.mpi", f"srun has no MPI plugin '{mpi}': {plugins}"))
        remarks = ["Slurm takes its jobs"] if queued else []
        if images := [environment for environment in self.environments if environment.extras.container]:
            if opening and not mistakes:
                mistakes = set(filter(None, map(self._closed_image, images)))
            names = ", ".join(environment.name for environment in images)
            remarks.append(f"{'opened' if opening else 'not opened, see --open:'} the images of {names}")
        return Trial(name, not mistakes, "; ".join(remarks) * (not mistakes), tuple(sorted(mistakes, key=str)))

    def _mistake(self, field: str, reason: str) -> Mistake:
        return Mistake(str(self.file.path), self.field + field, reason)

    def _site(self, environment: SiteEnvironment | None) -> Site:
        return merged(self.file.path, self.system, self.partition, environment)

    def _not_tried(self, offline: bool, named: bool) -> str:
        """The reason why it cannot be tried from here, "" if it can."""
        if offline:
            return "not tried"
        if self.partition.launcher == "ssh" and not self.partition.extras.hosts:
            return "not tried: a run needs --hosts FILE"
        if self.partition.launcher != "srun":
            return ""
        if shutil.which("sbatch") is None:
            return "not tried against Slurm: no sbatch on PATH"
        if not named and self.system.hostnames and not self.system.is_of(socket.gethostname()):
            return "not tried against Slurm: this host is not one of its hostnames"
        # What Slurm refuses while it does not answer is not the profile's fault.
        silence = _reply("sinfo", "--noheader", "--format=%P")[0]
        return silence and f"not tried against Slurm, whose controller does not answer: {silence}"

    def _refusal(self, environment: SiteEnvironment | None) -> Mistake | None:
        """The complaint about the job of a run on one node, planned as ``harness run`` does it, and asked of Slurm."""
        site = self._site(environment)
        backend = next(iter(site.environ_extras.backends), "pytorch")
        account = config.read().account if site.queued else None
        try:
            # Over ssh a machine would be asked for its cores, unless the threads are known.
            place = Place(site, account=account, dry_run=not site.queued)
            run = place.prepare(RunSpec.validated(backend=backend, threads=1))
            if not site.queued:
                return None
            ((_, script),) = jobs_of([run], place.options)
            if complaint := _reply("sbatch", "--test-only", "--job-name=harness-site-check", text=script)[0]:
                options = SITES_OPTION.findall(script)
                return self._mistake(".access", f"Slurm refuses {' '.join(options)}: {complaint}")
            place.prepare(RunSpec.validated(backend=backend))  # whose threads need the nodes' cores
        except InvalidInput as error:
            of_file = str(error).startswith(str(self.file.path))
            return Mistake("", "", str(error)) if of_file else self._mistake("", str(error))
        return None

    def _missing_platforms(self) -> set[Mistake]:
        """The platforms that are not there. Modules, which are not loaded here, may bring others."""
        platforms = self.partition.container_platforms
        images = [environment.extras.container for environment in self.environments]
        names = {platform.type for platform in platforms} | {image.platform for image in images if image}
        mistakes = set()
        for name in sorted(filter(None, names - {platform.type for platform in platforms if platform.modules})):
            try:
                reason = containers.lacking(name)
            except HarnessError as error:
                reason = str(error)
            if reason:
                mistakes.add(self._mistake(".container_platforms", reason))
        return mistakes

    def _closed_image(self, environment: SiteEnvironment) -> Mistake | None:
        """The reason why a command on one node does not run in the image of an environment."""
        try:
            site = self._site(environment)
            place = Place(site, account=config.read().account if site.queued else None)
            carry_out(Subject(command=("true",)).specs({"timeout_s": OPENING_S}), place).check()
        except (InvalidInput, RunFailed) as error:
            return self._mistake(".environs", f"cannot open the image of {environment.name}: {error}")
        return None


@cache
def _reply(*argv: str, text: str = "") -> tuple[str, str]:
    """The complaint of a command of Slurm's, "" if it ends well; and all that it writes, in a line."""
    try:
        done = slurm.ask(*argv, text=text)
    except HarnessError as error:
        return str(error), ""
    output = " ".join((done.stdout + done.stderr).split())  # older versions of srun write its plugins to stderr
    return slurm.words(done.stderr) if done.returncode else "", output
