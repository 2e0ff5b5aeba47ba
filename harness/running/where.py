"""Where a run takes place: this machine or a site, with what a person asks of it for this time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from harness.core.spec import RunSpec
from harness.errors import InvalidInput
from harness.launch import hostfile, slurm, ssh
from harness.launch.local import device_here
from harness.launch.script import Request, scheduler_option
from harness.running import run, submission
from harness.running.run import Prepared

if TYPE_CHECKING:
    from harness.sites.site import Site

DEFAULT_OUTPUT = Path("runs")


@dataclass(frozen=True)
class Where:
    """The site (None: this machine), the request to its scheduler, and the folder for run directories."""

    target: Site | None
    request: Request
    output: Path
    hosts: Path | None = None
    port: int | None = None
    environment: Path | None = None
    site: str | None = None
    environ: str | None = None
    dry_run: bool = False

    @classmethod
    def chosen(
        cls,
        site: str | None = None,
        environ: str | None = None,
        job_options: Sequence[str] = (),
        time_limit: str | None = None,
        hosts: Path | None = None,
        output: Path | None = None,
        port: int | None = None,
        environment: Path | None = None,
        dry_run: bool = False,
    ) -> Self:
        """What the options of a command mean. Raises InvalidInput for those that make no sense together."""
        target = None
        if site is not None:
            from harness.sites import site as sites
            from harness.sites.file import duration_s

            target = sites.find(site, environ)
        queued = target is not None and target.queued
        if target is not None and queued:
            target = slurm.asked_about(target)
        for option, given in (("-J", job_options), ("--time-limit", time_limit)):
            if given and not queued:
                raise no_batch_system(option, site)
        if environ and target is None:
            raise InvalidInput(f"--environ {environ}: environments belong to a site; give --site")
        if hosts and (target is None or target.scheduler != "ssh"):
            raise InvalidInput(
                f"--hosts {hosts}: a host file is for sites that are reached with ssh, such as --site ec2"
            )
        limit_s = None
        if time_limit is not None:
            try:
                limit_s = duration_s(time_limit)
            except ValueError as error:
                raise InvalidInput(f"--time-limit {time_limit}: {error}") from None
        request = Request(tuple(map(scheduler_option, job_options)), limit_s)
        folder = output or _output(target, dry_run) or DEFAULT_OUTPUT
        return cls(target, request, folder, hosts, port, environment, site, environ, dry_run)

    @property
    def queued(self) -> bool:
        """Runs are jobs of a batch system there."""
        return self.target is not None and self.target.queued

    def prepare(self, spec: RunSpec) -> Prepared:
        """Plan a run there. Raises InvalidInput as ``run.prepare`` does."""
        target, machines = self._target_for(spec.backend), None
        if target is not None and target.scheduler == "ssh":
            machines = self._machines(target)
            if target.cores_per_node is None and spec.threads is None and not self.dry_run:
                target = replace(target, cores_per_node=ssh.cores(target, machines.nodes[0].name))
        return run.prepare(spec, self.output, self.port, self.environment, target, machines)

    def _target_for(self, backend: str) -> Site | None:
        """The site with the first of its environments that is meant for ``backend``, unless one was chosen."""
        if self.target is None or self.site is None or self.environ or self.target.environ is None:
            return self.target
        from harness.sites import site as sites

        suited = sites.find(self.site, None, backend)
        return replace(suited, cores_per_node=self.target.cores_per_node, time_limit_s=self.target.time_limit_s)

    def _machines(self, target: Site) -> hostfile.HostFile:
        path = self.hosts or target.hosts
        if path is None:
            raise InvalidInput(
                f"--site {target.name}: which machines? give --hosts FILE with one per line, or extras.hosts in the profile"
            )
        return hostfile.read(path)

    def device(self, wanted: str) -> str:
        """ "cpu" or "cuda": what ``auto`` means there."""
        if self.target is None or self.target.scheduler == "local":
            return device_here(wanted)
        return wanted if wanted != "auto" else ("cuda" if self.target.gpus_per_node else "cpu")

    def scripts(self, prepared: Sequence[Prepared]) -> list[str]:
        """The job scripts that would be submitted; none where there is no batch system."""
        if not prepared[0].queued:
            return []
        return [
            submission.job_script(job, prepared, self.request)
            for job in submission.jobs(prepared, submission.sharing_of(prepared))
        ]


def no_batch_system(option: str, site: str | None) -> InvalidInput:
    """The complaint about an option that only a batch system understands."""
    return InvalidInput(f"{option}: there is no batch system {f'at {site}' if site else 'without --site'}")


def _output(target: Site | None, dry_run: bool) -> Path | None:
    """The site's folder for run directories. Its variables need not be set where nothing is written."""
    try:
        return target.output if target else None
    except InvalidInput:
        if dry_run:
            return None
        raise
