"""The part of a step that a law leaves out: unknown, alike at near sizes, and larger the further sizes are apart.

The logarithm of measured over predicted steps is taken to wander with the logarithm of the workers, from 0 at a single
one: its variance grows by ``scale``² with every doubling (Brownian motion; a discrepancy as in Kennedy and O'Hagan 2001).
So the part that is missing at the measured sizes is continued to others, and is less sure the further away they are. The
part that is missing in one way of training (``Workload.way``) is missing in another by half.
"""

from collections.abc import Hashable, Sequence

import numpy as np

from harness.prediction.parameters import Floats

SHARED = 0.5  # of two ways' variance
# The scale beforehand is half of a t distribution: a law is good to a per cent per doubling, or wrong by much more.
TYPICAL, FREEDOM = 0.0125, 3


def scale_at(score: Floats) -> Floats:
    """The scale at a standard normal ``score``: the larger, the larger."""
    from scipy.special import ndtr, stdtrit

    return np.asarray(-TYPICAL * stdtrit(FREEDOM, 0.5 * ndtr(-score)))


class Discrepancy:
    """The law's discrepancy at ``workers`` in ``ways``; ``errors`` are the standard errors of their logarithms: [runs]."""

    def __init__(self, workers: Sequence[int], ways: Sequence[Hashable], errors: Sequence[float]) -> None:
        self.ways = list(ways)
        self.sizes = np.log2(np.asarray(workers, float))
        self.errors = np.asarray(errors, float)
        alike = np.array([[way == other for other in self.ways] for way in self.ways], bool).reshape([len(ways)] * 2)
        covariance = np.minimum(self.sizes[:, None], self.sizes) * np.where(alike, 1.0, SHARED)
        values, self.vectors = np.linalg.eigh(covariance / self.errors[:, None] / self.errors)
        self.values = np.maximum(values, 0.0)

    def _white(self, residuals: Floats) -> Floats:
        """The residuals as independent numbers, with variances 1 + scale² × ``values``."""
        return np.asarray(residuals / self.errors @ self.vectors)

    def log_likelihood(self, residuals: Floats, scale: Floats) -> Floats:
        """The log likelihood of residuals [draws, runs], without a constant: [draws]."""
        variances = 1 + scale[:, None] ** 2 * self.values
        return np.asarray(-0.5 * (self._white(residuals) ** 2 / variances + np.log(variances)).sum(axis=-1))

    def continued(
        self, workers: int, way: Hashable, residuals: Floats, scale: Floats, random: np.random.Generator
    ) -> Floats:
        """Draws [draws] of the logarithm of measured over predicted steps at another size, perhaps in another way.

        ``residuals`` [draws, runs] are those that were seen; ``scale`` is [draws].
        """
        size = float(np.log2(workers))
        alike = np.array([way == other for other in self.ways], bool)
        shared = np.minimum(self.sizes, size) * np.where(alike, 1.0, SHARED) / self.errors @ self.vectors
        variances = 1 + scale[:, None] ** 2 * self.values
        mean = scale**2 * ((self._white(residuals) / variances) @ shared)
        variance = scale**2 * size - scale**4 * ((1 / variances) @ shared**2)
        return np.asarray(mean + np.sqrt(np.maximum(variance, 0.0)) * random.standard_normal(len(scale)))
