"""From a request to a plan: the site, its machines, the interpreter and the seats are each found once, and handed on.

Nothing here starts a process of the run or writes a file.
"""

import os
import re
import secrets
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from harness import environments
from harness.core.parts import ROOT
from harness.core.plan import LAST_PORT, Allocation, Node, complete, hosts_of, launch_plan, with_options
from harness.core.program import backend_of
from harness.core.spec import SYNTHETIC, RunSpec, variant_of
from harness.core.text import plural
from harness.core.written import understood
from harness.environments import mpi, pythons
from harness.errors import InvalidInput
from harness.files import at_home
from harness.launch import apart, containers, describe, local, slurm, ssh
from harness.launch.script import JobOptions, scheduler_option
from harness.running import preflight
from harness.running.kinds import kind_of
from harness.running.notes import PREFLIGHT
from harness.running.run import Run
from harness.sites import config
from harness.sites import site as sites
from harness.sites.file import WITH_HOSTS, Container, duration_s
from harness.sites.site import Site

DEFAULT_OUTPUT = Path("runs")
SITE_VARIABLE = "HARNESS_SITE"
GENERIC = "generic-slurm"  # the profile of a cluster that has none


def chosen_site(typed: str | None, studys: str | None = None) -> tuple[str | None, str]:
    """The site where something is to run, and the reason for it: "" for a site that the user sees anyway.

    It is that which was ``typed``, the study's, $HARNESS_SITE, the config's, this host's, or else this machine, None.
    Inside a job of Slurm's everything runs there unless another site was typed. Raises InvalidInput.
    """
    if typed or studys:
        return typed or studys, ""
    if "SLURM_JOB_ID" in os.environ:
        return None, ""
    if named := os.environ.get(SITE_VARIABLE):
        return named, f"${SITE_VARIABLE}"
    if named := config.read().site:
        return named, str(config.path())
    host = socket.gethostname()
    if matching := sites.of_host(host):
        return matching, f"its hostnames match this host, {host}"
    if slurm.answers():
        return GENERIC, f"a Slurm answers, and no profile's hostnames match this host, {host}"
    return None, ""


@dataclass(frozen=True)
class Place:
    """The place of a run, this machine without any field. Raises InvalidInput for fields that make no sense together."""

    site: str | Site | None = None  # a name, or the site itself
    environ: str | None = None
    account: str | None = None
    job_options: tuple[str, ...] = ()
    time_limit: str | None = None
    jobs: int | None = None
    hosts: Path | None = None
    output: Path | None = None
    port: int | None = None
    environment: Path | None = None  # a Python environment to use instead of the built one
    container: str | None = None
    mounts: tuple[str, ...] = ()
    container_options: tuple[str, ...] = ()
    tag: str | None = None  # kept by records, which can be selected by it
    dry_run: bool = False  # touches no machine of the site
    force: bool = False  # uses this machine even if it seems too small
    variables: Mapping[str, str] = field(default_factory=dict)  # of every process

    def __post_init__(self) -> None:
        if not self.queued:
            of_jobs = {"-J": self.job_options, "--account": self.account, "--time-limit": self.time_limit}
            if typed := [option for option, value in (of_jobs | {"--jobs": self.jobs}).items() if value]:
                raise self.no_batch_system(typed[0])
        if self.tag is not None and not re.fullmatch(r"[\w.+-]{1,200}", self.tag):
            raise InvalidInput(f"--tag {self.tag!r}: must be letters, digits, '_', '.', '+' and '-', 200 at most")
        if self.jobs is not None and not (isinstance(self.jobs, int) and self.jobs >= 1):
            raise InvalidInput(f"--jobs {self.jobs}: must be a whole number, 1 or more")
        if self.port is not None and not (isinstance(self.port, int) and 1 <= self.port <= LAST_PORT):
            raise InvalidInput(f"--port {self.port}: must be a whole number from 1 to {LAST_PORT}")
        if self.environ and self.site is None:
            raise InvalidInput(f"--environ {self.environ}: environments belong to a site; give --site")
        if self.hosts and (self.profile is None or self.profile.scheduler not in WITH_HOSTS):
            right = "a host file is for sites that are reached with ssh, such as --site ec2"
            raise InvalidInput(f"--hosts {self.hosts}: {right}")
        output = str((self.output or DEFAULT_OUTPUT).absolute())
        if output.encode(errors="replace").decode() != output:
            problem = "its path is no text in this locale"
            raise InvalidInput(f"--output {output!r}: {problem}; set LC_ALL=C.UTF-8, or rename it")
        _ = self.options  # a study makes its folder before it plans a run: options that make no sense are refused now

    @cached_property
    def profile(self) -> Site | None:
        """The site, with what Slurm knows of it; None for this machine."""
        site = sites.find(self.site, self.environ) if isinstance(self.site, str) else self.site
        return describe.asked_about(site, self.options.options) if site and site.queued else site

    @property
    def queued(self) -> bool:
        return self.profile is not None and self.profile.queued

    def container_at(self, site: Site | None) -> Container | None:
        """The image that was typed, or else that of the site's environment, with its platform. Raises InvalidInput."""
        of_site = site.environ_extras.container if site else None
        usual = site.usual_platform if site else None
        if self.container is not None:
            container = containers.parse(self.container, usual)
        elif of_site:
            container = of_site.model_copy(update={"platform": of_site.platform or usual})
        elif self.mounts or self.container_options:
            raise InvalidInput("--mount and --container-option are for an image: give --container TYPE:IMAGE")
        else:
            return None
        if container.platform is None:
            raise InvalidInput(f"the environment {site and site.environ} has an image and no platform to run it with")
        platform, problem = containers.platform(container.platform), ""
        if platform.srun and not self.queued:
            problem = "it is a plugin of Slurm's srun; give --site of a cluster that has it"
        elif platform.local and self.queued:
            problem = "a batch system cannot see what it starts; it is for this machine"
        elif site and site.scheduler in WITH_HOSTS:
            problem = "machines that are reached with ssh run no images"
        if problem:
            raise InvalidInput(f"--container {platform.type}: {problem}")
        more = {"mounts": (*container.mounts, *self.mounts), "options": (*container.options, *self.container_options)}
        return container.model_copy(update=more)

    @cached_property
    def elsewhere(self) -> Site | None:
        """The site, if runs take place on other machines than this one."""
        return self.profile if self.profile and self.profile.scheduler != "local" else None

    @cached_property
    def options(self) -> JobOptions:
        options, limit = (*self.job_options, *([f"account={self.account}"] if self.account else [])), self.time_limit
        limit_s = None if limit is None else understood(f"--time-limit {limit}", limit, duration_s)
        return JobOptions(tuple(map(scheduler_option, options)), limit_s, self.jobs or 1)

    def no_batch_system(self, option: str) -> InvalidInput:
        where = f"at {self.site}" if self.site else "without --site"
        return InvalidInput(f"{option}: there is no batch system {where}")

    @cached_property
    def folder(self) -> Path:
        """The folder for run directories. Raises InvalidInput where a file is in its place."""
        try:
            folder = self.output or (self.profile and self.profile.output) or DEFAULT_OUTPUT
        except InvalidInput:  # its variables need not be set where nothing is written
            if self.dry_run:
                return DEFAULT_OUTPUT
            raise
        # A dry run makes no folder, and shall not show one that could not be made.
        existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(path))
        if not existing.is_dir():
            raise InvalidInput(f"--output {folder}: {existing}: Not a directory")
        return folder

    def device(self, device: str | None) -> str:
        """ "cpu" or "cuda": the kind of device that frameworks use there for ``device``, which may be left open."""
        if device not in (None, "auto"):
            return variant_of(device)
        return "cuda" if (self.elsewhere.gpus_per_node if self.elsewhere else local.local_gpus()) else "cpu"

    @cached_property
    def machines(self) -> tuple[Node, ...]:
        """The machines of the host file of a site that is reached with ssh. Raises InvalidInput."""
        if self.profile is None or self.profile.scheduler not in WITH_HOSTS:
            return ()
        path = self.hosts or self.profile.hosts
        if path is None:
            ways = "give --hosts FILE with one per line, or extras.hosts in the profile"
            raise InvalidInput(f"--site {self.profile.name}: which machines? {ways}")
        return ssh.machines(path)

    def prepare(self, spec: RunSpec, folder: Path | None = None, name: str | None = None) -> Run:
        """Plan a run there, in ``folder``; it needs no environment. Touches only ports, and over ssh one machine.

        Raises InvalidInput for anything about the request that cannot work.
        """
        chosen = backend_of(spec)
        spec = with_options(spec, chosen)
        if spec.device == "auto":  # the same for any number of nodes, and refused where the GPUs are too few
            device = self.device(None) if "cuda" in chosen.devices else "cpu"
            spec = spec.model_copy(update={"device": device})
        seats = chosen.seats(spec)
        site = self._site_for(spec)
        if site is None:
            allocation = local.allocation(hosts_of(seats), len(seats), self.port)
        else:
            allocation = self._allocation(site, spec, hosts_of(seats), len(seats))
        full = complete(spec, chosen, allocation)
        container = self.container_at(site)
        if full.mpi and not container:
            allocation = _with_library(full.mpi, allocation, site)
        assert full.framework
        built = chosen.environment(full.framework, chosen.variant(full))
        # A program brings its own Python, if it needs one; what starts it runs on any.
        of_program = Path(sys.executable) if spec.program else None
        provided = self.environment or (site and site.python) or of_program
        if not provided and full.device == "cuda" and full.transport in chosen.brought:
            raise InvalidInput(
                f"--transport {full.transport}: {chosen.name} as harness builds it sends what is on GPUs by "
                f"{' or '.join(chosen.cuda_transports)}; give --env PYTHON of one that was built for {full.transport}"
            )
        try:
            if container:  # the Python is the image's
                provided = self.environment or Path((site and site.environ_extras.python) or "python3")
                python = provided
            else:
                python = pythons.at(provided, built) if provided else environments.python(built)
        except OSError as error:
            raise InvalidInput(f"--env {provided}: {error.strerror}") from None
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        name = name or f"{stamp}-{full.backend}-{full.subject}-n{full.nodes}-{secrets.token_hex(4)}"
        run_dir = ((folder or self.folder) / name).absolute()
        of_plan = (full, chosen, seats, allocation, str(python), str(run_dir))
        plan = launch_plan(*of_plan, isolated=provided is None, variables=self.variables)
        if container:
            data = [] if full.data == SYNTHETIC else [str(at_home(full.data).absolute())]
            folders = [str(ROOT.parent), str(run_dir.parent), *data]
            names = {name for process in plan.processes for name in process.env}
            inside = containers.within(container, folders, run_dir, full.device == "cuda", names)
            plan = replace(plan, container=inside)
            site = site and site.with_platform(inside["platform"])
        environment, site_name = None if provided else built, site.name if site else None
        return kind_of(full)(full, chosen, plan, run_dir, site, site_name, environment, tag=self.tag or "")

    def with_preflight(self, run: Run) -> Run:
        """``run`` with a check of its nodes before it, in an environment that exists if possible. Raises InvalidInput."""
        specs = preflight.specs(run.spec, run.backend, run.plan.nodes)
        for spec in specs:
            checking = self.prepare(spec, run.folder, PREFLIGHT)
            try:
                if not self.dry_run:
                    self.check(checking)
                break
            except InvalidInput:
                if spec is specs[-1]:
                    raise
        return replace(run, preflight=checking)

    def check(self, run: Run) -> None:
        """Check that ``run`` fits this machine, if it is to run here, and has what it needs. Raises InvalidInput."""
        if refusals := self.refusals([run]):
            raise InvalidInput(refusals[0])
        run.check()

    def exposed(self, runs: Sequence[Run]) -> str:
        """A warning about people who can reach the servers of ``runs`` on a cluster, "" if nobody else can."""
        names = sorted({run.spec.backend for run in runs if apart.is_open(run.spec.backend)})
        if not names or not self.elsewhere:
            return ""
        danger = "who could read and write your files while it lasts (docs/safety.md)"
        return f"the servers of {', '.join(names)} let in whoever can connect to the run's nodes, {danger}"

    def check_all(
        self, runs: Sequence[Run], about: Callable[[Run], AbstractContextManager[None]] = lambda run: nullcontext()
    ) -> None:
        """``check`` each run in its context ``about``. Raises InvalidInput for the first, naming environments together."""
        environments.require_all({run.environment for run in runs if run.environment})
        for run in runs:
            with about(run):
                self.check(run)

    def refusals(self, runs: Sequence[Run]) -> list[str]:
        """The reasons why this machine, if it is to carry ``runs`` out, cannot hold some of them: one for each of these.

        Raises InvalidInput for images that are not there.
        """
        for data in {run.spec.data for run in runs} - {SYNTHETIC}:
            from harness.worker.inputs.errors import DataError
            from harness.worker.inputs.index import folder_at

            try:
                folder_at(data)
            except DataError as error:
                raise InvalidInput(f"--data: {error}") from None
            except OSError as error:
                raise InvalidInput(f"--data {data}: {error.strerror}") from None
        if self.elsewhere or self.force:
            return []
        return list(filter(None, (local.shortage(run.plan, run.spec) for run in runs)))

    def _site_for(self, spec: RunSpec) -> Site | None:
        """The site with its cores, in the environment that was chosen or its first one for the backend."""
        site = self.elsewhere
        if site is None:
            return None
        if isinstance(self.site, str) and not self.environ and site.environ:
            known = {"cores_per_node": site.cores_per_node, "time_limit_s": site.time_limit_s}
            site = sites.find(self.site, None, spec.backend).model_copy(update=known)
        if self.machines and len(self.machines) < spec.nodes:  # before they are asked for anything
            raise self._too_few(site, spec.nodes)
        if site.scheduler == "ssh" and site.cores_per_node is None and spec.threads is None and not self.dry_run:
            site = site.model_copy(update={"cores_per_node": ssh.cores(site, self.machines[0].name)})
        return site

    def _too_few(self, site: Site, nodes: int) -> InvalidInput:
        machines = plural(len(self.machines), "machine")
        return InvalidInput(f"--hosts {self.hosts or site.hosts} lists {machines}, the run needs {nodes}")

    def _allocation(self, site: Site, spec: RunSpec, nodes: int, processes: int) -> Allocation:
        """The machines of the host file, or nodes of a batch system, which have their names once the job runs."""
        cores, hosts = site.cores_per_node, self.machines
        if site.queued:
            describe.check_partition([*site.access, *self.options.options])
        if cores is None and spec.threads is None:
            ways = "set processor.num_cpus in its profile, or give --threads"
            raise InvalidInput(f"--site {site.name}: how many cores has a node? {ways}")
        # A profile that says how to ask for GPUs, but not how many there are, gets the number of --devices-per-node.
        asks_for_gpus = spec.device == "cuda" and site.gpu_options(0)
        gpus = tuple(map(str, range(site.gpus_per_node or (spec.devices_per_node if asks_for_gpus else 0))))
        named = hosts[:nodes] if hosts else tuple(Node(f"node{i}", f"node{i}") for i in range(nodes))
        if len(named) < nodes:
            raise self._too_few(site, nodes)
        return Allocation(
            nodes=tuple(replace(node, gpus=gpus) for node in named),
            cores_per_node=cores or 1,
            base_port=self.port or site.extras.port or local.random_ports(processes),
            mpi_env=ssh.mpi_env(site) if hosts else {},
        )


def place_of_runs(
    typed: str | None, studys: str | None = None, tell: Callable[[str], None] = lambda line: None, /, **given: Any
) -> Place:
    """The place of a run that starts now, at the ``chosen_site``; ``given`` are other fields of ``Place``.

    ``tell`` gets a line about a site that was not typed. An account or a folder that is left out is the config's.
    Raises InvalidInput, also on a login node within an allocation.
    """
    name, reason = chosen_site(typed, studys)
    if name is None and "SLURM_JOB_ID" in os.environ and "SLURMD_NODENAME" not in os.environ:
        raise InvalidInput(
            f"this host, {socket.gethostname()}, is no node of the job {os.environ['SLURM_JOB_ID']}: start harness on one "
            "(srun --pty bash), or give --site NAME for a job of its own, or --site local to measure this host"
        )
    if name and reason and (site := sites.find(name)).scheduler != "local":
        tell(f"harness: runs at {site.name}: {reason} (--site local is this machine)")
        options = [*map(scheduler_option, given.get("job_options", ()))]
        if site.file.stem == GENERIC and (more := describe.unused(options)):
            tell(f"harness: {more}")
    if name is None and (others := int(os.environ.get("SLURM_JOB_NUM_NODES", "1")) - 1) > 0:
        idle = "its other node idles" if others == 1 else f"its {others} other nodes idle"
        tell(f"harness: runs on this node of the job {os.environ['SLURM_JOB_ID']} alone; {idle}")
    chosen = config.read()
    if name and sites.find(name).queued:
        given["account"] = given.get("account") or chosen.account
    return Place(site=name, **given | {"output": given.get("output") or chosen.folder})


def _with_library(library: str, allocation: Allocation, site: Site | None) -> Allocation:
    """``allocation`` with the variables of an MPI ``library``. Raises InvalidInput if its processes cannot be started."""
    if library == "openmpi" and not (site and site.queued and site.extras.mpi.startswith("pmix")):
        remedy = "give a --site with extras.mpi = 'pmix'"
        remedy += f"; the profile of {site.name} has '{site.extras.mpi}'" if site and site.queued else ""
        raise InvalidInput(f"--mpi openmpi: its ranks meet through PMIx, which Slurm serves: {remedy}")
    return replace(allocation, mpi_env={**allocation.mpi_env, **mpi.variables(library)})
