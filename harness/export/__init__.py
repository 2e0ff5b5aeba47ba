"""Results in the formats of other tools.

An exporter is a function that writes results to a binary stream::

    def write(export: Export, stream: IO[bytes]) -> None

It raises InvalidInput, with one line, for what its format has no words for. A package announces its exporters as entry
points of the group ``harness.exporters``; `harness export` then has a format of that name. harness announces MLPerf's
itself; tables are always there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import IO, TYPE_CHECKING

from harness import results
from harness.core.text import listed
from harness.errors import InvalidInput, error_in_one_line
from harness.results import kernels
from harness.results.sources import Progress, Unreadable, refuse, silent

if TYPE_CHECKING:
    import pandas

    from harness.records.record import Status

GROUP = "harness.exporters"
TABLES = ("csv", "json", "parquet")


@dataclass(frozen=True)
class Export:
    """What is to be written: at least one result, with the ``columns`` of ``results.COLUMNS``, or of kernels.

    ``file`` is None where it is printed. An exporter that takes long calls ``progress`` with how many results are done, and
    of how many.
    """

    results: pandas.DataFrame
    file: Path | None = None
    progress: Progress = silent
    columns: Mapping[str, type] = field(default_factory=lambda: results.COLUMNS)

    def record_files(self, name: str) -> list[str]:
        """The records of the results. Raises InvalidInput for published ones, of which format ``name`` has no records."""
        published = self.results[self.results["origin"] == "published"]
        if len(published):
            raise InvalidInput(
                f"--format {name}: is for records of runs; {published['source'].iloc[0]!r} is published "
                "(csv, parquet and json take those too)"
            )
        return list(self.results["source"])


def names() -> list[str]:
    return sorted(_announced())


def chosen(name: str | None, file: Path | None) -> str:
    """The format that was asked for, else the one that the file's suffix names. Raises InvalidInput."""
    if name:
        return name
    known, suffix = ", ".join(names()), file.suffix.lower().removeprefix(".") if file else ""
    if file is None:
        raise InvalidInput(f"--format is required without --output; one of {known}")
    if suffix not in names():
        raise InvalidInput(f"--output {file}: --format is required, as the suffix names none of {known}")
    return suffix


def write(
    sources: Sequence[str],
    name: str,
    stream: IO[bytes],
    status: Status | None = "completed",
    file: Path | None = None,
    progress: Progress = silent,
    unreadable: Unreadable = refuse,
    of_kernels: bool = False,
) -> int:
    """Write the results in ``sources`` in format ``name``, and return how many there are.

    Those ``of_kernels`` are written in place of img/s, by what writes tables. Raises InvalidInput as ``results.load`` and
    exporters do, if there are none, and for an exporter that does not load.
    """
    if of_kernels and name not in TABLES:
        raise InvalidInput(f"--format {name}: is not for kernels; {listed(TABLES)} are")
    try:
        export: Callable[[Export, IO[bytes]], None] = _announced()[name].load()
    except Exception as error:  # whatever somebody else's module does when it is imported
        raise InvalidInput(f"--format {name}: does not load: {error_in_one_line(error)}") from None
    if of_kernels:
        every, columns = kernels.load(sources, progress, unreadable), kernels.COLUMNS
        frame = every if status is None else every[every["status"] == status]
    else:
        frame, columns = results.load(sources, status, progress, unreadable), results.COLUMNS
    if frame.empty:
        which = "kernels" if of_kernels else "results"
        which += "" if status is None else " that have a number (--all takes those without)"
        if not of_kernels and len(kernels.load(sources, unreadable=unreadable)):
            which += "; --kernels exports the kernels"
        raise InvalidInput(f"{' '.join(sources)}: no {which}")
    export(Export(frame, file, progress, columns), stream)
    return len(frame)


def _announced() -> dict[str, EntryPoint]:
    tables = [EntryPoint(name, f"harness.export.tabular:{name}", GROUP) for name in TABLES]
    return {point.name: point for point in [*entry_points(group=GROUP), *tables]}
