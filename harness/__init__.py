"""harness: a comparative benchmark suite for distributed training on HPC clusters.

Its functions are those of ``harness.api``, loaded when they are first used: workers load this module inside every
backend's environment (Python 3.9 and later), where nothing else is. ``__init__.pyi`` tells type checkers about them.
"""

import importlib

__version__ = "0.1.0"
__all__ = ["__version__", "ab", "compare", "kernel", "load", "load_kernels", "plan", "predict", "run", "verdict"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'harness' has no attribute '{name}'")
    return getattr(importlib.import_module("harness.api"), name)


def __dir__() -> "list[str]":  # Python 3.6 loads this, too
    return __all__
