"""Submitting: runs become jobs, and ``submission.json`` in each run directory says which jobs measure which repeats."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from harness.errors import RunFailed
from harness.files import write_atomically
from harness.launch import slurm
from harness.launch.script import BatchJob, JobOptions, Sharing, Step, interleaved, script
from harness.launch.slurm import SlurmSilent
from harness.running.notes import Submission, submitted_repeats
from harness.running.run import Run


def planned(runs: Sequence[Run], options: JobOptions, sharing: Sharing | None = None) -> list[tuple[BatchJob, str]]:
    """The jobs that measure what no job was submitted for yet, in the order of submission, with their scripts.

    A job has a repeat, a run, or all runs of a size, which then share its nodes: by default, all that are compared. Repeats
    of several runs are interleaved. Raises InvalidInput when a folder has a name that Slurm cannot take.
    """
    sharing = sharing or ("run" if len(runs) == 1 else "nodes")
    groups: dict[object, list[Run]] = defaultdict(list)
    for run in runs:
        groups[(run.plan.nodes, run.spec.device) if sharing == "nodes" else run.folder].append(run)
    shares = [(group, interleaved(list(map(_steps, group)))) for group in groups.values()]
    if sharing == "repeat":
        shares = [(group, (step,)) for group, steps in shares for step in steps]
        shares.sort(key=lambda share: share[1][0].repeat)
    jobs = []
    for group, steps in shares:
        first, spec, nodes = group[0], group[0].spec, group[0].plan.nodes
        tag = first.folder.name.rpartition("-")[2]
        if len(group) > 1:
            title = f"{len(group)} runs compared on the same {nodes} nodes, repeats interleaved"
            name = f"compare-n{nodes}-{tag}"
            folder = first.folder.parent / name
        else:
            repeats = f"repeat {steps[0].repeat}" if len(steps) == 1 else f"{len(steps)} repeats"
            title = f"{spec.backend}, {spec.model}, {spec.nodes} nodes with workers, {repeats}"
            name, folder = f"{spec.backend}-n{spec.nodes}-{tag}", first.folder
        job = BatchJob(name, f"harness: {title}", folder, steps)
        gpus = max(run.spec.devices_per_node if run.spec.device == "cuda" else 0 for run in group)
        assert first.site
        jobs.append((job, script(job, first.site, options, gpus)))
    return jobs


def _steps(run: Run) -> tuple[Step, ...]:
    """The repeats of a run that no job was submitted for."""
    assert run.site
    taken = submitted_repeats(run.folder)
    return tuple(
        Step(
            run_dir=str(run.folder),
            repeat=repeat,
            nodes=run.plan.nodes,
            tasks=len(run.plan.processes),
            mpi=run.site.extras.mpi if run.plan.mpi else "none",
            python=run.python,
            timeout_s=run.spec.timeout_s,
        )
        for repeat in range(1, run.spec.repeats + 1)
        if repeat not in taken
    )


def begin(run: Run) -> None:
    """As ``Run.begin``."""
    run.begin()
    Submission(site=run.site_name or "", started=run.started, record=run.RECORD.file_name).write(run.folder)


def submit(job: BatchJob, text: str, lane: str | None = None, submitting: bool = True) -> tuple[Path, str]:
    """Write a job's script, submit it, and note the job's id in the run directories that it measures.

    Returns the script and the id, "" if not submitted. Raises RunFailed when the script cannot be written, or as
    ``slurm.submit`` does.
    """
    repeat = f"-{job.steps[0].repeat}" if len(job.steps) == 1 else ""
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
        path = write_atomically(job.folder / f"job{repeat}.sh", text)
    except OSError as error:
        raise RunFailed(f"cannot write {error.filename or job.folder}: {error.strerror}") from None
    if not submitting:
        return path, ""
    number = slurm.submit(path, lane)
    repeats: dict[Path, list[int]] = defaultdict(list)
    for step in job.steps:
        repeats[Path(step.run_dir)].append(step.repeat)
    for folder, own in repeats.items():
        submission = Submission.read(folder)
        assert submission
        submission.jobs.append((number, own))
        submission.write(folder)
    return path, number


def send(runs: Sequence[Run], options: JobOptions, submitting: bool = True) -> list[tuple[Path, str]]:
    """Write run directories and job scripts and submit these. Returns (script, job id), the id "" if not submitted.

    Raises InvalidInput when Slurm refuses a job, RunFailed; then nothing is left, neither folders nor jobs.
    """
    jobs = planned(runs, options)
    sent: list[tuple[Path, str]] = []
    try:
        for run in runs:
            begin(run)
        for job, text in jobs:
            sent.append(submit(job, text, submitting=submitting))
    except BaseException:
        with suppress(SlurmSilent):
            slurm.cancel([number for _, number in sent if number])
        for folder in {job.folder for job, _ in jobs} | {run.folder for run in runs}:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return sent
