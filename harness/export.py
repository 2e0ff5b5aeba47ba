"""Results as one table: CSV, Parquet, JSON. A row is a run, or a size of a kernel's run; each option has a column."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING

from harness.core.elsewhere import no_formula
from harness.errors import InvalidInput
from harness.results import frame as frames
from harness.results.result import Result
from harness.results.sources import kernels, trainings

if TYPE_CHECKING:
    import pyarrow


def chosen(name: str | None, file: Path | None) -> str:
    """The format that was asked for, else the one that the file's suffix names. Raises InvalidInput."""
    known, suffix = ", ".join(FORMATS), file.suffix.lower().removeprefix(".") if file else ""
    if name == "parquet" and file is None:
        raise InvalidInput("--format parquet: is not text; give --output FILE")
    if name:
        return name
    if file is None:
        raise InvalidInput(f"--format is required without --output; one of {known}")
    if suffix not in FORMATS:
        raise InvalidInput(f"--output {file}: --format is required, as the suffix names none of {known}")
    return suffix


def exported(
    results: Sequence[Result], sources: Sequence[str], everything: bool = False, of_kernels: bool = False
) -> list[Result]:
    """The trainings among the results of ``sources``, or the kernels: those that have a number, or ``everything``.

    Raises InvalidInput if there are none.
    """
    of_kind = kernels(results) if of_kernels else trainings(results)
    selected = [result for result in of_kind if everything or result.completed]
    if not selected:
        which = "kernels" if of_kernels else "results"
        which += "" if everything else " that have a number (--all takes those without)"
        if not of_kernels and kernels(results):
            which += "; --kernels exports the kernels"
        raise InvalidInput(f"{' '.join(sources)}: no {which}")
    return selected


def write(results: Sequence[Result], name: str, stream: IO[bytes]) -> None:
    """Write results, all of them trainings or all of them kernels, in format ``name``."""
    FORMATS[name](_table(results), stream)


def _csv(table: pyarrow.Table, stream: IO[bytes]) -> None:
    """CSV (RFC 4180, UTF-8): text in quotes, nothing where there is no value, lists as JSON, no formulas."""
    import pyarrow
    import pyarrow.csv

    for number, field in enumerate(table.schema):
        of_lists = pyarrow.types.is_list(field.type)
        if of_lists or field.type == pyarrow.string():
            cells = [json.dumps(cell) if of_lists else cell for cell in table.column(number).to_pylist()]
            cells = [cell and no_formula(cell) for cell in cells]
            table = table.set_column(number, field.name, pyarrow.array(cells, pyarrow.string()))
    pyarrow.csv.write_csv(table, stream)


def _parquet(table: pyarrow.Table, stream: IO[bytes]) -> None:
    """Parquet: every column with its type, lists as lists of doubles, and ``jobs`` of text."""
    import pyarrow.parquet

    pyarrow.parquet.write_table(table, stream)


def _json(table: pyarrow.Table, stream: IO[bytes]) -> None:
    """A JSON list of objects, one a line, null where there is no value; ``spec`` and ``environment`` are objects."""
    parsed = cache(lambda text: json.loads(text) if text else None)  # most are equal
    rows = (row | {name: parsed(row[name]) for name in ("spec", "environment")} for row in table.to_pylist())
    stream.write(("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n").encode())


FORMATS: Mapping[str, Callable[[pyarrow.Table, IO[bytes]], None]] = {"csv": _csv, "json": _json, "parquet": _parquet}


def _table(results: Sequence[Result]) -> pyarrow.Table:
    """The results with NaN as missing, and each of the backends' own options in a column of its own, named after it.

    An option that is called like another column gets the column ``option_NAME``. Where backends give an option values of
    different kinds, they are JSON text.
    """
    import pyarrow

    columns_of = frames.OF_KERNELS if results[0].kernel else frames.OF_TRAININGS
    frame, kinds = frames.frame(results, columns_of), frames.kinds(columns_of)
    text, numbers = pyarrow.string(), pyarrow.float64()
    types = {str: text, int: pyarrow.int64(), float: numbers, list: pyarrow.list_(numbers)}
    names = [name for name in kinds if name != "options"]
    of = {name: types[kinds[name]] for name in names} | {"jobs": pyarrow.list_(text)}
    columns = {name: pyarrow.array(frame[name], of[name], from_pandas=True) for name in names}
    options = [result.options for result in results]
    for name in dict.fromkeys(name for of_run in options for name in of_run):
        values = [of_run.get(name) for of_run in options]
        try:
            column = pyarrow.array(values)
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError):
            column = pyarrow.array([None if each is None else json.dumps(each) for each in values], text)
        columns[f"option_{name}" if name in frame else name] = column
    return pyarrow.table(columns)
