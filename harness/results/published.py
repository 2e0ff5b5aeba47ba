"""Tables (CSV) of others' measurements, or of numbers of one's own that harness did not measure.

Two kinds of table, which their columns tell apart: throughputs (img/s), and scaling efficiencies, where only those were
published. A table of throughputs needs system, backend, nodes and img_per_s; ``TEMPLATE`` has every column. Tables that
harness writes (`harness results export`, `harness table --format csv`) are read again.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from harness.core.elsewhere import RATES, encoding_of, from_spreadsheet, number, plain
from harness.core.parts import part
from harness.core.statistics import summarise
from harness.core.text import did_you_mean
from harness.core.validation import mistake
from harness.errors import InvalidInput
from harness.results.result import Result, of_backend

FOLDER = part("reference")

# Columns that have another name in the tables in ``results/reference`` than in results and other people's tables.
_OTHER_NAMES = {
    "backend": "strategy",
    "software": "framework",
    "ps": "num_ps",
    "batch_size": "batch_per_device",
    "workers": "devices",
    "configuration": "variant",
    **dict.fromkeys([*(each.replace("/", "_per_") for each in RATES), *RATES, "ips", "throughput"], "img_per_s"),
}
# Columns by which tables of ours are known, and those of their figures.
_EXPORTED, _TABLE = {"origin", "spec", "values"}, {"img/s", "scaling_efficiency", "configuration"}
_EUROPEAN, _THOUSANDS = re.compile(r"[+-]?\d+(?:\.\d{3})*,\d+"), re.compile(r"[+-]?[1-9]\d{0,2}(?:\.\d{3})+")
TEMPLATE = Path(__file__).with_name("template.csv")
EXPORT = "`harness results export --format csv` writes a table that has all"
SEE = "`harness list csv-template` prints a table that is right"


def _as_python(value: object) -> object:
    """A cell as Python writes numbers, if it is a number that others write otherwise; None for an empty one."""
    if not isinstance(value, str):
        return value
    with suppress(ValueError):
        float(value)
        return value
    with suppress(ValueError):
        return format(number(value, RATES), ".15g")
    return value or None


Cell = BeforeValidator(_as_python)
MOST = 10**9  # of anything that is counted; also as a product of two, a DataFrame has room for it
MOST_RUNS = 100_000
CountCell = Annotated[Annotated[int, Field(ge=1, le=MOST)] | None, Cell]
SpreadCell = Annotated[Annotated[float, Field(ge=0)] | None, Cell]


class PublishedRow(BaseModel):
    """The columns of every kind of table. ``system`` is the machine as its source names it. Aliases are those of results.

    ``link_gb_s`` is the line rate of a node's link (GB/s), one way, from which the scaling model starts.
    ``variant`` sets a row apart otherwise, such as by the place of variables.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, str_strip_whitespace=True)

    source: str = ""
    system: str = Field(min_length=1)
    framework: str = Field("", serialization_alias="software")
    model: str = ""
    num_ps: CountCell = Field(None, serialization_alias="ps")
    link_gb_s: Annotated[Annotated[float, Field(gt=0)] | None, Cell] = None
    variant: str = ""
    note: str = ""

    def result(self) -> dict[str, Any]:
        """The fields of a ``Result`` that the row has.

        Its ``backend`` distributed the training. Where a table does not say, servers tell which it was, else the toolkit
        that is named first: ``tensorflow`` of ``TensorFlow 1.7, Horovod 0.15.1``.
        """
        toolkit = self.framework.partition(" ")[0].lower()
        stated = str(getattr(self, "strategy", "")).lower().replace("-", "_")
        backend = stated or ("parameter_server" if self.num_ps else toolkit)
        dumped = self.model_dump(by_alias=True, exclude={"strategy", "job"})
        fields = {"rate" if name == "img_per_s" else name: it for name, it in dumped.items() if it is not None}
        return fields | {
            "origin": "published",
            "processor": self.system,
            "backend": backend,
            **of_backend(backend, self.num_ps or 0, {}),
            "framework": "" if toolkit == backend else toolkit,
        }


class Throughput(PublishedRow):
    """One throughput, in images per second over all ``devices``. ``stdev`` is over repeated runs, if known.

    It is the mean of so many ``runs``, if known. ``job`` tells the jobs of repeats apart, which else are of one job.
    ``nodes`` or ``devices`` says the size. A field that is left out is not known; there is one device per node.
    """

    strategy: str = Field(min_length=1)
    transport: str = ""
    batch_per_device: CountCell = Field(None, serialization_alias="batch_size")
    nodes: CountCell = None
    devices: CountCell = Field(None, serialization_alias="workers")
    devices_per_node: CountCell = None
    image_size: CountCell = None
    data: Literal["synthetic", "real", ""] = ""
    img_per_s: Annotated[float, Cell] = Field(gt=0)
    runs: Annotated[Annotated[int, Field(ge=1, le=MOST_RUNS)] | None, Cell] = None
    job: str = ""
    stdev: SpreadCell = None

    @model_validator(mode="after")
    def _has_a_size(self) -> Throughput:
        if self.nodes is None and self.devices is None:
            raise ValueError("nodes must be a number above 0")
        if self.nodes and self.devices and self.nodes != -(-self.devices // (self.devices_per_node or 1)):
            raise ValueError(f"nodes must be devices / devices_per_node, not {self.nodes}")
        return self

    def result(self) -> dict[str, Any]:
        per_node = self.devices_per_node or 1
        devices = self.devices or (self.nodes or 0) * per_node
        size = {"nodes": -(-devices // per_node), "workers": devices, "devices_per_node": min(per_node, devices)}
        return super().result() | size


class Exported(Throughput):
    """A row of a table that harness wrote, which has more columns. ``used`` is the framework's short name."""

    data: str = ""  # type: ignore[assignment]
    device: str = ""
    precision: str = ""
    training: str = ""
    mpi: str = ""
    threads: CountCell = None
    used: str = ""

    def result(self) -> dict[str, Any]:
        fields = super().result() | {"training": self.training}
        used = fields.pop("used")
        return fields | ({"framework": used} if used else {})


class Efficiency(PublishedRow):
    """One published scaling efficiency on ``workers`` devices, relative to 1.0 on ``base`` of them, if that is known."""

    framework: str = Field(min_length=1, serialization_alias="software")
    transport: str = ""
    batch_per_device: CountCell = Field(None, serialization_alias="batch_size")
    workers: int = Field(ge=1, le=MOST)
    scaling_efficiency: float = Field(gt=0, le=1.5, serialization_alias="published_efficiency")
    base: CountCell = Field(None, serialization_alias="published_base")


def read(path: Path, doubled: Callable[[str], None] = lambda reason: None) -> list[PublishedRow]:
    """The rows of one table, of which ``doubled`` is told those that are alike in every field: they count once.

    Cells may be separated by commas, semicolons or tabs; rows and columns without anything are passed over. Raises
    InvalidInput with one line that names the file, the line and the one thing wrong.
    """
    rows: list[PublishedRow] = []
    seen: dict[PublishedRow, int] = {}
    try:
        with path.open(newline="", encoding=encoding_of(path)) as file:
            delimiter = max(",;\t", key=file.readline().count)
            file.seek(0)
            lines = csv.reader(file, delimiter=delimiter, strict=True)
            header = [_column(name) for name in next(lines, [])]
            ours = {*header} >= _EXPORTED or {*header} >= _TABLE
            kind = Efficiency if "scaling_efficiency" in header and not ours else Throughput
            if ours and "model" not in header:
                raise InvalidInput(f"{path}: line 1: the model is missing; {EXPORT}")
            if wrong := _wrong_header(kind, header, ours):
                raise InvalidInput(f"{path}: line 1: {wrong}; {EXPORT if ours else SEE}")
            numbered = [(lines.line_num, cells) for cells in lines if any(cells)]
            european = delimiter == ";" and any(_EUROPEAN.fullmatch(cell) for _, cells in numbered for cell in cells)
            for number_, cells in numbered:
                where = f"{path}: line {number_}"
                if len(cells) != len(header) and (len(cells) < len(header) or any(cells[len(header) :])):
                    raise InvalidInput(f"{where}: must have {len(header)} fields, as line 1 has")
                written = dict(zip(header, map(from_spreadsheet, cells), strict=False))
                if ours:
                    rows += _ours(written, path, where)
                    continue
                if european:
                    written = {name: _decimal_point(cell) for name, cell in written.items()}
                row = _row(kind, written, path, where)
                if row in seen:
                    doubled(f"{where} has what line {seen[row]} has, and counts once")
                else:
                    seen[row] = number_
                    rows.append(row)
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{path}: is not UTF-8 (save it so, if it is in Latin-1): {error.reason} at byte {error.start}"
        ) from None
    except csv.Error as error:
        raise InvalidInput(f"{path}: line {lines.line_num + 1}: {error}") from None
    if not rows:
        raise InvalidInput(f"{path}: has no rows; {SEE}")
    return rows


def _decimal_point(cell: str) -> str:
    """A cell of a table in which commas are decimal ones, and points set thousands apart."""
    is_number = _EUROPEAN.fullmatch(cell) or _THOUSANDS.fullmatch(cell)
    return cell.replace(".", "").replace(",", ".") if is_number else cell


def _row(kind: type[PublishedRow], written: Mapping[str, str], path: Path, where: str) -> PublishedRow:
    """The row in a line of a table. Raises InvalidInput."""
    named = {_field(kind, name): name for name in written if name}
    fields = {field: written[name] for field, name in named.items()}
    try:
        return kind.model_validate(fields | {"source": fields.get("source", "").strip() or str(path)})
    except ValidationError as error:
        field, reason = mistake(error)
        raise InvalidInput(f"{where}: {named.get(field, field)} {reason}".replace(":  ", ": ")) from None


def _ours(written: Mapping[str, str], path: Path, where: str) -> Iterator[PublishedRow]:
    """The rows in a line of a table that harness wrote: one for each repeat, none of a run without a number.

    Raises InvalidInput, also for a line of a table in which columns for people do not tell all.
    """
    from harness.results.frame import OF_TRAININGS

    exported = "values" in written
    # Cells that hold nothing known, and columns that are not there, are empty.
    cells = defaultdict(str, {name: "" if value in ("0", "[]") else value for name, value in written.items()})
    options = [f"{name}={cells[name]}" for name in written if exported and name not in OF_TRAININGS and cells[name]]
    configuration = cells["configuration"]
    if "devices per node" in configuration or "batch " in configuration:
        raise InvalidInput(f"{where}: '{configuration}' is for people; {EXPORT}")
    row = {name: cells[name] for name in ("system", "link_gb_s", "model", "ps", "nodes")} | {
        "framework": cells["software"] or cells["framework"],
        "variant": ", ".join(filter(None, [cells["variant"], configuration, *options])),
    }
    if cells["origin"] == "published":
        row |= {"source": cells["source"], "note": cells["note"]}
    if cells["nodes"].startswith("("):  # (16 workers)
        row["nodes"], cells["workers"] = "", re.sub(r"\D", "", cells["nodes"])
    if (rate := cells["img_per_s"] or cells["img/s"]) and not cells["target"]:  # no training to an accuracy
        names = ("backend", "transport", "batch_size", "workers", "devices_per_node", "image_size", "data", "runs")
        row |= {name: cells[name] for name in (*names, "device", "precision", "training", "mpi", "threads")}
        row["used"] = cells["framework"]
        if row["data"] == "synthetic data":  # for people
            row["data"] = "synthetic"
        try:
            values, jobs = (json.loads(cells[name] or "[]") for name in ("values", "jobs"))
            repeats = [*zip_longest(values, jobs, fillvalue="")]
        except (ValueError, TypeError):
            raise InvalidInput(f"{where}: its values or jobs are no lists") from None
        if not repeats:
            yield _row(Exported, row | {"img_per_s": rate, "stdev": cells["stdev"]}, path, where)
        for value, job in repeats:
            yield _row(Exported, row | {"img_per_s": str(value), "job": str(job)}, path, where)
    elif share := cells["published_efficiency"] or cells["scaling_efficiency"]:
        size = {"workers": cells["workers"] or cells["nodes"], "base": cells["published_base"]}
        del row["nodes"]
        yield _row(Efficiency, row | size | {"scaling_efficiency": share}, path, where)


def _column(name: str) -> str:
    """The name of a column as we write it: ``img_per_s`` of ``Img_per_s (img/s)``."""
    return re.sub(r"\s*\(.*\)$", "", plain(name)).strip().lower().replace(" ", "_")


def _field(kind: type[PublishedRow], name: str) -> str:
    """The field that a column called ``name`` holds."""
    return name if name in kind.model_fields else _OTHER_NAMES.get(name, name)


def _wrong_header(kind: type[PublishedRow], header: Sequence[str], ours: bool) -> str:
    """The first thing that is wrong with the names of a table's columns; "" if nothing is. Unnamed ones are passed over."""
    if not any(header):
        return "the names of columns are missing"
    fields = [_field(kind, name) for name in header]
    for name, field in zip(header, fields, strict=True) if not ours else ():
        if name and field not in kind.model_fields:
            instead = did_you_mean(name, [*kind.model_fields, *_OTHER_NAMES])
            return f"{name!r} is no column" + (instead and f"; {instead}")
        if name and fields.count(field) > 1:
            return f"the column {name} is there twice"
    for field, info in kind.model_fields.items():
        if info.is_required() and field not in fields:
            return f"the column {'backend' if field == 'strategy' else field} is missing"
    if kind is Throughput and not {"nodes", "devices"} & set(fields):
        return "the column nodes is missing"
    return ""


def select(text: str = "") -> list[PublishedRow]:
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


def results(rows: Sequence[PublishedRow]) -> list[Result]:
    """``rows`` as results. Throughputs that are equal in all else are repeats of one."""
    repeats: dict[PublishedRow, list[PublishedRow]] = defaultdict(list)
    for row in rows:
        same = {"img_per_s": 1.0, "job": ""} | ({"stdev": None} if getattr(row, "job", "") else {})
        repeats[row.model_copy(update=same) if isinstance(row, Throughput) else row].append(row)
    made = []
    for place, alike in enumerate(repeats.values()):
        fields = alike[0].result()
        every = [row for row in alike if isinstance(row, Throughput)]
        if len(every) > 1:
            summary = summarise([row.img_per_s for row in every])
            # No two contenders share a job: nothing says that they took turns.
            jobs = tuple(f"{row.source} {place} {row.job}" for row in every)
            fields |= {"rate": summary.mean, "values": summary.values, "jobs": jobs}
            fields |= {"stdev": summary.stdev, "ci95": summary.ci95}
        made.append(Result(**fields))
    return made


def groups(rows: Sequence[PublishedRow]) -> list[dict[str, Any]]:
    """The subjects of ``rows``, in their order: a group for each model on a system, with one software, from one source.

    ``what`` is "img/s" or "efficiency"; ``data`` are "synthetic" and "real", as far as that is known.
    """
    groups: dict[tuple[str, ...], list[Result]] = defaultdict(list)
    for each in results(rows):
        figure = "efficiency" if math.isnan(each.rate) else "img/s"
        groups[each.system, each.software, each.model, each.source, figure].append(each)
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
