"""The models that can be trained: one folder each, found by name.

A folder holds ``specification.py`` with the ``SPECIFICATION`` that every framework's definition follows (a
``ModelSpecification``, see ``layers.py``). A model that needs other layers has its own definitions in the folder:
``torch.py``, ``tensorflow.py``, ``jax.py``, ``caffe2.py``, each with a ``build`` that creates exactly the tensors of the
specification.

Another package announces its models through the entry point group ``harness.models``: a name, and the package that is
the model's folder. Importing this package imports neither NumPy nor a framework.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import replace
from functools import lru_cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from harness.errors import InvalidInput, error_in_one_line
from harness.models.layers import ModelSpecification

GROUP = "harness.models"


class UnknownModel(InvalidInput, ValueError):
    """No model has this name, or the package that announces it does not load."""


def names() -> List[str]:
    return sorted(_packages())


def specification(name: str, bytes_scale: float = 1.0) -> ModelSpecification:
    """The model's layers, tensors and sizes, with that scale. ``-`` is accepted for ``_``; raises ``UnknownModel``."""
    package = _package(name)
    try:
        loaded: ModelSpecification = importlib.import_module(f"{package}.specification").SPECIFICATION
    except Exception as error:  # whatever somebody else's module does when it is imported
        raise UnknownModel(f"model {name!r} does not load: {error_in_one_line(error)}") from None
    return loaded if bytes_scale == 1 else replace(loaded, scale=bytes_scale)


def definition(name: str, framework: str) -> Callable[..., Any]:
    """A ``build`` as in ``FRAMEWORK_layers.py``, less the specification. Imports the framework; raises ``UnknownModel``."""
    package = _package(name)
    if importlib.util.find_spec(f"{package}.{framework}"):
        build: Callable[..., Any] = importlib.import_module(f"{package}.{framework}").build
        return build
    return partial(importlib.import_module(f"{__name__}.{framework}_layers").build, specification(name))


def announced_folder(name: str) -> Optional[str]:
    """The folder of a model that another package announces; None for one of this package."""
    package = _package(name)
    return None if package.startswith(f"{__name__}.") else str(importlib.import_module(package).__path__[0])


def announce(name: str, folder: str) -> None:
    """Make a model of another package known to a worker, whose environment may lack that package."""
    file = Path(folder, "__init__.py")
    spec = importlib.util.spec_from_file_location(file.parent.name, file, submodule_search_locations=[folder])
    assert spec and spec.loader
    package = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    _packages()[name] = spec.name


@lru_cache(maxsize=None)
def _packages() -> Dict[str, str]:
    """The packages of all models, by the models' names: those that other packages announce, and those in this folder."""
    points: Any = metadata.entry_points()
    ours = points.select(group=GROUP) if hasattr(points, "select") else points.get(GROUP, ())  # Python 3.9 has a dict
    announced = {point.name.replace("-", "_"): point.value for point in ours}
    folders = [file.parent.name for file in Path(__file__).parent.glob("*/specification.py")]
    return {**announced, **{folder: f"{__name__}.{folder}" for folder in folders}}


def _package(name: str) -> str:
    package = _packages().get(name.replace("-", "_"))
    if package is None:
        raise UnknownModel(f"unknown model {name!r}; known: {', '.join(names())}")
    return package
