"""Studies: a TOML file that describes a matrix of runs, and the points that it stands for. Pure: text in, points out.

A point is one run to be measured. Its id depends on its spec alone, so that a file can be edited, reordered and moved
while its study is under way.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.core import backend as backends
from harness.core.backend import Backend
from harness.core.contenders import contenders
from harness.core.spec import RunSpec, Underscored
from harness.core.validation import mistake, option_name
from harness.errors import InvalidInput
from harness.launch.script import Sharing

SEARCH = "search"
MAX_JOBS = 8  # in the queue at once, where neither the study nor the site says
MOST_POINTS = 100_000  # a slip of the keyboard is refused instead of filling the memory


class StudyFile(BaseModel):
    """What a study file may hold. The tables' fields are those of RunSpec and the backends' own options."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$")
    site: str | None = Field(None, min_length=1)
    max_jobs: int | None = Field(None, ge=1, le=10_000)
    allocation: Annotated[Sharing, Underscored] = "repeat"
    common: dict[str, Any] = Field(default_factory=dict)
    matrix: list[dict[str, Any]] = Field(min_length=1)


@dataclass(frozen=True)
class StudyPoint:
    """A run to be measured: its spec as given, with all options of its backend, and the table of the file it is from."""

    spec: RunSpec
    table: str

    @property
    def id(self) -> str:
        """The same for the same spec, whatever the order of its fields and wherever its file lies."""
        return hashlib.sha256(json.dumps(self.spec.model_dump(), sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Study:
    """A study file that makes sense so far; ``points`` tells what it stands for."""

    file: Path
    content: StudyFile

    @property
    def name(self) -> str:
        """What its folder is called."""
        return self.content.name

    def points(self, device: Callable[[str], str]) -> list[StudyPoint]:
        """Every combination of every table's values, in the order of the file; the last field of a table varies fastest.

        ``device`` says what a wish such as "auto" means where the study runs. Raises InvalidInput with one line that names
        the file, the table and the field.
        """
        common = self._fields("common", self.content.common)
        tables = [
            (f"matrix[{number}]", self._fields(f"matrix[{number}]", table))
            for number, table in enumerate(self.content.matrix)
        ]
        points = [point for where, table in tables for point in self._expanded(where, common | table, table, device)]
        self._check_used("common", common, {point.spec.backend for point in points})
        return points

    def complain(self, where: str, what: str) -> InvalidInput:
        """An error about a place of this file."""
        return InvalidInput(f"{self.file}: {where}: {what}")

    @contextmanager
    def complaints(self, where: str) -> Iterator[None]:
        """Whatever is refused meanwhile is an error about a place of this file."""
        try:
            yield
        except InvalidInput as error:
            raise self.complain(where, str(error).removeprefix("--backends ")) from None

    def _fields(self, where: str, table: Mapping[str, Any]) -> dict[str, list[Any]]:
        """The values of every field of a table, under the names that RunSpec and the backends have for them."""
        owners = backends.option_owners()
        known = {option_name(name)[2:].replace("-", "_"): name for name in [*RunSpec.model_fields, *owners]}
        known |= {name: name for name in known.values()}
        del known["options"], known["training"]
        fields: dict[str, list[Any]] = {}
        for written, value in table.items():
            name = known.get(written.replace("-", "_"))
            if name is None:
                raise self.complain(f"{where}.{written}", "unknown field")
            if name in fields:
                raise self.complain(f"{where}.{written}", "is there twice")
            values = value if isinstance(value, list) else [value]
            if not values:
                raise self.complain(f"{where}.{written}", "must not be an empty list")
            if any(not isinstance(each, str | int | float) for each in values):
                raise self.complain(f"{where}.{written}", "must be a value or a list of values")
            fields[name] = values
        return fields

    def _expanded(
        self, where: str, fields: Mapping[str, list[Any]], table: Mapping[str, Any], device: Callable[[str], str]
    ) -> Iterator[StudyPoint]:
        if "backend" not in fields:
            raise self.complain(f"{where}.backend", "is required")
        with self.complaints(f"{where}.backend"):
            chosen = [(str(text), backends.backend(str(text).partition(":")[0])) for text in fields["backend"]]
        self._check_used(where, table, {backend.name for _, backend in chosen})
        for text, backend in chosen:
            # A field that this backend does not have must not multiply its points.
            axes = {
                name: values
                for name, values in fields.items()
                if name != "backend" and (name in RunSpec.model_fields or name in backend.options.model_fields)
            }
            if (combinations := math.prod(map(len, axes.values()))) > MOST_POINTS:
                raise self.complain(where, f"{combinations} combinations; at most {MOST_POINTS} make sense")
            for values in itertools.product(*axes.values()):
                point = dict(zip(axes, values, strict=True))
                with self.complaints(f"{where}.backend"):
                    (contender,) = contenders([text], device(str(point.get("device", "auto"))))
                for searched in self._searched(where, point | contender.fields, backend):
                    yield StudyPoint(self._spec(where, searched, backend), where)

    def _check_used(self, where: str, fields: Mapping[str, Any], chosen: set[str]) -> None:
        for name, owners in backends.option_owners().items():
            if name in fields and not chosen & set(owners):
                raise self.complain(
                    f"{where}.{name}", f"an option of {', '.join(owners)}, not of {', '.join(sorted(chosen))}"
                )

    def _searched(self, where: str, point: dict[str, Any], backend: Backend) -> Iterator[dict[str, Any]]:
        """``point``, or for ``ps = "search"`` a point for every count that the backend allows (see ``ps_counts``)."""
        if point.get("ps") != SEARCH:
            yield point
            return
        counts = ps_counts(self._spec(where, point | {"ps": 1}, backend).nodes)
        allowed = [count for count in counts if _allowed(self._spec(where, point | {"ps": count}, backend), backend)]
        # If nothing is allowed the reason is not the count; planning the point will tell it.
        yield from (point | {"ps": count} for count in allowed or [1])

    def _spec(self, where: str, point: Mapping[str, Any], backend: Backend) -> RunSpec:
        own = {name: value for name, value in point.items() if name in backend.options.model_fields}
        fields = {name: value for name, value in point.items() if name not in own}
        try:
            options = backend.options(**own)
            return RunSpec(**fields, options=options.model_dump())
        except ValidationError as error:
            path, reason = mistake(error)
            raise self.complain(f"{where}{path and '.'}{path}", reason) from None


def read(file: Path) -> Study:
    """Read a study file. Raises InvalidInput with one line that names the file and the field."""
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"{file}: {error.strerror}") from None
    except ValueError as error:  # no TOML, or no text
        raise InvalidInput(f"{file}: not a TOML file: {error}") from None
    fields = {name.replace("-", "_"): value for name, value in content.items()}
    try:
        return Study(file, StudyFile(**{"name": file.stem} | fields))
    except ValidationError as error:
        path, reason = mistake(error, StudyFile)
        raise InvalidInput(f"{file}: {path}: {reason}") from None


def ps_counts(workers: int) -> list[int]:
    """The numbers of parameter servers that ``ps = "search"`` tries with so many workers.

    All powers of two: on a fast network a few servers may do. And three, five and six eighths, 29/32 and all of the
    workers: the best counts published in 2017 lie between a quarter of the workers and all of them (on Piz Daint 3 of 4,
    2 of 8, 4 of 16, 12 of 32, 40 of 64, 116 of 128; on EC2 12 of 16 and 64 of 64), where powers of two alone leave wide
    gaps. Every one of those is in this set; it has 12 counts for 128 workers.
    """
    powers = {2**power for power in range(workers.bit_length())}
    shares = {max(1, round(workers * share)) for share in (3 / 8, 5 / 8, 6 / 8, 29 / 32, 1)}
    return sorted(powers | shares)


def labels(specs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Short names for specs (as dictionaries): backend and nodes, and whatever tells points of this list apart."""
    seen: dict[str, set[str]] = {}
    for spec in specs:
        for name, value in spec.items():
            if name != "options":
                seen.setdefault(name, set()).add(json.dumps(value))
        for name, value in spec["options"].items():  # backends may have different defaults; that tells nothing
            seen.setdefault(f"{spec['backend']}.{name}", set()).add(json.dumps(value))
    in_front = ("backend", "framework", "transport")

    def label(spec: Mapping[str, Any]) -> str:
        fields = [name for name in spec if name == "nodes" or (name not in in_front and len(seen.get(name, ())) > 1)]
        values = [f"{name}={spec[name]}" for name in fields if spec[name] is not None]
        values += [f"{k}={v}" for k, v in spec["options"].items() if len(seen[f"{spec['backend']}.{k}"]) > 1]
        return " ".join([":".join(str(spec[name]) for name in in_front if spec[name]), *values])

    return [label(spec) for spec in specs]


def _allowed(spec: RunSpec, backend: Backend) -> bool:
    try:
        backend.validate(spec)
    except InvalidInput:
        return False
    return True
