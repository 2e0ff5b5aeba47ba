"""Runs that a batch system carries out: follow them, and make their records from their files.

Anybody may call ``collect``, at any time, from any shell: the run directory and the batch system know everything.
"""

import json
import shutil
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from harness.errors import HarnessError, Interrupted, RunFailed
from harness.launch import slurm
from harness.launch.slurm import JobState, SlurmSilent
from harness.launch.watch import Watch, from_exit_events, last_lines
from harness.records.record import AnyRecord
from harness.running.notes import PREFLIGHT, known_jobs, submitted_repeats
from harness.running.pace import Pace
from harness.running.run import Listener, Run, now
from harness.running.status import RunStatus, jobs_of, reopen, status
from harness.worker.agent.seating import SPEC, Hosts, folder_of

LOOK_S = 1.0  # between looks at the run directory
ASK_S = (2.0, 15.0)  # between questions to Slurm: at first and when jobs are about to end, in between
FILES_PER_LOOK = 100  # more processes are looked at less often
SETTLE_S = 10.0
MAY_SETTLE = ("COMPLETED", "FAILED", "UNKNOWN")  # of what ended the others, Slurm knows


def collect(run: Run, jobs: Collection[JobState]) -> AnyRecord | None:
    """Write the record of a run; None while a job that it needs has not ended. Raises RunFailed if it cannot be written."""
    known = {job.id: job for job in jobs}
    submitted = submitted_repeats(run.folder)
    preflight = run.folder / PREFLIGHT
    if (preflight / SPEC).exists() and not (checking := reopen(preflight)).record_file.exists():
        collect(checking, jobs)
    run = replace(run, judged=[], last=None)
    for number in range(1, run.spec.repeats + 1):
        hosts = Hosts.read(folder_of(run.folder, number))
        job = known.get((hosts and hosts.job) or submitted.get(number, ""))
        watch = _watch(run, number, job if job and job.ended else None)
        try:
            if not _complete(watch):
                if job is None or not job.ended:
                    return None
                raise _why(run, watch, job)
            ended = now()
            with suppress(OSError, ValueError, LookupError):
                ended = json.loads((watch.repeat_dir / "ended.json").read_text())["ended"]
            run.judge(watch, _started(run, watch), ended)
        except (HarnessError, KeyboardInterrupt) as error:
            return run.finish(error)
    return run.finish()


def collect_all(runs: Sequence[Run]) -> list[RunStatus]:
    """Make every record that can be made, and return the status of the runs. Raises SlurmSilent."""
    for run_status in status(runs):
        if run_status.state != "recorded" and run_status.jobs:
            collect(run_status.run, run_status.jobs)
    return status(runs)


def _watch(run: Run, number: int, ended: JobState | None) -> Watch:
    """The processes of a repeat with all that they have reported; ``ended`` is its job if that has ended."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        watch = run.watch(number, Hosts.read(folder_of(run.folder, number)))
        watch.poll()
        # A parallel file system takes its time to show what was written elsewhere.
        may_settle = ended is not None and ended.state in MAY_SETTLE and time.monotonic() < deadline
        if not may_settle or _complete(watch) or from_exit_events(watch):
            return watch
        time.sleep(LOOK_S)


def _started(run: Run, watch: Watch) -> str:
    return watch.hosts.started if watch.hosts else run.started


def _complete(watch: Watch) -> bool:
    return all(followed.events.get("exit", {}).get("code") == 0 for followed in watch.followed)


def _why(run: Run, watch: Watch, state: JobState) -> BaseException:
    """The reason why a job has left a repeat incomplete: what its processes say, unless Slurm knows better."""
    hosts, where, job = watch.hosts, f"repeat {watch.repeat}", f"job {state.id}"
    if state.state in slurm.CANCELLED:
        return KeyboardInterrupt(f"{job} was {state.state.lower()} {'in' if hosts else 'before'} {where}")
    if state.state == slurm.NEVER:
        reasons = [f"Slurm says {state.reason}", slurm.REMEDIES.get(state.reason)]
        return RunFailed(f"{job} could never start: {'; '.join(filter(None, reasons))}")
    if state.state == "TIMEOUT":
        return RunFailed(f"{job} reached its time limit in {where}")
    dead = slurm.dead_nodes([name for name, _ in hosts.nodes]) if hosts else []
    silent = [followed.process for followed in watch.followed if "exit" not in followed.events]
    lost = [process for process in silent if process.host in dead]
    if lost or state.state == "NODE_FAIL":
        names = ", ".join(f"{process.role} rank {process.rank} on {process.host}" for process in lost) or state.nodes
        return RunFailed(f"a node died in {where} of {job} (Slurm says {state.state}): it held {names}")
    if error := from_exit_events(watch):
        return RunFailed(f"{where} of {job}: {error}")
    end = ", ".join(filter(None, (f"Slurm says {state.state}", state.reason)))
    end = "Slurm no longer knows it" if state.state == "UNKNOWN" else end
    full = f"; the file system of {run.folder} is full" if shutil.disk_usage(run.folder).free < 4096 else ""
    lines = [f"{job} has ended ({end}), and {where} is not complete{full}"]
    with suppress(OSError):
        lines += [f"    {line}" for line in last_lines(run.folder / f"slurm-{state.id}.out")]
    return RunFailed("\n".join(lines))


def wait(runs: Sequence[Run], listener: Listener, study: str | None = None) -> list[AnyRecord]:
    """Wait until every run has its record, and return the records in the order of ``runs``.

    Jobs that can never start are cancelled. ``study`` is the name, in commands, of the study that has the runs, if any.
    Raises RunFailed when a record cannot be written. An interruption leaves the jobs alone and raises Interrupted, which
    says how to come back.
    """
    try:
        return _wait(runs, listener)
    except KeyboardInterrupt as interruption:
        ids = list(dict.fromkeys(job for run in runs for job in known_jobs(run.folder)))
        jobs = f"the jobs ({', '.join(ids)}) go on" if len(ids) < 20 else f"its {len(ids)} jobs go on"
        jobs = f"job {ids[0]} goes on" if len(ids) == 1 else jobs
        # Each run directory by its name: their folder may have other runs, whose jobs are not to be cancelled.
        where = study or " ".join(str(run.folder) for run in runs)
        commands = [f"{'study' if study else 'jobs'} {verb} {where}" for verb in ("status", "collect", "cancel")]
        goes_on = f"{str(interruption) or 'interrupted'}; {jobs} and nothing is lost"
        raise Interrupted("\n    harness ".join([goes_on, *commands])) from None


def _hear_of_repeats(run: Run, pace: Pace, heard: set[tuple[Path, int]], listener: Listener) -> None:
    """Tell the listener of the repeats of ``run`` that have ended and that it has not ``heard`` of."""
    for number in range(1, run.spec.repeats + 1):
        if (run.folder, number) in heard:
            continue
        try:
            end = json.loads((folder_of(run.folder, number) / "ended.json").read_text())
        except (OSError, ValueError):
            continue
        watch = _watch(run, number, None)
        if end["code"] == 0 and not _complete(watch):
            continue  # its files are not all to be seen yet
        heard.add((run.folder, number))
        judged = replace(run, judged=[], last=None)
        error: HarnessError | None = None
        try:
            if end["code"]:
                raise from_exit_events(watch) or RunFailed(f"srun exited with {end['code']}")
            judged.judge(watch, run.started, end["ended"])
        except HarnessError as problem:
            error = problem
            pace.given_up.add(run.folder)
        else:
            took = datetime.fromisoformat(end["ended"]) - datetime.fromisoformat(_started(run, watch))
            pace.took_s[run.folder].append(took.total_seconds())
        listener.ended(judged, number, pace, error)


def _wait(runs: Sequence[Run], listener: Listener) -> list[AnyRecord]:
    records: dict[Path, AnyRecord] = {}
    jobs: dict[Path, list[JobState]] = {}
    pace = Pace.of({run.folder: run.spec for run in runs})
    heard: set[tuple[Path, int]] = set()  # repeats that have ended
    for run in runs:  # what ended before anybody waited is no news: the records have it
        _hear_of_repeats(run, pace, heard, Listener())
    watch: Watch | None = None  # of the repeat that is being measured: files that were read are not read again
    began, asked = time.monotonic(), 0.0
    while True:
        open_runs = [run for run in runs if run.folder not in records]
        current = time.monotonic()
        running = [run for run in open_runs if any(job.running for job in jobs.get(run.folder, []))]
        left = pace.left
        ending = bool(running) and not any(left.get(run.folder) for run in running)  # their jobs are about to end
        pause_s = ASK_S[0] if ending or current - began < 60 else ASK_S[1]
        if current - asked > pause_s:
            try:
                jobs = jobs_of(open_runs)
                # Jobs that could never start are cancelled. Their reason is lost to Slurm by that, so it is kept here.
                never = {job.id for of_run in jobs.values() for job in of_run if job.hopeless}
                slurm.cancel(never)
                for of_run in jobs.values():
                    of_run[:] = [replace(job, state=slurm.NEVER) if job.id in never else job for job in of_run]
            except SlurmSilent as error:
                listener.silence(error)
            asked = time.monotonic()
            pace.lanes = max(1, len({job.id for of_run in jobs.values() for job in of_run if job.running}))
        for run in open_runs:
            of_run = jobs.get(run.folder, [])
            if any(not job.queued for job in of_run):
                _hear_of_repeats(run, pace, heard, listener)
            # A job that has failed leaves no hope for the number, whatever the others do.
            hopeless = any(job.ended and job.state not in ("COMPLETED", "UNKNOWN") for job in of_run)
            if of_run and (hopeless or all(job.ended for job in of_run)) and (record := collect(run, of_run)):
                records[run.folder] = record
                if len(runs) > 1:  # of a single run all is shown at the end
                    listener.recorded(record)
        if len(records) == len(runs):
            return [records[run.folder] for run in runs]
        repeats = [(run, number) for run in open_runs for number in range(1, run.spec.repeats + 1)]
        for run, number in repeats:
            folder = folder_of(run.folder, number)
            if (folder / "hosts.json").exists() and not (folder / "ended.json").exists():
                if watch is None or watch.repeat_dir != folder:
                    watch = run.watch(number)
                listener.progress(run, number, watch.poll())
                break
        else:
            waiting = {job.id: job for of_run in jobs.values() for job in of_run if not job.ended}
            listener.queue(list(waiting.values()))
        # One file for each process is opened at each look, perhaps on a file system that all users share.
        time.sleep(LOOK_S * max(1.0, len(watch.followed) / FILES_PER_LOOK if watch else 0.0))
