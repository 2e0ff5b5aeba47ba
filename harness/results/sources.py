"""All results in one DataFrame: what we measured and what others published, one row per run, with the same columns.

A *source* is where results come from, as a person names it on the command line:

- a ``record.json``, or a folder with records somewhere below it (``kernels.py`` reads those of kernels);
- a CSV file of published measurements (``published.py`` says how it looks);
- ``reference`` for all published measurements that come with harness, ``reference:TEXT`` for those whose system, framework,
  backend, model or source contains TEXT;
- the name of a saved baseline.

Of the records in a source some can be selected, as in ``runs/ @ now-7d:`` (``selection.py``).

A folder of run directories may hold ``system.txt``: its text is added to the name of the system that they were measured on,
where that name does not say it all. Runs on links of another rate, for example, are not comparable.

Rows of the records in a folder are kept between commands, in a Parquet file in the cache (``environments.cache_folder``)
that can be deleted at any time. A row is used again as long as its file has the size and the time it had, and no file of
this package has changed. A change to a record that keeps its size and time is not seen; harness never makes one, as it
writes records whole and anew. A record that cannot be read has no row, and is tried again by every command.
"""

from __future__ import annotations

import gc
import glob
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from harness import environments
from harness.errors import InvalidInput
from harness.files import whole_file
from harness.records.kernel import KernelRecord
from harness.records.measurement import Record
from harness.records.record import SYSTEM, RecordFile, search
from harness.results import baselines, published
from harness.results.rows import COLUMNS, as_backends_say, frame, joined, listed, of_file, with_libraries
from harness.results.selection import Selected, parted

if TYPE_CHECKING:
    import pandas

    from harness.records.record import Status

Of = TypeVar("Of")
Made = TypeVar("Made")
Progress = Callable[[int, int], None]  # is called with how many are done, and of how many
Unreadable = Callable[[str], None]  # is called with "FILE: reason" for a record that cannot be read, or believed

PACKAGE = Path(__file__).parents[1]
ALONE = 1000  # so many records are read faster than processes are started
TOGETHER = 25  # records that a process gets at a time
BATCH = 250  # of those that it only makes rows of
STATES: dict[str, type] = {"source": str, "file_bytes": int, "mtime_ns": int}  # what a row is known by
STATE = list(STATES)
_NO_TEXT = re.compile("[\ud800-\udfff]")  # bytes that the locale has no characters for, which pandas refuses


def silent(done: int, of: int) -> None:
    """Progress that nobody looks at."""


def refuse(reason: str) -> None:
    """What becomes of a record that cannot be read, unless the caller leaves it out."""
    raise InvalidInput(reason)


def load(
    sources: Sequence[str | Path],
    status: Status | None = "completed",
    progress: Progress = silent,
    unreadable: Unreadable = refuse,
    others: bool = False,
    selected: Selected | None = None,
) -> pandas.DataFrame:
    """A DataFrame with the columns of ``COLUMNS`` and one row per run in ``sources``, by start and id.

    By default only runs that have a number; ``status=None`` gives all. ``progress`` is called with how many are read of the
    records that have to be. A record that cannot be read is left out if ``unreadable`` returns, and others can be read, or
    the caller has ``others``, such as those of kernels. A caller that passes ``selected`` checks itself what it has left.
    Raises InvalidInput for a source that does not exist, or whose selection leaves nothing, or a file that is not what it
    should be.
    """
    reasons: list[str] = []
    of_all = selected or Selected()
    frames = of_each(sources, MEASUREMENTS, progress, reasons.append, of_all)
    if reasons and not (others or of_all.outside or any(map(len, frames))):
        more = f"; {len(reasons) - 1:,} more cannot be read either" if len(reasons) > 1 else ""
        raise InvalidInput(f"{reasons[0]}{more}")
    for reason in reasons:
        unreadable(reason)
    if selected is None:
        of_all.check()
    import pandas  # now, so that a source that does not exist is refused at once

    results = pandas.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]
    if status is not None:
        results = results[results["status"] == status]
    # A run that is in two sources, such as a folder and the baseline saved from it, is one run.
    results = results[~((results["origin"] == "measured") & results["id"].duplicated())]
    return with_libraries(results.sort_values(["started", "id"], kind="stable", ignore_index=True))


def of_each(
    sources: Sequence[str | Path], kind: Kind, progress: Progress, unreadable: Unreadable, selected: Selected
) -> list[pandas.DataFrame]:
    """The rows of a kind, as far as they are ``selected``, of each source that can have some.

    A folder is searched once for all kinds, and read once for each.

    Raises InvalidInput as ``load`` does, for a source that does not exist before any is read.
    """
    if not sources:
        raise InvalidInput("no results are named: give files, folders, baselines or reference")
    named = [(str(source), *parted(source)) for source in sources]
    placed = [None if name.partition(":")[0] == "reference" else place(name) for _, name, _ in named]
    frames = []
    for (source, name, selection), path in zip(named, placed, strict=True):
        if path and path.suffix != ".csv":
            if path not in selected.found:
                selected.found[path] = list(search(path, (Record.file_name, KernelRecord.file_name)))
            if (path, kind) not in selected.read:
                selected.read[path, kind] = rows(path, selected.found[path], kind, progress, unreadable)
            frames.append(selected.of(selected.read[path, kind], source, selection))
        elif selection:
            raise InvalidInput(f"'{source}': what was published has no start, tag or site to select it by")
        elif kind is MEASUREMENTS:
            lines = published.read(path) if path else published.select(name.partition(":")[2])
            frames.append(published.frame(lines))
    return frames


def place(source: str) -> Path:
    """The file or folder that a source names. Raises InvalidInput if there is none."""
    path = Path(source)
    try:
        exists = path.exists()
    except OSError as error:  # such as a name that is too long
        raise InvalidInput(f"{source[:60]}…: {error.strerror}") from None
    saved = path if exists else baselines.find(source)
    if saved is None:
        raise InvalidInput(
            f"{source}: no such file or folder, and no baseline of that name (see `harness baseline list`)"
        )
    return saved


# --- rows of records, kept between commands ------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Kind:
    """The records of one kind: what their files are called, and what makes their rows, at least one of each.

    ``make`` is called with the file, and returns why it cannot be read if it cannot. Another process can import it.
    """

    file_name: str
    make: Callable[[str], list[dict[str, Any]] | str]
    columns: Mapping[str, type]

    @property
    def kept(self) -> dict[str, type]:
        """The columns of rows that are kept."""
        return {**self.columns, **STATES}


def rows(
    root: Path, found: Sequence[RecordFile], kind: Kind, progress: Progress, unreadable: Unreadable
) -> pandas.DataFrame:
    """The rows of the records of a ``kind`` among those of any that were ``found`` at or below ``root``, sorted by file.

    They have all columns of the kind. ``progress`` is about the records that are new or have changed. A record that cannot
    be believed is left out if ``unreadable`` returns.
    """
    import pandas

    # A ``root`` that is a file may have any other name than a kernel's; then it is a measurement's.
    of_kernels, end = kind.file_name == KernelRecord.file_name, f"/{KernelRecord.file_name}"
    files = sorted(file for file in found if f"/{file.path}".endswith(end) == of_kernels)
    for record in [record for record in files if _NO_TEXT.search(record.path)]:
        files.remove(record)
        path = record.path.encode(errors="backslashreplace").decode()
        unreadable(f"{path}: its path is no text in this locale; set LC_ALL=C.UTF-8, or rename it")
    state = pandas.DataFrame(files, columns=STATE).astype({"source": "str", "file_bytes": "int64", "mtime_ns": "int64"})
    key = os.fsencode(f"{_code()} {kind.file_name} {root} {root.resolve()}")  # a path may hold any bytes
    name = hashlib.sha256(key).hexdigest()[:24]
    file = environments.cache_folder() / "rows" / f"{name}.parquet"
    try:
        kept = pandas.read_parquet(file).merge(state, on=STATE)  # without those of records that have changed or gone
    except (OSError, ValueError):  # there is none, or it is damaged: it can be made again
        kept = frame([], kind.columns).merge(state.head(0), on="source")
    known = set(kept["source"])
    if new := [record for record in files if record.path not in known]:
        parts, reasons = list[dict[str, list[Any]]](), list[str]()
        alone = len(new) <= ALONE
        size = 1 if alone else BATCH
        batches = [new[first : first + size] for first in range(0, len(new), size)]

        def read(done: int, of: int) -> None:
            progress(min(done * size, len(new)), len(new))

        try:
            for part, unread in each(partial(_batch, kind), batches, read, alone, together=1):
                parts.append(part)
                reasons += unread
        finally:  # what was read before Ctrl-C is not read again
            fresh = joined(parts, kind.kept)
            if len(fresh):
                if len(kept):  # else they are in the order of the files
                    together = pandas.concat([kept, fresh], ignore_index=True)
                    fresh = state.merge(together, on=STATE, validate="one_to_many")
                kept = fresh
                with suppress(OSError):  # a cache that cannot be written costs time, nothing else
                    file.parent.mkdir(parents=True, exist_ok=True)
                    with whole_file(file) as stream:
                        kept.to_parquet(stream, index=False)
        for reason in reasons:
            unreadable(reason)
    return as_backends_say(as_folders_say(kept))[list(kind.columns)]


def as_folders_say(kept: pandas.DataFrame) -> pandas.DataFrame:
    """``kept`` with what ``SYSTEM``, in the folder of run directories, adds to the name of the system of their runs."""
    folders = kept["source"].map(lambda source: os.path.dirname(os.path.dirname(source)))  # noqa: PTH120 (Paths are slow)
    files = {folder: Path(folder) / SYSTEM for folder in folders.unique()}
    added = {folder: f", {file.read_text().strip()}" for folder, file in files.items() if file.is_file()}
    return kept.assign(system=kept["system"] + folders.map(lambda folder: added.get(folder, ""))) if added else kept


@cache
def _code() -> str:
    """All of this package's code: a list of the files that rows depend on would be wrong sooner or later."""
    files = sorted(glob.glob(f"{PACKAGE}/**/*.py", recursive=True))  # noqa: PTH207 (a Path's does not follow links)
    return hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()


def each(
    make: Callable[[Of], Made],
    those: Sequence[Of],
    progress: Progress = silent,
    alone: bool | None = None,
    together: int = TOGETHER,
) -> Iterator[Made]:
    """``make`` of each of ``those``, in their order; unless ``alone``, they are shared out among all the cores there are.

    By default they are paths of records, and a few are made ``alone``. Another process can import ``make``.
    """
    if len(those) <= ALONE if alone is None else alone:
        for done, one in enumerate(those, start=1):
            yield make(one)
            progress(done, len(those))
        return
    # What is there already is not looked through for garbage again and again.
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), initializer=gc.freeze) as pool:
        try:
            for done, result in enumerate(pool.map(make, those, chunksize=together), start=1):
                yield result
                progress(done, len(those))
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _batch(kind: Kind, files: Sequence[RecordFile]) -> tuple[dict[str, list[Any]], list[str]]:
    """The rows of records, a list for each column, and why others of them cannot be read."""
    made, unread = list[dict[str, Any]](), list[str]()
    for file in files:
        rows_of_file = kind.make(file.path)
        if isinstance(rows_of_file, str):
            unread.append(rows_of_file)
        else:
            state = dict(zip(STATE, file, strict=True))
            made += [each_row | state for each_row in rows_of_file]
    return listed(made, kind.kept), unread


def _row(path: str) -> list[dict[str, Any]] | str:
    """The row of a record, or why it cannot be read."""
    try:
        return [of_file(path)]
    except InvalidInput as error:
        return str(error)


MEASUREMENTS = Kind(Record.file_name, _row, COLUMNS)
