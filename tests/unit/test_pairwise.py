"""The choice of combinations that CI runs: every pair that is possible occurs, with few combinations."""

from __future__ import annotations

import itertools

from tests.faults.matrix import CHOICE, EVERY, FAULTS, LAUNCHERS, factors
from tests.pairwise import combinations, cover, pairs


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


def test_every_fault_meets_every_backend_framework_transport_launcher_and_victim() -> None:
    every, chosen = ([factors(*values) for values in some] for some in (EVERY, CHOICE))
    assert set().union(*map(pairs, chosen)) == set().union(*map(pairs, every))
    backends, _, _, faults, launchers, _ = map(set, zip(*every, strict=True))
    assert (faults, launchers) == (set(FAULTS), set(LAUNCHERS)) and len(backends) >= 9
    for first, second, pair in ((0, 3, (backends, faults)), (0, 4, (backends, launchers)), (3, 4, (faults, launchers))):
        assert {(values[first], values[second]) for values in chosen} == set(itertools.product(*pair))
    assert len(CHOICE) < len(EVERY) / 5
