"""Results in the formats of other tools.

An exporter is a function that writes results to a binary stream::

    def write(export: Export, stream: IO[bytes]) -> None

It raises InvalidInput, with one line, for what its format has no words for. A package announces its exporters as entry
points of the group ``harness.exporters``; `harness export` then has a format of that name. Tables are always there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import IO, TYPE_CHECKING

from harness.core.text import listed
from harness.errors import InvalidInput, error_in_one_line
from harness.results.result import Result
from harness.results.sources import Progress, Unreadable, kernels, load, refuse, silent, trainings

if TYPE_CHECKING:
    from harness.records.record import Status

GROUP = "harness.exporters"
TABLES = ("csv", "json", "parquet")


@dataclass(frozen=True)
class Export:
    """What is to be written: at least one result, all trainings and published ones, or all kernels.

    ``file`` is None where it is printed.
    """

    results: Sequence[Result]
    file: Path | None = None


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

    Those ``of_kernels`` are written in place of img/s, by what writes tables. Raises InvalidInput as ``load`` and
    exporters do, if there are none, and for an exporter that does not load.
    """
    if of_kernels and name not in TABLES:
        raise InvalidInput(f"--format {name}: is not for kernels; {listed(TABLES)} are")
    try:
        export: Callable[[Export, IO[bytes]], None] = _announced()[name].load()
    except Exception as error:  # whatever somebody else's module does when it is imported
        raise InvalidInput(f"--format {name}: does not load: {error_in_one_line(error)}") from None
    every = load(sources, progress, unreadable)
    of_kind = kernels(every) if of_kernels else trainings(every)
    results = [result for result in of_kind if status in (None, result.status)]
    if not results:
        which = "kernels" if of_kernels else "results"
        which += "" if status is None else " that have a number (--all takes those without)"
        if not of_kernels and kernels(every):
            which += "; --kernels exports the kernels"
        raise InvalidInput(f"{' '.join(sources)}: no {which}")
    export(Export(results, file), stream)
    return len(results)


def _announced() -> dict[str, EntryPoint]:
    tables = [EntryPoint(name, f"harness.export.tabular:{name}", GROUP) for name in TABLES]
    return {point.name: point for point in [*entry_points(group=GROUP), *tables]}
