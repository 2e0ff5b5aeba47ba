"""The record of a run: everything needed to believe its number, or to know why there is none.

Raw times are the result; ``derived`` is computed from them, carries the id of its formula, and is checked against them
whenever a record is read. A record that is not ``completed`` has no derived figures, and no edit of its status gives it
any: a completed record must hold every repeat, and its evidence is judged again.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from harness.core import statistics
from harness.core.spec import RunSpec
from harness.errors import InvalidInput
from harness.files import write_atomically
from harness.records.checks import Check, Frozen, Rank, judge

Kind = TypeVar("Kind", bound=BaseModel)

FILE_NAME = "record.json"

Status = Literal["completed", "failed", "interrupted"]


class AnyRecord(Protocol):
    """What the records of measurements and of trainings have in common."""

    @property
    def id(self) -> str: ...
    @property
    def status(self) -> Status: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def spec(self) -> RunSpec: ...
    @property
    def problem(self) -> str | None:
        """Why a command that wanted this has failed; None if it got what it wanted."""

    def to_json(self) -> str: ...


class Repeat(Frozen):
    """One measurement in fresh processes. On a cluster: by which batch job, after how many requeues, on which nodes."""

    number: int
    ranks: list[Rank]
    checks: list[Check]
    started: str
    ended: str
    job: str | None = None
    restart: int = 0
    nodes: list[str] = Field(default_factory=list)


class Derived(Frozen):
    """Figures computed from the raw times."""

    formula: str
    img_per_s: statistics.Summary
    step_times: statistics.StepTimes


class Record(Frozen):
    """One run. Times are ISO 8601 in UTC."""

    schema_: Literal["harness.record/1"] = Field(alias="schema")
    id: str
    status: Status
    reason: str | None
    spec: RunSpec
    plan: dict[str, Any]
    expected_updates: int
    repeats: list[Repeat]
    derived: Derived | None
    machine: dict[str, Any]
    software: dict[str, Any]
    variables: dict[str, str]
    harness: dict[str, str | None]
    started: str
    ended: str
    site: str | None = None

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)

    @property
    def problem(self) -> str | None:
        """Why there is no number, None if there is one."""
        return None if self.derived else self.reason

    def to_json(self) -> str:
        """The record in one line."""
        return self.model_dump_json(by_alias=True)

    @model_validator(mode="after")
    def _numbers_are_earned(self) -> Self:
        if self.status != "completed":
            if self.derived is not None:
                raise ValueError(f"a run that is {self.status} has no derived figures")
            return self
        if self.derived is None or self.reason is not None:
            raise ValueError("a completed run has derived figures and no reason for failure")
        if [repeat.number for repeat in self.repeats] != list(range(1, self.spec.repeats + 1)):
            raise ValueError(f"a completed run has repeats 1 to {self.spec.repeats}")
        if planned_devices(self.plan) != self.spec.workers:
            raise ValueError(f"the plan does not drive the {self.spec.workers} devices of the spec")
        if len({(repeat.job, repeat.restart) for repeat in self.repeats if repeat.job}) != len(
            {repeat.job for repeat in self.repeats if repeat.job}
        ):
            raise ValueError("repeats from before and after the job was requeued are mixed")
        for repeat in self.repeats:
            # Not the verdicts that were written down, but what the evidence says.
            try:
                judged = judge(self.spec, repeat.ranks, self.plan["world_size"], self.expected_updates)
            except (LookupError, TypeError, ValueError):
                raise ValueError(f"repeat {repeat.number} lacks evidence") from None
            if [check.name for check in judged] != [check.name for check in repeat.checks]:
                raise ValueError(f"repeat {repeat.number} does not hold every check")
            if failed := [check.name for check in [*judged, *repeat.checks] if not check.passed]:
                raise ValueError(f"repeat {repeat.number} does not pass {', '.join(dict.fromkeys(failed))}")
        if not _alike(derive(self.spec, self.repeats).model_dump(), self.derived.model_dump()):
            raise ValueError("the derived figures do not follow from the raw times")
        return self


def planned_devices(plan: dict[str, Any]) -> int | None:
    """The devices that a plan's workers drive, None for a plan that makes no sense."""
    try:
        devices = [process["devices"] for process in plan["processes"] if process["role"] == "worker"]
        return sum(devices) if len(devices) == plan["world_size"] else None
    except (LookupError, TypeError):
        return None


def _alike(one: Any, other: Any) -> bool:
    """Equal, but for the last digits of numbers: NumPy's and SciPy's versions differ in those."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return bool(one == other)


def derive(spec: RunSpec, repeats: Sequence[Repeat]) -> Derived:
    """The figures of a complete set of valid repeats."""
    throughputs = [
        statistics.img_per_s(spec.workers, spec.batch_size, spec.steps, [rank.window_s for rank in repeat.ranks])
        for repeat in repeats
    ]
    return Derived(
        formula=statistics.FORMULA,
        img_per_s=statistics.summarise(throughputs),
        step_times=statistics.step_times(
            [[rank.marks_s for rank in repeat.ranks] for repeat in repeats],
            [[rank.finished_s for rank in repeat.ranks] for repeat in repeats],
        ),
    )


def write(record: Record, folder: Path) -> Path:
    """Write ``record.json`` into ``folder``, whole or not at all. Raises OSError (a full disk, say)."""
    return write_atomically(folder / FILE_NAME, record.model_dump_json(by_alias=True, indent=1) + "\n")


def read(path: Path) -> Record:
    """Read and verify one record (a ``record.json``, or the folder that holds it). Raises InvalidInput with one line."""
    return read_as(Record, path / FILE_NAME if path.is_dir() else path)


def read_as(kind: type[Kind], file: Path) -> Kind:
    """Read and verify a file that holds one of a ``kind`` of record. Raises InvalidInput with one line."""
    try:
        return kind.model_validate_json(file.read_text())
    except OSError as error:
        raise InvalidInput(f"{file}: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(f"{file}: not a valid record: {where or 'record'}: {first['msg']}") from None


class Found(NamedTuple):
    """A record file, and what tells whether it has changed since it was last read. 100,000 Paths would cost a second."""

    path: str
    size: int
    mtime_ns: int


def search(path: Path) -> Iterator[Found]:
    """The record files at or below ``path``, in no particular order. Raises InvalidInput for a path that does not exist.

    Folders below one with a record are a run's own and are not looked at, nor are hidden ones: results of 100,000 runs are
    found in about a second.
    """
    try:
        if not path.is_dir():
            status = path.stat()
            yield Found(str(path), status.st_size, status.st_mtime_ns)
            return
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}") from None
    folders = [str(path)]
    while folders:
        folder = folders.pop()
        file = f"{folder}/{FILE_NAME}"
        try:
            status = os.stat(file)  # noqa: PTH116 (a Path costs more than the call)
        except OSError:
            with suppress(OSError), os.scandir(folder) as entries:  # a folder may be gone, or closed to us
                folders += [entry.path for entry in entries if not entry.name.startswith(".") and entry.is_dir()]
        else:
            yield Found(file, status.st_size, status.st_mtime_ns)
