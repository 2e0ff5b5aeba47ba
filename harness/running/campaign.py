"""A study under way: its points that are done, that are queued, and that are to be measured next.

Nothing here has to stay alive. The study's folder, OUTPUT/NAME, holds the run directories and ``study.json``, which says
which run directories belong to which point. The state of a point is never written down: records and the batch system know.
"""

import shutil
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.errors import HarnessError, Interrupted, InvalidInput, RunFailed
from harness.launch import slurm
from harness.launch.script import BatchJob
from harness.launch.slurm import JobState
from harness.records.kernel import KernelRecord
from harness.records.measurement import Record
from harness.running import collect, request
from harness.running import status as statuses
from harness.running.notes import Entry, StudyNotes, known_jobs, locked, submitted_repeats
from harness.running.prepare import Place
from harness.running.run import Listener, Run
from harness.running.study import MAX_JOBS, Study, StudyPoint, labels
from harness.worker.agent.seating import SPEC, SUBMISSION

# "unfinished": whoever began it was killed before it was submitted, or before there was a record.
PointState = Literal["new", "refused", "queued", "running", "ended", "unfinished", "completed", "failed", "interrupted"]
RECORDS = (Record, KernelRecord)  # that points have
TO_DO: frozenset[PointState] = frozenset({"new", "refused", "unfinished", "interrupted"})
UNDER_WAY: frozenset[PointState] = frozenset({"queued", "running", "ended"})


@dataclass
class PointStatus:
    """The state of a point, and the number of its repeats that have ended."""

    entry: Entry
    label: str
    in_file: bool
    state: PointState
    reason: str = ""
    repeats: int = 0
    jobs: tuple[JobState, ...] = ()
    run: Run | None = None
    record: Record | KernelRecord | None = None

    @property
    def kernel(self) -> str:
        """The kernel that is measured, "" if it is img/s."""
        return self.entry.spec["kernel"]["name"] if "kernel" in self.entry.spec else ""

    @property
    def outcome(self) -> str:
        """The result in a few words, or the reason why there is none."""
        return self.record.outcome if self.record and self.record.derived else self.reason

    def see(self, status: statuses.RunStatus, mine: bool) -> None:
        """Take over the state of its run; one that cannot be read has failed. ``mine``: this process works on the study."""
        self.run, self.repeats, self.reason = status.run, status.done, ""
        self.jobs = status.jobs or tuple(JobState(job, "") for job in known_jobs(status.run.folder))
        self.state = "unfinished"
        if status.state == "unreadable":
            self.state, self.reason, self.run = "failed", status.problem, None
        elif status.record:
            assert isinstance(status.record, RECORDS)  # a study has no trainings
            self.record, self.state = status.record, status.record.status
            self.reason = (status.record.reason or "").partition("\n")[0]
        elif not status.run.submitted:
            if status.state == "running" and not mine:
                self.state = "running"
        else:
            planned, refused = status.run.spec.repeats, self.entry.refused
            missing = sorted(set(range(1, planned + 1)) - submitted_repeats(status.run.folder).keys())
            self.reason = "" if status.reason == "Dependency" else status.reason  # lanes are made of dependencies
            if missing and refused:
                some = f"repeats {', '.join(map(str, missing))}: " if len(missing) < planned else ""
                self.state, self.reason = "refused", some + refused
            elif not missing and status.state in ("queued", "running", "ended"):
                self.state = status.state

    def as_dict(self) -> dict[str, object]:
        derived = self.record.derived if isinstance(self.record, Record) else None
        return {
            "id": self.entry.id,
            "point": self.label,
            "state": self.state,
            "in_file": self.in_file,
            "run": self.entry.runs[-1] if self.entry.runs else None,
            "repeats": self.repeats,
            "of": self.entry.spec["repeats"],
            "jobs": {job.id: job.state or None for job in self.jobs},
            **({"kernel": self.kernel} if self.kernel else {"img_per_s": derived and derived.img_per_s.mean}),
            "reason": self.reason,
        }


class Campaign:
    """A study at a place, from its file and its folder. A process that changes it holds its lock (``at_work``)."""

    def __init__(self, study: Study, place: Place) -> None:
        """Raises InvalidInput."""
        self.study, self.place = study, place
        self.folder = (place.folder / study.name).absolute()
        self.points = study.points(place.device)
        self.planned: dict[str, Run] = {}  # a new run of each point, by its id
        self.mine = False  # this process holds the lock
        site = place.elsewhere.name if place.elsewhere else None
        self.notes = StudyNotes.read(self.folder) or StudyNotes(schema="harness.study/1", site=site)
        if self.notes.points and self.notes.site != site:
            begun, here = (f"at {name}" if name else "on this machine" for name in (self.notes.site, site))
            problem = f"this study was begun {begun}, not {here}"
            raise InvalidInput(f"{self.folder}: {problem}; give another --output or --site")

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Keep other processes from the study. Raises InvalidInput while another process is at work on it."""
        self.prepare()  # a point that cannot run is refused before there is a folder
        with locked(self.folder):
            self.notes = StudyNotes.read(self.folder) or self.notes
            self.mine = True
            yield

    def status(self) -> list[PointStatus]:
        """The status of every point, with one question to Slurm for all. Raises SlurmSilent when it does not answer."""
        noted, of_file = self.notes.by_id, {point.id for point in self.points}
        entries = [noted.get(point.id) or Entry(id=point.id, spec=point.spec.model_dump()) for point in self.points]
        entries += [entry for entry in self.notes.points if entry.id not in of_file]
        # The last run directory counts, but one that was noted and never made does not.
        noted_runs = ((entry.id, self.folder / name) for entry in entries for name in entry.runs)
        folders = {key: path for key, path in noted_runs if (path / SPEC).exists()}
        runs, unreadable = statuses.reopened(folders.values())
        known = dict(zip(runs, statuses.status(list(runs.values())), strict=True))
        points = []
        for entry, label in zip(entries, labels([entry.spec for entry in entries]), strict=True):
            point = PointStatus(entry, label, entry.id in of_file, "refused" if entry.refused else "new", entry.refused)
            points.append(point)
            folder = folders.get(entry.id)
            if status := folder and known.get(folder):
                point.see(status, self.mine)
            elif folder:
                point.state, point.reason = "failed", unreadable[folder]
        return points

    def progress(self) -> str:
        ids = {point.id for point in self.points}
        runs = [entry.runs[-1] for entry in self.notes.points if entry.id in ids and entry.runs]
        recorded = [any((self.folder / run / kind.file_name).exists() for kind in RECORDS) for run in runs]
        return f"{sum(recorded)} of {len(ids)} points  "

    def collect(self) -> None:
        """Make every record that can be made from what is on disk. Raises SlurmSilent."""
        collect.collect_all([point.run for point in self.status() if point.run])

    def cancel(self) -> list[str]:
        return statuses.cancel(self.folder / run for entry in self.notes.points for run in entry.runs)

    def prepare(self) -> None:
        """Plan every point of the file. Raises InvalidInput for one that cannot run or is there twice."""
        completed: dict[str, StudyPoint] = {}
        for point, label in zip(self.points, labels([point.spec.model_dump() for point in self.points]), strict=True):
            with self.study.complaints(f"{point.table}: {label}"):
                planned = self.place.prepare(point.spec, self.folder)
            same = completed.setdefault(planned.spec.model_dump_json(), point)
            if same is not point:
                raise self.study.complain(label, f"is there twice: {same.table}, {point.table}")
            self.planned[point.id] = planned

    def work(self, retry_failed: bool, check: bool = True) -> list[tuple[Entry, Run]]:
        """The points to be measured now, each with a new run or with the one that lacks some of its jobs.

        With ``check`` their environments and data are there. Writes nothing. Raises InvalidInput for the first point that
        cannot be measured, SlurmSilent.
        """
        if not self.planned:
            self.prepare()
        tables = {point.id: point.table for point in self.points}
        work, places = [], dict[Path, str]()  # in the study's file, of runs that are new, by their run directories
        for point in self.status():
            if not point.in_file or point.state not in TO_DO | ({"failed"} if retry_failed else set()):
                continue
            run = self.planned[point.entry.id]
            if point.run and not point.record and known_jobs(point.run.folder):
                point.run.site = run.site
                run = point.run
            else:
                places[run.folder] = f"{tables[point.entry.id]}: {point.label}"
            work.append((point.entry, run))
        if check:
            fresh = [run for _, run in work if run.folder in places]
            self.place.check_all(fresh, lambda run: self.study.complaints(places[run.folder]))
        return work

    def jobs(self, runs: Sequence[Run]) -> list[tuple[BatchJob, str]]:
        """The jobs that measure what is missing of ``runs``, in the order of submission, with their scripts."""
        return request.jobs_of(runs, self.place.options, self.study.allocation)

    def max_jobs(self, typed: int | None) -> int:
        site = self.place.profile.max_jobs if self.place.profile else None
        return typed or self.study.max_jobs or site or MAX_JOBS

    def carry_out(
        self, work: Sequence[tuple[Entry, Run]], listener: Listener, called: str, max_jobs: int | None, wait: bool
    ) -> None:
        """Measure ``work`` here or in jobs. ``called`` is the study's name in commands. Raises Interrupted."""
        if not self.place.queued:
            if not wait:
                raise self.place.no_batch_system("--no-wait")
            if work:
                self._note(work)
                request.execute([run for _, run in work], listener, f"    harness study run {called}")
            return
        try:
            self._submit(work, self.max_jobs(max_jobs))
        except KeyboardInterrupt:
            command = f"    harness study run {called}"
            raise Interrupted(f"interrupted while jobs were submitted; those that are go on\n{command}") from None
        if wait:
            under_way = [point for point in self.status() if point.in_file and point.state in UNDER_WAY]
            collect.wait([point.run for point in under_way if point.run], listener, called)

    def _note(self, work: Sequence[tuple[Entry, Run]]) -> None:
        """Note, before anything is begun, which run directories are going to measure which points."""
        noted = self.notes.by_id
        for entry, run in work:
            if entry.id not in noted:
                self.notes.points.append(entry)
            entry.refused = ""
            entry.runs = [name for name in entry.runs if (self.folder / name).is_dir()]
            if run.folder.name not in entry.runs:
                entry.runs.append(run.folder.name)
        self.notes.write(self.folder)

    def _submit(self, work: Sequence[tuple[Entry, Run]], max_jobs: int) -> None:
        """Submit the jobs of ``work`` in lanes: at most ``max_jobs`` of the study run at once, even if nobody waits.

        A point whose job Slurm refuses is noted as refused; the others go on.
        Raises SlurmSilent when Slurm does not answer; jobs that have been submitted by then are noted.
        """
        jobs = self.jobs([run for _, run in work])
        lane = f"{self.study.name}-{zlib.crc32(str(self.folder).encode()):08x}"
        points = {run.folder: (entry, run) for entry, run in work}
        self._note(work)
        refused: set[Path] = set()
        for number, (job, text) in enumerate(jobs):
            folders = {Path(step.run_dir) for step in job.steps}
            if folders <= refused:
                continue
            for path in folders:
                if not (path / SUBMISSION).exists():
                    points[path][1].begin()
            try:
                request.submit(job, text, f"{lane}-{1 + number % max_jobs}")
            except slurm.JobRefused as error:
                refused |= folders
                for path in folders:
                    entry = points[path][0]
                    entry.refused = error.words
                    if not known_jobs(path):  # it has never run, and is planned anew next time
                        shutil.rmtree(path, ignore_errors=True)
                        entry.runs.remove(path.name)
                if job.folder not in folders:
                    shutil.rmtree(job.folder, ignore_errors=True)
                self.notes.write(self.folder)


def problem(points: Sequence[PointStatus], tried: int, called: str) -> HarnessError | None:
    """The error of a study of which ``tried`` points were to be measured; ``called`` is its name in commands."""
    refused = [point for point in points if point.in_file and point.state == "refused"]
    if refused and len(refused) == tried:
        return InvalidInput(f"Slurm refuses all {tried} points that were to be measured: {refused[0].reason}")
    count, again = Counter(point.state for point in points if point.in_file), f"`harness study run {called}"
    lines: dict[PointState, str] = {
        "refused": f"Slurm refuses {count['refused']} of {len(points)} points; {again}` tries again",
        "interrupted": f"{count['interrupted']} of {len(points)} points were interrupted; {again}` measures them",
        "failed": f"{count['failed']} of {len(points)} points have failed; {again} --retry-failed` measures again",
    }
    true_lines = [line for state, line in lines.items() if count[state]]
    return RunFailed("\n".join(true_lines)) if true_lines else None
