"""Fits of the published measurements, which ship with them: ``fits.npz``, by the problem and the code that solves it.

``studies/published/fits.py`` writes the file, and a test solves all of it again.
"""

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import numpy as np

from harness.core.parts import part
from harness.prediction.parameters import Floats
from harness.prediction.sampling import Population

SOLVERS = ("discrepancy.py", "problem.py", "sampling.py")


def file() -> Path:
    return part("reference") / "fits.npz"


@cache
def arrays() -> Mapping[str, Floats]:
    """The arrays of the file by their names, loaded as they are asked for."""
    loaded: Mapping[str, Floats] = np.load(file()) if file().exists() else {}
    return loaded


@cache
def _code() -> bytes:
    return b"".join((Path(__file__).parent / name).read_bytes() for name in SOLVERS)


def digest(values: Iterable[Floats]) -> str:
    """The name of a problem with these values, and with the code that solves it."""
    written = " ".join(f"{value:.8g}" for value in np.concatenate([np.ravel(value) for value in values]))
    return hashlib.sha256(_code() + written.encode()).hexdigest()[:16]


def population(name: str) -> Population | None:
    """The draws of a problem that ships, all of one weight; None for another one."""
    if f"{name}.draws" not in arrays():
        return None
    draws, (effective, evidence) = arrays()[f"{name}.draws"].astype(float), arrays()[f"{name}.worth"]
    return Population(draws, np.full(len(draws), 1 / max(1, len(draws))), float(effective), float(evidence), draws[:0])


def best(name: str) -> Floats | None:
    """The most probable scores [dimensions] of a problem that ships; None for another one."""
    return arrays().get(f"{name}.best")
