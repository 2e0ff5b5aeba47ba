"""What messages hold, and whether what has arrived is right."""

from __future__ import annotations

import numpy as np


def message(rank: int, count: int, seed: int) -> np.ndarray:
    """Whole numbers from 0 to 15 (float32 [count]), others on each rank: sums of those of a million ranks are exact."""
    return ((np.arange(count) * 7 + rank * 5 + seed) % 16).astype(np.float32)


def difference(arrived: np.ndarray, expected: np.ndarray) -> str:
    """What is wrong with what has arrived, "" if nothing is."""
    wrong = int(np.count_nonzero(arrived != expected))
    return f"{wrong} of {expected.size} numbers are wrong" if wrong else ""
