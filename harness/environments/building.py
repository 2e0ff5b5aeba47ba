"""Builds environments with venv and pip, in their final place, and checks what is in them."""

import contextlib
import fcntl
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
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from harness import files
from harness.environments import EnvironmentProblem, EnvironmentSpec, key, lacking_tools, path, pins, require, status
from harness.environments.pythons import BasePython, find_python, isolated
from harness.errors import RunFailed, signal_name

OnLine = Callable[[str], None]

CHECK_TIMEOUT_S = 600  # a cold import of TensorFlow from a busy parallel file system takes minutes


def build(spec: EnvironmentSpec, progress: OnLine) -> Path:
    """Build the environment unless it is ready, and return its folder. ``progress`` receives short lines for people.

    Of several builders one builds and the others wait. Raises RunFailed (what failed, why, the log; below it the
    compiler's words) or EnvironmentProblem; then only the log, ``<folder>.log``, is left behind.
    """
    folder = path(spec)
    pins(spec.requirements)
    if status(spec) == "ready":
        return folder
    if lacking := lacking_tools(spec):
        raise EnvironmentProblem(
            f"{folder.name}: to compile it {' and '.join(lacking)} must be on PATH: load a module or install it"
        )
    own_python = BasePython(Path(sys.executable), platform.python_version())
    base = find_python(spec.python) if spec.python else own_python
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with lock(folder, progress) as descriptor:
            if status(spec) == "ready":  # built by another process while this one waited
                return folder
            _remove(folder)
            try:
                with folder.with_name(f"{folder.name}.log").open("w", encoding="utf-8") as log:
                    _fill(folder, spec, base, progress, log, descriptor)
            except BaseException:
                _remove(folder)
                raise
    except OSError as error:
        raise RunFailed(
            f"{folder.name}: {error.strerror}: {error.filename or folder} (set HARNESS_CACHE to move it)"
        ) from error
    return folder


@contextlib.contextmanager
def lock(folder: Path, progress: OnLine) -> Iterator[int]:
    """Hold the environment's lock, whose descriptor pip inherits: nobody rebuilds under one that a killed harness left."""
    with folder.with_name(f"{folder.name}.lock").open("a") as file:
        if not files.lock(file):
            progress(f"waiting: another process is building {folder.name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _remove(folder: Path) -> None:
    (folder / "complete.json").unlink(missing_ok=True)  # first: removing takes seconds, and may be killed as well
    shutil.rmtree(folder, ignore_errors=True)


def _fill(
    folder: Path, spec: EnvironmentSpec, base: BasePython, progress: OnLine, log: IO[str], descriptor: int
) -> None:
    """Make the virtual environment in its final place (it cannot be moved later) and mark it complete."""
    began = time.monotonic()
    content = key(spec)  # now: the hook's source may be edited while the compiler runs
    environ = isolated() | {"PYTHONUNBUFFERED": "1", "PIP_USER": "0"}
    inside = folder / "bin" / "python"

    def run(*argv: str | Path, env: Mapping[str, str] | None = None) -> None:
        tail = _stream(argv, environ | dict(env or {}), log, descriptor, progress)
        if tail is not None:
            failure = f"{folder.name} (Python {base.version}): {reason(tail, base.version)} (log: {log.name})"
            raise RunFailed("\n    ".join([failure, *last_words(tail)]))

    progress(f"creating {folder.name} with Python {base.version}")
    run(base.python, "-m", "venv", folder)
    # No index options: pip's own configuration is where a centre names its mirror. Bytecode is compiled now, so that not
    # every rank of the first run compiles it at once.
    pip = (inside, "-m", "pip", "--no-input", "--disable-pip-version-check", "install", "--progress-bar", "off")
    run(*pip, "--compile", "--requirement", spec.requirements)
    if spec.post_build and (remark := spec.post_build(folder, run)):
        log.write(f"{remark}\n")
        progress(remark)

    seconds = round(time.monotonic() - began, 1)
    date = datetime.now(UTC).isoformat(timespec="seconds")
    complete = {"key": content, "date": date, "build_s": seconds, "python": base.version}
    files.write_atomically(folder / "complete.json", json.dumps(complete, indent=1) + "\n")
    progress(f"ready in {seconds:.0f} s")


def _stream(
    argv: Sequence[str | Path], environ: Mapping[str, str], log: IO[str], descriptor: int, progress: OnLine
) -> list[str] | None:
    """Run a command with its output to the log; return the output if it failed. The command never outlives the call."""
    words = [str(word) for word in argv]
    log.write(f"$ {' '.join(words)}\n")
    output: list[str] = []
    process = None
    try:
        # Signals wait during the start: before its end nobody knows which process to kill. The process has a group, so
        # that one signal ends pip with its compilers. Its output is a pipe and not the log itself, so that pip fails at
        # its next line once this process was killed.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
        try:
            process = subprocess.Popen(
                words,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                pass_fds=[descriptor],
                process_group=0,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        assert process.stdout
        with process.stdout:
            for line in process.stdout:
                output.append(line.strip())
                log.write(line)
                log.flush()
                if _NEWS.match(line):
                    progress(textwrap.shorten(line, 100, placeholder=" …"))
            code = process.wait()
    except BaseException:
        if process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        raise
    return [*output, ending(code)] if code else None


_PROBE_MARK = "harness-probe:"  # frameworks print to stdout too
_PROBE = f"""
import importlib, platform, re, sys, json
from importlib.metadata import distributions
def report(kind, value):
    print("{_PROBE_MARK}" + json.dumps([kind, value]), flush=True)
report("python", {{"version": platform.python_version()}})
names = ((d.metadata["Name"], d.version) for d in distributions())
report("installed", {{re.sub("[-_.]+", "-", name).lower(): version for name, version in names if name}})
for module in sys.argv[1:]:
    try:
        report("imported", {{module: str(getattr(importlib.import_module(module), "__version__", ""))}})
    except BaseException as error:
        report("failed", {{module: " ".join((type(error).__name__ + ": " + str(error)).split())}})
"""


@dataclass(frozen=True)
class CheckReport:
    """The report of an environment's Python on itself."""

    python: Path
    python_version: str
    imported: Mapping[str, str]  # module → version, "" where it has none
    failed: Mapping[str, str]  # module → why it does not import, in one line
    mismatched: Mapping[str, tuple[str, str | None]]  # package → (pinned, installed or None)


def check(spec: EnvironmentSpec, provided: Path | None = None) -> CheckReport:
    """Import modules and compare packages with pins, in a built environment or ``provided``. Raises EnvironmentProblem."""
    interpreter = provided or require(spec)
    argv = [str(interpreter), "-c", _PROBE, *spec.imports]
    # An environment of a site may need its modules' PYTHONPATH; one that was built here must stand alone.
    environ = os.environ if provided else isolated()
    try:
        # The folder is a neutral one: `-c` puts it first on the path, and a torch/ or tensorflow/ there would win.
        answer = subprocess.run(
            argv, env=environ, cwd="/", capture_output=True, text=True, errors="replace", timeout=CHECK_TIMEOUT_S
        )
        output, death = answer.stdout, ending(answer.returncode)
    except subprocess.TimeoutExpired:
        output, death = "", f"no answer within {CHECK_TIMEOUT_S} s"
    except OSError as error:
        output, death = "", f"Python does not start: {error.strerror}"
    facts: dict[str, dict[str, str]] = {kind: {} for kind in ("python", "installed", "imported", "failed")}
    for line in output.splitlines():
        if line.startswith(_PROBE_MARK):
            kind, values = json.loads(line.removeprefix(_PROBE_MARK))
            facts[kind] |= values
    installed, imported, failed = facts["installed"], facts["imported"], facts["failed"]
    return CheckReport(
        python=interpreter,
        python_version=facts["python"].get("version", ""),
        imported=imported,
        failed=failed | {module: death for module in spec.imports if module not in imported | failed},
        mismatched={
            name: (pinned, installed.get(name))
            for name, pinned in pins(spec.requirements).items()
            if not matches(installed.get(name), pinned)
        },
    )


def matches(installed: str | None, pinned: str) -> bool:
    """Tell whether a version meets a pin; as in PEP 440, ``2.13.0+cpu`` meets ``2.13.0``."""
    return installed is not None and (installed == pinned or installed.partition("+")[0] == pinned)


def ending(code: int) -> str:
    return f"died from {signal_name(-code)}" if code < 0 else f"exit code {code}"


# --- what pip and the compilers print, for the person who waits or has to mend it --------------------------------------

# The beginnings of lines with which pip and make, through CMake, show their progress.
_NEWS = re.compile(
    r"\s*(Collecting|Downloading|Processing|Using cached|Building wheel|Installing|WARNING: Retrying|\[ *\d+%\] Building) "
)

_HINTS = {
    r"ensurepip is not available|No module named venv|Python\.h: No such file": "Python {version} comes without some of "
    "its parts: install them (Debian and Ubuntu: python3-venv, python3-dev): {error}",
    r"No space left on device|Disk quota exceeded": "{error}: set HARNESS_CACHE (or TMPDIR, where pip unpacks) to a "
    "larger place",
    r"WARNING: Retrying \(": "the package index did not answer: {error}",
    r"fatal error: Killed signal": "the compiler ran out of memory: compile on fewer cores, as in "
    "`taskset -c 0 harness env build …`",
}

_SETUP_FAILED = "error: subprocess-exited-with-error"  # with `pip -v`, all that comes before is from the package itself
_COMPILE_ERROR = re.compile(
    r"\S+: (fatal |internal compiler )?error: |nvcc (error|fatal) *:|.*undefined reference to |\S*\bld: (?!.*warning)"
)
_MOST_WORDS = 12


def reason(output: Sequence[str], version: str) -> str:
    """Why a build command failed, in a line: the last error that it printed, put in context where we know more."""
    errors = [line[len("ERROR:") :].strip() for line in output if line.lower().startswith("error:")]
    error = errors[-1] if errors else "; ".join([line for line in output if line][-2:])
    hints = (hint for symptom, hint in _HINTS.items() if any(re.search(symptom, line) for line in output))
    return next(hints, "{error}").format(error=error, version=version)


def last_words(output: Sequence[str]) -> list[str]:
    """The first complaints of the compiler or the package's setup.py if something was being compiled, else nothing."""
    words: list[str] = []
    in_cmake_error = False  # its message follows on lines of its own, and ends with an empty one
    for line in output:
        in_cmake_error = line.startswith("CMake Error") or (in_cmake_error and not re.match("$|Call Stack", line))
        if (in_cmake_error or _COMPILE_ERROR.match(line)) and line not in words:
            words.append(line)
    if not words and _SETUP_FAILED in output:
        words = [line for line in output[: output.index(_SETUP_FAILED)] if line][-_MOST_WORDS:]
    return [textwrap.shorten(line, 300, placeholder=" …") for line in words[:_MOST_WORDS]]
