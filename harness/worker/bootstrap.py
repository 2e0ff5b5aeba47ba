"""Makes the ``harness`` package importable for the scripts of this folder, in environments where it is not installed.

The package is loaded from its own folder, without putting that folder's neighbours (the controller's packages) on the path.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def load_harness() -> None:
    """Load the package, and take this folder off the path: a script's folder is on it, and would shadow other modules."""
    package = HERE.parent
    spec = importlib.util.spec_from_file_location(
        "harness", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["harness"] = module
    spec.loader.exec_module(module)
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]


load_harness()
