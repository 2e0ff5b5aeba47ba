"""A study under way: what of it is done, what is queued, what is to be done next.

Nothing here has to stay alive. The study's folder, OUTPUT/NAME, holds the run directories and ``study.json``, which says
which run directories belong to which point. How far a point is, is never written down: records and the batch system know.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

from harness.errors import HarnessError, InvalidInput, RunFailed
from harness.files import write_atomically
from harness.launch import slurm
from harness.launch.script import Job
from harness.launch.slurm import JobState
from harness.records.measurement import FILE_NAME, Record
from harness.records.measurement import read as read_record
from harness.running import batch, submission
from harness.running.run import AnyRun, Prepared, Run
from harness.running.study import MAX_JOBS, Point, Study, labels
from harness.running.where import Where

NOTES = "study.json"
LOCK = "study.lock"
SCHEMA = "harness.study/1"

# "unfinished": whoever began it was killed before it was submitted, or before there was a record.
Phase = Literal["new", "refused", "queued", "running", "ended", "unfinished", "completed", "failed", "interrupted"]
TO_DO: frozenset[Phase] = frozenset({"new", "refused", "unfinished"})
FAILED: frozenset[Phase] = frozenset({"failed", "interrupted"})


class Stopped(HarnessError):
    """The user has stopped a study. The message says how to go on."""

    exit_code = 130


@dataclass
class Entry:
    """A point in ``study.json``: its given spec, its run directories' names (the last one counts), Slurm's refusal."""

    id: str
    spec: dict[str, Any]
    runs: list[str] = field(default_factory=list)
    refused: str = ""


@dataclass
class Notes:
    """``study.json``: the site, the points by id, and in which lane every job was queued, in the order of submission."""

    site: str | None
    points: dict[str, Entry] = field(default_factory=dict)
    lanes: dict[str, int] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write it, whole or not at all. Raises RunFailed when it cannot be written."""
        document = {"schema": SCHEMA, "site": self.site, "points": [asdict(one) for one in self.points.values()]}
        try:
            write_atomically(folder / NOTES, json.dumps(document | {"lanes": self.lanes}, indent=1) + "\n")
        except OSError as error:
            raise RunFailed(f"cannot write {folder / NOTES}: {error.strerror}") from None

    @classmethod
    def read(cls, folder: Path) -> Notes | None:
        """What is noted, None for a study that has not begun. Raises InvalidInput for a file that makes no sense."""
        try:
            document = json.loads((folder / NOTES).read_text())
            points = [Entry(**one) for one in document["points"]]
            return cls(document["site"], {one.id: one for one in points}, dict(document["lanes"]))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InvalidInput(f"{folder / NOTES}: {error.strerror}") from None
        except (ValueError, LookupError, TypeError):
            raise InvalidInput(f"{folder / NOTES}: not what harness writes") from None


@dataclass(frozen=True)
class Standing:
    """How far a point is. ``repeats`` counts those that have ended (on this machine: begun).

    ``tried`` is 0, or for the best number of parameter servers of those measured: how many there are.
    """

    entry: Entry
    label: str
    in_file: bool
    phase: Phase
    repeats: int = 0
    jobs: tuple[JobState, ...] = ()
    run: AnyRun | None = None
    record: Record | None = None
    reason: str = ""
    tried: int = 0

    @property
    def img_per_s(self) -> float | None:
        """The mean of the repeats, if there is a number."""
        return self.record.derived.img_per_s.mean if self.record and self.record.derived else None

    def as_dict(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "id": self.entry.id,
            "point": self.label,
            "state": self.phase,
            "in_file": self.in_file,
            "run": self.entry.runs[-1] if self.entry.runs else None,
            "repeats": self.repeats,
            "of": self.entry.spec["repeats"],
            "jobs": {job.id: job.state for job in self.jobs},
            "img_per_s": self.img_per_s,
            "best_ps_of": self.tried,
            "reason": self.reason,
        }


@dataclass
class Lanes:
    """Chains of jobs: each starts once the one before it in its lane has ended, so that each lane runs one at a time.

    They are in Slurm's hands as soon as they are submitted; the controller may die.
    """

    jobs: list[list[str]]

    @classmethod
    def of(cls, number: int, active: Mapping[str, int]) -> Self:
        """``number`` lanes with the jobs that are in them already, by id, in the order of submission."""
        return cls([[job for job, lane in active.items() if lane == own] for own in range(number)])

    @property
    def next(self) -> int:
        """The lane with the fewest jobs."""
        return min(range(len(self.jobs)), key=lambda lane: len(self.jobs[lane]))

    def before(self, lane: int) -> list[str]:
        """The job that the next one in ``lane`` has to wait for, if any."""
        return self.jobs[lane][-1:]


@dataclass(frozen=True)
class Work:
    """A point to be measured now: all its repeats, or those that Slurm has not taken yet."""

    entry: Entry
    run: AnyRun
    missing: frozenset[int]


@dataclass
class Campaign:
    """A study at a place: ``of`` to look at it, ``at_work`` to change it; that holds its lock (``mine``)."""

    study: Study
    where: Where
    folder: Path
    points: list[Point]
    notes: Notes
    mine: bool = False

    @classmethod
    @contextmanager
    def at_work(cls, study: Study, where: Where) -> Iterator[Self]:
        """The study, for this process alone. Raises InvalidInput as ``of`` does, and while another process is at work."""
        found = cls.of(study, where)
        _ = found.prepared  # complaints come before there is a folder
        with _locked(found.folder):
            found.notes = Notes.read(found.folder) or found.notes
            found.mine = True
            yield found

    @classmethod
    def of(cls, study: Study, where: Where) -> Self:
        """The study as its folder knows it and its file has it. Raises InvalidInput."""
        folder = folder_of(study, where)
        notes = Notes.read(folder)
        site = where.target.name if where.target else None
        if notes and notes.points and notes.site != site:
            raise InvalidInput(
                f"{folder}: this study was begun {_at(notes.site)}, not {_at(site)}; give another --output or --site"
            )
        return cls(study, where, folder, study.points(where.device), notes or Notes(site))

    # --- what is done ---

    def standings(self) -> list[Standing]:
        """How far every point is, with one question to Slurm for all. Raises SlurmSilent when it does not answer."""
        entries = self._entries()
        folders = {entry.id: path for entry in entries if (path := self._current(entry))}
        runs = {key: batch.reopen(path) for key, path in folders.items() if (path / submission.SUBMISSION).exists()}
        queued = dict(zip(runs, batch.standings(list(runs.values())), strict=True))
        names = labels([entry.spec for entry in entries])
        at_work, in_file = not self.mine and _is_locked(self.folder), {point.id for point in self.points}
        found = []
        for entry, label in zip(entries, names, strict=True):
            known = entry.id in in_file
            if entry.id in queued:
                found.append(self._queued(entry, label, known, queued[entry.id]))
            else:
                found.append(self._here(entry, label, known, folders.get(entry.id), at_work))
        return with_best(found)

    def _entries(self) -> list[Entry]:
        """The points of the file in its order, then those that are not in it any more."""
        noted = self.notes.points
        of_file = {one.id: noted.get(one.id) or Entry(one.id, one.spec.model_dump()) for one in self.points}
        return [*of_file.values(), *(entry for key, entry in noted.items() if key not in of_file)]

    def _current(self, entry: Entry) -> Path | None:
        """The run directory that counts. One that was noted and never made does not."""
        return next((path for name in reversed(entry.runs) if (path := self.folder / name).is_dir()), None)

    def _queued(self, entry: Entry, label: str, in_file: bool, one: batch.Standing) -> Standing:
        missing = _missing(one.run)
        phase: Phase = "unfinished"
        if one.record:
            phase = one.record.status
        elif missing:
            phase = "refused" if entry.refused else "unfinished"
        elif one.state in ("queued", "running", "ended"):
            phase = one.state
        reason = "" if one.reason == "Dependency" else one.reason  # that is what lanes are made of
        if phase == "refused":
            some = f"repeats {', '.join(map(str, sorted(missing)))}: " if len(missing) < one.run.spec.repeats else ""
            reason = some + entry.refused
        record = one.record
        assert isinstance(record, Record | None)  # a study has no trainings
        states = one.states or tuple(JobState(job, "") for job in submission.known_jobs(one.run.folder))
        return Standing(entry, label, in_file, phase, one.done, states, one.run, record, reason)

    def _here(self, entry: Entry, label: str, in_file: bool, folder: Path | None, at_work: bool) -> Standing:
        if folder is None:
            return Standing(entry, label, in_file, "refused" if entry.refused else "new", reason=entry.refused)
        begun = len(list(folder.glob("repeat-*")))
        if not (folder / FILE_NAME).exists():
            return Standing(entry, label, in_file, "running" if at_work else "unfinished", begun)
        record = read_record(folder)
        reason = (record.reason or "").partition("\n")[0]
        return Standing(entry, label, in_file, record.status, len(record.repeats), record=record, reason=reason)

    def waiting(self) -> list[AnyRun]:
        """The runs of the points of the file that will get their record without anybody's help."""
        phases = ("queued", "running", "ended")
        return [one.run for one in self.standings() if one.run and one.in_file and one.phase in phases]

    def progress(self) -> str:
        """How many points of the file have their record, for a progress line."""
        noted = self.notes.points
        ids = {point.id for point in self.points}
        folders = [self.folder / noted[key].runs[-1] for key in ids if key in noted and noted[key].runs]
        return f"{sum((one / FILE_NAME).exists() for one in folders)} of {len(ids)} points  "

    def collect(self) -> None:
        """Make every record that can be made from what is on disk. Raises SlurmSilent."""
        batch.collect_all([one.run for one in self.standings() if one.run])

    def cancel(self) -> list[str]:
        """Cancel all jobs of the study that have not ended; returns their ids. Raises SlurmSilent."""
        known = {job for one in self.standings() if one.run for job in submission.known_jobs(one.run.folder)}
        ids = [job for job, state in slurm.states(known | self.notes.lanes.keys()).items() if not state.ended]
        slurm.cancel(ids)
        return sorted(ids, key=lambda job: (len(job), job))

    # --- what is to be done ---

    @cached_property
    def prepared(self) -> dict[str, Prepared]:
        """The plan of every point of the file. Raises InvalidInput for one that cannot run or is there twice."""
        place = replace(self.where, output=self.folder)
        found: dict[str, Prepared] = {}
        completed: dict[str, Point] = {}
        names = labels([point.spec.model_dump() for point in self.points])
        for point, label in zip(self.points, names, strict=True):
            try:
                one = place.prepare(point.spec)
            except InvalidInput as error:
                raise self.study.complain(f"{point.table}: {label}", str(error)) from None
            same = completed.setdefault(one.spec.model_dump_json(), point)
            if same is not point:
                tables = f"{same.table} and {point.table}" if same.table != point.table else f"{point.table} twice"
                raise self.study.complain(label, f"is in {tables}")
            found[point.id] = one
        return found

    def work(self, retry_failed: bool, checked: bool = True) -> list[Work]:
        """The points to be measured now. With ``checked`` their environments and data are there.

        Writes nothing. Raises InvalidInput for the first point that cannot be measured, SlurmSilent.
        """
        prepared = self.prepared
        wanted = TO_DO | FAILED if retry_failed else TO_DO
        found = [one for one in self.standings() if one.in_file and one.phase in wanted]
        return [self._work(one, prepared[one.entry.id], checked) for one in found]

    def _work(self, one: Standing, new: Prepared, checked: bool) -> Work:
        if one.run and not one.record and submission.known_jobs(one.run.folder):
            one.run.prepared = replace(one.run.prepared, target=new.target)
            return Work(one.entry, one.run, _missing(one.run))
        run = Run.checked(new) if checked else Run(new)
        return Work(one.entry, run, frozenset(range(1, new.spec.repeats + 1)))

    def jobs(self, work: Sequence[Work]) -> list[Job]:
        """The jobs that measure ``work``, in the order of submission."""
        missing = {(str(one.run.folder), repeat) for one in work for repeat in one.missing}
        every = submission.jobs([one.run.prepared for one in work], self.study.content.allocation) if work else []
        cut = [replace(job, steps=tuple(s for s in job.steps if (s.run_dir, s.repeat) in missing)) for job in every]
        return [job for job in cut if job.steps]

    def max_jobs(self, wanted: int | None = None) -> int:
        """How many jobs may be in the queue at once: as asked for, as the study, as the site says."""
        site = self.where.target.max_jobs if self.where.target else None
        return wanted or self.study.content.max_jobs or site or MAX_JOBS

    def note(self, work: Sequence[Work]) -> None:
        """Write down, before anything is begun, which run directories are going to measure which points."""
        for one in work:
            entry = self.notes.points.setdefault(one.entry.id, one.entry)
            entry.refused = ""
            entry.runs = [name for name in entry.runs if (self.folder / name).is_dir()]
            if one.run.folder.name not in entry.runs:
                entry.runs.append(one.run.folder.name)
        self.notes.write(self.folder)

    def lanes(self, number: int) -> Lanes:
        """The lanes with the jobs that are still queued or running. Raises SlurmSilent."""
        states = slurm.states(self.notes.lanes.keys())
        self.notes.lanes = {job: lane for job, lane in self.notes.lanes.items() if not states[job].ended}
        return Lanes.of(number, self.notes.lanes)

    def submit(self, work: Sequence[Work], max_jobs: int) -> None:
        """Submit the jobs of ``work`` in lanes. A point whose job Slurm refuses is noted as refused; the others go on.

        Raises SlurmSilent when Slurm does not answer; what has been submitted by then is noted.
        """
        prepared = [one.run.prepared for one in work]
        planned = [(job, submission.job_script(job, prepared, self.where.request)) for job in self.jobs(work)]
        of_folder = {one.run.folder: one for one in work}
        lanes = self.lanes(max_jobs)
        self.note(work)
        refused: set[Path] = set()
        for job, text in planned:
            folders = {Path(step.run_dir) for step in job.steps}
            if folders <= refused:
                continue
            submission.begin([of_folder[one].run for one in folders if not (one / submission.SUBMISSION).exists()])
            lane = lanes.next
            path = submission.write_script(job, text)
            try:
                number = submission.submit(job, path, lanes.before(lane))
            except slurm.JobRefused as error:
                refused |= folders
                for one in folders:
                    of_folder[one].entry.refused = error.words
                    self._leave_nothing(of_folder[one])
                if job.folder not in folders:
                    shutil.rmtree(job.folder, ignore_errors=True)
                continue
            lanes.jobs[lane].append(number)
            self.notes.lanes[number] = lane
            self.notes.write(self.folder)
        self.notes.write(self.folder)

    def _leave_nothing(self, work: Work) -> None:
        """A point of which Slurm has taken nothing has never run; it is planned anew next time."""
        if not submission.known_jobs(work.run.folder):
            shutil.rmtree(work.run.folder, ignore_errors=True)
            work.entry.runs.remove(work.run.folder.name)


def folder_of(study: Study, where: Where) -> Path:
    """The study's folder."""
    return (where.output / study.name).absolute()


def with_best(found: Sequence[Standing]) -> list[Standing]:
    """``found``, with the best number of parameter servers marked wherever several were measured."""
    groups: dict[str, list[Standing]] = {}
    for one in found:
        spec = one.entry.spec
        if "ps" in spec["options"] and one.img_per_s is not None:
            key = spec | {"options": {**spec["options"], "ps": None}}
            groups.setdefault(json.dumps(key, sort_keys=True), []).append(one)
    best = {
        max(group, key=lambda one: one.img_per_s or 0).entry.id: len(group)
        for group in groups.values()
        if len(group) > 1
    }
    return [replace(one, tried=best.get(one.entry.id, 0)) for one in found]


def problem(found: Sequence[Standing], tried: int, name: str) -> HarnessError | None:
    """What is wrong with a study of which ``tried`` points were to be measured; ``name`` is what commands call it.

    InvalidInput if Slurm has taken none of them, RunFailed if there are others, None if all is well.
    """
    refused = [one for one in found if one.in_file and one.phase == "refused"]
    failed = [one for one in found if one.in_file and one.phase in FAILED]
    if refused and len(refused) == tried:
        return InvalidInput(f"Slurm refuses all {tried} points that were to be measured: {refused[0].reason}")
    told = []
    if refused:
        told.append(f"Slurm refuses {len(refused)} of {len(found)} points; `harness study run {name}` tries again")
    if failed:
        again = f"`harness study run {name} --retry-failed` measures again"
        told.append(f"{len(failed)} of {len(found)} points have failed; {again}")
    return RunFailed("\n".join(told)) if told else None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the study's lock. Raises InvalidInput when another process has it; it goes with that process."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("a+")
    except OSError as error:
        raise InvalidInput(f"--output {folder.parent}: cannot write {error.filename}: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise InvalidInput(
                f"{folder}: another `harness study run` is at work on it: {file.read().strip()}"
            ) from None
        except OSError:
            pass  # a parallel file system without locks
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield


def _is_locked(folder: Path) -> bool:
    with suppress(FileNotFoundError), (folder / LOCK).open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
    return False


def _missing(run: AnyRun) -> frozenset[int]:
    """The repeats that no job was submitted for."""
    taken = {repeat for _, repeats in submission.Submission.read(run.folder).jobs for repeat in repeats}
    return frozenset(range(1, run.spec.repeats + 1)) - taken


def _at(site: str | None) -> str:
    return f"at {site}" if site else "on this machine"
