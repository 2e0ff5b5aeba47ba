"""One isolated Python environment per backend: named by its content, built once with venv and pip, checked by import.

Environments live outside the checkout, in ``$HARNESS_CACHE``, else ``$XDG_CACHE_HOME/harness``, else
``~/.cache/harness``. A name holds a hash of all that decides the content: a changed pin gives a new environment, equal
pins share one. It is ready only once ``complete.json`` is in it, which is written last: what a killed pip leaves behind
is never mistaken for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import inspect
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol, TextIO

from harness.errors import HarnessError

RECIPE = 1  # raise it when this module builds differently from the same pins, so that old environments are not reused
CHECK_TIMEOUT_S = 600  # a cold import of TensorFlow from a busy parallel file system takes minutes

Variant = Literal["cpu", "cuda"]
Status = Literal["ready", "missing", "partial", "broken"]
Progress = Callable[[str], None]


class EnvironmentProblem(HarnessError):
    """An environment cannot be found, built or used; the message is one line that says what to do."""


class EnvironmentMissing(EnvironmentProblem):
    """A backend's environment was not built yet, or no longer works."""


class BuildFailed(EnvironmentProblem):
    """An environment could not be built."""


class Run(Protocol):
    """Runs a command of a build: output goes to the log, failure raises BuildFailed, Ctrl-C ends all its processes."""

    def __call__(self, *argv: str | Path, env: Mapping[str, str] | None = None) -> None:
        """Run ``argv`` with ``env`` added to the build's environment variables."""


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
    build_env: Mapping[str, str] = field(default_factory=dict)
    post_build: Callable[[Path, Run], str | None] | None = None
    tools: tuple[str, ...] = ()
    framework: str | None = None
    sources: tuple[Path, ...] = ()


@dataclass(frozen=True)
class BasePython:
    """A Python to make environments from."""

    python: Path
    version: str


@dataclass(frozen=True)
class CheckReport:
    """What an environment's own Python says about it."""

    python: Path
    python_version: str
    imported: Mapping[str, str]  # module → version, "" where it has none
    failed: Mapping[str, str]  # module → why it does not import, in one line
    mismatched: Mapping[str, tuple[str, str | None]]  # package → (pinned, installed or None)
    seconds: float

    @property
    def ok(self) -> bool:
        """Every module imports and every package is the pinned one."""
        return not self.failed and not self.mismatched


def pins(requirements: Path) -> dict[str, str]:
    """The pinned version of every package, by normalised name. Raises EnvironmentProblem for a line without ``==``."""
    found: dict[str, str] = {}
    for line in _lines(requirements):
        if not (pin := _PIN.fullmatch(line)):
            raise EnvironmentProblem(f"{requirements}: not pinned as name==version: {line}")
        found[_normalised(pin["name"])] = pin["version"]
    return found


def path(spec: EnvironmentSpec) -> Path:
    """The folder where the environment is or will be. Raises EnvironmentProblem if a file that decides it is unreadable."""
    return cache_folder() / "environments" / f"{spec.imports[0].replace('.', '-')}-{spec.variant}-{_key(spec)[:12]}"


def python(spec: EnvironmentSpec) -> Path:
    """The environment's Python, which exists once it is built."""
    return path(spec) / "bin" / "python"


def status(spec: EnvironmentSpec) -> Status:
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
        complete = json.loads(_marker(folder).read_text(encoding="utf-8"))["key"] == _key(spec)
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
    found = lacking_tools(spec)
    if spec.python and not _found(spec.python):
        found.append(f"Python {spec.python} to build with")
    half = {"missing": "", "partial": ", which is half built", "broken": ", which no longer works"}[state]
    return [*found, f"its environment{half} (`{build_command(spec)}`)"]


def lacking_tools(spec: EnvironmentSpec) -> list[str]:
    """The programs that building the environment takes and that are not on PATH."""
    return [tool for tool in spec.tools if not shutil.which(tool, path=spec.build_env.get("PATH"))]


def build(spec: EnvironmentSpec, progress: Progress, base: BasePython | None = None) -> Path:
    """Build the environment unless it is ready, and return its folder. ``progress`` receives short lines for people.

    If ``spec`` names a Python, ``base`` is the one to make it from, by default what ``find_python`` finds. Of several
    builders of one environment one builds and the others wait. pip's output is kept in ``<folder>.log``.
    Raises BuildFailed (a line: what failed, why, the log; below it the compiler's words if it was compiling) or
    EnvironmentProblem; then only the log is left behind.
    """
    folder = path(spec)
    pins(spec.requirements)
    if status(spec) == "ready":
        if base and spec.python:
            progress(f"is built already; to make it from {base.python}, remove {folder} first")
        return folder
    if lacking := lacking_tools(spec):
        raise EnvironmentProblem(
            f"{folder.name}: to compile it {' and '.join(lacking)} must be on PATH: load a module of this site, "
            f"or install {'it' if len(lacking) == 1 else 'them'} "
            f"(Debian and Ubuntu: apt install {' '.join(_PACKAGE.get(tool, tool) for tool in lacking)})"
        )
    if spec.python is None:
        base = BasePython(Path(sys.executable), platform.python_version())
    elif base is None:
        base = find_python(spec.python)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder, progress) as lock:
            if status(spec) == "ready":  # built by another process while this one waited
                return folder
            _remove(folder)
            try:
                with _log(folder).open("w", encoding="utf-8") as log:
                    _fill(folder, spec, base, progress, log, lock)
            except BaseException:
                _remove(folder)
                raise
    except OSError as error:
        raise BuildFailed(
            f"{folder.name}: {error.strerror}: {error.filename or folder} (set HARNESS_CACHE to move it)"
        ) from error
    return folder


def at(where: Path, spec: EnvironmentSpec) -> Path:
    """The Python of an environment that a person or a site's modules provide.

    ``where`` is a prefix (venv, conda), a Python, or one's name on PATH. Raises EnvironmentProblem if none runs there.
    """
    for candidate in _candidates_at(where, "python", "python3"):
        if _version(candidate, os.environ):
            return candidate
    raise EnvironmentProblem(
        f"no Python that runs for {spec.backend} at {where}: give a venv, a conda prefix or a python"
    )


def find_python(version: str) -> BasePython:
    """A Python of a minor version ("3.9") of this machine: on PATH, or one of pyenv's, uv's or conda's.

    Raises EnvironmentProblem, which says where there was none and how to get one.
    """
    if found := _found(version):
        return found
    tried = "".join(f"; {candidate} is there, but does not run as it" for candidate in _candidates(version))
    raise EnvironmentProblem(
        f"Python {version} was not found: no python{version} on PATH, none in {_pyenv()}, {_uv()} or the environments of "
        f"{_conda()}{tried}: install it (`uv python install {version}`, `pyenv install {version}` or a package), "
        f"load a module of this site, or name one with `harness env build BACKEND --python PATH`"
    )


def given_python(where: Path, specs: Sequence[EnvironmentSpec]) -> BasePython:
    """The Python that a person wants those of the environments to be made from that name a version.

    ``where`` is a Python, one's name on PATH or a prefix. Raises EnvironmentProblem if it is not what all of them need.
    """
    wanted = {spec.python: spec.backend for spec in specs if spec.python}
    if not wanted:
        names = " and ".join(dict.fromkeys(spec.backend for spec in specs))
        raise EnvironmentProblem(f"--python {where}: harness's own Python is the right one for {names}: leave it out")
    needs = " and ".join(f"{backend} needs Python {version}" for version, backend in wanted.items())
    if len(wanted) > 1:
        raise EnvironmentProblem(f"--python {where}: {needs}: build them one by one")
    (version,) = wanted
    try:
        candidates = _candidates_at(where, f"python{version}", "python3", "python")
    except OSError as error:
        raise EnvironmentProblem(f"--python {where}: {error.strerror}") from error
    # as the build will run it: without the PYTHONHOME of a module for another Python
    environ = _isolated(os.environ)
    found = [BasePython(candidate, runs) for candidate in candidates if (runs := _version(candidate, environ))]
    for base in found:
        if _is(base.version, version):
            return base
    if found:
        raise EnvironmentProblem(f"--python {where}: {found[0].python} is Python {found[0].version}, {needs}")
    raise EnvironmentProblem(f"--python {where}: no Python runs there, {needs}: give a python or its prefix")


def check(spec: EnvironmentSpec, given: Path | None = None) -> CheckReport:
    """Import the modules and compare the packages with the pins, in the built environment or a ``given`` Python.

    ``given`` comes from ``at``. Raises EnvironmentMissing if there is neither. A failed import is reported, not raised.
    """
    interpreter = given or require(spec)
    began = time.monotonic()
    # What a site provides may be found through its modules' PYTHONPATH; what was built here must stand alone.
    facts, death = _probe(interpreter, spec.imports, dict(os.environ) if given else _isolated(os.environ))
    installed: dict[str, str] = facts.get("installed", {})
    imported: dict[str, str] = facts.get("imported", {})
    failed: dict[str, str] = facts.get("failed", {})
    return CheckReport(
        python=interpreter,
        python_version=facts.get("python", ""),
        imported=imported,
        failed=failed | {module: death for module in spec.imports if module not in imported | failed},
        mismatched={
            name: (pinned, installed.get(name))
            for name, pinned in pins(spec.requirements).items()
            if not _matches(installed.get(name), pinned)
        },
        seconds=time.monotonic() - began,
    )


# --- where it is ----------------------------------------------------------------------------------

_PACKAGE = {"nvcc": "nvidia-cuda-toolkit"}  # where Debian's package is not called as the program
_PIN = re.compile(r"(?P<name>[\w.-]+)(\[[\w,-]+\])?==(?P<version>[\w.+!]+)")


def cache_folder() -> Path:
    """What can be made again: ``$HARNESS_CACHE``, else ``$XDG_CACHE_HOME/harness``, else ``~/.cache/harness``."""
    if chosen := os.environ.get("HARNESS_CACHE"):
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "harness"


def _marker(folder: Path) -> Path:
    return folder / "complete.json"


def _log(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.log")


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise EnvironmentProblem(f"cannot read {file}: {error.strerror}") from error


def _lines(requirements: Path) -> list[str]:
    lines = _text(requirements).splitlines()
    return [stripped for line in lines if (stripped := re.sub(r"(^|\s)#.*", "", line).strip())]


def _key(spec: EnvironmentSpec) -> str:
    """A hash of everything that decides what is in the environment.

    Of a wanted Python the minor version decides, as wheels do: who only looks need not find the one it was made from.
    """
    hook = spec.post_build and [spec.post_build.__name__, inspect.getsource(sys.modules[spec.post_build.__module__])]
    version = spec.python or platform.python_version()
    content = [RECIPE, sys.platform, platform.machine(), version, _lines(spec.requirements)]
    content += [sorted(spec.build_env.items()), hook]
    if spec.sources:  # only then, so that environments without any keep the key that they were built with
        content.append([[source.name, _text(source)] for source in spec.sources])
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _matches(installed: str | None, pinned: str) -> bool:
    """Whether a version meets a pin; as in PEP 440, ``2.13.0+cpu`` meets ``2.13.0``."""
    return installed is not None and (installed == pinned or installed.partition("+")[0] == pinned)


# --- Pythons --------------------------------------------------------------------------------------


def _found(wanted: str) -> BasePython | None:
    return _first(tuple(_candidates(wanted)), wanted)


@functools.cache  # a shim of pyenv takes 0.2 s, and a list of backends asks for each kind of device
def _first(candidates: tuple[Path, ...], wanted: str) -> BasePython | None:
    """The first that runs and is of the wanted version: pyenv's shims are on PATH for every version, and run for one."""
    for candidate in candidates:
        if (version := _version(candidate, _isolated(os.environ))) and _is(version, wanted):
            return BasePython(candidate, version)
    return None


def _is(version: str, wanted: str) -> bool:
    return f"{version}.".startswith(f"{wanted}.")


def _candidates(wanted: str) -> list[Path]:
    """Where a Python of this version may be, in order: what a person put on PATH comes before what is found by folders."""
    minor = re.escape(wanted)
    prefixes = [
        *_newest_first(_pyenv(), rf"{minor}\.(\d+)"),
        *_newest_first(_uv(), rf"cpython-{minor}\.(\d+)-.*"),
        *_conda_prefixes(),
    ]
    folders = [*map(Path, os.get_exec_path()), *(prefix / "bin" for prefix in prefixes)]
    programs = [folder.absolute() / f"python{wanted}" for folder in folders]
    return [program for program in programs if os.access(program, os.X_OK)]


def _newest_first(folder: Path, name: str) -> list[Path]:
    """The prefixes in a folder whose name matches, by the number in it."""
    found = [(int(release[1]), prefix) for prefix in folder.glob("*") if (release := re.fullmatch(name, prefix.name))]
    return [prefix for _, prefix in sorted(found, reverse=True)]


def _pyenv() -> Path:
    return Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"


def _uv() -> Path:
    """Where uv keeps the Pythons that it installed; uv itself need not be on PATH."""
    if chosen := os.environ.get("UV_PYTHON_INSTALL_DIR"):
        return Path(chosen)
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "uv" / "python"


def _conda() -> Path:
    """Where conda, mamba and their kin note the prefix of every environment that a user makes."""
    return Path.home() / ".conda" / "environments.txt"


def _conda_prefixes() -> list[Path]:
    try:
        return [Path(line) for line in _conda().read_text(encoding="utf-8", errors="replace").splitlines() if line]
    except OSError:
        return []


def _candidates_at(where: Path, *names: str) -> list[Path]:
    """The Pythons that a person may mean by a Python, one's name on PATH, or a prefix in which they have these names."""
    where = where.expanduser()
    if not where.exists() and (on_path := shutil.which(str(where))):
        where = Path(on_path)
    candidates = [where] if where.is_file() else [where / "bin" / name for name in names]
    # absolute, not resolved: a virtual environment is known by the path of its link to the real Python
    return [candidate.absolute() for candidate in candidates]


def _version(interpreter: Path, environ: Mapping[str, str]) -> str | None:
    """The version of a Python ("3.11.7"), None if it does not run."""
    if not os.access(interpreter, os.X_OK) or interpreter.is_dir():
        return None
    code = "import platform; print(platform.python_version())"
    try:
        answer = subprocess.run([interpreter, "-c", code], env=environ, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 and answer.stdout.startswith("3.") else None


def _isolated(environ: Mapping[str, str]) -> dict[str, str]:
    """Without what a site's modules and the user's folders add: pip would take those packages for installed ones."""
    kept = {name: value for name, value in environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    return kept | {"PYTHONNOUSERSITE": "1"}


_PROBE_MARK = "harness-probe:"  # frameworks print to stdout too
_PROBE = f"""
import importlib, platform, re, sys, json
from importlib.metadata import distributions
def tell(kind, value):
    print("{_PROBE_MARK}" + json.dumps([kind, value]), flush=True)
tell("python", platform.python_version())
names = ((d.metadata["Name"], d.version) for d in distributions())
tell("installed", {{re.sub("[-_.]+", "-", name).lower(): version for name, version in names if name}})
for module in sys.argv[1:]:
    try:
        tell("imported", {{module: str(getattr(importlib.import_module(module), "__version__", ""))}})
    except BaseException as error:
        tell("failed", {{module: " ".join((type(error).__name__ + ": " + str(error)).split())}})
"""


def _probe(interpreter: Path, modules: Sequence[str], environ: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """What a Python tells about itself, and why it told no more."""
    argv = [str(interpreter), "-c", _PROBE, *modules]
    try:
        # in a neutral folder: `-c` puts the current one first on the path, and a torch/ or tensorflow/ there would win
        answer = subprocess.run(
            argv, env=environ, cwd="/", capture_output=True, text=True, errors="replace", timeout=CHECK_TIMEOUT_S
        )
        output, death = answer.stdout, _ending(answer.returncode)
    except subprocess.TimeoutExpired as expired:
        output = expired.stdout.decode(errors="replace") if isinstance(expired.stdout, bytes) else expired.stdout or ""
        death = f"no answer within {CHECK_TIMEOUT_S} s"
    except OSError as error:
        return {}, f"Python does not start: {error.strerror}"
    facts: dict[str, Any] = {}
    for line in output.splitlines():
        if line.startswith(_PROBE_MARK):
            kind, value = json.loads(line.removeprefix(_PROBE_MARK))
            facts[kind] = facts[kind] | value if kind in facts else value
    return facts, death


def _ending(code: int) -> str:
    return f"died from {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


# --- building -------------------------------------------------------------------------------------


@contextlib.contextmanager
def _lock(folder: Path, progress: Progress) -> Iterator[int]:
    """Hold the environment's lock; yields its descriptor.

    Build commands inherit the descriptor, so the lock outlives a killed harness until the pip it left behind has ended:
    nobody rebuilds under a pip that still writes.
    """
    with folder.with_name(f"{folder.name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"waiting: another process is building {folder.name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _remove(folder: Path) -> None:
    _marker(folder).unlink(missing_ok=True)  # first: removing takes seconds, and may be killed as well
    shutil.rmtree(folder, ignore_errors=True)


def _fill(folder: Path, spec: EnvironmentSpec, base: BasePython, progress: Progress, log: TextIO, lock: int) -> None:
    """Make the virtual environment in its final place (it cannot be moved later) and mark it complete."""
    began = time.monotonic()
    key = _key(spec)  # now: the hook's source may be edited while the compiler runs
    environ = _isolated(os.environ) | {"PYTHONUNBUFFERED": "1", "PIP_USER": "0"} | dict(spec.build_env)
    inside = folder / "bin" / "python"

    def run(*argv: str | Path, env: Mapping[str, str] | None = None) -> None:
        tail = _stream(argv, environ | dict(env or {}), log, lock, progress)
        if tail is not None:
            what = f"{folder.name} (Python {base.version}): {_reason(tail, base.version)} (log: {_log(folder)})"
            raise BuildFailed("\n    ".join([what, *_last_words(tail)]))

    progress(f"creating {folder.name} with Python {base.version}")
    run(base.python, "-m", "venv", folder)
    # No index options: pip's own configuration is where a centre names its mirror. Bytecode is compiled now, lest every
    # rank of the first run does it at once.
    pip = (inside, "-m", "pip", "--no-input", "--disable-pip-version-check", "install", "--progress-bar", "off")
    run(*pip, "--compile", "--requirement", spec.requirements)
    if spec.post_build and (remark := spec.post_build(folder, run)):
        log.write(f"{remark}\n")
        progress(remark)

    facts, death = _probe(inside, (), environ)
    if "installed" not in facts:
        raise BuildFailed(f"{folder.name}: its Python does not run: {death} (log: {_log(folder)})")
    seconds = round(time.monotonic() - began, 1)
    marker = {
        "key": key,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "build_s": seconds,
        "python": facts["python"],
        "versions": dict(sorted(facts["installed"].items())),
    }
    _write(_marker(folder), json.dumps(marker, indent=1) + "\n")
    progress(f"ready in {seconds:.0f} s")


def _write(target: Path, text: str) -> None:
    """All of it or nothing, also when the machine dies."""
    draft = target.with_suffix(".draft")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(target)


def _stream(
    argv: Sequence[str | Path], environ: Mapping[str, str], log: TextIO, lock: int, progress: Progress
) -> list[str] | None:
    """Run a command with its output to the log; return the output if it failed. The command never outlives the call."""
    words = [str(word) for word in argv]
    log.write(f"$ {' '.join(words)}\n")
    output: list[str] = []
    news = None
    # A process group, so that one signal ends pip with its compilers. A pipe and not the log itself for the output, so
    # that pip fails at its next line once this process was killed.
    with subprocess.Popen(
        words,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=[lock],
        process_group=0,
    ) as process:
        assert process.stdout
        try:
            for line in process.stdout:
                output.append(line.strip())
                log.write(line)
                log.flush()
                before, news = news, describe(line, news) or news
                if news and news != before:
                    progress(news)
            code = process.wait()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    return [*output, _ending(code)] if code else None


# --- what pip says --------------------------------------------------------------------------------

_FILE = r"(?:\S*/)?(?P<name>[\w.]+)-(?P<version>[^-\s/]+)\S*"  # a wheel's name, with or without the place it is in
_NEWS = [
    (re.compile(r"Collecting (?P<name>[\w.-]+)"), "looking for {name}"),
    (re.compile(rf"Downloading {_FILE} \((?P<size>.+)\)"), "downloading {name} {version} ({size})"),
    (re.compile(rf"(?:Using cached|Processing) {_FILE}"), "found {name} {version}"),
    (re.compile(r"Building wheel for (?P<name>[\w.-]+)(?!.*(finished|still running))"), "compiling {name}"),
    (re.compile(r"WARNING: Retrying \("), "the package index does not answer, pip tries again"),
]

_PERCENT = re.compile(r"\[ *(?P<percent>\d+)%\] (Building|Linking) ")  # make, from CMake

_HINTS = [
    (
        "ensurepip is not available",
        "Python {version} comes without ensurepip: install it (Debian and Ubuntu: python3-venv)",
    ),
    ("No module named venv", "Python {version} comes without venv: install it (Debian and Ubuntu: python3-venv)"),
    ("No space left on device", "no space left: set HARNESS_CACHE (or TMPDIR, where pip unpacks) to a larger place"),
    ("Disk quota exceeded", "disk quota exceeded: set HARNESS_CACHE to a larger place"),
    ("WARNING: Retrying (", "the package index did not answer: {error}"),
    ("require a different python version", "{error} that supports Python {version}"),
    (
        "fatal error: Python.h: No such file",
        "Python {version} comes without its C headers: install them (Debian and Ubuntu: python3-dev)",
    ),
    (
        "fatal error: Killed signal",
        "the compiler ran out of memory: compile on fewer cores, as in `taskset -c 0 harness env build …`",
    ),
]

_WHEEL_FAILED = re.compile(r"ERROR: Failed building wheel for (?P<name>[\w.-]+)")
_SETUP_FAILED = "error: subprocess-exited-with-error"  # with `pip -v`, all that comes before is from the package itself
_COMPILE_ERROR = re.compile(
    r"\S+: (fatal |internal compiler )?error: |nvcc (error|fatal) *:|.*undefined reference to |\S*\bld: (?!.*warning)"
)
_MOST_WORDS = 12


def describe(line: str, before: str | None = None) -> str | None:
    """What a line of pip's output means to somebody who waits, None if nothing. ``before`` is what was said last."""
    line = line.strip()
    if line.startswith("Installing collected packages:"):
        return f"installing {line.count(',') + 1} packages"
    if done := _PERCENT.match(line):  # a package's make does not say which package it compiles: pip said it before
        what = before.partition(":")[0] if before and before.startswith("compiling") else "compiling"
        return f"{what}: {done['percent']} %"
    return next((text.format(**found.groupdict()) for news, text in _NEWS if (found := news.match(line))), None)


def _reason(output: Sequence[str], version: str) -> str:
    """Why a build command failed, in a line: the last error that it printed, put in context where we know more."""
    errors = [line[len("ERROR:") :].strip() for line in output if line.lower().startswith("error:")]
    error = errors[-1] if errors else "; ".join([line for line in output if line][-2:])
    if broken := next((found for line in output if (found := _WHEEL_FAILED.match(line))), None):
        error = f"{broken['name']} does not compile"
    hints = (hint for symptom, hint in _HINTS if any(symptom in line for line in output))
    return next(hints, "{error}").format(error=error, version=version)


def _last_words(output: Sequence[str]) -> list[str]:
    """What the compiler (or the package's setup.py) complained about if something was being compiled, else nothing.

    The first errors, because they cause the later ones.
    """
    words: list[str] = []
    in_cmake_error = False  # its message follows on lines of its own, and ends with an empty one
    for line in output:
        in_cmake_error = line.startswith("CMake Error") or (in_cmake_error and not re.match("$|Call Stack", line))
        if (in_cmake_error or _COMPILE_ERROR.match(line)) and line not in words:
            words.append(line)
    if not words and _SETUP_FAILED in output:
        words = [line for line in output[: output.index(_SETUP_FAILED)] if line][-_MOST_WORDS:]
    return [textwrap.shorten(line, 300, placeholder=" …") for line in words[:_MOST_WORDS]]
