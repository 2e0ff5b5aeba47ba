"""Runs that a batch system carries out: follow them, and make their records from what they have left on disk.

Nothing here has to stay alive: the run directory and the batch system know all there is to know, and ``collect`` can be
called by anybody, at any time, from any shell.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from harness.core.backend import backend
from harness.core.plan import LaunchPlan
from harness.core.spec import RunSpec
from harness.core.validation import checked
from harness.errors import HarnessError, InvalidInput, RunFailed
from harness.launch import failure, slurm
from harness.launch.slurm import JobState, SlurmSilent
from harness.launch.watch import Progress, Watch
from harness.records.measurement import AnyRecord
from harness.running.run import AnyRun, Prepared, Run, now
from harness.running.submission import SUBMISSION, Submission, known_jobs
from harness.running.training import TrainingRun
from harness.worker.agent.seating import Hosts, seated

LOOK_S = 1.0  # between looks at the run directory
ASK_S = (2.0, 15.0)  # between questions to Slurm: at first, later
FILES_PER_LOOK = 100  # more processes are looked at less often
SETTLE_S = 10.0
MAY_SETTLE = ("COMPLETED", "FAILED", "UNKNOWN")  # what ended the others, Slurm has told
LOG_LINES = 12

State = Literal["recorded", "not submitted", "queued", "running", "ended"]


class GoesOn(HarnessError):
    """The user left while jobs are queued or running. They go on; the message says how to come back."""

    exit_code = 130


# --- follow ------------------------------------------------------------------------------------------------------------


def find(paths: Sequence[Path]) -> list[Path]:
    """The run directories of batch jobs at or below ``paths``. Raises InvalidInput for a path where there is none."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise InvalidInput(f"{path}: no such file or folder")
        below = sorted(file.parent for file in path.rglob(SUBMISSION))
        if not below:
            raise InvalidInput(f"{path}: no run of a batch job at or below it")
        found += below
    return found


def reopen(folder: Path) -> AnyRun:
    """The run of a run directory, as it was submitted. Raises InvalidInput for what is none."""
    submission = Submission.read(folder)
    try:
        spec = checked(RunSpec, json.loads((folder / "spec.json").read_text()))
        plan = LaunchPlan.from_dict(json.loads((folder / "plan.json").read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInput(f"{folder}: not a run directory: {error}") from None
    prepared = Prepared(spec, backend(spec.backend), plan, folder.absolute())
    kind = TrainingRun if spec.training else Run
    return kind(prepared, site=submission.site, started=submission.started)


@dataclass(frozen=True)
class Standing:
    """How far a run is. ``states`` are those of its jobs, ``done`` counts the repeats or epochs that have ended."""

    run: AnyRun
    state: State
    done: int
    states: tuple[JobState, ...]
    record: AnyRecord | None = None

    @property
    def reason(self) -> str:
        """Why a job waits, or why there is no number."""
        if self.record:
            return (self.record.reason or "").splitlines()[0] if self.record.reason else ""
        return "; ".join(dict.fromkeys(state.reason for state in self.states if state.reason and not state.ended))


def standings(runs: Sequence[AnyRun]) -> list[Standing]:
    """How far the runs are, with one question to Slurm for all of them. Raises SlurmSilent when it does not answer."""
    records = {run.folder: run.read() for run in runs if run.record_file.exists()}
    ids = {run.folder: known_jobs(run.folder) for run in runs}
    wanted = {job for run in runs if run.folder not in records for job in ids[run.folder]}
    states = slurm.states(wanted)
    return [_standing(run, [states[job] for job in ids[run.folder] if job in states], records) for run in runs]


def _standing(run: AnyRun, states: Sequence[JobState], records: Mapping[Path, AnyRecord]) -> Standing:
    done = run.done()
    if run.folder in records:
        return Standing(run, "recorded", done, (), records[run.folder])
    state: State
    if not states:
        state = "not submitted"
    elif any(one.running for one in states):
        state = "running"
    else:
        state = "queued" if any(one.queued for one in states) else "ended"
    return Standing(run, state, done, tuple(states))


def cancel(runs: Sequence[AnyRun]) -> list[str]:
    """Cancel the jobs of runs that have no record yet; returns their ids. Raises SlurmSilent when Slurm does not answer."""
    ids = [state.id for one in standings(runs) for state in one.states if not state.ended]
    slurm.cancel(ids)
    return ids


# --- collect -----------------------------------------------------------------------------------------------------------


def collect(run: AnyRun, states: Collection[JobState]) -> AnyRecord | None:
    """Write the record of a run from its run directory. None while a job that it needs is still queued or running.

    Raises RunFailed when the record cannot be written.
    """
    of_job = {state.id: state for state in states}
    jobs_of = {repeat: job for job, repeats in Submission.read(run.folder).jobs for repeat in repeats}
    run.forget()
    for number in range(1, run.spec.repeats + 1):
        hosts = Hosts.read(_repeat_dir(run, number))
        state = of_job.get((hosts and hosts.job) or jobs_of.get(number, ""))
        watch = _watch(run, number)
        if not _complete(watch):
            if state is None or not state.ended:
                return None
            watch, hosts = _settled(run, number, watch, state), Hosts.read(_repeat_dir(run, number))
        try:
            if not _complete(watch):
                assert state
                raise _why(run, number, watch, hosts, state)
            run.take(number, watch, hosts.started if hosts else run.started, _ended(watch.repeat_dir), hosts)
        except (HarnessError, KeyboardInterrupt) as error:
            return run.finish(error)
    return run.finish()


def collect_all(runs: Sequence[AnyRun]) -> list[Standing]:
    """Make every record that can be made, and say how far the runs are. Raises SlurmSilent when Slurm does not answer."""
    for one in standings(runs):
        if one.state != "recorded" and one.states:
            collect(one.run, one.states)
    return standings(runs)


def _repeat_dir(run: AnyRun, number: int) -> Path:
    return run.folder / f"repeat-{number}"


def _watch(run: AnyRun, number: int) -> Watch:
    """What the processes of a repeat have reported so far."""
    plan, hosts = run.prepared.plan, Hosts.read(_repeat_dir(run, number))
    watch = Watch(LaunchPlan.from_dict(seated(plan.as_dict(), hosts)) if hosts else plan, _repeat_dir(run, number))
    watch.poll()
    return watch


def _settled(run: AnyRun, number: int, watch: Watch, state: JobState) -> Watch:
    """Look again for a while: a parallel file system takes its time to show what was written elsewhere."""
    deadline = time.monotonic() + SETTLE_S
    while (
        state.state in MAY_SETTLE
        and not _complete(watch)
        and failure.from_exit_events(watch, run.spec.timeout_s) is None
        and time.monotonic() < deadline
    ):
        time.sleep(LOOK_S)
        watch = _watch(run, number)
    return watch


def _complete(watch: Watch) -> bool:
    return all(followed.events.get("exit", {}).get("code") == 0 for followed in watch.followed)


def _ended(repeat_dir: Path) -> str:
    with suppress(OSError, ValueError, LookupError):
        return str(json.loads((repeat_dir / "ended.json").read_text())["ended"])
    return now()


def _why(run: AnyRun, number: int, watch: Watch, hosts: Hosts | None, state: JobState) -> BaseException:
    """What is told of a repeat that a job has left incomplete: its processes' own words, unless Slurm knows better."""
    where = f"repeat {number}"
    job = f"job {state.id}"
    if state.state in slurm.CANCELLED:
        return KeyboardInterrupt(f"{job} was {state.state.lower()} {'in' if hosts else 'before'} {where}")
    if state.state == slurm.NEVER:
        return RunFailed(f"{job} could never start: Slurm says {state.reason}")
    if state.state == "TIMEOUT":
        return RunFailed(f"{job} reached its time limit in {where}")
    dead = slurm.dead_nodes([name for name, _ in hosts.nodes]) if hosts else []
    silent = [followed for followed in watch.followed if "exit" not in followed.events]
    lost = [followed.process for followed in silent if followed.process.host in dead]
    if lost or state.state == "NODE_FAIL":
        names = ", ".join(f"{process.role} rank {process.rank} on {process.host}" for process in lost) or state.nodes
        return RunFailed(f"a node died in {where} of {job} (Slurm says {state.state}): it held {names}")
    told = failure.from_exit_events(watch, run.spec.timeout_s)
    if told is not None:
        return RunFailed(f"repeat {number} of {job}: {told}")
    end = f"Slurm says {state.state}" + (f", {state.reason}" if state.reason else "")
    if state.state == "UNKNOWN":
        end = "Slurm no longer knows it"
    lines = [f"{job} has ended ({end}), and {where} is not complete{_full(run.folder)}"]
    lines += [f"    {line}" for line in _job_output(run.folder, state.id)]
    return RunFailed("\n".join(lines))


def _full(folder: Path) -> str:
    return f"; the file system of {folder} is full" if shutil.disk_usage(folder).free < 4096 else ""


def _job_output(folder: Path, job: str) -> list[str]:
    with suppress(OSError):
        text = (folder / f"slurm-{job}.out").read_text(errors="replace")
        return text.rstrip().splitlines()[-LOG_LINES:]
    return []


# --- wait --------------------------------------------------------------------------------------------------------------


class Listener(Protocol):
    """Hears how the waiting goes."""

    def queue(self, states: Sequence[JobState]) -> None:
        """Nothing runs; these jobs wait."""

    def progress(self, run: AnyRun, repeat: int, progress: Progress) -> None:
        """A repeat is being measured."""

    def silence(self, error: SlurmSilent) -> None:
        """Slurm does not answer; it is asked again."""

    def recorded(self, record: AnyRecord) -> None:
        """A run has its record."""


def wait(runs: Sequence[AnyRun], listener: Listener) -> list[AnyRecord]:
    """Wait until every run has its record, and return them in the order of ``runs``.

    Jobs that can never start are cancelled. Raises RunFailed when a record cannot be written. An interruption leaves the
    jobs alone.
    """
    records: dict[Path, AnyRecord] = {}
    states: dict[str, JobState] = {}
    ids: dict[Path, list[str]] = {}
    looks = _Looks()
    began, asked = time.monotonic(), 0.0
    while len(records) < len(runs):
        open_runs = [run for run in runs if run.folder not in records]
        current = time.monotonic()
        pause_s = ASK_S[0] if current - began < 60 else ASK_S[1]
        if current - asked > pause_s or _finished_meanwhile(open_runs, ids, states):
            ids = {run.folder: known_jobs(run.folder) for run in open_runs}
            try:
                states = slurm.states({job for own in ids.values() for job in own})
            except SlurmSilent as error:
                listener.silence(error)
            asked = time.monotonic()
            states |= _give_up([state for state in states.values() if state.hopeless])
        for run in open_runs:
            own = [states[job] for job in ids[run.folder] if job in states]
            if own and _to_be_collected(own) and (record := collect(run, own)):
                records[run.folder] = record
                if len(runs) > 1:  # of a single run everything is told at the end
                    listener.recorded(record)
        looks.tell(open_runs, states, listener)
        if len(records) < len(runs):
            time.sleep(looks.pause_s)
    return [records[run.folder] for run in runs]


def _give_up(hopeless: Sequence[JobState]) -> dict[str, JobState]:
    """Cancel jobs that could never start. Their reason is lost to Slurm by that, so it is kept here."""
    slurm.cancel([state.id for state in hopeless])
    return {state.id: replace(state, state=slurm.NEVER) for state in hopeless}


def _to_be_collected(states: Sequence[JobState]) -> bool:
    """Every job has ended, or a job that has ended leaves no hope for the number."""
    return all(state.ended for state in states) or any(
        state.ended and state.state not in ("COMPLETED", "UNKNOWN") for state in states
    )


def _finished_meanwhile(
    runs: Sequence[AnyRun], ids: Mapping[Path, Sequence[str]], states: Mapping[str, JobState]
) -> bool:
    """A run whose job counts as running has measured its last repeat: time to ask Slurm again."""
    running = {job for job, state in states.items() if not state.ended}
    return any(
        (run.folder / f"repeat-{run.spec.repeats}" / "ended.json").exists() and running & set(ids[run.folder])
        for run in runs
    )


class _Looks:
    """Looks at the repeat that is being measured. Files that were read are not read again."""

    def __init__(self) -> None:
        self._watch: Watch | None = None
        self.pause_s = LOOK_S

    def tell(self, runs: Sequence[AnyRun], states: Mapping[str, JobState], listener: Listener) -> None:
        """Tell the listener how far it is, or which jobs wait."""
        run, number = next(_measuring(runs), (None, 0))
        if run is None:
            listener.queue([state for state in states.values() if not state.ended])
            return
        repeat_dir = _repeat_dir(run, number)
        if self._watch is None or self._watch.repeat_dir != repeat_dir:
            self._watch = Watch(run.prepared.plan, repeat_dir)
        # One file for each process is opened at each look, perhaps on a file system that all users share.
        self.pause_s = LOOK_S * max(1.0, len(self._watch.followed) / FILES_PER_LOOK)
        listener.progress(run, number, self._watch.poll())


def _measuring(runs: Sequence[AnyRun]) -> Iterator[tuple[AnyRun, int]]:
    """Runs with the repeat that is being measured."""
    for run in runs:
        for number in range(1, run.spec.repeats + 1):
            repeat_dir = _repeat_dir(run, number)
            if (repeat_dir / "hosts.json").exists() and not (repeat_dir / "ended.json").exists():
                yield run, number


def as_json(standing: Standing) -> dict[str, Any]:
    """A standing for scripts."""
    return {
        "run": str(standing.run.folder),
        "state": standing.state,
        "status": standing.record.status if standing.record else None,
        standing.run.unit: standing.done,
        "of": standing.run.planned,
        "jobs": {state.id: state.state for state in standing.states} or known_jobs(standing.run.folder),
        "reason": standing.reason,
    }
