"""Notes about the jobs of a run and about a study, and the lock of the process that is at work on a study."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field, ValidationError

from harness.errors import InvalidInput, RunFailed
from harness.files import lock, write_atomically
from harness.worker.agent.seating import SPEC, SUBMISSION, Hosts

LOCK = "study.lock"
PREFLIGHT = "preflight"  # in a run directory: that of the check before the run


class Notes(BaseModel):
    """Base of notes about a folder, in a file of this name in it."""

    file_name: ClassVar[str]

    def write(self, folder: Path) -> None:
        """Write the file, whole or not at all. Raises RunFailed when it cannot be written."""
        file = folder / self.file_name
        try:
            write_atomically(file, self.model_dump_json(by_alias=True, indent=1) + "\n")
        except OSError as error:
            raise RunFailed(f"cannot write {file}: {error.strerror}") from None

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Read the notes, None if there are none. Raises InvalidInput for a file that makes no sense."""
        file = folder / cls.file_name
        try:
            return cls.model_validate_json(file.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError):
            raise InvalidInput(f"{file}: cannot be read, or is not what harness writes") from None


class Submission(Notes):
    """The submission of a run."""

    file_name = SUBMISSION

    site: str
    started: str
    record: str  # the file name of the run's record
    tag: str
    jobs: list[tuple[str, list[int]]] = []  # (job id, the repeats that it measures), in the order of submission
    fate: str = ""  # says that Slurm may have a job of which nobody knows the id


def submitted_repeats(folder: Path) -> dict[int, str]:
    """The repeats of a run that were submitted, each with its job; none for a run that was not."""
    submission = Submission.read(folder)
    return {repeat: job for job, repeats in submission.jobs for repeat in repeats} if submission else {}


def known_jobs(folder: Path) -> list[str]:
    """The ids of a run's jobs, also of those submitted by hand. Raises InvalidInput for files that make no sense."""
    by_hand = []
    for repeat_dir in folder.glob("repeat-*"):
        try:
            hosts = Hosts.read(repeat_dir)
        except (OSError, ValueError, TypeError, KeyError):
            raise InvalidInput(f"{repeat_dir}/hosts.json: cannot be read, or is not what harness writes") from None
        by_hand += [hosts.job] if hosts and hosts.job else []
    return list(dict.fromkeys([*submitted_repeats(folder).values(), *by_hand]))


class Entry(BaseModel):
    """A point in ``study.json``: its spec, its run directories' names (the last one counts), Slurm's refusal."""

    id: str
    spec: dict[str, Any]
    runs: list[str] = []
    refused: str = ""


class StudyNotes(Notes):
    """The site of a study, and its points in the order in which they were begun."""

    file_name = "study.json"

    schema_: Literal["harness.study/1"] = Field(alias="schema")
    site: str | None
    points: list[Entry] = []

    @property
    def by_id(self) -> dict[str, Entry]:
        return {entry.id: entry for entry in self.points}


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the study's lock. Raises InvalidInput when another process has it; it goes with that process.

    A link is not followed: in a folder of several users it may be somebody else's, and its target would be overwritten.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = os.fdopen(os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666), "a+")
    except OSError as error:
        if (folder / LOCK).is_symlink():
            raise InvalidInput(f"{folder / LOCK}: is a symbolic link, which harness does not make: remove it") from None
        raise InvalidInput(f"--output {folder.parent}: cannot write {error.filename}: {error.strerror}") from None
    with file:
        if not lock(file):
            file.seek(0)
            raise InvalidInput(f"{folder}: another `harness study run` is at work on it: {file.read().strip()}")
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield


@contextmanager
def at_work(folder: Path) -> Iterator[None]:
    """Let others see that this process carries out the run of a run directory. In a study its lock says so."""
    with ExitStack() as stack:
        if not is_locked(folder.parent / LOCK):
            with suppress(OSError):
                lock(stack.enter_context((folder / SPEC).open("r+")))
        yield


def is_at_work(folder: Path) -> bool:
    """True while a process, not necessarily on this machine, carries out the run of a run directory by itself."""
    return is_locked(folder / SPEC) or is_locked(folder.parent / LOCK)


def is_locked(path: Path) -> bool:
    with suppress(OSError), path.open() as file:  # which may not be there
        return not lock(file, fcntl.LOCK_SH)
    return False
