"""All results in one DataFrame: what we measured and what others published, one row per run, with the same columns.

A *source* is where results come from, as a person names it on the command line:

- a ``record.json``, or a folder with records somewhere below it;
- a CSV file of published measurements (``published.py`` says how it looks);
- ``reference`` for all published measurements that come with harness, ``reference:TEXT`` for those whose system, framework,
  backend, model or source contains TEXT;
- the name of a saved baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import InvalidInput
from harness.results import baselines, cache, published

if TYPE_CHECKING:
    import pandas

    from harness.records.record import Status


def load(
    sources: Sequence[str | Path],
    status: Status | None = "completed",
    progress: cache.Progress = lambda done, of: None,
) -> pandas.DataFrame:
    """A DataFrame with the columns of ``COLUMNS`` and one row per run in ``sources``, by start and id.

    By default only runs that have a number; ``status=None`` gives all. ``progress`` is called with how many are read of the
    records that have to be. Raises InvalidInput for a source that does not exist, or a file that is not what it should be.
    """
    frames = [_rows(str(source), progress) for source in sources]
    import pandas  # now, so that a source that does not exist is refused at once

    frame = pandas.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]
    if status is not None:
        frame = frame[frame["status"] == status]
    # A run that is in two sources, such as a folder and the baseline saved from it, is one run.
    frame = frame[~((frame["origin"] == "measured") & frame["id"].duplicated())]
    return frame.sort_values(["started", "id"], kind="stable", ignore_index=True)


def _rows(source: str, progress: cache.Progress) -> pandas.DataFrame:
    kind, _, text = source.partition(":")
    if kind == "reference":
        return published.frame(published.select(text))
    path = place(source)
    if path.suffix == ".csv":
        return published.frame(published.read(path))
    return cache.rows(path, progress)


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
