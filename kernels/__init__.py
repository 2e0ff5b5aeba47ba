"""The kernels: what transports, and what computes over them, do without a training. One module each, found by name.

A module holds the ``SPECIFICATION``, a ``Kernel``, and what every rank does beside its framework: ``Body`` among ranks
alone, ``WorkerBody`` beside parameter servers, or both. There may be a ``reducer``, what every server does. Importing this
package imports neither NumPy nor a framework; a kernel's module imports NumPy.
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
    modules = {file.stem for file in Path(__file__).parent.glob("*.py")}
    return sorted(modules - {"__init__", "kernel", "values"})


def specification(name: str) -> Kernel:
    """The kernel of this name. Raises ``UnknownKernel``."""
    if name not in names():
        raise UnknownKernel(f"kernel {name!r} is not known: must be one of {', '.join(names())}")
    return _module(name).SPECIFICATION


def body(name: str, servers: int) -> Any:
    """The class of which every rank makes one for each size: ``Body(fabric, size, seed)``. It suits a fabric's servers.

    ``step()`` is measured. ``problem()``, called by all ranks, is an error in the result of the last step, "" if none.
    """
    return getattr(_module(name), "WorkerBody" if servers else "Body")


def reducer(name: str) -> Any:
    """The function that every server calls for each size, ``reducer(fabric, size, seed)``. None if there is no need.

    Each of the functions that it returns is called again and again, in a thread of its own.
    """
    return getattr(_module(name), "reducer", None)


def _module(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name}")
