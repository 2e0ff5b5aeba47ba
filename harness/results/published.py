"""Tables (CSV) of what others measured, or of numbers of one's own that harness did not measure.

Two kinds of table, which their columns tell apart: throughputs (img/s), and scaling efficiencies where only those were
published. A table of throughputs needs system, backend, nodes and img_per_s; ``TEMPLATE`` has every column.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from harness.core.parts import part
from harness.core.statistics import summarise
from harness.core.text import did_you_mean
from harness.core.validation import mistake
from harness.errors import InvalidInput
from harness.results.result import Result, of_backend

FOLDER = part("reference")

# Columns that the tables in ``results/reference`` call otherwise than results do.
_OTHER_NAMES = {
    "backend": "strategy",
    "software": "framework",
    "ps": "num_ps",
    "batch_size": "batch_per_device",
    "workers": "devices",
}
TEMPLATE = """\
system,backend,nodes,img_per_s,stdev,devices_per_node,software,transport,model,batch_size,ps,data,job,source,note
My cluster,horovod,1,221.4,,1,"TensorFlow 2.21, Horovod 0.28",mpi,resnet50,64,,synthetic,,my notebook,
My cluster,horovod,8,1650.2,,1,"TensorFlow 2.21, Horovod 0.28",mpi,resnet50,64,,synthetic,Monday,my notebook,
My cluster,horovod,8,1661.9,,1,"TensorFlow 2.21, Horovod 0.28",mpi,resnet50,64,,synthetic,Tuesday,my notebook,
My cluster,parameter_server,8,1204.5,12.5,1,TensorFlow 2.21,grpc,resnet50,64,2,synthetic,,my notebook,2 servers
"""
SEE = "`harness list csv-template` prints a table that is right"

Blank = BeforeValidator(lambda value: None if value == "" else value)
MOST = 10**9  # of anything that is counted; also as a product of two, a DataFrame has room for it
Count = Annotated[Annotated[int, Field(ge=1, le=MOST)] | None, Blank]
Spread = Annotated[Annotated[float, Field(ge=0)] | None, Blank]


class Row(BaseModel):
    """What both kinds of table have. ``system`` is the machine as its source names it. Aliases are the results' columns."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, str_strip_whitespace=True)

    source: str = ""
    system: str = Field(min_length=1)
    framework: str = Field("", serialization_alias="software")
    model: str = ""
    num_ps: Count = Field(None, serialization_alias="ps")
    note: str = ""

    def result(self, backend: str = "") -> dict[str, Any]:
        """The fields of a ``Result`` that the row has.

        ``backend`` distributed the training. Where a table does not say, servers tell which it was, else the toolkit that
        is named first: ``tensorflow`` of ``TensorFlow 1.7, Horovod 0.15.1``.
        """
        toolkit = self.framework.partition(" ")[0].lower()
        backend = backend.lower().replace("-", "_") or ("parameter_server" if self.num_ps else toolkit)
        dumped = self.model_dump(by_alias=True, exclude={"strategy", "job"})
        fields = {"rate" if name == "img_per_s" else name: it for name, it in dumped.items() if it is not None}
        return fields | {
            "origin": "published",
            "processor": self.system,
            "backend": backend,
            **of_backend(backend, self.num_ps or 0, {}),
            "framework": "" if toolkit == backend else toolkit,
        }


class Throughput(Row):
    """One throughput, in images per second over all ``devices``. ``stdev`` is over repeated runs, if known.

    ``job`` tells the jobs of repeats apart, which else are of one job. ``nodes`` or ``devices`` says the size. What
    is left out is not known; there is one device per node.
    """

    strategy: str = Field(min_length=1)
    transport: str = ""
    batch_per_device: Count = Field(None, serialization_alias="batch_size")
    nodes: Count = None
    devices: Count = Field(None, serialization_alias="workers")
    devices_per_node: Count = None
    data: Literal["synthetic", "real", ""] = ""
    img_per_s: float = Field(gt=0)
    job: str = ""
    stdev: Spread = None

    @model_validator(mode="after")
    def _has_a_size(self) -> Throughput:
        if self.nodes is None and self.devices is None:
            raise ValueError("nodes must be a number above 0")
        if self.nodes and self.devices and self.nodes != -(-self.devices // (self.devices_per_node or 1)):
            raise ValueError(f"nodes must be devices / devices_per_node, not {self.nodes}")
        return self

    def result(self, backend: str = "") -> dict[str, object]:
        per_node = self.devices_per_node or 1
        devices = self.devices or (self.nodes or 0) * per_node
        size = {"nodes": -(-devices // per_node), "workers": devices, "devices_per_node": min(per_node, devices)}
        return super().result(self.strategy) | size


class Efficiency(Row):
    """One published scaling efficiency on ``workers`` devices, relative to 1.0 on ``base`` of them, if that is known."""

    framework: str = Field(min_length=1, serialization_alias="software")
    workers: int = Field(ge=1, le=MOST)
    scaling_efficiency: float = Field(gt=0, le=1.5, serialization_alias="published_efficiency")
    base: Count = Field(None, serialization_alias="published_base")


def read(path: Path) -> list[Row]:
    """The rows of one table. Raises InvalidInput with one line that names the file, the line and the one thing wrong."""
    rows = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = csv.DictReader(file, strict=True)
            header = list(lines.fieldnames or ())
            kind: type[Row] = Efficiency if "scaling_efficiency" in header else Throughput
            named = {_field(kind, name): name for name in header}
            if wrong := _wrong_header(kind, header):
                raise InvalidInput(f"{path}: line 1: {wrong}; {SEE}")
            for cells in lines:
                where = f"{path}: line {lines.line_num}"
                # The None is how csv says that there are more fields, or fewer, than on line 1.
                if None in cells or None in cells.values():
                    raise InvalidInput(f"{where}: must have {len(header)} fields, as line 1 has")
                fields = {field: cells[name] for field, name in named.items()}
                try:
                    fields["source"] = fields.get("source", "").strip() or str(path)
                    rows.append(kind.model_validate(fields))
                except ValidationError as error:
                    field, reason = mistake(error)
                    raise InvalidInput(f"{where}: {named.get(field, field)} {reason}".replace(":  ", ": ")) from None
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: is not UTF-8: {error.reason} at byte {error.start}") from None
    except csv.Error as error:
        raise InvalidInput(f"{path}: line {lines.line_num + 1}: {error}") from None
    if not rows:
        raise InvalidInput(f"{path}: has no rows; {SEE}")
    return rows


def _field(kind: type[Row], name: str) -> str:
    """The field that a column called ``name`` holds."""
    name = name.strip()
    return name if name in kind.model_fields else _OTHER_NAMES.get(name, name)


def _wrong_header(kind: type[Row], header: Sequence[str]) -> str:
    """The first thing that is wrong with the names of a table's columns; "" if nothing is."""
    if not header:
        return "the names of columns are missing"
    fields = [_field(kind, name) for name in header]
    for name, field in zip(header, fields, strict=True):
        if field not in kind.model_fields:
            instead = did_you_mean(name, [*kind.model_fields, *_OTHER_NAMES])
            return f"{name!r} is no column" + (instead and f"; {instead}")
        if fields.count(field) > 1:
            return f"the column {name} is there twice"
    for field, info in kind.model_fields.items():
        if info.is_required() and field not in fields:
            return f"the column {'backend' if field == 'strategy' else field} is missing"
    if kind is Throughput and not {"nodes", "devices"} & set(fields):
        return "the column nodes is missing"
    return ""


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


def results(rows: Sequence[Row]) -> list[Result]:
    """``rows`` as results. Throughputs that are equal in all else are repeats of one."""
    repeats: dict[Row, list[Row]] = {}
    for row in rows:
        repeats.setdefault(
            row.model_copy(update={"img_per_s": 1.0, "job": ""}) if isinstance(row, Throughput) else row, []
        ).append(row)
    found = []
    for number, alike in enumerate(repeats.values()):
        fields = alike[0].result()
        if len(alike) > 1 and isinstance(alike[0], Throughput):
            every = [row for row in alike if isinstance(row, Throughput)]
            summary = summarise([row.img_per_s for row in every])
            # No two contenders share a job: nothing says that they took turns.
            fields["jobs"] = tuple(f"{row.source} {number} {row.job}" for row in every)
            fields |= {"rate": summary.mean, "values": summary.values}
            fields |= {"stdev": summary.stdev, "ci95": summary.ci95}
        found.append(Result(**fields))
    return found


def groups(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What ``rows`` are about, in their order: a group for each model on a system, with one software, from one source.

    ``what`` is "img/s" or "efficiency"; ``data`` are "synthetic" and "real", as far as that is known.
    """
    groups: dict[tuple[str, ...], list[Result]] = {}
    for each in results(rows):
        what = "efficiency" if math.isnan(each.rate) else "img/s"
        groups.setdefault((each.system, each.software, each.model, each.source, what), []).append(each)
    return [
        dict(zip(("system", "software", "model", "source", "what"), key, strict=True))
        | {
            "backends": sorted({each.backend for each in alike}),
            "data": sorted({each.data for each in alike} - {""}, reverse=True),
            "workers": sorted({each.workers for each in alike}),
            "rows": len(alike),
        }
        for key, alike in groups.items()
    ]
