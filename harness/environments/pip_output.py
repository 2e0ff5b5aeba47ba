"""What pip and the compilers that it starts print, in words for the person who waits or has to mend it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

_FILE = r"(?:\S*/)?(?P<name>[\w.]+)-(?P<version>[^-\s/]+)\S*"  # a wheel's name, with or without the place it is in
_NEWS = [
    (re.compile(r"Collecting (?P<name>[\w.-]+)"), "looking for {name}"),
    (re.compile(rf"Downloading {_FILE} \((?P<size>.+)\)"), "downloading {name} {version} ({size})"),
    (re.compile(rf"(?:Using cached|Processing) {_FILE}"), "found {name} {version}"),
    (re.compile(r"Building wheel for (?P<name>[\w.-]+)(?!.*(finished|still running))"), "compiling {name}"),
    (re.compile(r"WARNING: Retrying \("), "the package index does not answer, pip tries again"),
]

_PERCENT = re.compile(r"\[ *(?P<percent>\d+)%\] (Building|Linking) ")  # make, from CMake

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


def describe(line: str, before: str | None = None) -> str | None:
    """What a line of pip's output means to somebody who waits, None if nothing. ``before`` is the last such news."""
    line = line.strip()
    if line.startswith("Installing collected packages:"):
        return f"installing {line.count(',') + 1} packages"
    if done := _PERCENT.match(line):  # a package's make does not say which package it compiles: pip said it before
        what = before.partition(":")[0] if before and before.startswith("compiling") else "compiling"
        return f"{what}: {done['percent']} %"
    return next((text.format(**match.groupdict()) for news, text in _NEWS if (match := news.match(line))), None)


def reason(output: Sequence[str], version: str) -> str:
    """Why a build command failed, in a line: the last error that it printed, put in context where we know more."""
    errors = [line[len("ERROR:") :].strip() for line in output if line.lower().startswith("error:")]
    error = errors[-1] if errors else "; ".join([line for line in output if line][-2:])
    hints = (hint for symptom, hint in _HINTS.items() if any(re.search(symptom, line) for line in output))
    return next(hints, "{error}").format(error=error, version=version)


def last_words(output: Sequence[str]) -> list[str]:
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
