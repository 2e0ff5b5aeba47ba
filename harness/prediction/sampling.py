"""Draws from a posterior distribution of a few dimensions that may be bent, flat in places, and of several peaks.

The coordinates are standard normal beforehand, so that draws from that cover everything that is possible. From there the
likelihood is raised to growing powers; at each, new points are drawn around those that explain the measurements best, and
weighted by importance (population Monte Carlo: Cappé, Guillin, Marin, Robert 2004, with the kernels of West
1993). It ends when the weighted points are worth ``WANTED`` independent ones by Kish's formula, and says if they are not.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.prediction.parameters import Floats

SEED = 2017
POINTS = 4000  # of each population
WANTED = 600
ROUNDS = 40  # populations after which it gives up
LEAST = 0.12  # share of a population that must still count when the power grows, at first
KERNELS = 256
WIDTH = 0.35  # of a kernel, as a share of the population's variance
FREEDOM = 8  # of the kernels, whose tails are a t distribution's


@dataclass(frozen=True)
class Population:
    """Points [points, dimensions] with their weights [points], which sum to 1.

    ``effective`` is the number of independent draws that they are worth. ``log_evidence`` is the logarithm of the mean
    likelihood beforehand, by which two models of the same measurements are compared. ``first`` are the points that it
    began with, drawn beforehand, the likeliest one first.
    """

    points: Floats
    weights: Floats
    effective: float
    log_evidence: float
    first: Floats

    def draw(self, count: int, random: np.random.Generator) -> Floats:
        """Draw ``count`` points [count, dimensions], each as often as its weight says, in no order."""
        return np.asarray(self.points[random.permutation(systematic(self.weights, count, random))])


def systematic(weights: Floats, count: int, random: np.random.Generator) -> NDArray[np.intp]:
    """Return the numbers of ``count`` points, each as often as its weight says."""
    places = (np.arange(count) + random.random()) / count
    return np.searchsorted(np.cumsum(weights), places).clip(0, len(weights) - 1)


def sample(log_likelihood: Callable[[Floats], Floats], dimensions: int) -> Population:
    """Draw from the distribution with that likelihood and standard normal coordinates beforehand.

    ``log_likelihood`` takes points [points, dimensions]. The same arguments give the same draws.
    """
    from scipy.special import logsumexp

    random = np.random.default_rng(SEED)
    points = random.standard_normal((POINTS, dimensions))
    likely, before = log_likelihood(points), _log_normal(points)
    first = points[np.argsort(-(likely + before))]
    proposed = before
    power, least = 0.0, LEAST * POINTS
    kept: list[tuple[Floats, Floats]] = []  # points, and the logarithms of their weights
    for _ in range(ROUNDS):
        base = before - proposed
        if power < 1:
            reached = _next_power(base, likely, power, least)
            # Where kernels fit badly, too few points count even without another step: it goes on with fewer.
            least = LEAST * POINTS if reached > power else 0.7 * least
            power = reached
        if power == 1.0:
            kept.append((points, base + likely))
            if sum(_effective(softmax(logs)) for _, logs in kept) >= WANTED:
                break
        points, proposed = _around(points, softmax(base + power * likely), random)
        likely, before = log_likelihood(points), _log_normal(points)
    if not kept:  # the power never reached 1: the last points, of which few count
        kept.append((points, before - proposed + likely))
    # Several populations stand for the same distribution, each as well as it is worth.
    worth = np.array([_effective(softmax(logs)) for _, logs in kept])
    shares = worth / worth.sum()
    weights = np.concatenate([share * softmax(logs) for share, (_, logs) in zip(shares, kept, strict=True)])
    evidence = float(logsumexp([logsumexp(logs) - math.log(POINTS) for _, logs in kept], b=shares))
    return Population(np.concatenate([points for points, _ in kept]), weights, _effective(weights), evidence, first)


def _next_power(base: Floats, likely: Floats, power: float, least: float) -> float:
    """The largest power of the likelihood up to 1 with which points worth ``least`` count; never less than ``power``."""

    def counts(tried: float) -> bool:
        return _effective(softmax(base + tried * likely)) >= least

    if counts(1.0):
        return 1.0
    low, high = power, 1.0
    if not counts(low):
        return low
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if counts(middle) else (low, middle)
    return low


def _around(points: Floats, weights: Floats, random: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw new points [points, dimensions] around those that count; also the logarithm of the density they are from."""
    dimensions = points.shape[1]
    mean = weights @ points
    covariance = ((points - mean) * weights[:, None]).T @ (points - mean) + 1e-9 * np.eye(dimensions)
    root = np.asarray(np.linalg.cholesky(covariance * WIDTH), float)
    chosen = systematic(weights, KERNELS, random)
    # Drawn together, so that kernels around them have the population's variance again and not more.
    shrunk = math.sqrt(1 - WIDTH)
    centres = shrunk * points[chosen] + (1 - shrunk) * mean
    heavy = random.standard_normal((POINTS, dimensions)) / np.sqrt(random.chisquare(FREEDOM, (POINTS, 1)) / FREEDOM)
    made = centres[random.integers(KERNELS, size=POINTS)] + heavy @ root.T
    # The density of a mixture of multivariate t distributions around the centres.
    inverse = np.linalg.inv(root)
    ours, theirs = made @ inverse.T, centres @ inverse.T
    squares = (ours**2).sum(axis=1)[:, None] + (theirs**2).sum(axis=1) - 2 * ours @ theirs.T
    whole = math.lgamma((FREEDOM + dimensions) / 2) - math.lgamma(FREEDOM / 2)
    whole -= dimensions / 2 * math.log(FREEDOM * math.pi) + float(np.log(np.diag(root)).sum())
    tails = (1 + np.maximum(squares, 0) / FREEDOM) ** (-(FREEDOM + dimensions) / 2)
    return made, np.asarray(whole + np.log(tails.mean(axis=1)))


def _log_normal(points: Floats) -> Floats:
    return np.asarray(-0.5 * (points**2).sum(axis=1) - points.shape[1] / 2 * math.log(2 * math.pi))


def softmax(logs: Floats) -> Floats:
    """Weights that sum to 1, of their logarithms up to a constant."""
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


def _effective(weights: Floats) -> float:
    """Kish's effective number of draws, for weights that sum to 1."""
    return float(1 / (weights**2).sum())
