"""Random numbers that are a function of what they are for, the same in every process and framework. NumPy; Python 3.9."""

from __future__ import annotations

from typing import Union

import numpy as np

Numbers = Union[int, np.ndarray]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST, _TO_53_BITS = np.uint64(31), np.uint64(11)


def uniform(*names: Numbers) -> np.ndarray:
    """Numbers in [0, 1), float64, for integers that say what they are for; arrays among them are broadcast.

    Equal names give equal numbers, on every platform. Each name goes through one round of SplitMix64 (Steele, Lea and
    Flood, OOPSLA 2014), which has the last word on those before it.
    """
    state: np.ndarray = np.zeros(1, np.uint64)  # arrays throughout: NumPy warns when scalars wrap around
    for name in names:
        state = _mixed(state + np.array(name, np.int64, ndmin=1).astype(np.uint64) * _GOLDEN + _GOLDEN)
    numbers: np.ndarray = (state >> _TO_53_BITS) * 2.0**-53
    return numbers


def _mixed(state: np.ndarray) -> np.ndarray:
    for shift, factor in _MIX:
        state = (state ^ state >> shift) * factor
    mixed: np.ndarray = state ^ state >> _LAST
    return mixed
