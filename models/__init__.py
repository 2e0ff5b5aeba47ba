"""The models that can be trained: one folder each, found by name.

A folder holds ``specification.py`` with the ``SPECIFICATION`` that every framework's definition follows (a
``ModelSpecification``, see ``layers.py``). Importing this package imports neither NumPy nor a framework.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Callable, FrozenSet, List

from harness.errors import InvalidInput
from harness.models.layers import ModelSpecification


class UnknownModel(InvalidInput, ValueError):
    """No model has this name."""


def names() -> List[str]:
    return sorted(_folders())


@lru_cache(maxsize=None)
def specification(name: str, bytes_scale: float = 1.0) -> ModelSpecification:
    """The model's layers, tensors and sizes, with that scale. ``-`` is accepted for ``_``; raises ``UnknownModel``."""
    folder = name.replace("-", "_")
    if folder not in _folders():
        close = [f"did you mean {each}? " for each in get_close_matches(folder, names(), n=1)]
        raise UnknownModel(f"unknown model {name!r}; {''.join(close)}known models are {', '.join(names())}")
    loaded = importlib.import_module(f"{__name__}.{folder}.specification").SPECIFICATION
    return loaded if bytes_scale == 1 else replace(loaded, scale=bytes_scale)


def definition(name: str, framework: str) -> Callable[..., Any]:
    """A ``build`` as in ``FRAMEWORK_layers.py``, less the specification. Imports the framework; raises ``UnknownModel``."""
    return partial(importlib.import_module(f"{__name__}.{framework}_layers").build, specification(name))


@lru_cache(maxsize=None)
def _folders() -> FrozenSet[str]:
    return frozenset(file.parent.name for file in Path(__file__).parent.glob("*/specification.py"))
