"""The study of whether all backends learn the same: its verdict, and what it does again."""

from __future__ import annotations

import numpy as np

from tests.scripts import script


def test_ways_that_learn_the_same_are_told_from_one_that_does_not_and_from_noise_that_hides_it() -> None:
    learning = script("examples/learning.py")
    random = np.random.default_rng(1)
    alike = 0.95 + random.normal(0, 0.01, (1, 3)) + random.normal(0, 0.003, (21, 3))  # ways share their seeds
    assert learning.judged(alike)["same"]
    one_worse = alike.copy()
    one_worse[4] -= 0.05
    assert not learning.judged(one_worse)["same"]
    assert not learning.judged(0.9 + random.normal(0, 0.05, (21, 3)))["same"]
    equal = learning.judged(np.tile([0.96, 0.97], (4, 1)))
    assert equal["same"] and equal["p_value"] == 1.0
