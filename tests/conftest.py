"""Fixtures shared by all tests: backend environments, and harness as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness import environments
from harness.backend import backend

ROOT = Path(__file__).parent.parent
QUICK = [
    "--model",
    "resnet50",
    "--batch-size",
    "2",
    "--image-size",
    "32",
    "--warmup",
    "1",
    "--steps",
    "3",
    "--repeats",
    "1",
]


@pytest.fixture(scope="session")
def environment() -> Callable[..., Path]:
    """The Python of a backend's CPU environment (of its first framework, unless told), built if need be."""

    def python(name: str, framework: str | None = None) -> Path:
        wanted = backend(name).environments("cpu", framework)[0]
        environments.build(wanted, lambda line: print(line, file=sys.stderr))
        return environments.python(wanted)

    return python


@dataclass(frozen=True)
class Finished:
    """What a command left behind."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    def succeeded(self) -> Finished:
        """Itself, if the command succeeded: for commands whose failure is not what the test is about."""
        assert self.code == 0, f"exit code {self.code}\n{self.stdout}\n{self.stderr}"
        return self


Harness = Callable[..., Finished]


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    """Run ``harness ARGUMENTS`` in an empty folder, as a user does."""
    return partial(run_harness, tmp_path)


def run_harness(folder: Path, *arguments: str, timeout: float = 300, **environ: str) -> Finished:
    """Run ``harness ARGUMENTS`` in ``folder``, with ``environ`` added to this process's variables."""
    done = subprocess.run(
        [sys.executable, "-m", "harness", *arguments],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    return Finished(done.returncode, done.stdout, done.stderr)
