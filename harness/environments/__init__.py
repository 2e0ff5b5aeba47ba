"""One isolated Python environment per backend: named by its content, built once with venv and pip, checked by import.

Environments live outside the checkout, in ``cache_folder()``. A name holds a hash of all that decides the content: a
changed pin gives a new environment, equal pins share one. It is ready only once ``complete.json`` is in it, which is
written last: what a killed pip leaves behind is never mistaken for it.
"""

from harness.environments.building import build
from harness.environments.checking import CheckReport, check
from harness.environments.pythons import BasePython, at, find_python, given_python
from harness.environments.spec import (
    BuildFailed,
    EnvironmentMissing,
    EnvironmentProblem,
    EnvironmentSpec,
    RunCommand,
    Variant,
)
from harness.environments.store import (
    build_command,
    cache_folder,
    lacking,
    lacking_tools,
    path,
    pins,
    python,
    require,
    status,
)

# The text of a backend's build.py is part of its environments' keys. Those files keep this name: with another one,
# everybody would have to compile Horovod again.
Run = RunCommand

__all__ = [
    "BasePython",
    "BuildFailed",
    "CheckReport",
    "EnvironmentMissing",
    "EnvironmentProblem",
    "EnvironmentSpec",
    "Run",
    "RunCommand",
    "Variant",
    "at",
    "build",
    "build_command",
    "cache_folder",
    "check",
    "find_python",
    "given_python",
    "lacking",
    "lacking_tools",
    "path",
    "pins",
    "python",
    "require",
    "status",
]
