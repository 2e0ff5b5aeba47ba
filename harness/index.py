"""Rows of the records in a folder, kept between commands, because reading a record means judging it again.

A row is used again as long as its file has the size and the time it had, and the code that makes rows is the same. Rows are
kept as one Parquet file per folder in the cache (``environments.cache_folder``), which can be deleted at any time.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import backend, environments, judge, record, results
from harness.analysis import statistics, traffic
from harness.record import Found

if TYPE_CHECKING:
    import pandas

ALONE = 100  # so many records are read faster than processes are started
TOGETHER = 25  # records that a process reads between two reports of progress


def rows(root: Path, told: Callable[[int, int], None] = lambda done, of: None) -> pandas.DataFrame:
    """One row for each record at or below ``root``, with the columns of ``results.COLUMNS``, sorted by file.

    ``told`` hears how many of the records that are new or have changed are read. Raises InvalidInput for a record that
    cannot be believed, or a ``root`` that does not exist.
    """
    import pandas

    found = sorted(record.search(root), key=lambda one: one.path)
    state = pandas.DataFrame(
        {
            "source": [str(one.path) for one in found],
            "size": [one.size for one in found],
            "mtime_ns": [one.mtime_ns for one in found],
        }
    ).astype({"source": "str"})  # no records: no type to tell from
    kept = _read(root)
    known = set() if kept is None else set(zip(kept["source"], kept["size"], kept["mtime_ns"], strict=True))
    new = [one for one in found if (str(one.path), one.size, one.mtime_ns) not in known]
    if new or kept is None or len(kept) != len(found):
        fresh = frame(_made(new, told))
        together = fresh if kept is None else pandas.concat([kept[fresh.columns], fresh], ignore_index=True)
        together = together.drop_duplicates("source", keep="last")
        kept = state.merge(together, on="source", how="left", validate="one_to_one")
        _write(root, kept)
    return kept[list(results.COLUMNS)]


def frame(made: Sequence[dict[str, Any]]) -> pandas.DataFrame:
    """Rows as a DataFrame; what a row lacks is "", 0, NaN or an empty list, by its column."""
    import pandas

    empty = {str: "", int: 0, float: float("nan"), list: ()}
    columns = {
        name: [empty[kind] if (value := row.get(name)) is None else value for row in made]
        for name, kind in results.COLUMNS.items()
    }
    types = {str: "str", int: "int64", float: "float64", list: "object"}
    return pandas.DataFrame(columns).astype({name: types[kind] for name, kind in results.COLUMNS.items()})


def _made(new: Sequence[Found], told: Callable[[int, int], None]) -> list[dict[str, Any]]:
    """The rows of records, in their order; many records are read by all the cores there are."""
    paths = [one.path for one in new]
    parts = [paths[start : start + TOGETHER] for start in range(0, len(paths), TOGETHER)]
    made: list[dict[str, Any]] = []
    for part in _each(parts) if len(paths) > ALONE else map(_rows, parts):
        made += part
        told(len(made), len(paths))
    return made


def _each(parts: list[list[Path]]) -> Iterator[list[dict[str, Any]]]:
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        try:
            yield from pool.map(_rows, parts)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _rows(paths: list[Path]) -> list[dict[str, Any]]:
    return [results.row(record.read(path), path) for path in paths]


# --- the file they are kept in --------------------------------------------------------------------


def _file(root: Path) -> Path:
    name = hashlib.sha256(f"{_code()} {root} {root.resolve()}".encode()).hexdigest()[:24]
    return environments.cache_folder() / "index" / f"{name}.parquet"


@cache
def _code() -> str:
    """What makes a row out of a file: rows that other code made are not used."""
    modules = (backend, judge, record, results, statistics, traffic)
    return hashlib.sha256(b"".join(Path(str(module.__file__)).read_bytes() for module in modules)).hexdigest()


def _read(root: Path) -> pandas.DataFrame | None:
    file = _file(root)
    if not file.exists():
        return None
    import pandas

    try:
        return pandas.read_parquet(file)
    except (OSError, ValueError):  # unreadable or damaged: it can be made again
        return None


def _write(root: Path, kept: pandas.DataFrame) -> None:
    """Keep rows for the next command. A cache that cannot be written costs time, nothing else."""
    file = _file(root)
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=file.parent)
        os.close(descriptor)
        try:
            kept.to_parquet(temporary, index=False)
            Path(temporary).replace(file)
        finally:
            Path(temporary).unlink(missing_ok=True)
