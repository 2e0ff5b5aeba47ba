"""Results as one table, a row per run: CSV, Parquet, JSON. Columns are those of ``results.COLUMNS`` and the options'."""

from __future__ import annotations

import json as json_text
from typing import IO, TYPE_CHECKING, Any

from harness import results
from harness.errors import InvalidInput

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from harness.export import Export

NESTED = ("spec", "environment")  # columns that hold JSON text


def csv(export: Export, stream: IO[bytes]) -> None:
    """Write CSV (RFC 4180, UTF-8): text in quotes, nothing where there is no value, ``values`` as a JSON list."""
    import pyarrow
    import pyarrow.csv

    table = _table(export.results)
    # They are finite, so Python writes them as JSON does, and faster than json.
    values = pyarrow.array([str(list(map(float, each))) for each in export.results["values"]], pyarrow.string())
    pyarrow.csv.write_csv(table.set_column(table.column_names.index("values"), "values", values), stream)


def parquet(export: Export, stream: IO[bytes]) -> None:
    """Write Parquet: every column with its type, ``values`` as lists of doubles."""
    import pyarrow.parquet

    if export.file is None:
        raise InvalidInput("--format parquet: is not text; give --output FILE")
    pyarrow.parquet.write_table(_table(export.results), stream)


def json(export: Export, stream: IO[bytes]) -> None:
    """Write a JSON list of objects, one a line, null where there is no value; ``spec`` and ``environment`` are objects."""
    columns = {name: column.to_pylist() for name, column in _columns(export.results).items()}
    for name in NESTED:
        known = {text: json_text.loads(text) if text else None for text in set(columns[name])}  # most are equal
        columns[name] = [known[text] for text in columns[name]]
    lines = (json_text.dumps(dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True))
    stream.write(("[\n" + ",\n".join(lines) + "\n]\n").encode())


def _table(frame: pandas.DataFrame) -> pyarrow.Table:
    import pyarrow

    return pyarrow.table(_columns(frame))


def _columns(frame: pandas.DataFrame) -> dict[str, Any]:
    """The frame's columns as Arrow's arrays, the options in columns of their own, NaN as missing."""
    import pyarrow

    types = {
        str: pyarrow.string(),
        int: pyarrow.int64(),
        float: pyarrow.float64(),
        list: pyarrow.list_(pyarrow.float64()),
    }
    wide = results.expanded(frame)
    return {
        name: pyarrow.array(wide[name], types[results.COLUMNS[name]], from_pandas=True)
        if name in results.COLUMNS
        else _option(wide[name])
        for name in wide.columns
    }


def _option(values: pandas.Series) -> pyarrow.Array:
    """An option's column. Where backends give an option values of different kinds, they are JSON text."""
    import pyarrow

    try:
        return pyarrow.array(values, from_pandas=True)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError):
        return pyarrow.array([None if value is None else json_text.dumps(value) for value in values], pyarrow.string())
