"""Results as one table: CSV, Parquet, JSON. A row is a run, or a size of a kernel's run; each option has a column."""

from __future__ import annotations

import json as json_text
from functools import cache
from typing import IO, TYPE_CHECKING

from harness.errors import InvalidInput
from harness.results import frame as frames

if TYPE_CHECKING:
    import pyarrow

    from harness.export import Export


def csv(export: Export, stream: IO[bytes]) -> None:
    """Write CSV (RFC 4180, UTF-8): text in quotes, nothing where there is no value, lists as JSON."""
    import pyarrow
    import pyarrow.csv

    table = _table(export)
    for name in [name for name in table.column_names if pyarrow.types.is_list(table.field(name).type)]:
        values = pyarrow.array([json_text.dumps(each) for each in table.column(name).to_pylist()], pyarrow.string())
        table = table.set_column(table.column_names.index(name), name, values)
    pyarrow.csv.write_csv(table, stream)


def parquet(export: Export, stream: IO[bytes]) -> None:
    """Write Parquet: every column with its type, lists as lists of doubles, and ``jobs`` of text."""
    import pyarrow.parquet

    if export.file is None:
        raise InvalidInput("--format parquet: is not text; give --output FILE")
    pyarrow.parquet.write_table(_table(export), stream)


def json(export: Export, stream: IO[bytes]) -> None:
    """Write a JSON list of objects, one a line, null where there is no value; ``spec`` and ``environment`` are objects."""
    parsed = cache(lambda text: json_text.loads(text) if text else None)  # most are equal
    lines = []
    for row in _table(export).to_pylist():
        lines.append(json_text.dumps(row | {name: parsed(row[name]) for name in ("spec", "environment")}))
    stream.write(("[\n" + ",\n".join(lines) + "\n]\n").encode())


def _table(export: Export) -> pyarrow.Table:
    """The results with NaN as missing, and each of the backends' own options in a column of its own, named after it.

    An option that is called like another column gets the column ``option_NAME``. Where backends give an option values of
    different kinds, they are JSON text.
    """
    import pyarrow

    of_kernels = bool(export.results[0].kernel)
    columns_of = frames.OF_KERNELS if of_kernels else frames.OF_TRAININGS
    frame, kinds = (frames.kernels if of_kernels else frames.trainings)(export.results), frames.kinds(columns_of)
    text, numbers = pyarrow.string(), pyarrow.float64()
    types = {str: text, int: pyarrow.int64(), float: numbers, list: pyarrow.list_(numbers)}
    names = [name for name in kinds if name != "options"]
    of = {name: types[kinds[name]] for name in names} | {"jobs": pyarrow.list_(text)}
    columns = {name: pyarrow.array(frame[name], of[name], from_pandas=True) for name in names}
    options = [result.options for result in export.results]
    for name in dict.fromkeys(name for own in options for name in own):
        values = [own.get(name) for own in options]
        try:
            column = pyarrow.array(values)
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError):
            column = pyarrow.array([None if each is None else json_text.dumps(each) for each in values], text)
        columns[f"option_{name}" if name in frame else name] = column
    return pyarrow.table(columns)
