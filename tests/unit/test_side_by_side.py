"""Tests that run side by side (``make test``): those that share fixtures run in one process."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.conftest import ROOT, group


def test_two_faults_of_one_file_run_in_two_processes() -> None:
    """Where tests are dealt out is inside pytest-xdist: should ``group`` not be asked any more, nothing else would tell."""
    of_one_file = ["test_cuda_without_a_gpu_is_refused", "test_a_busy_port_is_refused_by_its_number"]
    tests = [f"tests/faults/test_bad_input.py::{name}" for name in of_one_file]
    options = ["-n", "2", "-v", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert sorted(re.findall(r"^\[(gw\d)\].* PASSED ", done.stdout, re.MULTILINE)) == ["gw0", "gw1"]


def test_users_of_the_virtual_cluster_share_a_process_as_does_every_other_file() -> None:
    assert group("tests/cluster/test_ssh.py::test_a") == group("tests/cluster/test_runs.py::test_b[1-2]")
    assert group("tests/unit/test_cli.py::test_a") == group("tests/unit/test_cli.py::test_b")
    assert group("tests/unit/test_cli.py::test_a") != group("tests/parity/test_models.py::test_a")


def test_what_would_begin_too_late_is_not_run_and_listed() -> None:
    """CI ends after 90 minutes; what it had no time for must be seen, not counted as passed."""
    test = "tests/unit/test_statistics.py"
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test]
    late = subprocess.run([*argv, "--until", "1"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert late.returncode == 0
    assert "NOT RUN: the time of --until was over" in late.stdout
    assert " passed" not in late.stdout
    early = subprocess.run([*argv, "--until", "1e12"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert " passed" in early.stdout and "NOT RUN" not in early.stdout
