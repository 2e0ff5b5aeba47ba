"""From a wish to a plan: the site, its machines, the interpreter and the seats are each found once, and handed on.

Nothing here starts a process of the run or writes a file.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from harness import environments
from harness.core.backend import Backend, backend
from harness.core.plan import Allocation, Interpreter, LaunchPlan, Node, complete, hosts_of, launch_plan, with_options
from harness.core.spec import RunSpec
from harness.environments import pythons
from harness.errors import InvalidInput
from harness.launch import hostfile, local, slurm, ssh
from harness.launch.hostfile import HostFile
from harness.launch.script import JobOptions, scheduler_option
from harness.sites import site as sites
from harness.sites.file import duration_s
from harness.sites.site import Site

DEFAULT_OUTPUT = Path("runs")


@dataclass(frozen=True)
class Where:
    """Where to run, as a person says it: all of it may be left out, and then it is this machine.

    ``environment`` is a Python environment to use instead of the built one. A dry run touches no machine of the site.
    """

    site: str | None = None
    environ: str | None = None
    account: str | None = None
    job_options: tuple[str, ...] = ()
    time_limit: str | None = None
    hosts: Path | None = None
    output: Path | None = None
    port: int | None = None
    environment: Path | None = None
    dry_run: bool = False

    def place(self) -> Place:
        """What it means. Raises InvalidInput for options that make no sense together."""
        site = sites.find(self.site, self.environ) if self.site is not None else None
        queued = site is not None and site.queued
        if site is not None and queued:
            site = slurm.asked_about(site)
        options = (*self.job_options, *((f"account={self.account}",) if self.account else ()))
        for option, value in (("-J", options), ("--time-limit", self.time_limit)):
            if value and not queued:
                raise self.no_batch_system(option)
        if self.environ and site is None:
            raise InvalidInput(f"--environ {self.environ}: environments belong to a site; give --site")
        if self.hosts and (site is None or site.scheduler != "ssh"):
            raise InvalidInput(
                f"--hosts {self.hosts}: a host file is for sites that are reached with ssh, such as --site ec2"
            )
        try:
            limit_s = duration_s(self.time_limit) if self.time_limit is not None else None
        except ValueError as error:
            raise InvalidInput(f"--time-limit {self.time_limit}: {error}") from None
        return Place(self, site, JobOptions(tuple(map(scheduler_option, options)), limit_s), self._output(site))

    def no_batch_system(self, option: str) -> InvalidInput:
        """The complaint about an option that only a batch system understands."""
        return InvalidInput(
            f"{option}: there is no batch system {f'at {self.site}' if self.site else 'without --site'}"
        )

    def _output(self, site: Site | None) -> Path:
        try:
            return self.output or (site and site.output) or DEFAULT_OUTPUT
        except InvalidInput:  # its variables need not be set where nothing is written
            if self.dry_run:
                return DEFAULT_OUTPUT
            raise


@dataclass(frozen=True)
class Place:
    """Where runs take place: the site (None: this machine), what its scheduler is told, the folder for run directories."""

    where: Where
    site: Site | None
    options: JobOptions
    output: Path

    @property
    def queued(self) -> bool:
        """Runs are jobs of a batch system there."""
        return self.site is not None and self.site.queued

    @property
    def elsewhere(self) -> bool:
        """Runs take place on other machines than this one."""
        return self.site is not None and self.site.scheduler != "local"

    def device(self, wanted: str) -> str:
        """ "cpu" or "cuda": what ``auto`` means there."""
        if self.site is None or not self.elsewhere:
            return local.device_here(wanted)
        return wanted if wanted != "auto" else ("cuda" if self.site.gpus_per_node else "cpu")

    @cached_property
    def hosts(self) -> HostFile | None:
        """The machines of a site that is reached with ssh. Raises InvalidInput."""
        if self.site is None or self.site.scheduler != "ssh":
            return None
        path = self.where.hosts or self.site.hosts
        if path is None:
            raise InvalidInput(
                f"--site {self.site.name}: which machines? give --hosts FILE with one per line, "
                "or extras.hosts in the profile"
            )
        return hostfile.read(path)

    def prepare(self, spec: RunSpec) -> Prepared:
        """Plan a run there. Touches nothing but ports, and over ssh one machine; needs no environment.

        Raises InvalidInput for anything about the request that cannot work.
        """
        chosen = backend(spec.backend)
        spec = with_options(spec, chosen)
        seats = chosen.seats(spec)
        site = self._site_for(spec)
        if site is None:
            allocation = local.allocation(hosts_of(seats), len(seats), self.where.port)
        else:
            allocation = self._elsewhere(site, spec, hosts_of(seats), len(seats))
        full = complete(spec, chosen, allocation)
        interpreter = _interpreter(full, chosen, self.where.environment or (site.python if site else None))
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        name = f"{stamp}-{full.backend}-{full.model}-n{full.nodes}-{secrets.token_hex(4)}"
        run_dir = (self.output / name).absolute()
        plan = launch_plan(full, chosen, seats, allocation, interpreter, str(run_dir))
        return Prepared(full, chosen, plan, run_dir, interpreter.path, site)

    def _site_for(self, spec: RunSpec) -> Site | None:
        """The site, with the first of its environments that is meant for the backend unless one was chosen, and its cores.

        None for runs on this machine.
        """
        site = self.site
        if site is None or not self.elsewhere:
            return None
        if self.where.site and not self.where.environ and site.environ:
            suited = sites.find(self.where.site, None, spec.backend)
            site = replace(suited, cores_per_node=site.cores_per_node, time_limit_s=site.time_limit_s)
        if self.hosts and site.cores_per_node is None and spec.threads is None and not self.where.dry_run:
            site = replace(site, cores_per_node=ssh.cores(site, self.hosts.nodes[0].name))
        return site

    def _elsewhere(self, site: Site, spec: RunSpec, nodes: int, processes: int) -> Allocation:
        """Machines of the host file, or nodes of a batch system, which have their names once the job runs."""
        cores, hosts = site.cores_per_node, self.hosts
        if cores is None and spec.threads is None:
            silent = "the profile (processor.num_cpus) does not say" if hosts else None
            raise InvalidInput(
                f"--site {site.name}: {silent or 'neither the profile (processor.num_cpus) nor sinfo says'} "
                "how many cores a node has; give --threads"
            )
        # A profile that says how to ask for GPUs, but not how many there are, gets as many as are wanted.
        asks_for_gpus = spec.device == "cuda" and site.resource_options("gpu", num_gpus_per_node=0)
        gpus = tuple(map(str, range(site.gpus_per_node or (spec.devices_per_node if asks_for_gpus else 0))))
        named = hosts.first(nodes) if hosts else tuple(Node(f"node{i}", f"node{i}") for i in range(nodes))
        return Allocation(
            nodes=tuple(replace(node, gpus=gpus) for node in named),
            cores_per_node=cores or 1,
            base_port=self.where.port or site.extras.port or local.random_ports(processes),
            mpi_env=ssh.mpi_env(site) if hosts else {},
        )


@dataclass(frozen=True)
class Prepared:
    """A completed spec with its plan: all that ``--dry-run`` shows.

    ``python`` is the interpreter of its environment. Without ``site`` it runs on this machine.
    """

    spec: RunSpec
    backend: Backend
    plan: LaunchPlan
    run_dir: Path
    python: str
    site: Site | None = None

    def check_environment(self) -> None:
        """Raise InvalidInput unless its environment is there, and complete if harness has built it."""
        wanted = _wanted(self.spec, self.backend)
        interpreter = Path(self.python)
        built = interpreter == environments.python(wanted)  # one that the user provides is not ours to judge
        if interpreter.exists() and not (built and environments.status(wanted) != "ready"):
            return
        environments.require(wanted)
        raise InvalidInput(f"{interpreter}: no such Python")


def _interpreter(spec: RunSpec, chosen: Backend, provided: Path | None) -> Interpreter:
    wanted = _wanted(spec, chosen)
    try:
        if provided is not None:
            return Interpreter(str(pythons.at(provided, wanted)), isolated=False)
        return Interpreter(str(environments.python(wanted)))
    except OSError as error:
        raise InvalidInput(f"--env {provided}: {error.strerror}") from None


def _wanted(spec: RunSpec, chosen: Backend) -> environments.EnvironmentSpec:
    """The environment that a completed spec runs in."""
    assert spec.framework
    return chosen.environment(spec.framework, "cuda" if spec.device == "cuda" else "cpu")
