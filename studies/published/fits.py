"""The fits of the published measurements, which ship with them (``harness/prediction/shipped.py``).

    .venv/bin/python studies/published/fits.py

It takes half a minute, after a change of the rows, of the law or of the code that solves it.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.prediction import shipped
from harness.prediction.fitting import Fit, fit, shares
from harness.prediction.observations import groups, informative
from harness.prediction.sampling import SEED, systematic
from harness.results.sources import load, with_number


def of_fit(fitted: Fit) -> dict[str, NDArray[Any]]:
    """The arrays of a fit by their names in the file: draws, their worth, and the most probable scores."""
    random = np.random.default_rng(SEED)
    kept: dict[str, NDArray[Any]] = {}
    for problem, population, count in zip(fitted.problems, fitted.populations, shares(fitted.chances), strict=True):
        name = problem.key
        drawn = systematic(population.weights, count, random)
        random.permutation(drawn)  # as a fit does, so that it draws the same from these
        kept[f"{name}.draws"] = population.points[drawn].astype(np.float32)
        kept[f"{name}.worth"] = np.array([population.effective, population.log_evidence])
    for problem, optimum in fitted.optima:
        kept[f"{problem.key}.best"] = optimum.x
    return kept


def computed() -> dict[str, NDArray[Any]]:
    """The arrays of all fits, solved anew where the file does not have them."""
    every, _ = groups(with_number(load(["reference"])))
    fits = [fit(group) for group in every if informative(group.observations)]
    return {name: array for fitted in fits for name, array in of_fit(fitted).items()}


if __name__ == "__main__":
    shipped.file().unlink(missing_ok=True)
    arrays: dict[str, Any] = computed()  # no name is that of an argument of savez
    np.savez(shipped.file(), **arrays)
