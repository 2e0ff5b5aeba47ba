"""The kernels: what transports, and what computes over them, do without a training. One folder each, found by name.

A folder holds ``specification.py`` with the ``SPECIFICATION``, a ``Kernel``, and ``Body``, what every rank does beside its
framework: in ``body.py`` among ranks alone, in ``servers.py`` among ranks and parameter servers, or both. There may be a
``Reducer`` in ``servers.py``, what every server does. Importing this package imports neither NumPy nor a framework.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, List

from harness.errors import InvalidInput
from harness.kernels.kernel import Kernel


class UnknownKernel(InvalidInput, ValueError):
    """No kernel has this name."""


def names() -> List[str]:
    return sorted(file.parent.name for file in Path(__file__).parent.glob("*/specification.py"))


def specification(name: str) -> Kernel:
    """What the kernel of this name moves. Raises ``UnknownKernel``."""
    if name not in names():
        raise UnknownKernel(f"kernel {name!r} is not known: must be one of {', '.join(names())}")
    found: Kernel = importlib.import_module(f"{__name__}.{name}.specification").SPECIFICATION
    return found


def body(name: str, servers: int) -> Any:
    """The class of which every rank makes one for each size: ``Body(fabric, size, seed)``. It suits a fabric's servers."""
    return importlib.import_module(f"{__name__}.{name}.{'servers' if servers else 'body'}").Body


def reducer(name: str) -> Any:
    """The class of which every server makes one for each size: ``Reducer(fabric, size, seed)``. None if there is no need.

    Each of its ``loops()`` is called again and again, in a thread of its own.
    """
    return getattr(importlib.import_module(f"{__name__}.{name}.servers"), "Reducer", None)
