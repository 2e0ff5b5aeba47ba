"""Random numbers that are the same in every process and framework. NumPy; Python 3.9."""

from __future__ import annotations

from typing import Tuple, Union

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST, _TO_53_BITS = np.uint64(31), np.uint64(11)


def uniform(*names: Union[int, np.ndarray]) -> np.ndarray:
    """Numbers in [0, 1), float64, for integers that say what they are for; arrays among them are broadcast.

    Equal names give equal numbers, on every platform. Each name goes through one round of SplitMix64 (Steele, Lea and
    Flood, OOPSLA 2014), which has the last word on those before it.
    """
    state: np.ndarray = np.zeros(1, np.uint64)  # arrays throughout: NumPy warns when scalars wrap around
    for name in names:
        state = state + np.array(name, np.int64, ndmin=1).astype(np.uint64) * _GOLDEN + _GOLDEN
        for shift, factor in _MIX:
            state = (state ^ state >> shift) * factor
        state = state ^ state >> _LAST
    numbers: np.ndarray = (state >> _TO_53_BITS) * 2.0**-53
    return numbers


def synthetic_batch(
    seed: int, rank: int, batch_size: int, image_size: int, num_classes: int
) -> Tuple[np.ndarray, np.ndarray]:
    """The batch that a rank trains on in every step: images float32 [N, H, W, 3], labels int64 [N].

    Images are standard normal, as normalised photographs roughly are; labels are uniform in [0, num_classes).
    Another rank gets other values. ``seed`` is in [0, 2**32).
    """
    random = np.random.RandomState([seed, rank])  # the legacy generator, because NumPy promises never to change it
    images = random.standard_normal((batch_size, image_size, image_size, 3)).astype(np.float32)
    return images, random.randint(num_classes, size=batch_size, dtype=np.int64)
