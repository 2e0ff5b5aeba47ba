"""Makes the ``harness`` package importable for the scripts of this folder, in environments where it is not installed.

The package is loaded from its own folder, without putting that folder's neighbours (the controller's packages) on the path.
Beside an image this runs on a system's Python, which may be 3.6.
"""

import importlib.util
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location(
    "harness", HERE.parent / "__init__.py", submodule_search_locations=[str(HERE.parent)]
)
assert spec and spec.loader
sys.modules["harness"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["harness"])
# A script's folder is on the path, and would shadow other modules.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]
