"""Submitting: runs become jobs, and ``submission.json`` in each run directory says which jobs measure which repeats."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from harness.errors import InvalidInput, RunFailed
from harness.files import write_atomically
from harness.launch import slurm
from harness.launch.script import Job, Request, Sharing, Step, interleaved, script
from harness.launch.slurm import SlurmSilent
from harness.running.run import AnyRun, Prepared
from harness.worker.agent.seating import Hosts

SUBMISSION = "submission.json"


@dataclass(frozen=True)
class Submission:
    """Which jobs measure which repeats of a run: (job id, repeats), in the order of submission."""

    site: str
    started: str
    jobs: list[tuple[str, list[int]]] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        """Write ``submission.json``."""
        write_atomically(folder / SUBMISSION, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Submission:
        """Read it. Raises InvalidInput for a folder without one."""
        try:
            fields = json.loads((folder / SUBMISSION).read_text())
            return cls(fields["site"], fields["started"], [(job, repeats) for job, repeats in fields["jobs"]])
        except OSError as error:
            raise InvalidInput(f"{folder}: no run directory of a batch job: {SUBMISSION}: {error.strerror}") from None
        except (ValueError, LookupError, TypeError):
            raise InvalidInput(f"{folder / SUBMISSION}: not what harness writes") from None


def known_jobs(folder: Path) -> list[str]:
    """The ids of the jobs of a run: those that were submitted for it, and those that somebody submitted by hand."""
    ids = [job for job, _ in Submission.read(folder).jobs]
    by_hand = [hosts.job for repeat in folder.glob("repeat-*") if (hosts := Hosts.read(repeat)) and hosts.job]
    return list(dict.fromkeys([*ids, *by_hand]))


def jobs(runs: Sequence[Prepared], sharing: Sharing = "run") -> list[Job]:
    """The jobs that measure ``runs``: one for each run, one for each repeat of each, or one for all runs of a size.

    With "repeat" and "nodes" the repeats of the runs are interleaved; with "nodes" they share one allocation.
    """
    steps = [_steps(one) for one in runs]
    if sharing == "run":
        return [_job(one, mine) for one, mine in zip(runs, steps, strict=True)]
    if sharing == "repeat":
        by_folder = {str(one.run_dir): one for one in runs}
        return [_job(by_folder[step.run_dir], (step,)) for step in interleaved(steps)]
    groups: dict[tuple[int, str], list[int]] = {}
    for number, one in enumerate(runs):
        groups.setdefault((one.plan.nodes, one.spec.device), []).append(number)
    return [_shared([runs[n] for n in group], interleaved([steps[n] for n in group])) for group in groups.values()]


def _steps(prepared: Prepared) -> tuple[Step, ...]:
    assert prepared.target
    mpi = prepared.target.extras.mpi
    return tuple(
        Step.of(prepared.spec, prepared.plan, prepared.run_dir, repeat, mpi)
        for repeat in range(1, prepared.spec.repeats + 1)
    )


def _job(prepared: Prepared, steps: tuple[Step, ...]) -> Job:
    spec = prepared.spec
    tag = prepared.run_dir.name.rpartition("-")[2]
    repeats = f"repeat {steps[0].repeat}" if len(steps) == 1 else f"{len(steps)} repeats"
    title = f"harness: {spec.backend}, {spec.model}, {spec.nodes} nodes with workers, {repeats}"
    return Job(f"{spec.backend}-n{spec.nodes}-{tag}", title, prepared.run_dir, steps)


def _shared(runs: Sequence[Prepared], steps: tuple[Step, ...]) -> Job:
    if len(runs) == 1:
        return _job(runs[0], steps)
    tag = runs[0].run_dir.name.rpartition("-")[2]
    title = f"harness: {len(runs)} runs compared on the same {runs[0].plan.nodes} nodes, repeats interleaved"
    name = f"compare-n{runs[0].plan.nodes}-{tag}"
    return Job(name, title, runs[0].run_dir.parent / name, steps)


def job_script(job: Job, runs: Sequence[Prepared], request: Request) -> str:
    """The text that is submitted for ``job``. Raises InvalidInput when its folder has a name that Slurm cannot take."""
    measured = {step.run_dir for step in job.steps}
    mine = [one for one in runs if str(one.run_dir) in measured]
    assert mine[0].target
    gpus = max(one.spec.devices_per_node if one.spec.device == "cuda" else 0 for one in mine)
    return script(job, mine[0].target, request, gpus)


def begin(runs: Sequence[AnyRun]) -> None:
    """Write the run directories. Raises InvalidInput or RunFailed, and then leaves none."""
    for number, run in enumerate(runs):
        try:
            run.begin()
            Submission(run.site or "", run.started).write(run.folder)
        except BaseException:
            for begun in runs[: number + 1]:
                shutil.rmtree(begun.folder, ignore_errors=True)
            raise


def write_script(job: Job, text: str) -> Path:
    """Write a job's script. Raises RunFailed when it cannot be written."""
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
        repeats = "-".join(str(step.repeat) for step in job.steps) if len(job.steps) == 1 else ""
        return write_atomically(job.folder / f"job{repeats and '-' + repeats}.sh", text)
    except OSError as error:
        raise RunFailed(f"cannot write {error.filename or job.folder}: {error.strerror}") from None


def submit(job: Job, path: Path, after: Sequence[str] = ()) -> str:
    """Submit a job's script, and note its id in the run directories it measures. Raises as ``slurm.submit`` does."""
    number = slurm.submit(path, after)
    for folder, repeats in _by_run(job).items():
        known = Submission.read(folder)
        Submission(known.site, known.started, [*known.jobs, (number, repeats)]).write(folder)
    return number


def sharing_of(runs: Sequence[Prepared]) -> Sharing:
    """One run has a job of its own; runs that are compared share nodes."""
    return "run" if len(runs) == 1 else "nodes"


def send(runs: Sequence[AnyRun], request: Request, submitting: bool = True) -> list[tuple[Path, str]]:
    """Write run directories and job scripts and submit these. Returns (script, job id), the id "" if not submitted.

    Raises InvalidInput when Slurm refuses a job; then nothing is left, neither folders nor jobs.
    """
    prepared = [run.prepared for run in runs]
    planned = [(job, job_script(job, prepared, request)) for job in jobs(prepared, sharing_of(prepared))]
    begin(runs)
    sent: list[tuple[Path, str]] = []
    try:
        for job, text in planned:
            path = write_script(job, text)
            sent.append((path, submit(job, path) if submitting else ""))
    except BaseException:
        with suppress(SlurmSilent):
            slurm.cancel([number for _, number in sent if number])
        for folder in {job.folder for job, _ in planned} | {run.folder for run in runs}:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return sent


def _by_run(job: Job) -> dict[Path, list[int]]:
    found: dict[Path, list[int]] = {}
    for step in job.steps:
        found.setdefault(Path(step.run_dir), []).append(step.repeat)
    return found
