"""One run from plan to record: write the run directory, launch the repeats, judge them, write the record."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from harness.core.spec import RunSpec
from harness.errors import HarnessError, InvalidInput, RunFailed
from harness.files import write_atomically
from harness.launch import local, ssh
from harness.launch.slurm import JobState, SlurmSilent
from harness.launch.watch import Progress, Watch
from harness.records.record import AnyRecord
from harness.running.evidence import surroundings
from harness.running.kinds import Kind, kind_of
from harness.running.prepare import Prepared
from harness.version import harness_version
from harness.worker.agent.seating import Hosts
from harness.worker.inputs.errors import DataError


@dataclass
class Run:
    """A prepared run that is being carried out: ``begin``, then ``repeat`` for each repeat, then ``finish``.

    ``inputs`` and ``judged`` are the kind's own: what it needs, and what it has judged so far, repeat by repeat.
    """

    prepared: Prepared
    site: str | None = None
    started: str = ""
    inputs: Any = None
    judged: list[Any] = field(default_factory=list)
    last: Watch | None = None  # of the last repeat that was judged

    @property
    def spec(self) -> RunSpec:
        return self.prepared.spec

    @property
    def kind(self) -> Kind:
        return kind_of(self.spec)

    @property
    def folder(self) -> Path:
        return self.prepared.run_dir

    @property
    def record_file(self) -> Path:
        return self.folder / self.kind.RECORD.file_name

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
            self.kind.write_inputs(self.inputs, self.folder)
        except BaseException as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            if isinstance(error, DataError):
                raise InvalidInput(f"--data: {error}") from None
            if isinstance(error, OSError):
                raise self._cannot_write(error) from None
            raise
        self.started = now()

    def repeat(self, number: int, on_progress: Callable[[Progress], None]) -> None:
        """Do it once, in fresh processes. Raises RunFailed when a process fails, hangs, or a check does not pass."""
        plan, site, started = self.prepared.plan, self.prepared.site, now()
        try:
            if site is not None and site.scheduler == "ssh":
                watch = ssh.run(plan, self.folder, number, self.spec.timeout_s, on_progress, site)
            else:
                watch = local.run(plan, self.folder, number, self.spec.timeout_s, on_progress)
        except OSError as error:
            raise self._cannot_write(error) from None
        self.judge(number, watch, started, now())

    def judge(self, number: int, watch: Watch, started: str, ended: str, hosts: Hosts | None = None) -> None:
        """Judge what the processes of a repeat have reported, all of which ended with code 0, and keep it.

        Raises RunFailed when a check does not pass.
        """
        judged = self.kind.judge(self.prepared, number, watch, started, ended, hosts)
        self.judged.append(judged)
        self.last = watch
        if failed := [f"{check.name}: {check.detail}" for check in judged.checks if not check.passed]:
            raise RunFailed(f"{self.kind.named(number)} does not count: {'; '.join(failed)}")

    def finish(self, error: BaseException | None = None) -> AnyRecord:
        """Write the record: with its figures when all is there and valid, with the reason when ``error`` came.

        Raises RunFailed when it cannot be written.
        """
        failed = "failed" if isinstance(error, Exception) else "interrupted"
        facts = {
            "id": self.folder.name,
            "status": "completed" if error is None else failed,
            "reason": None if error is None else str(error) or type(error).__name__,
            "spec": self.spec,
            "plan": self.prepared.plan.as_dict(),
            "harness": harness_version(),
            "site": self.site,
            "started": self.started,
            "ended": now(),
            **surroundings(self.last, here=self.site is None),
        }
        record = self.kind.record(self.prepared, self.judged, error is None, facts)
        try:
            record.write(self.folder)
        except OSError as problem:
            raise self._cannot_write(problem, error) from None
        return record

    def _cannot_write(self, error: OSError, hidden: BaseException | None = None) -> RunFailed:
        """The error for a run directory that does not take a file; ``hidden`` is an error that this one hides."""
        earlier = f"; before that: {hidden}" if hidden else ""
        return RunFailed(f"cannot write {error.filename or self.folder}: {error.strerror}{earlier}")


class Listener:
    """Hears how runs go on, and shows nothing. Whoever wants to show it overrides its methods."""

    def progress(self, run: Run, repeat: int, progress: Progress) -> None:
        """A repeat is under way."""

    def queue(self, states: Sequence[JobState]) -> None:
        """Nothing runs; these jobs wait."""

    def silence(self, error: SlurmSilent) -> None:
        """Slurm does not answer; it is asked again."""

    def recorded(self, record: AnyRecord) -> None:
        """One of several runs has its record."""


def checked(prepared: Prepared) -> Run:
    """A run whose environment and data are there. Raises InvalidInput; writes nothing."""
    prepared.check_environment()
    inputs = kind_of(prepared.spec).inputs(prepared)
    return Run(prepared, prepared.site.name if prepared.site else None, inputs=inputs)


def execute(runs: Sequence[Run], listener: Listener) -> list[AnyRecord]:
    """Carry out runs with their repeats interleaved, so that a slow hour of the machine hits all of them alike.

    A run that fails is recorded as failed and left out of the later rounds; the others go on. An interruption (Ctrl-C)
    records all unfinished runs as interrupted and is raised again.
    """
    records: dict[int, AnyRecord] = {}

    def active() -> list[tuple[int, Run]]:
        return [(number, run) for number, run in enumerate(runs) if number not in records]

    try:
        for run in runs:
            run.begin()
        for repeat in range(1, max(run.spec.repeats for run in runs) + 1):
            for number, run in active():
                if repeat > run.spec.repeats:
                    continue
                try:
                    run.repeat(repeat, partial(listener.progress, run, repeat))
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


def now() -> str:
    """The time in UTC, as records have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
