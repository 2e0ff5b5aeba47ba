"""Baselines: records that were put aside under a name, for later comparisons.

A baseline is a folder with the records as they were (``ID/record.json``, ``ID/raw.json``) and ``baseline.json``, which
has their sources. ``$HARNESS_BASELINES`` can name a folder that a team shares.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from harness import __version__
from harness.core.validation import making_sense_of
from harness.errors import InvalidInput
from harness.files import at_home
from harness.records.kernel import KernelRecord
from harness.records.measurement import Record
from harness.records.record import RAW, search

if TYPE_CHECKING:
    from harness.results.result import Result

METADATA = "baseline.json"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


class Baseline(BaseModel):
    """The content of ``baseline.json``. ``sources`` are as they were given, ``saved`` is ISO 8601 in UTC."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: Literal["harness.baseline/1"] = Field(alias="schema")
    name: str
    saved: str
    harness: str
    sources: list[str]
    note: str = ""
    records: int
    without_number: int = 0  # runs of the sources that had no number and were left there


def folder() -> Path:
    """``$HARNESS_BASELINES``, else ``$XDG_DATA_HOME/harness/baselines``, else ``~/.local/share/harness/baselines``."""
    if chosen := os.environ.get("HARNESS_BASELINES"):
        return at_home(chosen).absolute()
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "harness" / "baselines"


def find(name: str) -> Path | None:
    """The folder of the baseline called ``name``, None if there is none. Raises InvalidInput for a damaged one."""
    saved = folder() / name
    if not NAME.fullmatch(name) or not saved.is_dir():
        return None
    if (saved / METADATA).exists():
        get(name)
    return saved


def save(name: str, runs: Sequence[Result], sources: Sequence[str], note: str = "", replace: bool = False) -> Baseline:
    """Copy the records of the completed ones of ``runs``, of any kind, from ``sources`` into a new baseline.

    Whole or not at all, and each is verified. Raises InvalidInput for a record that is not sound; for a name that no
    baseline can have, or that one has, unless that is to be replaced; for runs without a number; and for a folder that
    cannot be written.
    """
    check_new(name, replace)
    if not all(run.measured for run in runs):
        raise InvalidInput("published figures have no records to save; `reference` needs no baseline")
    by_id = {run.id: run for run in reversed(runs)}  # a kernel's run has a result for each size
    completed = [run for run in reversed(by_id.values()) if run.completed]
    if not completed:
        raise InvalidInput(f"{', '.join(map(str, sources))}: no completed record, so nothing to compare with later")
    baseline = Baseline(
        schema="harness.baseline/1",
        name=name,
        saved=datetime.now(UTC).isoformat(timespec="seconds"),
        harness=__version__,
        sources=[str(source) for source in sources],
        note=note,
        records=len(completed),
        without_number=len(by_id) - len(completed),
    )
    target = folder() / name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}-", ignore_cleanup_errors=True) as made:
            new, old = Path(made) / "new", Path(made) / "old"
            for run in completed:
                (new / run.id).mkdir(parents=True)
                kind = KernelRecord if run.kernel else Record
                try:
                    kind.read(Path(run.source)).verify()
                except ValueError as error:
                    raise InvalidInput(f"{run.source}: not a valid record: {error}") from None
                shutil.copyfile(run.source, new / run.id / kind.file_name)
                shutil.copyfile(Path(run.source).resolve().with_name(RAW), new / run.id / RAW)
            (new / METADATA).write_text(baseline.model_dump_json(by_alias=True, indent=1) + "\n")
            if target.exists():
                target.rename(old)
            try:
                new.rename(target)
            except OSError:
                if old.exists():
                    old.rename(target)
                raise
    except OSError as error:
        hint = "$HARNESS_BASELINES names another folder"
        raise InvalidInput(f"cannot save baseline {name} in {folder()}: {error.strerror}; {hint}") from None
    return baseline


def all_saved() -> list[Baseline]:
    """Every baseline, by name. Raises InvalidInput for a damaged one, or for a file in the place of their folder."""
    if folder().exists() and not folder().is_dir():
        raise InvalidInput(f"{folder()} is not a folder; $HARNESS_BASELINES names another one")
    entries = folder().iterdir() if folder().is_dir() else ()
    return [get(name) for name in sorted(entry.name for entry in entries if entry.is_dir() and entry.name[0] != ".")]


def get(name: str) -> Baseline:
    """The baseline called ``name``. Raises InvalidInput if there is none, or if it is damaged or lacks records."""
    file = folder() / name / METADATA
    with making_sense_of(file, Baseline):
        baseline = Baseline.model_validate_json(file.read_text())
    count = len([*search(file.parent, (Record.file_name, KernelRecord.file_name))])
    if count != baseline.records:
        raise InvalidInput(f"{file.parent}: {baseline.records} records were saved, and {count} are there")
    return baseline


def check_new(name: str, replace: bool) -> None:
    """Raise InvalidInput for a name that no baseline can have, or that one has, unless that is to be replaced."""
    if not NAME.fullmatch(name):
        raise InvalidInput(
            f"{name!r} cannot name a baseline: letters, digits, '.', '_' and '-', and neither '.' nor '-' comes first"
        )
    if name == "reference":
        raise InvalidInput("reference is what the published measurements are called; give the baseline another name")
    if not replace and (folder() / name).is_dir():
        raise InvalidInput(f"baseline {name} exists; give --replace to save another under its name")
