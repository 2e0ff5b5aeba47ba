"""The environments of the cache: where each is, by the key of its content, whether it can be used, and what it lacks."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import platform
import re
import shutil
import sys
from pathlib import Path
from typing import Literal

from harness.environments import pythons
from harness.environments.spec import EnvironmentMissing, EnvironmentProblem, EnvironmentSpec

RECIPE = 1  # raise it when the same pins are built differently, so that old environments are not reused
PIN = re.compile(r"(?P<name>[\w.-]+)(\[[\w,-]+\])?==(?P<version>[\w.+!]+)")


def cache_folder() -> Path:
    """What can be made again: ``$HARNESS_CACHE``, else ``$XDG_CACHE_HOME/harness``, else ``~/.cache/harness``."""
    if chosen := os.environ.get("HARNESS_CACHE"):
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "harness"


def path(spec: EnvironmentSpec) -> Path:
    """The folder where the environment is or will be. Raises EnvironmentProblem if a file that decides it is unreadable."""
    return cache_folder() / "environments" / f"{spec.imports[0].replace('.', '-')}-{spec.variant}-{key(spec)[:12]}"


def python(spec: EnvironmentSpec) -> Path:
    """The environment's Python, which exists once it is built."""
    return path(spec) / "bin" / "python"


def marker(folder: Path) -> Path:
    """The file that makes an environment complete."""
    return folder / "complete.json"


def status(spec: EnvironmentSpec) -> Literal["ready", "missing", "partial", "broken"]:
    """Whether the environment can be used, from its files alone (milliseconds; ``check`` imports).

    "partial" is being built or was left by a build that died; "broken" was complete, but its marker is unreadable
    or its Python is gone, for instance because the one it was made from was removed.
    """
    try:
        folder = path(spec)
    except EnvironmentProblem:
        return "missing"
    if not folder.is_dir():
        return "missing"
    try:
        complete = json.loads(marker(folder).read_text(encoding="utf-8"))["key"] == key(spec)
    except FileNotFoundError:
        return "partial"
    except (OSError, ValueError, KeyError, TypeError):
        return "broken"
    return "ready" if complete and os.access(python(spec), os.X_OK) else "broken"


def require(spec: EnvironmentSpec) -> Path:
    """The Python of a ready environment. Raises EnvironmentMissing, which names the command that builds it."""
    state = status(spec)
    if state == "ready":
        return python(spec)
    what = {"missing": "is not built", "partial": "is half built", "broken": "no longer works"}[state]
    whose = f"{spec.backend} with {spec.framework}" if spec.framework else spec.backend
    raise EnvironmentMissing(f"the environment of {whose} {what}: run `{build_command(spec)}`")


def build_command(spec: EnvironmentSpec) -> str:
    """What a person types to build the environment."""
    options = f" --framework {spec.framework}" if spec.framework else ""
    options += "" if spec.variant == "cpu" else f" --variant {spec.variant}"
    return f"harness env build {spec.backend}{options}"


def lacking(spec: EnvironmentSpec) -> list[str]:
    """What stands between this machine and the environment, in words; nothing when it is ready."""
    state = status(spec)
    if state == "ready":
        return []
    lacks = lacking_tools(spec)
    if spec.python and not pythons.first_that_runs(spec.python):
        lacks.append(f"Python {spec.python} to build with")
    half = {"missing": "", "partial": ", which is half built", "broken": ", which no longer works"}[state]
    return [*lacks, f"its environment{half} (`{build_command(spec)}`)"]


def lacking_tools(spec: EnvironmentSpec) -> list[str]:
    """The programs that building the environment takes and that are not on PATH."""
    return [tool for tool in spec.tools if not shutil.which(tool)]


def key(spec: EnvironmentSpec) -> str:
    """A hash of everything that decides what is in the environment.

    Of a wanted Python the minor version decides, as wheels do: to look for an environment does not take that Python.
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
    lines = _text(requirements).splitlines()
    return [stripped for line in lines if (stripped := re.sub(r"(^|\s)#.*", "", line).strip())]


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise EnvironmentProblem(f"cannot read {file}: {error.strerror}") from error
