"""How much commands compute with 1,000 records, once those are read: about 1 s."""

import math
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.records.measurement import Record
from tests import made
from tests.conftest import ROOT, cpu_s

# What people and scripts call again and again, after `harness`; RUNS stands for the folder with the records, NEW for one
# with a tenth of as many, for a comparison.
COMMANDS = {
    "export csv": ("results", "export", "RUNS", "-o", "out.csv"),
    "export parquet": ("results", "export", "RUNS", "-o", "out.parquet"),
    "list references": ("list", "references"),
    "table": ("table", "RUNS"),
    "best": ("best", "RUNS"),
    "report": ("report", "RUNS", "-o", "out.html"),
    "history": ("history", "RUNS"),
    "compare": ("compare", "RUNS", "NEW"),
    "compare windows": ("compare", "RUNS @ 2026-01-01:2026-01-04", "RUNS @ 2026-01-04:2026-01-07"),
}
TRIES = 3  # at most; one within the limit is enough: a processor that does other things too is slower
# Limits are multiples of what Python takes to start and import pandas, which most commands need: a machine that is slow, or
# busy, is so for both. The report draws, writes 5 MB, and fits the scaling model: a posterior distribution, and an optimum
# from many starts.
LIMITS = dict.fromkeys(COMMANDS, 3.0) | {"report": 5.0}
PANDAS = [sys.executable, "-c", "import pandas"]


SETUPS: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("pytorch", 1, {}),
    ("pytorch", 2, {}),
    ("pytorch", 4, {}),
    ("horovod", 2, {"transport": "gloo"}),
    ("parameter_server", 1, {"ps": 1}),
    ("parameter_server", 2, {"ps": 2}),
    ("parameter_server", 4, {"ps": 3, "sync": "none"}),
)


def many(count: int) -> Iterator[Record]:
    """Records of these in turn, a run every 10 minutes, with 20 throughputs of each."""
    for number in range(count):
        backend, nodes, options = SETUPS[number % len(SETUPS)]
        images = [nodes * (100.0 + number % 20 + repeat / 10) for repeat in range(2)]
        yield made.record(backend, nodes, images, day=number / 144, steps=1, **options)


def taken_s(folder: Path, arguments: tuple[str, ...]) -> float:
    """What `harness ARGUMENTS` computes in ``folder``."""
    named = [re.sub(r"^(RUNS|NEW)\b", lambda name: str(folder / name[0].lower()), argument) for argument in arguments]
    argv = [sys.executable, "-m", "harness", *named]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "HARNESS_CACHE": str(folder / "cache")}
    with (folder / "out.txt").open("w") as out:
        return cpu_s(argv, cwd=folder, env=environ, stdout=out)


@pytest.fixture(scope="module")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a thousand records, and a hundred more."""
    folder = tmp_path_factory.mktemp("thousand")
    made.save(folder / "runs", many(1_000))
    made.save(folder / "new", many(100))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_answers_soon_with_1000_records(thousand: Path, name: str) -> None:
    least = math.inf  # in times of importing pandas
    for _ in range(TRIES):
        least = min(least, taken_s(thousand, COMMANDS[name]) / cpu_s(PANDAS))
        if least < LIMITS[name]:
            break
    print(f"{name}: {least:.2f} times as much as importing pandas")
    assert least < LIMITS[name]
