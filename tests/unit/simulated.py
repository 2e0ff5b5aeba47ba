"""Simulations: few draws by default and many when slow, with bounds from the binomial distribution of their number."""

from __future__ import annotations

import pytest
from scipy import stats

CHANCE = 1e-3  # that what is as probable as promised breaks its bound; seeds are fixed, so that it does always or never


def draws(many: int, few: int = 200) -> pytest.MarkDecorator:
    """Runs a test with ``count``: ``few`` by default, and ``many`` when slow."""
    return pytest.mark.parametrize("count", [few, pytest.param(many, marks=pytest.mark.slow)])


def least(probability: float, count: int, chance: float = CHANCE) -> int:
    """How many of ``count`` draws have something at least that has this probability."""
    return int(stats.binom.ppf(chance, count, probability))


def most(probability: float, count: int, chance: float = CHANCE) -> int:
    """How many of ``count`` draws have something at most that has this probability."""
    return int(stats.binom.ppf(1 - chance, count, probability))
