"""The scripts of this repository, as modules."""

import importlib.util
import sys
from types import ModuleType

from tests.conftest import ROOT


def script(path: str) -> ModuleType:
    """The script at ``path`` from the repository's root, loaded without running it."""
    name = path.removesuffix(".py").replace("/", ".")
    if name not in sys.modules:
        found = importlib.util.spec_from_file_location(name, ROOT / path)
        assert found is not None and found.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(found)
        found.loader.exec_module(sys.modules[name])
    return sys.modules[name]
