"""How much commands compute with many results, once those are read: about 1 s with 1,000 records, 5 s with 100,000."""

from __future__ import annotations

import math
import os
import re
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, cpu_s
from tests.unit import many

# What people and scripts call again and again, after `harness`; RUNS stands for the folder with the records, NEW for one
# with a tenth of as many, for a comparison.
COMMANDS = {
    "export csv": ("export", "RUNS", "-o", "out.csv"),
    "export parquet": ("export", "RUNS", "-o", "out.parquet"),
    "list references": ("list", "references"),
    "table": ("table", "RUNS"),
    "tables of 2017": ("table", "RUNS", "--style", "report2017"),
    "verdict": ("verdict", "RUNS"),
    "report": ("report", "RUNS", "-o", "out.html"),
    "history": ("history", "RUNS"),
    "compare": ("regression", "RUNS", "NEW"),
    "compare windows": ("regression", "RUNS @ 2026-01-01:2026-01-04", "RUNS @ 2026-01-04:2026-01-07"),
}
TRIES = 3  # at most; one within the limit is enough: a processor that does other things too is slower
# Limits are multiples of what Python takes to start and import pandas, which most commands need: a machine that is slow, or
# busy, is so for both. The report draws, writes 5 MB, and fits the scaling model: a posterior distribution, and an optimum
# from many starts.
WITH_1000 = {name: 5.0 if name == "report" else 3.0 for name in COMMANDS}
# The report works out the answer as well.
WITH_100000 = dict.fromkeys(COMMANDS, 15.0) | {"report": 20.0}
PANDAS = [sys.executable, "-c", "import pandas"]
FIRST: dict[Path, float] = {}  # what the first reading of a folder computes, in times of that


def taken_s(folder: Path, arguments: tuple[str, ...]) -> float:
    """What `harness ARGUMENTS` computes in ``folder``."""
    named = [re.sub(r"^(RUNS|NEW)\b", lambda name: str(folder / name[0].lower()), argument) for argument in arguments]
    argv = [sys.executable, "-m", "harness", *named]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "HARNESS_CACHE": str(folder / "cache")}
    with (folder / "out.txt").open("w") as out:
        return cpu_s(argv, cwd=folder, env=environ, stdout=out)


def prepared(folder: Path, count: int) -> Path:
    """A folder with ``count`` records that have been read once."""
    many.save(folder / "runs", count)
    many.save(folder / "new", count // 10, prefix="new")
    FIRST[folder] = taken_s(folder, COMMANDS["export csv"]) / cpu_s(PANDAS)
    taken_s(folder, COMMANDS["compare"])  # reads the other folder
    return folder


@pytest.fixture(scope="module")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("thousand"), 1_000)


@pytest.fixture(scope="module")
def hundred_thousand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("hundred-thousand"), 100_000)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_answers_soon_with_1000_records(thousand: Path, name: str) -> None:
    assert least_times_pandas(thousand, name, WITH_1000[name]) < WITH_1000[name]


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_answers_soon_with_100000_records(hundred_thousand: Path, name: str) -> None:
    assert least_times_pandas(hundred_thousand, name, WITH_100000[name]) < WITH_100000[name]


@pytest.mark.exhaustive
@pytest.mark.slow
def test_100000_records_are_read_for_the_first_time_soon(hundred_thousand: Path) -> None:
    print(f"first reading: {FIRST[hundred_thousand]:.1f} times as much as importing pandas")
    assert FIRST[hundred_thousand] < 35


def least_times_pandas(folder: Path, name: str, limit: float) -> float:
    """How many times as much as importing pandas a command computes: the least of some tries, if need be."""
    least = math.inf
    for _ in range(TRIES):
        least = min(least, taken_s(folder, COMMANDS[name]) / cpu_s(PANDAS))
        if least < limit:
            break
    print(f"{name}: {least:.2f} times as much as importing pandas")
    return least
