"""The contents of messages and matrices, and a check of those that have arrived or were computed."""

from __future__ import annotations

import numpy as np


def message(rank: int, count: int, seed: int) -> np.ndarray:
    """Whole numbers from 0 to 15 (float32 [count]), others on each rank: sums of those of a million ranks are exact."""
    return ((np.arange(count) * 7 + rank * 5 + seed) % 16).astype(np.float32)


def drawn(seed: int, rank: int, *shape: int) -> np.ndarray:
    """Whole numbers from 0 to 15, drawn (float64 [shape]). Products of such matrices of 2^40 columns are exact."""
    return np.random.default_rng([seed, rank]).integers(0, 16, shape).astype(np.float64)


def difference(arrived: np.ndarray, expected: np.ndarray, within: float = 0.0) -> str:
    """An error in the numbers that have arrived, "" if all are within ``within`` of the expected ones."""
    right = arrived == expected if not within else np.abs(arrived - expected) <= within  # neither is true of a NaN
    wrong = int(np.count_nonzero(~right))
    return f"{wrong} of {expected.size} numbers are wrong" if wrong else ""
