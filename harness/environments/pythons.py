"""The Pythons of this machine: those that environments are made from, and that of an environment somebody provides."""

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.environments import EnvironmentProblem, EnvironmentSpec, build_command, lacking_tools, status
from harness.files import at_home


@dataclass(frozen=True)
class BasePython:
    """A Python to make environments from."""

    python: Path
    version: str


def lacking(spec: EnvironmentSpec) -> list[str]:
    """The things that this machine lacks for the environment, in words; nothing when it is ready."""
    state = status(spec)
    if state == "ready":
        return []
    lacks = lacking_tools(spec)
    if spec.python and not _first(spec.python):
        lacks.append(f"Python {spec.python} to build with")
    half = {"missing": "", "partial": ", which is half built", "broken": ", which no longer works"}[state]
    return [*lacks, f"its environment{half} (`{build_command(spec)}`)"]


def find_python(version: str) -> BasePython:
    """A Python of a minor version ("3.9"): on PATH, or one of pyenv's or uv's. Raises EnvironmentProblem."""
    if base := _first(version):
        return base
    tried = "".join(f"; {candidate} is there, but does not run as it" for candidate in _candidates(version))
    raise EnvironmentProblem(
        f"Python {version} was not found: no python{version} on PATH, none in {_pyenv()} or {_uv()}{tried}: "
        f"install it (`uv python install {version}` or a package), load a module of this site, or put the folder of one, "
        "such as conda's, on PATH"
    )


def _first(version: str) -> BasePython | None:
    """The first Python that runs as this version: pyenv's shims are on PATH for every version, and run for one."""
    for candidate in _candidates(version):
        if (full := _version(candidate, alone=True)) and f"{full}.".startswith(f"{version}."):
            return BasePython(candidate, full)
    return None


def _candidates(version: str) -> list[Path]:
    """The places of a Python of this version, in order: those that a person put on PATH come before known folders."""

    def numbers(program: Path) -> list[int]:
        """The version of a Python, as the name of its prefix has it."""
        return [int(number) for number in re.findall(r"\d+", program.parts[-3])]

    programs = [
        *(Path(folder).absolute() / f"python{version}" for folder in os.get_exec_path()),
        *sorted(_pyenv().glob(f"{version}.*/bin/python{version}"), key=numbers, reverse=True),
        *sorted(_uv().glob(f"cpython-{version}.*/bin/python{version}"), key=numbers, reverse=True),
    ]
    return [program for program in programs if os.access(program, os.X_OK)]


def _pyenv() -> Path:
    """The folder of the Pythons that pyenv installed."""
    return Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"


def _uv() -> Path:
    """The folder of the Pythons that uv installed."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or data / "uv" / "python")


def at(where: Path, spec: EnvironmentSpec) -> Path:
    """The Python of a provided environment: a prefix, a Python, or its name on PATH. Raises EnvironmentProblem."""
    where = at_home(where)
    if not where.exists() and (on_path := shutil.which(str(where))):
        where = Path(on_path)
    candidates = [where] if where.is_file() else [where / "bin" / name for name in ("python", "python3")]
    # absolute, not resolved: a virtual environment is known by the path of its link to the real Python
    for candidate in map(Path.absolute, candidates):
        if _version(candidate, alone=False):
            return candidate
    raise EnvironmentProblem(
        f"no Python that runs for {spec.backend} at {where}: give a venv, a conda prefix or a python"
    )


def lacks(python: Sequence[str], modules: Iterable[str], environ: Mapping[str, str]) -> list[str]:
    """The top-level ``modules`` that a Python (a command) does not find. Importing them would take many seconds."""
    code = "import sys; from importlib.util import find_spec; print(*(n for n in sys.argv[1:] if find_spec(n) is None))"
    try:
        # In a neutral folder, as `-c` looks in the current one first.
        answer = subprocess.run(
            [*python, "-c", code, *modules], env=environ, cwd="/", capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return answer.stdout.split() if answer.returncode == 0 else []


@functools.cache  # a shim of pyenv takes 0.2 s, and a list of backends asks for each kind of device
def _version(interpreter: Path, alone: bool) -> str | None:
    """The version of a Python 3; ``alone``: as a build runs it, without the PYTHONHOME of a module for another one."""
    code = "import platform; print(platform.python_version())"
    environ = isolated() if alone else None
    try:
        answer = subprocess.run([interpreter, "-c", code], env=environ, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 and answer.stdout.startswith("3.") else None


def isolated() -> dict[str, str]:
    """The environment variables without what adds packages to Python's path, which pip would take for installed."""
    added = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in added} | {"PYTHONNOUSERSITE": "1"}
