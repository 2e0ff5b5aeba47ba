"""The kernels: what a network does by itself, over the transports that backends train with. One folder each, found by name.

A folder holds ``specification.py`` with the ``SPECIFICATION``, a ``Kernel``, and ``body.py`` with ``Body``, what every rank
does beside its framework. Importing this package imports neither NumPy nor a framework.
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


def body(name: str) -> Any:
    """The class of which every rank makes one for each size: ``Body(fabric, size, seed)`` (see ``body.py``)."""
    return importlib.import_module(f"{__name__}.{name}.body").Body
