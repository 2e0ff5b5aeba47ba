"""The choice of combinations that CI runs: every pair that is possible occurs, with few combinations."""

from __future__ import annotations

import itertools

from tests.faults.matrix import CHOICE, EVERY, FAULTS, LAUNCHERS, factors
from tests.pairwise import pairs


def test_every_fault_meets_every_backend_framework_transport_launcher_and_victim() -> None:
    every, chosen = ([factors(*values) for values in some] for some in (EVERY, CHOICE))
    assert set().union(*map(pairs, chosen)) == set().union(*map(pairs, every))
    backends, _, _, faults, launchers, _ = map(set, zip(*every, strict=True))
    assert (faults, launchers) == (set(FAULTS), set(LAUNCHERS)) and len(backends) >= 9
    for first, second, pair in ((0, 3, (backends, faults)), (0, 4, (backends, launchers)), (3, 4, (faults, launchers))):
        assert {(values[first], values[second]) for values in chosen} == set(itertools.product(*pair))
    assert len(CHOICE) < len(EVERY) / 5
