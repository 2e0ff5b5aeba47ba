"""Published measurements: tables of what others measured, each row with its source.

Two kinds of table, told apart by their columns: throughputs (img/s), and scaling efficiencies where only those were
published.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from harness.core.parts import part
from harness.core.validation import mistake
from harness.errors import InvalidInput
from harness.results import columns

if TYPE_CHECKING:
    import pandas

FOLDER = part("reference")

Blank = BeforeValidator(lambda value: None if value == "" else value)
Count = Annotated[Annotated[int, Field(ge=1)] | None, Blank]
Spread = Annotated[Annotated[float, Field(ge=0)] | None, Blank]


class Row(BaseModel):
    """What both kinds of table have. ``system`` is the machine as its source names it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, str_strip_whitespace=True)

    source: str = Field(min_length=1)
    system: str = Field(min_length=1)
    framework: str = Field(min_length=1)
    model: str = Field(min_length=1)
    num_ps: Count
    note: str

    @property
    def named(self) -> str:
        """The toolkit that is named first: ``tensorflow`` of ``TensorFlow 1.7, Horovod 0.15.1``."""
        return self.framework.split()[0].lower()

    @property
    def backend(self) -> str:
        """What distributed the training. Where a table does not say, servers tell which it was, else the toolkit."""
        return "parameter_server" if self.num_ps else self.named

    def result(self) -> dict[str, Any]:
        """The row as a result, by the names of ``columns.COLUMNS``."""
        return {
            "origin": "published",
            "source": self.source,
            "status": "completed",
            "system": self.system,
            "processor": self.system,
            "backend": self.backend,
            "framework": "" if self.named == self.backend else self.named,
            "software": self.framework,
            "model": self.model,
            "ps": self.num_ps,
            "options": "{}",
            "note": self.note,
            "environment": "{}",
        }


class Throughput(Row):
    """One published throughput, in images per second over all ``devices``. ``stdev`` is over repeated runs, if known."""

    strategy: str = Field(min_length=1)
    transport: str
    batch_per_device: int = Field(ge=1)
    devices: int = Field(ge=1)
    devices_per_node: int = Field(ge=1)
    data: Literal["synthetic", "real"]
    img_per_s: float = Field(gt=0)
    stdev: Spread

    @property
    def backend(self) -> str:
        return self.strategy

    def result(self) -> dict[str, Any]:
        return super().result() | {
            "transport": self.transport,
            "nodes": -(-self.devices // self.devices_per_node),
            "devices_per_node": min(self.devices_per_node, self.devices),
            "workers": self.devices,
            "batch_size": self.batch_per_device,
            "data": self.data,
            "img_per_s": self.img_per_s,
            "stdev": self.stdev,
        }


class Efficiency(Row):
    """One published scaling efficiency on ``workers`` devices, relative to 1.0 on ``base`` of them, if that is known."""

    workers: int = Field(ge=1)
    scaling_efficiency: float = Field(gt=0, le=1.5)
    base: Count = None

    def result(self) -> dict[str, Any]:
        return super().result() | {
            "workers": self.workers,
            "published_efficiency": self.scaling_efficiency,
            "published_base": self.base,
        }


def read(path: Path) -> list[Row]:
    """The rows of one table. Raises InvalidInput with one line that names the file, the line and the field."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.DictReader(file, strict=True)
            kind = _kind(path, list(lines.fieldnames or ()))
            rows = [_row(path, kind, lines.line_num, fields) for fields in lines]
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: is not UTF-8: {error.reason} at byte {error.start}") from None
    except csv.Error as error:
        raise InvalidInput(f"{path}: line {lines.line_num + 1}: {error}") from None
    if not rows:
        raise InvalidInput(f"{path}: has no rows")
    return rows


def _kind(path: Path, columns: list[str]) -> type[Row]:
    """The kind of table with such columns. Raises InvalidInput with what the most similar kind lacks or does not know."""
    kinds: tuple[type[Row], ...] = (Throughput, Efficiency)
    kind = max(kinds, key=lambda kind: len(set(kind.model_fields) & set(columns)))
    wrong = [
        *(
            f"column {name!r} is missing"
            for name, field in kind.model_fields.items()
            if field.is_required() and name not in columns
        ),
        *(f"column {name!r} is unknown" for name in dict.fromkeys(columns) if name not in kind.model_fields),
        *(f"column {name!r} is there twice" for name in dict.fromkeys(columns) if columns.count(name) > 1),
    ]
    if wrong:
        raise InvalidInput(f"{path}: line 1: {', '.join(wrong)}; columns must be {','.join(kind.model_fields)}")
    return kind


def _row(path: Path, kind: type[Row], number: int, fields: dict[str, Any]) -> Row:
    if None in fields or None in fields.values():  # how csv says that a line has more or fewer fields than the first
        raise InvalidInput(f"{path}: line {number}: must have {len(fields.keys() - {None})} fields, as line 1 has")
    try:
        return kind(**fields)
    except ValidationError as error:
        field, reason = mistake(error)
        raise InvalidInput(f"{path}: line {number}: {field} {reason}") from None


def select(text: str = "") -> list[Row]:
    """The rows that come with harness and name ``text`` (in any case) in what they say. Raises InvalidInput for none."""
    rows = [row for path in sorted(FOLDER.glob("*.csv")) for row in read(path)]
    wanted = text.casefold()
    fields = ("source", "system", "framework", "strategy", "model")
    found = [row for row in rows if any(wanted in str(getattr(row, field, "")).casefold() for field in fields)]
    if not found:
        systems = ", ".join(dict.fromkeys(row.system for row in rows))
        raise InvalidInput(f"reference:{text}: no published measurement names that; there are {systems}")
    return found


def frame(rows: Sequence[Row]) -> pandas.DataFrame:
    """Published rows with the columns of ``columns.COLUMNS``."""
    return columns.as_backends_say(columns.frame([row.result() for row in rows]))


@dataclass(frozen=True)
class PublishedTable:
    """Published measurements of one model on one system with one software, from one source."""

    system: str
    software: str
    model: str
    source: str
    backends: list[str]
    what: str  # "img/s" or "efficiency"
    data: list[str]  # "synthetic", "real"; empty if not said
    workers: list[int]
    rows: int


def groups(rows: Sequence[Row]) -> list[PublishedTable]:
    """What ``rows`` are about, in their order."""
    tables: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        what = "img/s" if isinstance(row, Throughput) else "efficiency"
        tables.setdefault((row.system, row.framework, row.model, row.source, what), []).append(row.result())
    return [
        PublishedTable(
            system=system,
            software=software,
            model=model,
            source=source,
            backends=sorted({result["backend"] for result in alike}),
            what=what,
            data=sorted({result["data"] for result in alike if result.get("data")}, reverse=True),
            workers=sorted({result["workers"] for result in alike}),
            rows=len(alike),
        )
        for (system, software, model, source, what), alike in tables.items()
    ]
