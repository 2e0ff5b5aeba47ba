"""The choice of combinations that CI runs: every pair that is possible occurs, with few combinations."""

from __future__ import annotations

import itertools

from tests.faults.matrix import CHOICE, EVERY, FAULTS, LAUNCHERS, parts
from tests.pairwise import combinations, cover, pairs
from tests.parity.conftest import WAYS


def test_every_pair_occurs_and_few_combinations_are_needed() -> None:
    every = combinations(range(10), range(6), range(3), possible=lambda *_: True)
    chosen = cover(every)
    assert set().union(*map(pairs, chosen)) == set().union(*map(pairs, every))
    assert 60 <= len(chosen) <= 63  # no choice has fewer than ten times six
    assert len(set(chosen)) == len(chosen) and set(chosen) <= set(every)
    assert cover(every) == chosen


def test_values_may_consist_of_several() -> None:
    every = combinations([("a", 1), ("a", 2), ("b", 1), ("b", 2)], "cd", possible=lambda *_: True)
    assert len(cover(every)) == 8 and len(cover(every, parts=lambda values: (*values[0], values[1]))) == 4


def test_what_is_impossible_is_never_chosen_and_what_is_chosen_first_counts() -> None:
    every = combinations("ab", "cd", "ef", possible=lambda one, two, _: (one, two) != ("a", "c"))
    first = [("b", "d", "f")]
    chosen = cover(every, first)
    assert chosen[:1] == first
    assert set().union(*map(pairs, chosen)) == set().union(*map(pairs, every))
    assert not [values for values in chosen if values[:2] == ("a", "c")]


def test_every_backend_and_every_transport_meets_every_fault_and_launcher_and_every_way_is_there() -> None:
    chosen = [parts(values) for values in CHOICE]
    backends = {f"{way.backend}:{way.framework}" for way in WAYS}
    factors = (backends, {way.transport for way in WAYS}, FAULTS, LAUNCHERS)
    for first, second in ((0, 2), (0, 3), (1, 2), (1, 3), (2, 3)):
        met = {(values[first], values[second]) for values in chosen}
        assert met == set(itertools.product(factors[first], factors[second]))
    assert {values[0] for values in CHOICE} == set(WAYS)
    assert len(CHOICE) < len(EVERY) / 5
