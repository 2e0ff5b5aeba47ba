"""Caffe2's environment, as far as that takes no compiler. The tests of the backend build and use it."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.backends.caffe2 import build
from harness.environments import EnvironmentProblem
from tests.wording import Wording


def run_nothing(*argv: str | Path, env: Mapping[str, str] | None = None) -> None:
    raise AssertionError(f"runs {argv}")


def test_without_a_compiler_nothing_is_downloaded_and_people_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert "no C++ compiler" in (build.operators_cpu(tmp_path, run_nothing) or "")
    assert not list(tmp_path.iterdir())


def test_compiler_that_is_asked_for_and_not_there_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    monkeypatch.setenv("CXX", "clang++-99 -m64")
    with wording("clang++-99").raises(EnvironmentProblem):
        build.operators_cpu(tmp_path, run_nothing)
