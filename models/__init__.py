"""The models that can be trained: one folder each, found by name.

A folder holds ``specification.py`` (the architecture as plain data) and one definition per framework that creates
exactly the tensors of the specification. Importing this package imports neither NumPy nor a framework.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import List

from harness.errors import InvalidInput

# Imported before the function below takes the name `specification`: a submodule imported later would replace it.
from harness.models.specification import ModelSpecification, Tensor

__all__ = ["ModelSpecification", "Tensor", "UnknownModel", "definition", "names", "specification"]

FRAMEWORKS = ("torch", "tensorflow", "caffe2")


class UnknownModel(InvalidInput, ValueError):
    """No folder has the name that was asked for; the message lists those that exist."""


def names() -> List[str]:
    """The models that exist, sorted."""
    return sorted(path.parent.name for path in Path(__file__).parent.glob("*/specification.py"))


def specification(name: str) -> ModelSpecification:
    """The model's tensors and sizes. ``-`` is accepted for ``_``; raises ``UnknownModel``."""
    module = importlib.import_module(f"{__name__}.{_folder(name)}.specification")
    found: ModelSpecification = module.SPECIFICATION
    return found


def definition(name: str, framework: str) -> ModuleType:
    """The model written in ``framework`` ("torch": ``build()``, "tensorflow": ``logits(...)``); imports the framework.

    Raises ``UnknownModel``, or ``ValueError`` for a framework that no model is written in.
    """
    if framework not in FRAMEWORKS:
        raise ValueError(f"no model is written in {framework!r}; known: {', '.join(FRAMEWORKS)}")
    return importlib.import_module(f"{__name__}.{_folder(name)}.{framework}")


def _folder(name: str) -> str:
    folder = name.replace("-", "_")
    if folder not in names():
        raise UnknownModel(f"unknown model {name!r}; known: {', '.join(names())}")
    return folder
