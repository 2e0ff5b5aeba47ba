"""Synthetic input: one batch of noise, the same for every framework. NumPy only; Python 3.9."""

from __future__ import annotations

from typing import Tuple

import numpy as np


def batch(seed: int, rank: int, batch_size: int, image_size: int, num_classes: int) -> Tuple[np.ndarray, np.ndarray]:
    """The batch that a rank trains on in every step: images float32 [N, H, W, 3], labels int64 [N].

    Images are standard normal, as normalised photographs roughly are; labels are uniform in [0, num_classes).
    Equal arguments give equal values on every platform; another rank gets other values. ``seed`` is in [0, 2**32).
    """
    random = np.random.RandomState([seed, rank])  # the legacy generator, because NumPy promises never to change it
    images = random.standard_normal((batch_size, image_size, image_size, 3)).astype(np.float32)
    return images, random.randint(num_classes, size=batch_size, dtype=np.int64)
