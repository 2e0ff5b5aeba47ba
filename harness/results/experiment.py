"""What the analysis of an experiment comes to, and the files that it is written into (docs/experiments.md)."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from harness.errors import writing
from harness.files import write_atomically

Answer = Literal["yes", "no", "cannot say"]


class Finding(NamedTuple):
    """The answer to a question. ``because`` is for people; ``figures`` are what it rests on, for scripts."""

    name: str
    question: str
    answer: Answer
    because: str
    figures: dict[str, float]


def write(folder: Path, page: str, points: str, data: Mapping[str, Any]) -> None:
    """Write the page, its points as CSV and its data into ``folder``. Raises InvalidInput if that cannot be written."""
    files = {"index.md": page, "points.csv": points, "analysis.json": json.dumps(data, indent=1) + "\n"}
    with writing(folder):
        for name, text in files.items():
            write_atomically(folder / name, text)
