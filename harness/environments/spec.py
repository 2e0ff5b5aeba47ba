"""What a backend needs beside it, described by its packages, and what can go wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from harness.errors import InvalidInput, RunFailed

Variant = Literal["cpu", "cuda"]


class RunCommand(Protocol):
    """Runs a command of a build, with ``env`` added to the environment variables.

    Its output goes to the log, its failure raises ``BuildFailed``, and Ctrl-C ends all its processes.
    """

    def __call__(self, *argv: str | Path, env: Mapping[str, str] | None = None) -> None: ...


@dataclass(frozen=True)
class EnvironmentSpec:
    """What a backend needs beside it.

    ``requirements`` pins every package, also the indirect ones. ``imports`` must import; the first one names the
    environment. ``python`` is a minor version such as "3.9", by default the controller's Python. ``post_build`` gets the
    environment's folder and compiles what pip alone cannot; it may return a remark for people. The source of its module
    is part of the environment's key, and so is the text of ``sources``, the files that it compiles. ``tools`` are the
    programs that this takes and that no wheel brings, such as "g++". ``framework`` is named where a backend has an
    environment for each of several.
    """

    backend: str
    variant: Variant
    requirements: Path
    imports: tuple[str, ...]
    python: str | None = None
    post_build: Callable[[Path, RunCommand], str | None] | None = None
    tools: tuple[str, ...] = ()
    framework: str | None = None
    sources: tuple[Path, ...] = ()


class EnvironmentProblem(InvalidInput):
    """An environment cannot be located, built or used; the message is one line that says what to do."""


class EnvironmentMissing(EnvironmentProblem):
    """A backend's environment was not built yet, or no longer works."""


class BuildFailed(RunFailed):
    """An environment could not be built."""
