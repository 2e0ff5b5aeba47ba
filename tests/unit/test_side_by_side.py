"""How tests are run: which share a process, what becomes in CI of those that it cannot run, and of limits in seconds."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT

Tiny = Callable[..., tuple[int, str]]


TINY = """
import pytest

def test_passes(): ...

@pytest.mark.skip(reason="no such thing here")
def test_is_skipped(): ...

@pytest.mark.xfail(reason="a known defect", strict=True)
def test_is_known_to_fail(): assert False

def test_is_slow(clock):
    clock("counting", 2.0, 1.0)
    clock("adding", 0.5, 1.0)
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    """Run pytest with the options and hooks of these tests on some tiny ones; its exit code and output."""
    (tmp_path / "test_tiny.py").write_text(TINY)
    (tmp_path / "test_module.py").write_text("import pytest\npytest.importorskip('no_such_module')\n")
    environ = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    environ["PYTHONPATH"] = str(ROOT)

    def run(*options: str) -> tuple[int, str]:
        argv = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-ra", *options]
        done = subprocess.run(argv, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    return run


def test_what_would_begin_too_late_is_not_run_and_fails(tiny: Tiny) -> None:
    """CI ends after 90 minutes; what it had no time for must be seen, not counted as passed."""
    code, output = tiny("--until", "1", "-n", "2")
    assert code == 1
    assert "ERROR test_tiny.py::test_passes - Failed: NOT RUN: the time of --until was over" in output
    assert " passed" not in output
    code, output = tiny("--until", "1e12")
    assert code == 0 and "2 passed, 2 skipped, 1 xfailed" in output and "NOT RUN" not in output


@pytest.mark.parametrize("processes", ["0", "2"])
def test_what_is_skipped_fails_where_nothing_may_be_skipped(tiny: Tiny, processes: str) -> None:
    code, output = tiny("--no-skip", "-n", processes, "--continue-on-collection-errors")
    assert code == 1
    assert "NOT RUN: Skipped: no such thing here" in output
    assert "NOT RUN: Skipped: could not import 'no_such_module'" in output
    counted = output.splitlines()[-1]
    assert all(count in counted for count in ("2 passed", "1 xfailed", "2 errors")) and "skipped" not in counted


def test_a_limit_in_seconds_that_is_exceeded_is_reported_and_fails_nothing(tiny: Tiny) -> None:
    code, output = tiny("-m", "clock", "-n", "2")
    assert code == 0
    assert "clock: counting took 2 s, limit 1 s (test_tiny.py::test_is_slow)\nclock: 1 of 2 limits exceeded" in output
    assert "1 passed" in output


def test_ci_lets_nothing_be_skipped_and_begins_nothing_too_late() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert re.search(r"^export PYTEST_ADDOPTS=.*--no-skip.*--until", script, re.MULTILINE)


def test_every_test_is_run_by_one_line_of_the_makefile() -> None:
    """Whatever marks it has; those that are exhaustive only by ``make test-all``."""
    makefile = (ROOT / "Makefile").read_text()
    choice = re.findall(r"^CHOICE +:= (.+)$", makefile, re.MULTILINE)[0]
    lines = re.findall(r"^\t\$\((?:SIDE_BY_SIDE|ONE_BY_ONE)\) -m \"?([^\"\n]+)", makefile, re.MULTILINE)
    selections = [line.replace("$(CHOICE)", choice) for line in lines]
    marks = ("slow", "alone", "clock", "exhaustive")
    for chosen in itertools.product([True, False], repeat=len(marks)):
        having = dict(zip(marks, chosen, strict=True))
        running = [line for line in selections if eval(line, {}, having)]
        assert len(running) == 1, having
