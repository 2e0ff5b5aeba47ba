"""One isolated Python environment per backend: named by its content, built once with venv and pip, checked by import.

Environments live outside the checkout, in ``cache_folder()``. A name holds a hash of all that decides the content: a
changed pin gives a new environment, equal pins share one. It is ready only once ``complete.json`` is in it, which is
written last: what a killed pip leaves behind is never mistaken for it.
"""

import hashlib
import inspect
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from harness.errors import InvalidInput
from harness.files import at_home

RECIPE = 1  # raise it when the same pins are built differently, so that old environments are not reused
ONLY = re.compile(r"(?P<pin>.*?)\s*;\s*platform_machine == \"(?P<machine>\w+)\"")  # a pin for machines of one kind
PIN = re.compile(r"(?P<name>[\w.-]+)(\[[\w,-]+\])?===?(?P<version>[\w.+!]+)")

Variant = Literal["cpu", "cuda", "openmpi"]  # openmpi: for CPUs, with packages compiled against Open MPI


class Run(Protocol):
    """Runs a command of a build with ``env`` added, its output to the log. Raises RunFailed; Ctrl-C ends its processes."""

    def __call__(self, *argv: str | Path, env: Mapping[str, str] | None = None) -> None: ...


@dataclass(frozen=True)
class EnvironmentSpec:
    """The requirements of a backend."""

    backend: str
    variant: Variant
    requirements: Path  # pins of all packages, also the indirect ones
    imports: tuple[str, ...]  # modules that must import; the first one, if there is any, names the environment
    python: str | None = None  # a minor version such as "3.9"; by default the controller's Python
    # Compiles what pip alone cannot, in the environment's folder; may return a remark for people. The source of its module
    # is part of the environment's key.
    post_build: Callable[[Path, Run], str | None] | None = None
    tools: tuple[str, ...] = ()  # programs that this takes and that no wheel brings, such as "g++"
    framework: str | None = None  # where a backend has an environment for each of several
    sources: tuple[Path, ...] = ()  # files that ``post_build`` compiles; their text is part of the key, too


class EnvironmentProblem(InvalidInput):
    """An environment cannot be located, built or used; the message is one line that says what to do."""


def cache_folder() -> Path:
    """The folder of caches: ``$HARNESS_CACHE``, else ``$XDG_CACHE_HOME/harness``, else ``~/.cache/harness``."""
    if chosen := os.environ.get("HARNESS_CACHE"):
        return at_home(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "harness"


def path(spec: EnvironmentSpec) -> Path:
    """The folder where the environment is or will be. Raises EnvironmentProblem if a file that decides it is unreadable."""
    name = spec.imports[0].replace(".", "-") if spec.imports else spec.backend
    return cache_folder() / "environments" / f"{name}-{spec.variant}-{key(spec)[:12]}"


def python(spec: EnvironmentSpec) -> Path:
    """The environment's Python, which exists once it is built."""
    return path(spec) / "bin" / "python"


def status(spec: EnvironmentSpec) -> Literal["ready", "missing", "partial", "broken"]:
    """Tell whether the environment can be used, from its files alone (milliseconds; ``check`` imports).

    "partial" is being built or was left by a build that died; "broken" was complete, but its Python is gone.
    """
    try:
        folder = path(spec)
    except EnvironmentProblem:
        return "missing"
    if not (folder / "complete.json").is_file():
        return "partial" if folder.is_dir() else "missing"
    return "ready" if os.access(folder / "bin" / "python", os.X_OK) else "broken"


def require(spec: EnvironmentSpec) -> Path:
    """The Python of a ready environment. Raises EnvironmentProblem, which names the command that builds it."""
    state = status(spec)
    if state == "ready":
        return python(spec)
    problem = {"missing": "is not built", "partial": "is half built", "broken": "no longer works"}[state]
    owner = f"{spec.backend} with {spec.framework}" if spec.framework else spec.backend
    raise EnvironmentProblem(f"the environment of {owner} {problem}: run `{build_command(spec)}`")


def require_all(specs: Iterable[EnvironmentSpec]) -> None:
    """Raises EnvironmentProblem if several are not ready, with the commands that build all of them (see ``require``)."""
    lacking = {(spec.variant, spec.backend, spec.framework) for spec in specs if status(spec) != "ready"}
    if len(lacking) < 2:
        return
    commands = []
    for variant in sorted({variant for variant, _, _ in lacking}):
        names = sorted({backend for each, backend, _ in lacking if each == variant})
        commands.append(f"`harness env build {' '.join(names)}{'' if variant == 'cpu' else f' --variant {variant}'}`")
    raise EnvironmentProblem(
        f"several environments are not built: run {' and '.join(commands)}, or name the backends that have theirs"
    )


def build_command(spec: EnvironmentSpec) -> str:
    options = f" --framework {spec.framework}" if spec.framework else ""
    options += "" if spec.variant == "cpu" else f" --variant {spec.variant}"
    return f"harness env build {spec.backend}{options}"


def lacking_tools(spec: EnvironmentSpec) -> list[str]:
    return [tool for tool in spec.tools if not shutil.which(tool)]


def key(spec: EnvironmentSpec) -> str:
    """A hash of everything that decides the content of the environment.

    The minor version of a chosen Python decides, as for wheels: the search for an environment does not need that Python.
    """
    hook = spec.post_build and [spec.post_build.__name__, inspect.getsource(sys.modules[spec.post_build.__module__])]
    version = spec.python or platform.python_version()
    content = [RECIPE, sys.platform, platform.machine(), version, _lines(spec.requirements)]
    content += [[], hook]  # the empty list keeps the keys of environments that are built already
    if spec.sources:  # only then, so that environments without any keep the key that they were built with
        content.append([[source.name, _text(source)] for source in spec.sources])
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def pins(requirements: Path) -> dict[str, str]:
    """The pinned version of every package, by normalised name. Raises EnvironmentProblem for a line without ``==``."""
    versions = {}
    for line in _lines(requirements):
        if not (pin := PIN.fullmatch(line)):
            raise EnvironmentProblem(f"{requirements}: not pinned as name==version: {line}")
        versions[re.sub(r"[-_.]+", "-", pin["name"]).lower()] = pin["version"]
    return versions


def _lines(requirements: Path) -> list[str]:
    """Its pins for machines of this kind."""
    lines = [re.sub(r"(^|\s)#.*", "", line).strip() for line in _text(requirements).splitlines()]
    parted = [(line, ONLY.fullmatch(line)) for line in lines if line]
    return [only["pin"] if only else line for line, only in parted if not only or only["machine"] == platform.machine()]


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise EnvironmentProblem(f"cannot read {file}: {error.strerror}") from error
