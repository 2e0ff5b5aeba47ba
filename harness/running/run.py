"""One run from plan to record: write the run directory, launch the repeats, judge them, write the record."""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from harness import environments
from harness.core.backend import Backend
from harness.core.emulation import remedy
from harness.core.plan import LaunchPlan
from harness.core.spec import RunSpec
from harness.environments import mpi, pythons
from harness.errors import HarnessError, InvalidInput, RunFailed
from harness.files import write_atomically
from harness.launch import local, ssh
from harness.launch.containers import FILE as CONTAINER
from harness.launch.slurm import JobState, SlurmSilent
from harness.launch.watch import Followed, Progress, Watch
from harness.records.pairs import Preflight
from harness.records.record import AnyRecord, Check
from harness.running.notes import Submission
from harness.running.pace import Pace
from harness.sites.site import Site
from harness.version import harness_version
from harness.worker import machine
from harness.worker.agent.seating import PLAN, SPEC, SUBMISSION, Hosts, digest_of, folder_of

Facts = dict[str, Any]  # the fields that records of every kind have


@dataclass
class Run(ABC):
    """A completed spec with its plan: ``begin``, ``repeat`` each repeat, and ``finish``. Kinds of work are subclasses."""

    RECORD: ClassVar[type[AnyRecord]]  # the model of its record
    UNIT: ClassVar[str] = "repeats"  # that its progress is counted in

    spec: RunSpec
    backend: Backend
    plan: LaunchPlan
    folder: Path
    site: Site | None = None  # None on this machine, and for a run that is read from its folder
    site_name: str | None = None
    environment: environments.EnvironmentSpec | None = None  # None for one that the user provides, which is not checked
    started: str = ""
    session: str = ""  # the name of the job of its repeats where runs take turns without a batch system
    tag: str = ""
    inputs: Any = None  # what its kind needs
    preflight: Run | None = None  # checks the nodes before
    judged: list[dict[str, Any]] = field(default_factory=list)  # the fields of a record's ``Repeat`` for each so far
    last: Watch | None = None  # of the last repeat that was judged

    def planned(self) -> int:
        """The number of its units, at most."""
        return self.spec.repeats

    def done(self) -> int:
        """The number of its units that have ended, as the run directory tells."""
        if self.submitted:
            return len(list(self.folder.glob("repeat-*/ended.json")))
        # One after another, and the last has not ended.
        return max(len(list(self.folder.glob("repeat-*"))) - 1, 0)

    @abstractmethod
    def judge_ranks(self, watch: Watch) -> tuple[Sequence[object], list[Check]]:
        """The reports of the workers of a repeat, and the checks of them. Raises RunFailed for a report that is missing."""

    @abstractmethod
    def record(self, complete: bool, facts: Facts) -> AnyRecord:
        """The record of what was judged; with its figures if it is ``complete``. ``facts`` are fields of every record."""

    def find_inputs(self) -> object:
        """Look for the inputs beyond the plan, if it needs any, and check them. Raises InvalidInput; writes nothing."""
        return None

    def write_inputs(self) -> None:
        """Write the inputs into the run directory, for the workers and for ``record``. Raises OSError."""
        return

    def result(self) -> str:
        """The result of the last repeat that was judged, in a few words; "" for a kind that tells it in another way."""
        return ""

    def continuation(self) -> str:
        """The way to go on with a run that has ended too early, "" if there is none."""
        return ""

    @property
    def python(self) -> str:
        return self.plan.processes[0].argv[0]

    @property
    def record_file(self) -> Path:
        return self.folder / self.RECORD.file_name

    @property
    def submitted(self) -> bool:
        """True if a batch system carries it out; any other run is carried out by the command that began it."""
        return (self.folder / SUBMISSION).exists()

    def check(self) -> None:
        """Check that its environment, its MPI library and its data are there. Raises InvalidInput; writes nothing."""
        container = self.plan.container
        if self.environment:
            environments.require(self.environment)
        elif not container and not Path(self.python).exists():
            raise InvalidInput(f"{self.python}: no such Python")
        if not container and self.spec.mpi in mpi.LIBRARIES:
            environments.require(mpi.environment(self.spec.mpi))
        if not self.environment:
            self._check_packages()
        self.inputs = self.find_inputs()

    def _check_packages(self) -> None:
        """Check that a Python that the user, the site or an image provides has the framework. Raises InvalidInput."""
        container = self.plan.container or {"command": [], "image": ""}
        python = [*container["command"], self.python]
        if (self.site and (self.site.modules or self.site.prepare_cmds)) or not shutil.which(python[0]):
            return  # modules and commands may bring the packages, or what opens the image
        framework = self.spec.framework
        assert framework
        imports = self.backend.environment(framework, self.backend.variant(self.spec)).imports
        if not imports:  # it runs a program of the user's
            return
        needed = dict.fromkeys(["numpy", imports[0].partition(".")[0], *({framework} & {*imports})])
        environ = self.site.environment(os.environ) if self.site else os.environ
        if missing := pythons.lacks(python, needed, {**environ, **self.plan.processes[0].env}):
            image = f"{container['image']}: " if container["image"] else ""
            without = f"{image}{self.python} is a Python without {' and '.join(missing)}"
            raise InvalidInput(f"{without}: give --env PYTHON of one that has what {self.backend.name} needs")

    def begin(self) -> None:
        """Write the run directory. Raises InvalidInput or RunFailed; then no run directory is left."""
        with making(self.folder):
            self.folder.mkdir(parents=True)
        try:
            self.write_inputs()
            if self.plan.container and self.plan.container["file"]:
                write_atomically(self.folder / CONTAINER, self.plan.container["file"])
            write_atomically(self.folder / PLAN, self.plan.to_json())
            # Last, as it makes a folder a run directory for whoever looks meanwhile.
            write_atomically(self.folder / SPEC, self.spec.model_dump_json(indent=1))
        except BaseException as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            if isinstance(error, OSError):
                raise self._cannot_write(error) from None
            raise
        self.started = now()
        if self.site and self.site.queued:
            record = self.RECORD.file_name
            Submission(site=self.site.name, started=self.started, record=record, tag=self.tag).write(self.folder)

    def repeat(self, number: int, on_progress: Callable[[Progress], None]) -> None:
        """Do it once, in fresh processes. Raises RunFailed when a process fails, hangs, or a check does not pass."""
        started, watch = now(), self.watch(number)
        try:
            watch.make_folders()
            if self.site is not None and self.site.scheduler == "ssh":
                ssh.run(watch, on_progress, self.site)
            else:
                local.run(watch, on_progress, self.site)
        except OSError as error:
            raise self._cannot_write(error) from None
        self.judge(watch, started, now())

    def watch(self, number: int, hosts: Hosts | None = None) -> Watch:
        """The processes of a repeat, with nothing read yet; on the ``hosts`` that its job got, if that has begun."""
        return Watch(self.plan, self.folder, number, self.spec.timeout_s, hosts)

    def judge(self, watch: Watch, started: str, ended: str) -> None:
        """Judge and keep what the processes, which all ended well, have reported. Raises RunFailed for a failed check."""
        ranks, checks = self.judge_ranks(watch)
        judged = {"number": watch.repeat, "ranks": ranks, "checks": checks, "started": started, "ended": ended}
        if self.session:
            judged["job"] = self.session
        if hosts := watch.hosts:
            judged |= {"job": hosts.job, "restart": hosts.restart, "nodes": [name for name, _ in hosts.nodes]}
        self.judged.append(judged)
        self.last = watch
        if failed := {check.name: check.detail for check in checks if not check.passed}:
            reasons = [f"{name}: {detail}" for name, detail in failed.items()] + remedy(failed.keys())
            raise RunFailed(f"repeat {watch.repeat} does not count: {'; '.join(reasons)}")

    def finish(self, error: BaseException | None = None) -> AnyRecord:
        """Write the record: with its figures if it is complete and valid, else with the reason, which is ``error``.

        Machine, software and variables are those that the first process has reported. Without a report nothing is known but
        this machine, if the run was to take place here. Raises RunFailed when the record cannot be written.
        """
        failed = "failed" if isinstance(error, Exception) else "interrupted"
        report = self.last.followed[0].events.get("software", {}) if self.last else {}
        facts = {
            "id": self.folder.name,
            "status": "completed" if error is None else failed,
            "reason": None if error is None else str(error) or type(error).__name__,
            "spec": self.spec,
            "plan": self.plan.as_dict(),
            "machine": report.get("machine") or ({} if self.site_name else machine.describe()),
            "software": {name: report[name] for name in ("python", "packages") if name in report} | self._image(),
            "variables": report.get("variables") or {},
            "harness": harness_version(),
            "site": self.site_name,
            "tag": self.tag,
            "started": self.started,
            "ended": now(),
        }
        record = self.record(error is None, facts)
        try:
            record.write(self.folder)
        except OSError as problem:
            raise self._cannot_write(problem, error) from None
        return record

    def _image(self) -> dict[str, dict[str, str]]:
        """The image that the processes ran in, if any, with the digest that the job or this machine has found."""
        if not (container := self.plan.container):
            return {}
        hosts = Hosts.read(folder_of(self.folder, 1))
        digest = hosts.digest if hosts else digest_of(container) if not self.site_name else ""
        return {"image": {"platform": container["platform"], "name": container["image"], "digest": digest}}

    def _cannot_write(self, error: OSError, hidden: BaseException | None = None) -> RunFailed:
        """The error for a run directory that does not take a file; ``hidden`` is an error that this one hides."""
        earlier = f"; before that: {hidden}" if hidden else ""
        if isinstance(error, FileNotFoundError) and not self.folder.is_dir():
            return RunFailed(f"{self.folder} is gone: somebody has removed the run directory meanwhile{earlier}")
        return RunFailed(f"cannot write {error.filename or self.folder}: {error.strerror}{earlier}")


class Listener:
    """Hears how runs go on, and shows nothing; classes that show it override its methods."""

    def progress(self, run: Run, repeat: int, progress: Progress) -> None:
        """A repeat is under way."""

    def checked(self, run: Run, checks: Preflight) -> None:
        """The check before a run has ended."""

    def ended(self, run: Run, repeat: int, pace: Pace, error: HarnessError | None = None) -> None:
        """A repeat has ended, and does not count if there is an ``error``; ``run`` has judged it last."""

    def queue(self, states: Sequence[JobState]) -> None:
        """Nothing runs; these jobs wait."""

    def silence(self, error: SlurmSilent) -> None:
        """Slurm does not answer; it is asked again."""

    def recorded(self, record: AnyRecord) -> None:
        """One of several runs has its record."""

    def remark(self, line: str) -> None:
        """A line about runs that begin, for people."""


@contextmanager
def making(folder: Path) -> Iterator[None]:
    """While a ``folder`` of --output is made. Raises InvalidInput if it cannot be."""
    try:
        yield
    except OSError as error:
        raise InvalidInput(f"--output {folder.parent}: cannot make {error.filename}: {error.strerror}") from None


def reported(worker: Followed, *names: str) -> list[dict[str, Any]]:
    """A worker's reports of these ``names``. A missing one is a defect of its trainer: raises RunFailed."""
    if missing := set(names) - set(worker.events):
        raise RunFailed(f"worker rank {worker.process.rank} ended without reporting {', '.join(sorted(missing))}")
    return [content(worker.events[name]) for name in names]


def content(event: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in ("event", "time")}


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
