"""Simulations: few draws in CI and many in `make test-all`, with bounds from the binomial distribution of their number."""

import pytest
from scipy import stats

CHANCE = 1e-3  # that what is as probable as promised breaks its bound; seeds are fixed, so that it does always or never


def draws(many: int, few: int = 200) -> pytest.MarkDecorator:
    """Runs a test with ``count``: ``few``, and ``many`` where everything is tried."""
    return pytest.mark.parametrize("count", [few, pytest.param(many, marks=[pytest.mark.slow, pytest.mark.exhaustive])])


def least(probability: float, count: int, chance: float = CHANCE) -> int:
    """How many of ``count`` draws have something at least that has this probability."""
    return int(stats.binom.ppf(chance, count, probability))


def most(probability: float, count: int, chance: float = CHANCE) -> int:
    """How many of ``count`` draws have something at most that has this probability."""
    return int(stats.binom.ppf(1 - chance, count, probability))
