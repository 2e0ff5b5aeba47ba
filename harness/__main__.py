"""``python -m harness`` is ``harness``. Its packages come from its own environment, also where $PYTHONPATH has others."""

import os
import sys
import sysconfig
from pathlib import Path
from typing import NoReturn

OWN = ("click", "numpy", "pandas", "pydantic", "pydantic_core", "scipy")  # packages of which another one would not do


def main() -> NoReturn:
    """Modules of a cluster put packages of their Python there, for programs; they are left out of harness itself."""
    named = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    ours = {Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib")}
    conflicting = [package for package in OWN if any((folder / package).is_dir() for folder in ours)]
    others = [Path(entry) for entry in named if Path(entry).resolve() not in ours]
    foreign = {str(entry.absolute()) for entry in others if any((entry / package).is_dir() for package in conflicting)}
    sys.path[:] = [entry for entry in sys.path if str(Path(entry).absolute()) not in foreign]
    from harness.cli import main as run

    run()


if __name__ == "__main__":
    main()
