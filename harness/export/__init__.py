"""Results in the formats of other tools: one small module for each kind of format, all of them write to a binary stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, get_args

from harness import results
from harness.errors import InvalidInput

if TYPE_CHECKING:
    from harness.records.record import Status

Format = Literal["mlperf", "conbench", "csv", "parquet", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)
OF_SUFFIX: dict[str, Format] = {".csv": "csv", ".parquet": "parquet", ".json": "json"}


def chosen(wanted: Format | None, file: Path | None) -> Format:
    """The format that was asked for, else the one that the file's suffix stands for. Raises InvalidInput."""
    if wanted is None and file is None:
        raise InvalidInput(f"--format is required without --output; one of {', '.join(FORMATS)}")
    found = wanted or OF_SUFFIX.get(file.suffix.lower() if file else "")
    if found is None:
        raise InvalidInput(
            f"--output {file}: --format is required, as only {', '.join(OF_SUFFIX)} say which one is meant"
        )
    if found == "parquet" and file is None:
        raise InvalidInput("--format parquet: is not text; give --output FILE")
    return found


def write(
    sources: Sequence[str],
    wanted: Format,
    stream: IO[bytes],
    status: Status | None = "completed",
    repository: str | None = None,
    told: Callable[[int, int], None] = lambda done, of: None,
) -> int:
    """Write the results in ``sources`` to ``stream``, and return how many there are.

    ``repository`` is for Conbench: where the commits in the records are. Raises InvalidInput as ``results.load`` does, and
    for a source that the format has no words for.
    """
    from harness.export import conbench, mlperf, tabular

    if wanted == "conbench":
        repository = conbench.checked_repository(repository)
    frame = results.load(sources, status, told)
    if frame.empty:
        which = "results" if status is None else "results that have a number (--all takes those without)"
        raise InvalidInput(f"{' '.join(sources)}: no {which}")
    if wanted in ("mlperf", "conbench"):
        published = frame[frame["origin"] == "published"]
        if len(published):
            raise InvalidInput(
                f"--format {wanted}: is for records of runs; {published['source'].iloc[0]!r} is published "
                "(csv, parquet and json take those too)"
            )
        paths = [Path(source) for source in frame["source"]]
        if wanted == "mlperf":
            mlperf.write(paths, stream, told)
        else:
            conbench.write(paths, str(repository), stream, told)
    else:
        {"csv": tabular.csv, "parquet": tabular.parquet, "json": tabular.json}[wanted](frame, stream)
    return len(frame)
