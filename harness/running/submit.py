"""Submitting: runs become jobs, and ``submission.json`` in each run directory says which jobs measure which repeats."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from harness.errors import InvalidInput, RunFailed
from harness.files import write_atomically
from harness.launch import slurm
from harness.launch.script import BatchJob, JobOptions, Sharing, Step, interleaved, script
from harness.launch.slurm import SlurmSilent
from harness.running import measure
from harness.running.prepare import Prepared
from harness.running.run import Run
from harness.worker.agent.seating import SUBMISSION, Hosts


@dataclass(frozen=True)
class Submission:
    """Which jobs measure which repeats of a run: (job id, repeats), in the order of submission.

    ``record`` is what the run's record is called; what earlier versions have submitted are measurements.
    """

    site: str
    started: str
    record: str = measure.RECORD.file_name
    jobs: list[tuple[str, list[int]]] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        write_atomically(folder / SUBMISSION, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Submission:
        """Raises InvalidInput for a folder without one."""
        try:
            fields = json.loads((folder / SUBMISSION).read_text())
            jobs = [(job, repeats) for job, repeats in fields["jobs"]]
            return cls(**fields | {"jobs": jobs})
        except OSError as error:
            raise InvalidInput(f"{folder}: no run directory of a batch job: {SUBMISSION}: {error.strerror}") from None
        except (ValueError, LookupError, TypeError):
            raise InvalidInput(f"{folder / SUBMISSION}: not what harness writes") from None


def known_jobs(folder: Path) -> list[str]:
    """The ids of the jobs of a run: those that were submitted for it, and those that somebody submitted by hand."""
    ids = [job for job, _ in Submission.read(folder).jobs]
    by_hand = [hosts.job for repeat in folder.glob("repeat-*") if (hosts := Hosts.read(repeat)) and hosts.job]
    return list(dict.fromkeys([*ids, *by_hand]))


def jobs(runs: Sequence[Prepared], sharing: Sharing) -> list[BatchJob]:
    """The jobs that measure ``runs``: one for each run, one for each repeat of each, or one for all runs of a size.

    With "repeat" and "nodes" the repeats of the runs are interleaved; with "nodes" they share one allocation.
    """
    steps = [_steps(run) for run in runs]
    if sharing == "run":
        return [_job([run], own) for run, own in zip(runs, steps, strict=True)]
    if sharing == "repeat":
        by_folder = {str(run.run_dir): run for run in runs}
        return [_job([by_folder[step.run_dir]], (step,)) for step in interleaved(steps)]
    groups: dict[tuple[int, str], list[int]] = {}
    for number, run in enumerate(runs):
        groups.setdefault((run.plan.nodes, run.spec.device), []).append(number)
    return [_job([runs[n] for n in group], interleaved([steps[n] for n in group])) for group in groups.values()]


def _steps(prepared: Prepared) -> tuple[Step, ...]:
    assert prepared.site
    plan = prepared.plan
    step = Step(
        run_dir=str(prepared.run_dir),
        repeat=1,
        nodes=plan.nodes,
        tasks=len(plan.processes),
        mpi=prepared.site.extras.mpi if plan.mpi else "none",
        python=prepared.python,
        timeout_s=prepared.spec.timeout_s,
    )
    return tuple(replace(step, repeat=repeat) for repeat in range(1, prepared.spec.repeats + 1))


def _job(runs: Sequence[Prepared], steps: tuple[Step, ...]) -> BatchJob:
    first, nodes = runs[0], runs[0].plan.nodes
    tag = first.run_dir.name.rpartition("-")[2]
    if len(runs) > 1:
        title = f"harness: {len(runs)} runs compared on the same {nodes} nodes, repeats interleaved"
        name = f"compare-n{nodes}-{tag}"
        return BatchJob(name, title, first.run_dir.parent / name, steps)
    spec = first.spec
    repeats = f"repeat {steps[0].repeat}" if len(steps) == 1 else f"{len(steps)} repeats"
    title = f"harness: {spec.backend}, {spec.model}, {spec.nodes} nodes with workers, {repeats}"
    return BatchJob(f"{spec.backend}-n{spec.nodes}-{tag}", title, first.run_dir, steps)


def job_script(job: BatchJob, runs: Sequence[Prepared], options: JobOptions) -> str:
    """The text that is submitted for ``job``. Raises InvalidInput when its folder has a name that Slurm cannot take."""
    folders = {step.run_dir for step in job.steps}
    own = [run for run in runs if str(run.run_dir) in folders]
    assert own[0].site
    gpus = max(run.spec.devices_per_node if run.spec.device == "cuda" else 0 for run in own)
    return script(job, own[0].site, options, gpus)


def begin(runs: Sequence[Run]) -> None:
    """Write the run directories. Raises InvalidInput or RunFailed, and then leaves none."""
    for number, run in enumerate(runs):
        try:
            run.begin()
            Submission(run.site or "", run.started, run.kind.RECORD.file_name).write(run.folder)
        except BaseException:
            for begun in runs[: number + 1]:
                shutil.rmtree(begun.folder, ignore_errors=True)
            raise


def write_script(job: BatchJob, text: str) -> Path:
    """Write a job's script. Raises RunFailed when it cannot be written."""
    repeat = f"-{job.steps[0].repeat}" if len(job.steps) == 1 else ""
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
        return write_atomically(job.folder / f"job{repeat}.sh", text)
    except OSError as error:
        raise RunFailed(f"cannot write {error.filename or job.folder}: {error.strerror}") from None


def submit(job: BatchJob, path: Path, lane: str | None = None) -> str:
    """Submit a job's script, and note its id in the run directories it measures. Raises as ``slurm.submit`` does."""
    number = slurm.submit(path, lane)
    repeats: dict[Path, list[int]] = {}
    for step in job.steps:
        repeats.setdefault(Path(step.run_dir), []).append(step.repeat)
    for folder, own in repeats.items():
        known = Submission.read(folder)
        replace(known, jobs=[*known.jobs, (number, own)]).write(folder)
    return number


def planned(runs: Sequence[Prepared], options: JobOptions) -> list[tuple[BatchJob, str]]:
    """The jobs that measure ``runs``, with their scripts: a single run has its own, runs that are compared share nodes."""
    return [(job, job_script(job, runs, options)) for job in jobs(runs, "run" if len(runs) == 1 else "nodes")]


def send(runs: Sequence[Run], options: JobOptions, submitting: bool = True) -> list[tuple[Path, str]]:
    """Write run directories and job scripts and submit these. Returns (script, job id), the id "" if not submitted.

    Raises InvalidInput when Slurm refuses a job; then nothing is left, neither folders nor jobs.
    """
    jobs_ = planned([run.prepared for run in runs], options)
    begin(runs)
    sent: list[tuple[Path, str]] = []
    try:
        for job, text in jobs_:
            path = write_script(job, text)
            sent.append((path, submit(job, path) if submitting else ""))
    except BaseException:
        with suppress(SlurmSilent):
            slurm.cancel([number for _, number in sent if number])
        for folder in {job.folder for job, _ in jobs_} | {run.folder for run in runs}:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return sent
