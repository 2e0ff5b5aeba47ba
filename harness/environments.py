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
    environment. ``python`` is a version such as "3.9", by default the controller's. ``post_build`` gets the
    environment's folder and compiles what pip alone cannot; the source of its module is part of the environment's key.
    ``tools`` are the programs that this takes and that no wheel brings, such as "g++". ``framework`` is named where a
    backend has an environment for each of several.
    """

    backend: str
    variant: Variant
    requirements: Path
    imports: tuple[str, ...]
    python: str | None = None
    build_env: Mapping[str, str] = field(default_factory=dict)
    post_build: Callable[[Path, Run], None] | None = None
    tools: tuple[str, ...] = ()
    framework: str | None = None


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
    """The folder where the environment is or will be. Raises EnvironmentProblem if its Python is not installed."""
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
    try:
        path(spec)
    except EnvironmentProblem as problem:
        found.append(str(problem))
    half = {"missing": "", "partial": ", which is half built", "broken": ", which no longer works"}[state]
    return [*found, f"its environment{half} (`{build_command(spec)}`)"]


def lacking_tools(spec: EnvironmentSpec) -> list[str]:
    """The programs that building the environment takes and that are not on PATH."""
    return [tool for tool in spec.tools if not shutil.which(tool, path=spec.build_env.get("PATH"))]


def build(spec: EnvironmentSpec, progress: Progress) -> Path:
    """Build the environment unless it is ready, and return its folder. ``progress`` receives short lines for people.

    Of several builders of one environment one builds and the others wait. pip's output is kept in ``<folder>.log``.
    Raises BuildFailed (a line: what failed, why, the log; below it the compiler's words if it was compiling) or
    EnvironmentProblem; then only the log is left behind.
    """
    folder = path(spec)
    pins(spec.requirements)
    if status(spec) == "ready":
        return folder
    if lacking := lacking_tools(spec):
        raise EnvironmentProblem(
            f"{folder.name}: to compile it {' and '.join(lacking)} must be on PATH: load a module of this site, "
            f"or install {'it' if len(lacking) == 1 else 'them'} "
            f"(Debian and Ubuntu: apt install {' '.join(_PACKAGE.get(tool, tool) for tool in lacking)})"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder, progress) as lock:
            if status(spec) == "ready":  # built by another process while this one waited
                return folder
            _remove(folder)
            try:
                with _log(folder).open("w", encoding="utf-8") as log:
                    _fill(folder, spec, progress, log, lock)
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
    where = where.expanduser()
    if not where.exists() and (on_path := shutil.which(str(where))):
        where = Path(on_path)
    candidates = [where] if where.is_file() else [where / "bin" / name for name in ("python", "python3")]
    for candidate in candidates:
        # absolute, not resolved: a virtual environment is known by the path of its link to the real Python
        if _version(candidate.absolute()):
            return candidate.absolute()
    raise EnvironmentProblem(
        f"no Python that runs for {spec.backend} at {where}: give a venv, a conda prefix or a python"
    )


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


def _lines(requirements: Path) -> list[str]:
    try:
        text = requirements.read_text(encoding="utf-8")
    except OSError as error:
        raise EnvironmentProblem(f"cannot read {requirements}: {error.strerror}") from error
    return [stripped for line in text.splitlines() if (stripped := re.sub(r"(^|\s)#.*", "", line).strip())]


def _key(spec: EnvironmentSpec) -> str:
    """A hash of everything that decides what is in the environment."""
    hook = spec.post_build and [spec.post_build.__name__, inspect.getsource(sys.modules[spec.post_build.__module__])]
    content = [RECIPE, sys.platform, platform.machine(), _interpreter(spec.python)[1], _lines(spec.requirements)]
    return hashlib.sha256(json.dumps([*content, sorted(spec.build_env.items()), hook]).encode()).hexdigest()


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _matches(installed: str | None, pinned: str) -> bool:
    """Whether a version meets a pin; as in PEP 440, ``2.13.0+cpu`` meets ``2.13.0``."""
    return installed is not None and (installed == pinned or installed.partition("+")[0] == pinned)


# --- Pythons --------------------------------------------------------------------------------------


@functools.cache
def _interpreter(wanted: str | None) -> tuple[Path, str]:
    """A Python of the wanted version and its full version. Raises EnvironmentProblem if there is none."""
    if wanted is None:
        return Path(sys.executable), platform.python_version()
    on_path = [Path(folder, f"python{wanted}") for folder in os.get_exec_path()]
    # pyenv's shims are on PATH for every installed version, but run only for the selected one
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for candidate in [*on_path, *sorted(pyenv.glob(f"{wanted}.*/bin/python"))]:
        if (version := _version(candidate)) and f"{version}.".startswith(f"{wanted}."):
            return candidate, version
    raise EnvironmentProblem(
        f"Python {wanted} is not installed: put python{wanted} on PATH (a module, pyenv or a package)"
    )


def _version(interpreter: Path) -> str | None:
    """The version of a Python ("3.11.7"), None if it does not run."""
    if not os.access(interpreter, os.X_OK) or interpreter.is_dir():
        return None
    code = "import platform; print(platform.python_version())"
    try:
        answer = subprocess.run([interpreter, "-c", code], capture_output=True, text=True, timeout=60)
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


def _fill(folder: Path, spec: EnvironmentSpec, progress: Progress, log: TextIO, lock: int) -> None:
    """Make the virtual environment in its final place (it cannot be moved later) and mark it complete."""
    began = time.monotonic()
    key = _key(spec)  # now: the hook's source may be edited while the compiler runs
    base, version = _interpreter(spec.python)
    environ = _isolated(os.environ) | {"PYTHONUNBUFFERED": "1", "PIP_USER": "0"} | dict(spec.build_env)
    inside = folder / "bin" / "python"

    def run(*argv: str | Path, env: Mapping[str, str] | None = None) -> None:
        tail = _stream(argv, environ | dict(env or {}), log, lock, progress)
        if tail is not None:
            what = f"{folder.name} (Python {version}): {_reason(tail, version)} (log: {_log(folder)})"
            raise BuildFailed("\n    ".join([what, *_last_words(tail)]))

    progress(f"creating {folder.name} with Python {version}")
    run(base, "-m", "venv", folder)
    # No index options: pip's own configuration is where a centre names its mirror. Bytecode is compiled now, lest every
    # rank of the first run does it at once.
    pip = (inside, "-m", "pip", "--no-input", "--disable-pip-version-check", "install", "--progress-bar", "off")
    run(*pip, "--compile", "--requirement", spec.requirements)
    if spec.post_build:
        spec.post_build(folder, run)

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
