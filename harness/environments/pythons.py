"""The Pythons of this machine: those that environments are made from, and that of an environment somebody provides."""

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.environments import EnvironmentProblem, EnvironmentSpec, build_command, lacking_tools, status
from harness.files import at_home


@dataclass(frozen=True)
class BasePython:
    """A Python to make environments from."""

    python: Path
    version: str

    def meets(self, wanted: str) -> bool:
        return f"{self.version}.".startswith(f"{wanted}.")


def lacking(spec: EnvironmentSpec) -> list[str]:
    """What stands between this machine and the environment, in words; nothing when it is ready."""
    state = status(spec)
    if state == "ready":
        return []
    lacks = lacking_tools(spec)
    if spec.python and not _first(spec.python):
        lacks.append(f"Python {spec.python} to build with")
    half = {"missing": "", "partial": ", which is half built", "broken": ", which no longer works"}[state]
    return [*lacks, f"its environment{half} (`{build_command(spec)}`)"]


def find_python(version: str) -> BasePython:
    """A Python of a minor version ("3.9"): on PATH, or one of pyenv's, uv's or conda's. Raises EnvironmentProblem."""
    if base := _first(version):
        return base
    pyenv, uv, conda = _places()
    tried = "".join(f"; {candidate} is there, but does not run as it" for candidate in _candidates(version))
    raise EnvironmentProblem(
        f"Python {version} was not found: no python{version} on PATH, none in {pyenv}, {uv} or the environments of "
        f"{conda}{tried}: install it (`uv python install {version}`, `pyenv install {version}` or a package), "
        f"load a module of this site, or name one with `harness env build BACKEND --python PATH`"
    )


def _first(wanted: str) -> BasePython | None:
    """The first that runs and is of the wanted version: pyenv's shims are on PATH for every version, and run for one."""
    return next((base for base in _running(_candidates(wanted)) if base.meets(wanted)), None)


def _candidates(wanted: str) -> list[Path]:
    """Where a Python of this version may be, in order: what a person put on PATH comes before what is found by folders."""
    pyenv, uv, conda = _places()
    prefixes = conda.read_text(encoding="utf-8", errors="replace").split("\n") if conda.is_file() else []

    def numbers(program: Path) -> list[int]:
        """The version of a Python, as the name of its prefix has it."""
        return [int(number) for number in re.findall(r"\d+", program.parts[-3])]

    programs = [
        *(Path(folder).absolute() / f"python{wanted}" for folder in os.get_exec_path()),
        *sorted(pyenv.glob(f"{wanted}.*/bin/python{wanted}"), key=numbers, reverse=True),
        *sorted(uv.glob(f"cpython-{wanted}.*/bin/python{wanted}"), key=numbers, reverse=True),
        *(Path(prefix) / "bin" / f"python{wanted}" for prefix in prefixes if prefix),
    ]
    return [program for program in programs if os.access(program, os.X_OK)]


def _places() -> tuple[Path, Path, Path]:
    """Where pyenv and uv keep the Pythons that they installed, and where conda notes the prefixes of its environments."""
    home = Path.home()
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    pyenv = Path(os.environ.get("PYENV_ROOT") or home / ".pyenv") / "versions"
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or data / "uv" / "python")
    return pyenv, uv, home / ".conda" / "environments.txt"


def at(where: Path, spec: EnvironmentSpec) -> Path:
    """The Python of a provided environment: a prefix, a Python, or its name on PATH. Raises EnvironmentProblem."""
    if base := next(_running(_candidates_at(where, "python", "python3"), alone=False), None):
        return base.python
    raise EnvironmentProblem(
        f"no Python that runs for {spec.backend} at {where}: give a venv, a conda prefix or a python"
    )


def lacks(python: Path, modules: Iterable[str], environ: Mapping[str, str]) -> list[str]:
    """Those of top-level ``modules`` that a Python does not find. They are not imported, which may take many seconds."""
    code = "import sys; from importlib.util import find_spec; print(*(n for n in sys.argv[1:] if find_spec(n) is None))"
    try:
        # In a neutral folder, as `-c` looks in the current one first.
        answer = subprocess.run(
            [python, "-c", code, *modules], env=environ, cwd="/", capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return answer.stdout.split() if answer.returncode == 0 else []


def given_python(where: Path, specs: Sequence[EnvironmentSpec]) -> BasePython:
    """The Python (or its prefix) that environments shall be made from. Raises EnvironmentProblem if it does not fit."""
    wanted = {spec.python: spec.backend for spec in specs if spec.python}
    if len(wanted) != 1:
        needs = " and ".join(f"{backend} needs Python {version}" for version, backend in wanted.items())
        reason = f"{needs}: build them one by one" if wanted else "harness's own Python is the right one: leave it out"
        raise EnvironmentProblem(f"--python {where}: {reason}")
    ((version, backend),) = wanted.items()
    bases = list(_running(_candidates_at(where, f"python{version}", "python3", "python")))
    if base := next((base for base in bases if base.meets(version)), None):
        return base
    there = " and ".join(f"{base.python} is Python {base.version}" for base in bases) or "no Python runs there"
    raise EnvironmentProblem(f"--python {where}: {there}, {backend} needs Python {version}")


def _candidates_at(where: Path, *names: str) -> list[Path]:
    """The Pythons that a person may mean by a Python, one's name on PATH, or a prefix in which they have these names."""
    where = at_home(where)
    if not where.exists() and (on_path := shutil.which(str(where))):
        where = Path(on_path)
    candidates = [where] if where.is_file() else [where / "bin" / name for name in names]
    # absolute, not resolved: a virtual environment is known by the path of its link to the real Python
    return [candidate.absolute() for candidate in candidates]


def _running(candidates: Iterable[Path], alone: bool = True) -> Iterator[BasePython]:
    """Those that run as Python 3; ``alone``: as a build runs them, without the PYTHONHOME of a module for another one."""
    for candidate in candidates:
        if version := _version(candidate, alone):
            yield BasePython(candidate, version)


@functools.cache  # a shim of pyenv takes 0.2 s, and a list of backends asks for each kind of device
def _version(interpreter: Path, alone: bool) -> str | None:
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
