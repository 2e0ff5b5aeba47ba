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

from harness.core.parts import part
from harness.core.validation import mistake
from harness.errors import InvalidInput
from harness.results.rows import as_backends_say
from harness.results.rows import frame as result_rows

if TYPE_CHECKING:
    import pandas

FOLDER = part("reference")

Blank = BeforeValidator(lambda value: None if value == "" else value)
Count = Annotated[Annotated[int, Field(ge=1)] | None, Blank]
Spread = Annotated[Annotated[float, Field(ge=0)] | None, Blank]


class Row(BaseModel):
    """What both kinds of table have. ``system`` is the machine as its source names it. Aliases are the results' columns."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, str_strip_whitespace=True)

    source: str = Field(min_length=1)
    system: str = Field(min_length=1)
    framework: str = Field(min_length=1, serialization_alias="software")
    model: str = Field(min_length=1)
    num_ps: Count = Field(serialization_alias="ps")
    note: str

    def result(self, backend: str = "") -> dict[str, Any]:
        """The row as a result, by the names of ``rows.COLUMNS``.

        ``backend`` distributed the training. Where a table does not say, servers tell which it was, else the toolkit that
        is named first: ``tensorflow`` of ``TensorFlow 1.7, Horovod 0.15.1``.
        """
        toolkit = self.framework.split()[0].lower()
        backend = backend or ("parameter_server" if self.num_ps else toolkit)
        return self.model_dump(by_alias=True) | {
            "origin": "published",
            "status": "completed",
            "processor": self.system,
            "backend": backend,
            "framework": "" if toolkit == backend else toolkit,
            "options": "{}",
            "environment": "{}",
        }


class Throughput(Row):
    """One published throughput, in images per second over all ``devices``. ``stdev`` is over repeated runs, if known."""

    strategy: str = Field(min_length=1)
    transport: str
    batch_per_device: int = Field(ge=1, serialization_alias="batch_size")
    devices: int = Field(ge=1, serialization_alias="workers")
    devices_per_node: int = Field(ge=1)
    data: Literal["synthetic", "real"]
    img_per_s: float = Field(gt=0)
    stdev: Spread

    def result(self, backend: str = "") -> dict[str, Any]:
        nodes = -(-self.devices // self.devices_per_node)
        per_node = min(self.devices_per_node, self.devices)
        return super().result(self.strategy) | {"nodes": nodes, "devices_per_node": per_node}


class Efficiency(Row):
    """One published scaling efficiency on ``workers`` devices, relative to 1.0 on ``base`` of them, if that is known."""

    workers: int = Field(ge=1)
    scaling_efficiency: float = Field(gt=0, le=1.5, serialization_alias="published_efficiency")
    base: Count = Field(None, serialization_alias="published_base")


def read(path: Path) -> list[Row]:
    """The rows of one table. Raises InvalidInput with one line that names the file, the line and the field."""
    rows = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.DictReader(file, strict=True)
            columns = list(lines.fieldnames or ())
            kind: type[Row] = Efficiency if "scaling_efficiency" in columns else Throughput
            known = list(kind.model_fields)
            required = {name for name in known if kind.model_fields[name].is_required()}
            if not required <= set(columns) <= set(known) or len(set(columns)) < len(columns):
                shown = ",".join(columns) or "missing"
                raise InvalidInput(f"{path}: line 1: columns are {shown}; they must be {','.join(known)}")
            for fields in lines:
                where = f"{path}: line {lines.line_num}"
                # The None is how csv says that there are more fields, or fewer, than on line 1.
                if None in fields or None in fields.values():
                    raise InvalidInput(f"{where}: must have {len(fields.keys() - {None})} fields, as line 1 has")
                try:
                    rows.append(kind.model_validate(fields))
                except ValidationError as error:
                    raise InvalidInput(f"{where}: {' '.join(mistake(error))}") from None
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: is not UTF-8: {error.reason} at byte {error.start}") from None
    except csv.Error as error:
        raise InvalidInput(f"{path}: line {lines.line_num + 1}: {error}") from None
    if not rows:
        raise InvalidInput(f"{path}: has no rows")
    return rows


def select(text: str = "") -> list[Row]:
    """The rows that come with harness and name ``text`` (in any case) in what they say. Raises InvalidInput for none."""
    rows = [row for path in sorted(FOLDER.glob("*.csv")) for row in read(path)]
    fields = ("source", "system", "framework", "strategy", "model")
    selected = [
        row for row in rows if any(text.casefold() in str(getattr(row, name, "")).casefold() for name in fields)
    ]
    if not selected:
        systems = ", ".join(dict.fromkeys(row.system for row in rows))
        raise InvalidInput(f"reference:{text}: no published measurement names that; there are {systems}")
    return selected


def frame(rows: Sequence[Row]) -> pandas.DataFrame:
    return as_backends_say(result_rows([row.result() for row in rows]))


def groups(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What ``rows`` are about, in their order: a group for each model on a system, with one software, from one source.

    ``what`` is "img/s" or "efficiency"; ``data`` are "synthetic" and "real", as far as that is known.
    """
    results = frame(rows)
    results["what"] = results["img_per_s"].notna().map({True: "img/s", False: "efficiency"})
    names = ["system", "software", "model", "source", "what"]
    return [
        dict(zip(names, key, strict=True))
        | {
            "backends": sorted(set(alike["backend"])),
            "data": sorted(set(alike["data"]) - {""}, reverse=True),
            "workers": sorted(set(alike["workers"].tolist())),
            "rows": len(alike),
        }
        for key, alike in results.groupby(names, sort=False)
    ]
