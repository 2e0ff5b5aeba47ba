"""Progress of runs, of batch jobs and on this machine: what their run directories and the batch system say."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.core.plan import LaunchPlan
from harness.core.program import backend_of
from harness.core.spec import RunSpec
from harness.core.validation import checked
from harness.errors import InvalidInput
from harness.launch import slurm
from harness.launch.slurm import JobState
from harness.records.kernel import KernelRecord
from harness.records.launch import LaunchRecord
from harness.records.measurement import Record
from harness.records.record import AnyRecord, search
from harness.running.kinds import epochs_before, kind_of
from harness.running.notes import Submission, is_at_work, known_jobs
from harness.running.run import Run
from harness.worker.agent.seating import PLAN, SPEC, SUBMISSION

# "unfinished": whoever carried it out, without a batch system, was killed before there was a record. "unreadable": it has a
# record that cannot be read, or believed. "unknown": Slurm may have its job.
RunState = Literal["recorded", "unreadable", "not submitted", "unknown", "queued", "running", "ended", "unfinished"]


def folders(paths: Sequence[Path], note: str = SPEC) -> list[Path]:
    """Run directories at or below ``paths`` with this ``note``, each once. Raises InvalidInput for a path without one."""
    resolved: dict[Path, Path] = {}
    for path in paths:
        below = sorted(Path(file).parent for file in search(path, [note])) if path.is_dir() else []
        if not below:
            raise InvalidInput(f"{path}: no run{' of a batch job' if note == SUBMISSION else ''} at or below it")
        resolved |= {folder.resolve(): folder for folder in below}
    return list(resolved.values())


def find(paths: Sequence[Path], note: str = SPEC) -> tuple[list[Run], list[str]]:
    """The runs of ``folders``, and the problems of those that make no sense. Raises InvalidInput as ``folders`` does."""
    runs, problems = reopened(folders(paths, note))
    lines = [f"{folder}: {reason.removeprefix(f'{folder}: ')}" for folder, reason in problems.items()]
    return list(runs.values()), lines


def reopened(folders: Iterable[Path]) -> tuple[dict[Path, Run], dict[Path, str]]:
    """The runs of run directories, and the reasons why others make no sense."""
    runs, problems = dict[Path, Run](), dict[Path, str]()
    for folder in folders:
        try:
            runs[folder] = reopen(folder)
        except InvalidInput as error:
            problems[folder] = str(error)
    return runs, problems


def reopen(folder: Path) -> Run:
    """The run of a run directory, as it was submitted or begun. Raises InvalidInput for what makes no sense."""
    submission = Submission.read(folder)
    try:
        spec = checked(RunSpec, json.loads((folder / SPEC).read_text()))
        plan = LaunchPlan.from_dict(json.loads((folder / PLAN).read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInput(f"{folder}: not a run directory: {error}") from None
    run = kind_of(spec)(spec, backend_of(spec), plan, folder.absolute())
    known_jobs(folder)  # what is damaged is found now, and not where it would keep others from being seen
    if spec.training:
        epochs_before(run.folder)
    if submission:
        run.site_name, run.started, run.tag = submission.site, submission.started, submission.tag
    return run


@dataclass(frozen=True)
class RunStatus:
    """Progress of a run."""

    run: Run
    state: RunState
    done: int  # the number of its kind's units that have ended
    jobs: tuple[JobState, ...] = ()
    record: AnyRecord | None = None
    problem: str = ""  # why its record is unreadable, or what is not known of its job

    @property
    def reason(self) -> str:
        """The reason why a job waits, or why the run has failed."""
        if self.record:
            return (self.record.problem or "").partition("\n")[0]
        return self.problem or "; ".join(dict.fromkeys(job.reason for job in self.jobs if job.reason and not job.ended))

    def as_dict(self) -> dict[str, object]:
        # Of a run that has its record Slurm is not asked any more.
        jobs = {job.id: job.state for job in self.jobs} or dict.fromkeys(known_jobs(self.run.folder))
        return {
            "run": str(self.run.folder),
            "state": self.state,
            "status": self.record.status if self.record else None,
            self.run.UNIT: self.done,
            "of": self.run.planned(),
            "jobs": jobs,
            "reason": self.reason,
        }


def status(runs: Sequence[Run]) -> list[RunStatus]:
    """The status of each run, with one question to Slurm for all. Raises SlurmSilent when it does not answer."""
    jobs = jobs_of([run for run in runs if run.submitted and not run.record_file.exists()])
    return [_recorded(run) if run.record_file.exists() else _open(run, jobs.get(run.folder, [])) for run in runs]


def _open(run: Run, jobs: Sequence[JobState]) -> RunStatus:
    if not run.submitted:
        return RunStatus(run, "running" if is_at_work(run.folder) else "unfinished", run.done())
    running, queued = any(job.running for job in jobs), any(job.queued for job in jobs)
    submission = None if jobs else Submission.read(run.folder)
    if submission and submission.fate:
        return RunStatus(run, "unknown", run.done(), problem=submission.fate)
    state: RunState = "running" if running else "queued" if queued else "ended" if jobs else "not submitted"
    return RunStatus(run, state, run.done(), tuple(jobs))


def _recorded(run: Run) -> RunStatus:
    try:
        record = run.RECORD.read(run.record_file, figures=not run.submitted)
    except InvalidInput as error:
        return RunStatus(run, "unreadable", run.done(), problem=str(error).removeprefix(f"{run.folder}/"))
    if run.submitted or not isinstance(record, Record | KernelRecord | LaunchRecord):
        done = run.done()
    else:
        done = run.planned() if record.status == "completed" else len(record.repeats)
    return RunStatus(run, "recorded", done, record=record)


def jobs_of(runs: Sequence[Run]) -> dict[Path, list[JobState]]:
    """The states of the jobs of each run directory. Raises SlurmSilent when Slurm does not answer."""
    ids_of = {run.folder: known_jobs(run.folder) for run in runs}
    states = slurm.states({job for ids in ids_of.values() for job in ids})
    return {folder: [states[job] for job in ids] for folder, ids in ids_of.items()}


def cancel(folders: Iterable[Path]) -> list[str]:
    """Cancel the jobs of run directories that have not ended, and return their ids. Raises SlurmSilent."""
    states = slurm.states({job for folder in folders for job in known_jobs(folder)})
    ids = [job for job, state in states.items() if not state.ended]
    slurm.cancel(ids)
    return sorted(ids, key=lambda job: (len(job), job))
