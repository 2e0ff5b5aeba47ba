"""Experiments: a study, the questions it is to answer, and pure functions that read the answers off its results.

One module for each experiment, named after it with ``_`` for ``-``. It has a ``DESCRIPTION``, the ``STUDY`` that measures,
the ``NODES`` that this takes, and ``analysed(frame, control)``, which makes an ``Analysis`` of a DataFrame of
``results.load``. ``page`` writes that down for people.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

from harness.errors import InvalidInput

STUDIES = Path(__file__).parents[1] / "studies"
ANALYSIS = "analysis.json"  # what an experiment leaves for scripts
LIMITED, UNLIMITED = "limited", "unlimited"  # folders with its runs, by whether their links had a limit
_HELPERS = {"findings", "page", "points"}


def names() -> list[str]:
    """The experiments that exist, sorted."""
    modules = (path.stem for path in Path(__file__).parent.glob("[!_]*.py"))
    return sorted(name.replace("_", "-") for name in modules if name not in _HELPERS)


def parted(folder: Path) -> tuple[Path, Path] | None:
    """The runs of a folder that holds both kinds, which must not be mixed: limited and unlimited ones."""
    limited, unlimited = folder / LIMITED, folder / UNLIMITED
    return (limited, unlimited) if limited.is_dir() and unlimited.is_dir() else None


def find(name: str) -> ModuleType:
    """The module of the experiment ``name``. Raises InvalidInput for one that does not exist."""
    if (wanted := name.replace("_", "-")) not in names():
        raise InvalidInput(f"experiment {name!r}: there is none of that name; known: {', '.join(names())}")
    return importlib.import_module(f"{__name__}.{wanted.replace('-', '_')}")
