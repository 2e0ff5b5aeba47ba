"""One run from spec to record: prepare the run directory, launch the repeats, judge them, write the record."""

from __future__ import annotations

import os
import secrets
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from harness import environments, models
from harness.core.backend import Backend, backend
from harness.core.plan import Allocation, Interpreter, LaunchPlan, Node, complete, hosts_of, launch_plan, with_options
from harness.core.spec import SYNTHETIC, RunSpec
from harness.errors import HarnessError, InvalidInput, RunFailed
from harness.files import write_atomically
from harness.launch import local, ssh
from harness.launch.hostfile import HostFile
from harness.launch.watch import Progress, Watch
from harness.records.checks import Rank, judge
from harness.records.measurement import FILE_NAME, AnyRecord, Derived, Record, Repeat, Status, derive, read, write
from harness.version import harness_version
from harness.worker import machine
from harness.worker.agent.seating import Hosts
from harness.worker.inputs.errors import DataError

# harness.inputs.index is imported where it is used: NumPy takes a quarter of the time that --help and --dry-run may take.
if TYPE_CHECKING:
    from harness.sites.site import Site
    from harness.worker.inputs import index

Listener = Callable[["AnyRun", int, Progress], None]


@dataclass(frozen=True)
class Prepared:
    """A completed spec with its plan: all that ``--dry-run`` shows. Without ``target`` it runs on this machine."""

    spec: RunSpec
    backend: Backend
    plan: LaunchPlan
    run_dir: Path
    target: Site | None = None

    @property
    def queued(self) -> bool:
        """It is a job of a batch system, carried out elsewhere and later."""
        return self.target is not None and self.target.queued


def prepare(
    spec: RunSpec,
    output: Path,
    port: int | None = None,
    environment: Path | None = None,
    target: Site | None = None,
    hosts: HostFile | None = None,
) -> Prepared:
    """Plan a run on this machine, or on the site ``target``. Touches nothing but ports; needs no environment.

    ``hosts`` are the machines of a site that is reached with ssh.

    Raises InvalidInput for anything about the request that cannot work.
    """
    chosen = backend(spec.backend)
    spec = with_options(spec, chosen)
    seats = chosen.seats(spec)
    nodes = hosts_of(seats)
    if target is None or target.scheduler == "local":
        target, allocation = None, local.allocation(nodes, len(seats), port)
    else:
        allocation = _elsewhere(target, spec, nodes, len(seats), port, hosts)
        environment = environment or target.python
    full = complete(spec, chosen, allocation)
    run_dir = (output / _new_id(full)).absolute()
    plan = launch_plan(full, chosen, seats, allocation, _interpreter(full, chosen, environment), str(run_dir))
    return Prepared(full, chosen, plan, run_dir, target)


def _elsewhere(
    target: Site, spec: RunSpec, nodes: int, processes: int, port: int | None, hosts: HostFile | None
) -> Allocation:
    """Machines of a host file, or nodes of a batch system, which have their names once the job runs."""
    cores = target.cores_per_node
    if cores is None and spec.threads is None:
        asked = "" if hosts else " nor sinfo"
        raise InvalidInput(
            f"--site {target.name}: {'neither ' if asked else ''}the profile (processor.num_cpus){asked} "
            f"{'says' if asked else 'does not say'} how many cores a node has; give --threads"
        )
    # A profile that says how to ask for GPUs, but not how many there are, gets as many as are wanted.
    wanted = (
        spec.devices_per_node if spec.device == "cuda" and target.resource_options("gpu", num_gpus_per_node=0) else 0
    )
    gpus = tuple(map(str, range(target.gpus_per_node or wanted)))
    seats = hosts.first(nodes) if hosts else tuple(Node(f"node{i}", f"node{i}") for i in range(nodes))
    return Allocation(
        nodes=tuple(replace(node, gpus=gpus) for node in seats),
        cores_per_node=cores or 1,
        base_port=port or target.extras.port or local.random_ports(processes),
        mpi_env=ssh.mpi_env(target) if hosts else {},
    )


def _interpreter(spec: RunSpec, chosen: Backend, given: Path | None) -> Interpreter:
    wanted = _wanted(spec, chosen)
    try:
        if given is not None:
            return Interpreter(str(environments.at(given, wanted)), isolated=False)
        return Interpreter(str(environments.python(wanted)))
    except OSError as error:
        raise InvalidInput(f"--env {given}: {error.strerror}") from None


@dataclass
class AnyRun(ABC):
    """A prepared run that is being carried out: ``checked``, ``begin``, ``repeat`` for each repeat, then ``finish``.

    A measurement (``Run``) and a training (``training.TrainingRun``) differ in what they take from the processes.
    """

    prepared: Prepared
    images: index.Index | None = None
    site: str | None = None
    started: str = ""
    software: dict[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> RunSpec:
        """What is measured."""
        return self.prepared.spec

    @property
    def folder(self) -> Path:
        """The run directory."""
        return self.prepared.run_dir

    @property
    @abstractmethod
    def unit(self) -> str:
        """What its progress is counted in."""

    @property
    @abstractmethod
    def planned(self) -> int:
        """How many of them there are to be."""

    @abstractmethod
    def done(self) -> int:
        """How many of them have ended, as the run directory of a batch job tells."""

    @property
    @abstractmethod
    def record_file(self) -> Path:
        """Where its record is, or will be."""

    @abstractmethod
    def read(self) -> AnyRecord:
        """Its record, verified. Raises InvalidInput."""

    @abstractmethod
    def forget(self) -> None:
        """Let go of what was taken so far: it is going to be taken again."""

    @abstractmethod
    def take(self, number: int, watch: Watch, started: str, ended: str, hosts: Hosts | None = None) -> None:
        """Judge what the processes of a repeat have reported, all of which ended with code 0, and keep it.

        Raises RunFailed when a check does not pass.
        """

    @abstractmethod
    def finish(self, error: BaseException | None = None) -> AnyRecord:
        """Write the record: with its figures when all is there and valid, with the reason when ``error`` came."""

    @classmethod
    def checked(cls, prepared: Prepared) -> Self:
        """A run whose environment and data are there. Raises InvalidInput; writes nothing."""
        interpreter = Path(prepared.plan.processes[0].argv[0])
        if not interpreter.exists() or _unfinished(prepared):
            raise InvalidInput(_missing(prepared))
        return cls(prepared, _images(prepared.spec), prepared.target.name if prepared.target else None)

    def begin(self) -> None:
        """Write the run directory. Raises InvalidInput or RunFailed; then no run directory is left."""
        try:
            self.folder.mkdir(parents=True)
        except OSError as error:
            raise InvalidInput(
                f"--output {self.folder.parent}: cannot make {error.filename}: {error.strerror}"
            ) from None
        try:
            write_atomically(self.folder / "spec.json", self.spec.model_dump_json(indent=1))
            write_atomically(self.folder / "plan.json", self.prepared.plan.to_json())
            self.write_inputs()
        except BaseException as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            if isinstance(error, DataError):
                raise InvalidInput(f"--data: {error}") from None
            if isinstance(error, OSError):
                raise cannot_write(error, self.folder) from None
            raise
        self.started = now()

    def write_inputs(self) -> None:
        """Write what the workers need into the run directory. Raises DataError, OSError."""
        if self.images is not None:
            from harness.worker.inputs import index

            index.write(self.images, self.folder / "images.index")

    def repeat(self, number: int, on_progress: Callable[[Progress], None]) -> None:
        """Do it once, in fresh processes. Raises RunFailed when a process fails, hangs, or a check does not pass."""
        started = now()
        try:
            watch = self._launcher().run(number, on_progress)
        except OSError as error:
            raise cannot_write(error, self.folder) from None
        self.take(number, watch, started, now())

    def _launcher(self) -> local.LocalLauncher | ssh.SshLauncher:
        plan, target = self.prepared.plan, self.prepared.target
        if target is not None and target.scheduler == "ssh":
            return ssh.SshLauncher(plan, self.folder, self.spec.timeout_s, target)
        return local.LocalLauncher(plan, self.folder, self.spec.timeout_s)

    def facts(self) -> dict[str, Any]:
        """What every record says of the machine, the software and the time, as fields."""
        return {
            "id": self.folder.name,
            "spec": self.spec,
            "plan": self.prepared.plan.as_dict(),
            "machine": self.software.get("machine") or ({} if self.site else machine.describe()),
            "software": {key: value for key, value in self.software.items() if key in ("python", "packages")},
            "variables": self.software.get("variables") or machine.relevant_variables(os.environ),
            "harness": harness_version(),
            "site": self.site,
            "started": self.started,
            "ended": now(),
        }


@dataclass
class Run(AnyRun):
    """A measurement of img/s."""

    repeats: list[Repeat] = field(default_factory=list)

    @property
    def _expected_updates(self) -> int:
        return self.prepared.backend.expected_updates(self.spec)

    @property
    def unit(self) -> str:
        """What its progress is counted in."""
        return "repeats"

    @property
    def planned(self) -> int:
        """How many of them there are to be."""
        return self.spec.repeats

    def done(self) -> int:
        """How many of them have ended, as the run directory of a batch job tells."""
        return len(list(self.folder.glob("repeat-*/ended.json")))

    @property
    def record_file(self) -> Path:
        """Where its record is, or will be."""
        return self.folder / FILE_NAME

    def read(self) -> Record:
        """Its record, verified. Raises InvalidInput."""
        return read(self.record_file)

    def forget(self) -> None:
        """Let go of what was taken so far: it is going to be taken again."""
        self.repeats.clear()

    def take(self, number: int, watch: Watch, started: str, ended: str, hosts: Hosts | None = None) -> None:
        """Judge what the processes of a repeat have reported, all of which ended with code 0, and keep it.

        Raises RunFailed when a check does not pass.
        """
        ranks = _ranks(watch)
        self.software = watch.followed[0].events["software"]
        checks = judge(self.spec, ranks, self.prepared.plan.world_size, self._expected_updates)
        repeat = Repeat(
            number=number,
            ranks=ranks,
            checks=checks,
            started=started,
            ended=ended,
            job=hosts.job if hosts else None,
            restart=hosts.restart if hosts else 0,
            nodes=[name for name, _ in hosts.nodes] if hosts else [],
        )
        self.repeats.append(repeat)
        failed = [f"{check.name}: {check.detail}" for check in repeat.checks if not check.passed]
        if failed:
            raise RunFailed(f"repeat {number} does not count: {'; '.join(failed)}")

    def finish(self, error: BaseException | None = None) -> Record:
        """Write the record: with its figures when every repeat is there and valid, with the reason when ``error`` came."""
        derived: Derived | None = derive(self.spec, self.repeats) if error is None else None
        record = Record(
            schema="harness.record/1",
            status=status_of(error),
            reason=reason_of(error),
            expected_updates=self._expected_updates,
            repeats=self.repeats,
            derived=derived,
            **self.facts(),
        )
        try:
            write(record, self.folder)
        except OSError as problem:
            raise cannot_write(problem, self.folder, error) from None
        return record


def execute(runs: Sequence[AnyRun], listener: Listener) -> list[AnyRecord]:
    """Carry out runs with their repeats interleaved, so that a slow hour of the machine hits all of them alike.

    A run that fails is recorded as failed and left out of the later rounds; the others go on. An interruption (Ctrl-C)
    records all unfinished runs as interrupted and is raised again.
    """
    records: dict[int, AnyRecord] = {}

    def active() -> list[tuple[int, AnyRun]]:
        return [(number, run) for number, run in enumerate(runs) if number not in records]

    try:
        for run in runs:
            run.begin()
        for repeat in range(1, max(run.spec.repeats for run in runs) + 1):
            for number, run in active():
                if repeat > run.spec.repeats:
                    continue
                try:
                    run.repeat(repeat, partial(listener, run, repeat))
                except HarnessError as error:
                    records[number] = run.finish(error)
                else:
                    if repeat == run.spec.repeats:
                        records[number] = run.finish()
    except BaseException as error:
        for _, run in active():
            if run.started:
                with suppress(RunFailed):  # a full disk; the error that is raised again tells more
                    run.finish(error)
        raise
    return [records[number] for number in range(len(runs))]


def _ranks(watch: Watch) -> list[Rank]:
    """The workers' results. Every worker has ended with code 0, so a missing result is a defect of the trainer."""
    ranks = []
    for worker in watch.workers():
        if missing := {"started", "measured", "evidence", "closed"} - set(worker.events):
            raise RunFailed(f"worker rank {worker.process.rank} ended without reporting {', '.join(sorted(missing))}")
        measured, evidence = worker.events["measured"], worker.events["evidence"]
        ranks.append(
            Rank(
                rank=worker.process.rank,
                host=worker.events["started"]["host"],
                marks_s=measured["marks_s"],
                finished_s=measured["finished_s"],
                window_s=measured["window_s"],
                network=measured["network"],
                servers=measured["servers"],
                input_wait_s=evidence.get("input_wait_s", []),
                evidence={k: value for k, value in evidence.items() if k not in ("event", "time", "input_wait_s")},
            )
        )
    return ranks


def _images(spec: RunSpec) -> index.Index | None:
    if spec.data == SYNTHETIC:
        return None
    from harness.worker.inputs.order import check_world

    try:
        images = _scanned(spec.data, models.specification(spec.model).num_classes)
        check_world(len(images), spec.workers)
    except DataError as error:
        raise InvalidInput(f"--data: {error}") from None
    except OSError as error:
        raise InvalidInput(f"--data {spec.data}: {error.strerror}") from None
    return images


@lru_cache(maxsize=4)
def _scanned(data: str, num_classes: int) -> index.Index:
    """The images to train on. The runs of one command look only once: a million files take minutes."""
    from harness.worker.inputs import index

    return index.find(data, "train", num_classes)


def _unfinished(prepared: Prepared) -> bool:
    """True for an environment of ours that is half built or broken; one the user provides is not ours to judge."""
    wanted = _wanted(prepared.spec, prepared.backend)
    ours = Path(prepared.plan.processes[0].argv[0]) == environments.python(wanted)
    return ours and environments.status(wanted) != "ready"


def _missing(prepared: Prepared) -> str:
    try:
        environments.require(_wanted(prepared.spec, prepared.backend))
    except environments.EnvironmentProblem as problem:
        return str(problem)
    return f"{prepared.plan.processes[0].argv[0]}: no such Python"


def _wanted(spec: RunSpec, chosen: Backend) -> environments.EnvironmentSpec:
    """The environment that a completed spec runs in."""
    assert spec.framework
    return chosen.environment(spec.framework, "cuda" if spec.device == "cuda" else "cpu")


def _new_id(spec: RunSpec) -> str:
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return f"{stamp}-{spec.backend}-{spec.model}-n{spec.nodes}-{secrets.token_hex(4)}"


def now() -> str:
    """The time in UTC, as records have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def status_of(error: BaseException | None) -> Status:
    """How a run ended that ``error`` came to."""
    if error is None:
        return "completed"
    return "failed" if isinstance(error, Exception) else "interrupted"


def reason_of(error: BaseException | None) -> str | None:
    """Why it did not complete."""
    return None if error is None else str(error) or type(error).__name__


def cannot_write(error: OSError, folder: Path, lost: BaseException | None = None) -> RunFailed:
    """The error for a run directory that does not take a file; ``lost`` is an error that this one hides."""
    earlier = f"; before that: {lost}" if lost else ""
    return RunFailed(f"cannot write {error.filename or folder}: {error.strerror}{earlier}")
