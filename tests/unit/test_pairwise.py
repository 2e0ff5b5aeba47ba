"""The choice of combinations that CI runs: every pair that is possible occurs, with few combinations."""

from __future__ import annotations

import itertools

from tests.faults.matrix import CHOICE, EVERY, FAULTS, LAUNCHERS
from tests.pairwise import combinations, cover, pairs
from tests.parity.conftest import WAYS


def test_every_pair_occurs_and_few_combinations_are_needed() -> None:
    every = combinations(range(10), range(6), range(3), possible=lambda *_: True)
    chosen = cover(every)
    assert set().union(*map(pairs, chosen)) == set().union(*map(pairs, every))
    assert 60 <= len(chosen) <= 63  # no choice has fewer than ten times six
    assert len(set(chosen)) == len(chosen) and set(chosen) <= set(every)
    assert cover(every) == chosen


def test_what_is_impossible_is_never_chosen_and_what_is_chosen_first_counts() -> None:
    every = combinations("ab", "cd", "ef", possible=lambda one, two, _: (one, two) != ("a", "c"))
    first = [("b", "d", "f")]
    chosen = cover(every, first)
    assert chosen[:1] == first
    assert set().union(*map(pairs, chosen)) == set().union(*map(pairs, every))
    assert not [values for values in chosen if values[:2] == ("a", "c")]


def test_every_way_meets_every_fault_and_every_launcher_and_every_fault_meets_every_launcher() -> None:
    for first, second, factors in ((0, 1, (WAYS, FAULTS)), (0, 2, (WAYS, LAUNCHERS)), (1, 2, (FAULTS, LAUNCHERS))):
        assert {(values[first], values[second]) for values in CHOICE} == set(itertools.product(*factors))
    assert len(CHOICE) < len(EVERY) / 3
