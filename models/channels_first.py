"""How frameworks that put channels first store the canonical arrays: kernels transposed. NumPy only; Python 3.9."""

from __future__ import annotations

from typing import Tuple

import numpy as np

# By rank: (in, out) -> (out, in) and HWIO -> OIHW.
STORED = {1: (0,), 2: (1, 0), 4: (3, 2, 0, 1)}
CANONICAL = {1: (0,), 2: (1, 0), 4: (2, 3, 1, 0)}


def stored_shape(shape: Tuple[int, ...]) -> Tuple[int, ...]:
    """The shape of what ``stored`` makes of a canonical array."""
    return tuple(shape[axis] for axis in STORED[len(shape)])


def stored(value: np.ndarray) -> np.ndarray:
    """A canonical array as such a framework stores it, in C order."""
    return np.ascontiguousarray(value.transpose(STORED[value.ndim]))


def canonical(value: np.ndarray) -> np.ndarray:
    """A copy of a stored array in the canonical layout, in C order."""
    return np.array(value.transpose(CANONICAL[value.ndim]), order="C")
