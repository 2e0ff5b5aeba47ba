"""A choice of combinations in which every pair of values occurs that any combination has.

Most defects that depend on a combination depend on two of its values (Kuhn, Wallace and Gallo, "Software fault interactions
and implications for software testing", IEEE TSE 30(6), 2004), so that the choice finds nearly all that the product would,
in a fraction of the time.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

Combination = tuple[Any, ...]


def combinations(*factors: Sequence[Any], possible: Callable[..., bool]) -> list[Combination]:
    """Every combination of one value of each factor that is possible."""
    return [values for values in itertools.product(*factors) if possible(*values)]


def cover(every: Iterable[Combination], first: Iterable[Combination] = ()) -> list[Combination]:
    """``first``, and as few others of ``every`` combination as a greedy search needs until each pair of values occurs.

    The same arguments give the same choice.
    """
    chosen = list(first)
    pairs_of = {values: pairs(values) for values in every}
    missing = set().union(*pairs_of.values()).difference(*(pairs(values) for values in chosen))
    while missing:
        best = max(pairs_of, key=lambda values: len(pairs_of[values] & missing))  # the first of those that are equal
        chosen.append(best)
        missing -= pairs_of[best]
    return chosen


def pairs(values: Combination) -> set[tuple[tuple[int, Any], tuple[int, Any]]]:
    """The pairs of values in a combination, each value with the number of its factor."""
    return set(itertools.combinations(enumerate(values), 2))
