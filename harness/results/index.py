"""Rows of the records in a folder, kept between commands, because reading a record means judging it again.

A row is used again as long as its file has the size and the time it had, and the code that makes rows is the same: a change
that leaves both as they were is not seen. harness never makes one, as it writes records whole and anew. Rows are kept as
one Parquet file per folder in the cache (``environments.cache_folder``), which can be deleted at any time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from harness import environments
from harness.analysis import traffic
from harness.core import backend, statistics
from harness.files import whole_file
from harness.records import checks, measurement
from harness.results import rows as results

if TYPE_CHECKING:
    import pandas

Made = TypeVar("Made")

ALONE = 100  # so many records are read faster than processes are started
STATE = ["source", "size", "mtime_ns"]  # what a row is known by
TOGETHER = 25  # records that a process reads between two reports of progress


def rows(root: Path, told: Callable[[int, int], None] = lambda done, of: None) -> pandas.DataFrame:
    """One row for each record at or below ``root``, with the columns of ``results.COLUMNS``, sorted by file.

    ``told`` hears how many of the records that are new or have changed are read. Raises InvalidInput for a record that
    cannot be believed, or a ``root`` that does not exist.
    """
    import pandas

    found = sorted(measurement.search(root))
    state = pandas.DataFrame(
        {
            "source": [one.path for one in found],
            "size": [one.size for one in found],
            "mtime_ns": [one.mtime_ns for one in found],
        }
    ).astype({"source": "str", "size": "int64", "mtime_ns": "int64"})  # also if there are none
    kept = _read(root)
    if kept is not None:
        kept = kept.merge(state, on=STATE)  # without those of records that have changed or gone
        if len(kept) == len(state):
            return kept[list(results.COLUMNS)]
    known = set() if kept is None else set(kept["source"])
    made: list[dict[str, Any]] = []
    try:
        for row in each(_row, [Path(one.path) for one in found if one.path not in known], told):
            made.append(row)
    finally:  # what was read before a record that cannot be, or before Ctrl-C, is not read again
        fresh = frame(made).merge(state, on="source", validate="one_to_one")
        together = fresh if kept is None else pandas.concat([kept, fresh], ignore_index=True)
        together = state.merge(together, on=STATE, validate="one_to_one")  # in the order of the files
        _write(root, together)
    return together[list(results.COLUMNS)]


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


def each(
    make: Callable[[Path], Made], paths: Sequence[Path], told: Callable[[int, int], None] = lambda done, of: None
) -> Iterator[Made]:
    """``make`` of each of ``paths``, in their order; many are shared out among all the cores there are.

    ``make`` is a function that another process can import. ``told`` hears how many are done.
    """
    parts = [paths[start : start + TOGETHER] for start in range(0, len(paths), TOGETHER)]
    work = partial(_of_part, make)
    done = 0
    for part in _shared_out(work, parts) if len(paths) > ALONE else map(work, parts):
        yield from part
        done += len(part)
        told(done, len(paths))


def _shared_out(work: Callable[[Sequence[Path]], list[Made]], parts: list[Sequence[Path]]) -> Iterator[list[Made]]:
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        try:
            yield from pool.map(work, parts)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _of_part(make: Callable[[Path], Made], paths: Sequence[Path]) -> list[Made]:
    return [make(path) for path in paths]


def _row(path: Path) -> dict[str, Any]:
    return results.row(measurement.read(path), path)


# --- the file they are kept in --------------------------------------------------------------------


def _file(root: Path) -> Path:
    name = hashlib.sha256(f"{_code()} {root} {root.resolve()}".encode()).hexdigest()[:24]
    return environments.cache_folder() / "index" / f"{name}.parquet"


@cache
def _code() -> str:
    """What makes a row out of a file: rows that other code made are not used."""
    modules = (backend, checks, measurement, results, statistics, traffic)
    files = [__file__, *(str(module.__file__) for module in modules)]
    return hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()


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
        with whole_file(file) as stream:
            kept.to_parquet(stream, index=False)
