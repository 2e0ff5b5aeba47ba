"""What an environment's own Python says about it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.environments import EnvironmentSpec, pins, require
from harness.environments.pythons import isolated

CHECK_TIMEOUT_S = 600  # a cold import of TensorFlow from a busy parallel file system takes minutes


@dataclass(frozen=True)
class CheckReport:
    """What an environment's own Python says about it."""

    python: Path
    python_version: str
    imported: Mapping[str, str]  # module → version, "" where it has none
    failed: Mapping[str, str]  # module → why it does not import, in one line
    mismatched: Mapping[str, tuple[str, str | None]]  # package → (pinned, installed or None)
    seconds: float


def check(spec: EnvironmentSpec, provided: Path | None = None) -> CheckReport:
    """Import the modules and compare the packages with the pins, in the built environment or a Python from ``at``.

    Raises EnvironmentProblem if there is neither. A failed import is reported, not raised.
    """
    interpreter = provided or require(spec)
    began = time.monotonic()
    # What a site provides may be found through its modules' PYTHONPATH; what was built here must stand alone.
    facts, death = probe(interpreter, spec.imports, os.environ if provided else isolated())
    installed, imported, failed = (facts.get(kind, {}) for kind in ("installed", "imported", "failed"))
    return CheckReport(
        python=interpreter,
        python_version=facts.get("python", ""),
        imported=imported,
        failed=failed | {module: death for module in spec.imports if module not in imported | failed},
        mismatched={
            name: (pinned, installed.get(name))
            for name, pinned in pins(spec.requirements).items()
            if not matches(installed.get(name), pinned)
        },
        seconds=time.monotonic() - began,
    )


def matches(installed: str | None, pinned: str) -> bool:
    """Whether a version meets a pin; as in PEP 440, ``2.13.0+cpu`` meets ``2.13.0``."""
    return installed is not None and (installed == pinned or installed.partition("+")[0] == pinned)


_PROBE_MARK = "harness-probe:"  # frameworks print to stdout too
_PROBE = f"""
import importlib, platform, re, sys, json
from importlib.metadata import distributions
def report(kind, value):
    print("{_PROBE_MARK}" + json.dumps([kind, value]), flush=True)
report("python", platform.python_version())
names = ((d.metadata["Name"], d.version) for d in distributions())
report("installed", {{re.sub("[-_.]+", "-", name).lower(): version for name, version in names if name}})
for module in sys.argv[1:]:
    try:
        report("imported", {{module: str(getattr(importlib.import_module(module), "__version__", ""))}})
    except BaseException as error:
        report("failed", {{module: " ".join((type(error).__name__ + ": " + str(error)).split())}})
"""


def probe(interpreter: Path, modules: Sequence[str], environ: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """What a Python reports about itself and what it can import, and why it reported no more."""
    argv = [str(interpreter), "-c", _PROBE, *modules]
    try:
        # in a neutral folder: `-c` puts the current one first on the path, and a torch/ or tensorflow/ there would win
        answer = subprocess.run(
            argv, env=environ, cwd="/", capture_output=True, text=True, errors="replace", timeout=CHECK_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return {}, f"no answer within {CHECK_TIMEOUT_S} s"
    except OSError as error:
        return {}, f"Python does not start: {error.strerror}"
    facts: dict[str, Any] = {}
    for line in answer.stdout.splitlines():
        if line.startswith(_PROBE_MARK):
            kind, value = json.loads(line.removeprefix(_PROBE_MARK))
            facts[kind] = facts[kind] | value if kind in facts else value
    return facts, ending(answer.returncode)


def ending(code: int) -> str:
    """How a process ended, from its exit code."""
    return f"died from {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
