"""What is written down about a study, and the lock of whoever is at work on it: two files in the study's folder."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError

from harness.errors import InvalidInput, RunFailed
from harness.files import write_atomically

NOTES = "study.json"
LOCK = "study.lock"


class Entry(BaseModel):
    """A point in ``study.json``: its spec, its run directories' names (the last one counts), Slurm's refusal."""

    id: str
    spec: dict[str, Any]
    runs: list[str] = []
    refused: str = ""


class StudyNotes(BaseModel):
    """``study.json``: the site, and the points in the order in which they were begun."""

    schema_: Literal["harness.study/1"] = Field(alias="schema")
    site: str | None
    points: list[Entry] = []

    def write(self, folder: Path) -> None:
        """Write it, whole or not at all. Raises RunFailed when it cannot be written."""
        try:
            write_atomically(folder / NOTES, self.model_dump_json(by_alias=True, indent=1) + "\n")
        except OSError as error:
            raise RunFailed(f"cannot write {folder / NOTES}: {error.strerror}") from None

    @classmethod
    def read(cls, folder: Path) -> StudyNotes | None:
        """What is noted, None for a study that has not begun. Raises InvalidInput for a file that makes no sense."""
        try:
            return cls.model_validate_json((folder / NOTES).read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InvalidInput(f"{folder / NOTES}: {error.strerror}") from None
        except ValidationError:
            raise InvalidInput(f"{folder / NOTES}: not what harness writes") from None

    @property
    def by_id(self) -> dict[str, Entry]:
        return {entry.id: entry for entry in self.points}


@contextmanager
def locked(folder: Path) -> Iterator[None]:
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


def is_locked(folder: Path) -> bool:
    """Whether a process is at work on the study."""
    with suppress(FileNotFoundError), (folder / LOCK).open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
    return False
