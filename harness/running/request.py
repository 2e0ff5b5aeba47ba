"""Carrying out requests: the one way from specs, and a place, to records, here or through the jobs of a batch system.

From Python: ``carry_out([RunSpec.validated(backend="pytorch", nodes=2)], Place(site="daint", account="s123"))``.
``submission.json`` in each run directory says which jobs measure which repeats.
"""

import os
import shutil
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

from harness.core.spec import RunSpec
from harness.errors import HarnessError, Interrupted, InvalidInput, RunFailed
from harness.files import write_atomically
from harness.launch import slurm
from harness.launch.script import BatchJob, JobOptions, JobStep, Sharing, script
from harness.launch.slurm import SlurmSilent
from harness.records.record import AnyRecord
from harness.running import collect
from harness.running.notes import Submission, at_work, submitted_repeats
from harness.running.pace import Pace
from harness.running.preflight import outcome
from harness.running.prepare import Place
from harness.running.run import Listener, Run

Element = TypeVar("Element")


@dataclass(frozen=True)
class Outcome:
    """The result of a request."""

    runs: list[Run]  # as they were planned
    records: list[AnyRecord] = field(default_factory=list)  # none in a dry run, or if jobs were not waited for
    scripts: list[str] = field(default_factory=list)  # of jobs, in a dry run
    refusals: list[str] = field(default_factory=list)  # reasons why this machine would not take the runs of a dry run
    jobs: list[tuple[Path, str]] = field(default_factory=list)  # (script, job id), the id "" if it was not submitted

    def check(self) -> None:
        """Raise RunFailed for the first run that has no number."""
        for record, run in zip(self.records, self.runs, strict=False):
            if record.problem:
                raise failed(record, run)


def carry_out(
    requests: Sequence[RunSpec | Run],
    place: Place,
    listener: Listener | None = None,
    wait: bool = True,
    submitting: bool = True,
    preflight: bool = False,
) -> Outcome:
    """Carry out specs, or runs that are planned already, here or through a batch system; or plan them, on a dry run.

    With ``preflight`` the nodes of the first run and their links are checked before, and its record says what is slow.

    Where there is a batch system one need not ``wait`` for the jobs, which are written only, unless ``submitting``. A run
    that fails has a record that says why. Raises InvalidInput before anything is begun for whatever cannot work;
    Interrupted, which says how to go on, when the user has interrupted it.
    """
    listener = listener or Listener()
    runs = [request if isinstance(request, Run) else place.prepare(request) for request in requests]
    if preflight:
        runs[0] = place.with_preflight(runs[0])
    if place.dry_run:
        scripts = [text for _, text in jobs_of(runs, place.options)] if place.queued else []
        return Outcome(runs, scripts=scripts, refusals=place.refusals(runs))
    if not place.queued and not (wait and submitting):
        raise place.no_batch_system("--no-submit" if wait else "--no-wait")
    place.check_all(runs)
    if line := place.exposed(runs):
        listener.remark(line)
    if not place.queued:
        return Outcome(runs, execute(runs, listener))
    jobs = send(runs, place.options, submitting)
    records = collect.wait(runs, listener) if wait and submitting else []
    return Outcome(runs, records, jobs=jobs)


def failed(record: AnyRecord, run: Run) -> RunFailed:
    """The error for a run that has failed, or has not reached its target."""
    number, way = ("", "") if record.status == "completed" else ("no number; ", run.continuation())
    lines = [f"{record.spec.backend}: {record.problem}", f"{number}logs and record: {run.folder}", way]
    return RunFailed("\n".join(filter(None, lines)))


def in_turn(elements: Sequence[Element], number: int) -> Sequence[Element]:
    """The order of round ``number``, from 1 on: there and back (A B, B A, A B, …), so that a drift hits all alike."""
    return elements if number % 2 else elements[::-1]


def execute(runs: Sequence[Run], listener: Listener, advice: str = "") -> list[AnyRecord]:
    """Carry runs out on this machine with their repeats interleaved, so that a slow hour of it hits all of them alike.

    A run that fails is recorded as failed and left out of the later rounds; the others go on. An interruption (Ctrl-C)
    records all unfinished runs as interrupted and raises Interrupted, which says where these are and how to go on: with
    ``advice``, or as the runs can.
    """
    records: dict[Path, AnyRecord] = {}
    pace = Pace.of({run.folder: run.spec for run in runs})
    working = ExitStack()
    try:
        for run in runs:
            run.session = os.environ.get("SLURM_JOB_ID") or runs[0].folder.name if len(runs) > 1 else ""
            run.begin()
            working.enter_context(at_work(run.folder))
        for run in runs:
            if run.preflight:
                _check_before(run, run.preflight, listener)
        for repeat in range(1, max(run.spec.repeats for run in runs) + 1):
            for run in in_turn(runs, repeat):
                if run.folder in records:
                    continue
                began = time.monotonic()
                try:
                    run.repeat(repeat, partial(listener.progress, run, repeat))
                except HarnessError as error:
                    records[run.folder] = run.finish(error)
                    pace.given_up.add(run.folder)
                    listener.ended(run, repeat, pace, error)
                else:
                    pace.took_s[run.folder].append(time.monotonic() - began)
                    listener.ended(run, repeat, pace)
                    if repeat == run.spec.repeats:
                        records[run.folder] = run.finish()
    except BaseException as error:
        for run in runs:
            if run.started and run.folder not in records:
                with suppress(RunFailed):  # a full disk; the error that is raised again tells more
                    run.finish(error)
        if not isinstance(error, KeyboardInterrupt):
            raise
        begun = [run.folder for run in runs if run.started]
        kept = f"logs and {'record' if len(begun) == 1 else 'records'}: {os.path.commonpath(begun)}" if begun else ""
        first_line = f"{str(error) or 'interrupted'}; no process is left running"
        lines = [first_line, kept, advice, *(run.continuation() for run in runs)]
        raise Interrupted("\n".join(filter(None, lines))) from None
    finally:
        working.close()
    return [records[run.folder] for run in runs]


def _check_before(run: Run, checking: Run, listener: Listener) -> None:
    """Check the nodes of a run. A check that fails is noted in the run's record, and does not stop the run."""
    checking.begin()
    try:
        checking.repeat(1, partial(listener.progress, checking, 1))
    except HarnessError as error:
        checking.finish(error)
    else:
        checking.finish()
    result = outcome(run.folder)
    assert result
    listener.checked(run, result)


def jobs_of(runs: Sequence[Run], options: JobOptions, sharing: Sharing | None = None) -> list[tuple[BatchJob, str]]:
    """The jobs of the repeats that no job was submitted for yet, in the order of submission, with their scripts.

    A job has a repeat, a run, or all runs of a size, which then share its nodes: by default, all that are compared. Repeats
    of several runs are interleaved; checks of nodes come first. Raises InvalidInput for a folder's name that Slurm refuses.
    """
    sharing = sharing or ("run" if len(runs) == 1 else "nodes")
    groups: dict[object, list[Run]] = defaultdict(list)
    for run in runs:
        groups[(run.plan.nodes, run.spec.device) if sharing == "nodes" else run.folder].append(run)
    # Round by round, so that a slow hour of the machine hits all runs alike.
    shares = []
    for group in groups.values():
        rounds = [in_turn(steps, number) for number, steps in enumerate(zip_longest(*map(_steps, group)), 1)]
        if options.jobs > max(1, len(rounds)):
            problem = f"there are {len(rounds)} repeats"
            raise InvalidInput(f"--jobs {options.jobs}: {problem}; give --repeats {options.jobs} or more")
        parts: list[list[JobStep]] = [[] for _ in range(options.jobs)]
        for number, steps in enumerate(rounds):
            parts[number * options.jobs // len(rounds)] += filter(None, steps)
        shares += [(group, tuple(part)) for part in parts]
    if sharing == "repeat":
        shares = [(group, (step,)) for group, steps in shares for step in steps]
        shares.sort(key=lambda share: share[1][0].repeat)
    jobs = []
    for group, steps in shares:
        first, spec, nodes = group[0], group[0].spec, group[0].plan.nodes
        part = f"-{steps[0].repeat}" if options.jobs > 1 and steps else ""
        checked = [] if part and steps[0].repeat > 1 else [run.preflight for run in group if run.preflight]
        checks = [step for checking in checked for step in _steps(checking)]
        tag = first.folder.name.rpartition("-")[2]
        if len(group) > 1:
            title = f"{len(group)} runs compared on the same {nodes} nodes, repeats interleaved"
            name = f"compare-n{nodes}-{tag}"
            folder = first.folder.parent / name
        else:
            repeats = f"repeat {steps[0].repeat}" if len(steps) == 1 else f"{len(steps)} repeats"
            title = f"{spec.backend}, {spec.subject}, {spec.nodes} nodes with workers, {repeats}"
            name, folder = f"{spec.backend}-n{spec.nodes}-{tag}", first.folder
        job = BatchJob(name, f"harness: {title}", folder, (*checks, *steps), part)
        gpus = max(run.spec.devices_per_node if run.spec.device == "cuda" else 0 for run in group)
        assert first.site
        jobs.append((job, script(job, first.site, options, gpus)))
    return jobs


def _steps(run: Run) -> tuple[JobStep, ...]:
    """The repeats of a run that no job was submitted for."""
    assert run.site
    taken = submitted_repeats(run.folder)
    return tuple(
        JobStep(
            run_dir=str(run.folder),
            repeat=repeat,
            nodes=run.plan.nodes,
            tasks=len(run.plan.processes),
            mpi=run.site.extras.mpi if run.plan.mpi else "none",
            python=run.python,
            timeout_s=run.spec.timeout_s,
            inside=(*run.plan.container["srun"], *run.plan.container["command"]) if run.plan.container else (),
        )
        for repeat in range(1, run.spec.repeats + 1)
        if repeat not in taken
    )


def submit(job: BatchJob, text: str, lane: str | None = None, submitting: bool = True) -> tuple[Path, str]:
    """Write a job's script, submit it, and note the job's id in the run directories that it measures.

    Returns the script and the id, "" if not submitted. Raises RunFailed when it cannot write, or as ``slurm.submit`` does.
    """
    repeat = job.part or (f"-{job.steps[0].repeat}" if len(job.steps) == 1 else "")
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
        path = write_atomically(job.folder / f"job{repeat}.sh", text)
    except OSError as error:
        raise RunFailed(f"cannot write {error.filename or job.folder}: {error.strerror}") from None
    if not submitting:
        return path, ""
    repeats: dict[Path, list[int]] = defaultdict(list)
    for step in job.steps:
        repeats[Path(step.run_dir)].append(step.repeat)
    try:
        number = slurm.submit(path, lane)
    except slurm.FateUnknown as error:
        for folder in repeats:
            _note(folder, fate=str(error))
        raise
    try:
        for folder, numbers in repeats.items():
            _note(folder, (number, numbers))
    except BaseException:  # nobody would find a job that is noted nowhere
        with suppress(SlurmSilent):
            slurm.cancel([number])
        raise
    return path, number


def _note(folder: Path, *jobs: tuple[str, list[int]], fate: str = "") -> None:
    submission = Submission.read(folder)
    assert submission
    submission.jobs, submission.fate = [*submission.jobs, *jobs], fate
    submission.write(folder)


def send(runs: Sequence[Run], options: JobOptions, submitting: bool = True) -> list[tuple[Path, str]]:
    """Write run directories and submit their jobs, as ``submit`` does; if that fails, neither folders nor jobs are left.

    They stay if nobody knows whether the last job was submitted (FateUnknown).
    """
    jobs = jobs_of(runs, options)
    sent: list[tuple[Path, str]] = []
    try:
        for run in runs:
            run.begin()
            if run.preflight:
                run.preflight.begin()
        for job, text in jobs:
            sent.append(submit(job, text, submitting=submitting))
    except slurm.FateUnknown:  # that job may run, and so will those that were submitted
        raise
    except BaseException:
        with suppress(SlurmSilent):
            slurm.cancel([number for _, number in sent if number])
        for folder in {job.folder for job, _ in jobs} | {run.folder for run in runs}:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return sent
