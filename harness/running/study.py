"""Studies: a TOML file that describes a matrix of runs, and the points that it stands for. Pure: text in, points out.

A point is one run to be measured. Its id depends on its spec alone, so that a file can be edited, reordered and moved
while its study is under way.
"""

import hashlib
import itertools
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, PrivateAttr

from harness import kernels
from harness.core import backend as backends
from harness.core.plan import with_options
from harness.core.spec import Frozen, KernelSizes, RunSpec, Underscored
from harness.core.subject import Subject
from harness.core.text import listed, sizes
from harness.core.validation import making_sense_of
from harness.core.written import understood
from harness.errors import InvalidInput
from harness.launch.script import Sharing


def _listed(value: object) -> list[object]:
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(each, str | int | float) for each in values):
        raise ValueError("must be a value or a list of values")
    return values


Matrix = dict[str, Annotated[list[Any], BeforeValidator(_listed)]]
SEARCH = "search"
MAX_JOBS = 8  # in the queue at once, where neither the study nor the site says


@dataclass(frozen=True)
class StudyPoint:
    """A run to be measured: its spec as given, with all options of its backend, and the table of the file it is from."""

    spec: RunSpec
    table: str

    @property
    def id(self) -> str:
        """The same for the same spec, whatever the order of its fields and wherever its file lies."""
        content = json.dumps(backends.differing(self.spec.model_dump()), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:12]


class Study(Frozen):
    """The content of a study file. The tables' fields are those of RunSpec and the backends' own options."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$")
    site: str | None = Field(None, min_length=1)
    max_jobs: int | None = Field(None, ge=1, le=10_000)
    allocation: Annotated[Sharing, Underscored] = "repeat"
    common: Matrix = Field(default_factory=dict)
    matrix: list[Matrix] = Field(min_length=1)
    _file: Path = PrivateAttr()

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a study file. Raises InvalidInput with one line that names the file and the field."""
        with making_sense_of(file, cls):
            content = tomllib.loads(file.read_text(encoding="utf-8"))
            study = cls(**{"name": file.stem} | {name.replace("-", "_"): value for name, value in content.items()})
        study._file = file
        return study

    def points(self, device: Callable[[str], str]) -> list[StudyPoint]:
        """Every combination of every table's values, in the order of the file; the last field of a table varies fastest.

        ``device`` resolves "auto" where the study runs. Raises InvalidInput that names the file, the table and the field.
        """
        common = self._fields("common", self.common)
        points: list[StudyPoint] = []
        for number, table in enumerate(self.matrix):
            where = f"matrix[{number}]"
            fields = self._with_sizes(where, common, self._fields(where, table))
            points += self._expanded(where, fields, table, device)
        with self.complaints("common"):
            backends.check_owners(common, {point.spec.backend for point in points})
        return points

    def complain(self, where: str, reason: str) -> InvalidInput:
        return InvalidInput(f"{self._file}: {where}: {reason}")

    @contextmanager
    def complaints(self, where: str) -> Iterator[None]:
        """Turn refusals into errors about a place of this file."""
        try:
            yield
        except InvalidInput as error:
            raise self.complain(where, str(error)) from None

    def _fields(self, where: str, table: Matrix) -> Matrix:
        """A table with the names that RunSpec and the backends have for its fields."""
        known = backends.option_fields() | {"kernel": "kernel", "sizes": "sizes"}
        fields: Matrix = {}
        for written, values in table.items():
            name = known.get(written.replace("-", "_"))
            if name is None or name in fields:
                raise self.complain(f"{where}.{written}", "is there twice" if name else "unknown field")
            fields[name] = values
        return fields

    def _with_sizes(self, where: str, common: Matrix, table: Matrix) -> Matrix:
        """The fields of a table; of kernels with the sizes of each, and without ``common`` fields that are for training."""
        fields = common | table
        typed = fields.pop("sizes", None)
        if "kernel" not in fields:
            if "sizes" in table:
                raise self.complain(f"{where}.sizes", "is for kernels, and there is no kernel")
            return fields
        with self.complaints(f"{where}.kernel"):
            names = [str(name).replace("-", "_") for name in fields["kernel"]]
            in_bytes = {kernels.specification(name).in_bytes for name in names}
        if typed and len(in_bytes) > 1:
            reason = f"those of {listed(names)} are not alike, bytes and numbers: give each kind its own table"
            raise self.complain(f"{where}.sizes", reason)
        label = f"{self._file}: {where}.sizes"
        typed_sizes = understood(label, ",".join(map(str, typed)), sizes) if typed else None
        with self.complaints(f"{where}.sizes"):
            axis = [KernelSizes.of(name, typed_sizes) for name in names]
        with self.complaints(where):
            Subject(axis[0]).check(table.keys() - {"kernel", "sizes"})
        unused = backends.unused_by_kernels()
        return {name: values for name, values in fields.items() if name not in unused} | {"kernel": axis}

    def _expanded(
        self, where: str, fields: Matrix, table: Matrix, device: Callable[[str], str]
    ) -> Iterator[StudyPoint]:
        if "backend" not in fields:
            raise self.complain(f"{where}.backend", "is required")
        with self.complaints(f"{where}.backend"):
            chosen = [(str(text), backends.backend(str(text).partition(":")[0])) for text in fields["backend"]]
        with self.complaints(where):
            backends.check_owners(table, [backend.name for _, backend in chosen])
        for text, backend in chosen:
            # A field that this backend does not have must not multiply its points; libraries do if it goes over MPI.
            multiplying = (RunSpec.model_fields.keys() | backend.options.model_fields.keys()) - {"backend", "mpi"}
            axes = {name: values for name, values in fields.items() if name in multiplying}
            for values in itertools.product(*axes.values()):
                point = dict(zip(axes, values, strict=True)) | {"backend": text, "mpi": fields.get("mpi")}
                kind = device(str(point.get("device", "auto")))
                with self.complaints(where):
                    backends.contenders([text], kind)  # in a comparison all are on the same kind of device
                    for spec in _searched(point, kind):
                        yield StudyPoint(spec, where)


def _searched(point: dict[str, object], device: str) -> list[RunSpec]:
    """The specs of a point: one per MPI library and, for a search, per allowed ``ps_counts``. Raises InvalidInput."""
    if point.get("ps") != SEARCH:
        return _specs(point, device)
    first = _specs(point | {"ps": 1}, device)
    allowed = []
    for count in ps_counts(first[0].nodes * first[0].options.get("ps_per_node", 1)):
        with suppress(InvalidInput):
            specs = _specs(point | {"ps": count}, device)
            backends.backend(specs[0].backend).validate(specs[0])
            allowed += specs
    return allowed or first  # if no count is allowed the reason is another one, which planning the point will tell


def _specs(point: dict[str, Any], device: str) -> list[RunSpec]:
    specs = Subject(point.get("kernel")).specs(point, device, ("mpi",))
    return [with_options(spec, backends.backend(spec.backend)) for spec in specs]


def ps_counts(workers: int) -> list[int]:
    """The numbers of parameter servers that ``ps = "search"`` tries with so many workers, or places on their nodes.

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
    in_front = ("backend", "framework", "transport", "mpi")
    flat: list[dict[str, Any]] = []
    for spec in specs:
        fields = {name: value for name, value in spec.items() if name not in (*in_front, "options")}
        # Kernels may have different sizes, and backends different defaults of an option; that tells nothing.
        if kernel := fields.get("kernel"):
            fields |= {"kernel": kernel["name"], f"{kernel['name']}.sizes": ",".join(map(str, kernel["sizes"]))}
        flat.append(fields | {f"{spec['backend']}.{name}": value for name, value in spec["options"].items()})
    values: dict[str, set[str]] = {name: set() for fields in flat for name in fields}
    for spec, fields in zip(specs, flat, strict=True):
        for name in values:
            if name in fields or name.startswith(f"{spec['backend']}."):  # an option that is left out may tell, too
                values[name].add(json.dumps(fields.get(name)))
    names = []
    for spec, fields in zip(specs, flat, strict=True):
        telling = {name: value for name, value in fields.items() if name == "nodes" or len(values[name]) > 1}
        shown = {name.rpartition(".")[2]: value for name, value in telling.items()}
        words = [f"{name}={value}" for name, value in shown.items() if value is not None]
        names.append(" ".join([":".join(str(spec[name]) for name in in_front if spec.get(name)), *words]))
    return names
