"""Published measurements: tables of what others measured, each row with its source.

Two kinds of table, told apart by their columns: throughputs (img/s), and scaling efficiencies where only those were
published.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from harness import index, results
from harness.errors import InvalidInput

if TYPE_CHECKING:
    import pandas

# In a wheel the tables are inside the package; in a checkout they are beside the other results.
_PACKAGE = Path(__file__).parent
FOLDER = next(
    (folder for folder in (_PACKAGE / "reference", _PACKAGE.parent / "results" / "reference") if folder.is_dir()),
    _PACKAGE / "reference",
)

Blank = BeforeValidator(lambda value: None if value == "" else value)
Count = Annotated[Annotated[int, Field(ge=1)] | None, Blank]
Spread = Annotated[Annotated[float, Field(ge=0)] | None, Blank]


class Row(BaseModel):
    """What both kinds of table have. ``system`` is the machine as its source names it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    source: str = Field(min_length=1)
    system: str = Field(min_length=1)
    framework: str = Field(min_length=1)
    model: str = Field(min_length=1)
    num_ps: Count
    note: str


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


class Efficiency(Row):
    """One published scaling efficiency on ``workers`` devices, relative to 1.0."""

    workers: int = Field(ge=1)
    scaling_efficiency: float = Field(gt=0, le=1.5)


def read(path: Path) -> list[Row]:
    """The rows of one table. Raises InvalidInput with one line that names the file, the row and the field."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = csv.DictReader(file)
            columns = set(lines.fieldnames or ())
            rows = list(lines)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    kind = next((kind for kind in (Throughput, Efficiency) if columns == set(kind.model_fields)), None)
    if kind is None:
        expected = " or ".join(",".join(kind.model_fields) for kind in (Throughput, Efficiency))
        raise InvalidInput(f"{path}: not a table of published measurements; its columns must be {expected}")
    return [_row(path, kind, number, fields) for number, fields in enumerate(rows, start=2)]


def _row(path: Path, kind: type[Row], number: int, fields: dict[str, Any]) -> Row:
    try:
        return kind(**{str(key): value for key, value in fields.items()})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "row"
        raise InvalidInput(f"{path}: line {number}: {where} {first['input']!r}: {first['msg']}") from None


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
    """Published rows with the columns of ``results.COLUMNS``."""
    return index.frame([_as_result(row) for row in rows])


def _as_result(row: Row) -> dict[str, Any]:
    ps = row.num_ps or 0
    # A table of efficiencies names no strategy: servers say which it was, else the toolkit is what is named first.
    named = row.framework.split()[0].lower()
    backend = row.strategy if isinstance(row, Throughput) else "parameter_server" if ps else named
    common = {
        "origin": "published",
        "source": row.source,
        "status": "completed",
        "system": row.system,
        "processor": row.system,
        "backend": backend,
        "family": results.family(backend, ps),
        "framework": "" if named == backend else named,
        "software": row.framework,
        "model": row.model,
        "ps": ps,
        "options": "{}",
        "note": row.note,
        "environment": "{}",
    }
    return common | (_throughput(row) if isinstance(row, Throughput) else _efficiency(row))


def _throughput(row: Throughput) -> dict[str, Any]:
    return {
        "transport": row.transport,
        "nodes": -(-row.devices // row.devices_per_node),
        "devices_per_node": row.devices_per_node,
        "workers": row.devices,
        "batch_size": row.batch_per_device,
        "data": row.data,
        "img_per_s": row.img_per_s,
        "stdev": row.stdev,
    }


def _efficiency(row: Row) -> dict[str, Any]:
    assert isinstance(row, Efficiency)
    return {"workers": row.workers, "data": "synthetic", "published_efficiency": row.scaling_efficiency}
