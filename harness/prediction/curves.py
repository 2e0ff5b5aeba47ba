"""Curves without a network in them, which a law has to beat: what a step would take if only the number of workers mattered.

- linear: a + b (N − 1);
- logarithmic: a + b log₂ N;
- universal scalability law: a (1 + σ (N − 1) + κ N (N − 1)), N. Gunther 1993.

All are sums of terms with coefficients that are not negative, so that the best ones follow without a search.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from harness.prediction.fitting import mean_error
from harness.prediction.observations import Observation
from harness.prediction.profile import Floats

LAW = "the law"
Terms = Callable[[Floats], tuple[Floats, ...]]
CURVES: dict[str, Terms] = {
    "linear": lambda n: (np.ones_like(n), n - 1),
    "logarithmic": lambda n: (np.ones_like(n), np.log2(n)),
    "USL": lambda n: (np.ones_like(n), n - 1, n * (n - 1)),
}


def errors(name: str, seen: Sequence[Observation], tests: Sequence[Observation]) -> tuple[float, ...] | None:
    """Predicted over measured throughput, minus 1, of ``tests``, by the curve that fits ``seen`` best.

    Relative steps are fitted, weighted with their errors; a single worker's is one of them where it was measured. Each kind
    of work has a curve of its own. None if one of them has fewer sizes than numbers to fit.
    """
    found: dict[Hashable, Floats] = {}
    for work in {one.work for one in tests}:
        runs = [one for one in seen if one.work == work]
        terms = _terms(name, runs)
        if len({one.workers for one in runs}) < terms.shape[1]:
            return None
        found[work] = _fitted(terms, runs)
    return tuple(float(one.step_s / (_terms(name, [one]) @ found[one.work])[0] - 1) for one in tests)


def beside(law: Sequence[float], seen: Sequence[Observation], tests: Sequence[Observation]) -> dict[str, float]:
    """Mean errors on ``tests``: the law's, of which ``law`` are the errors, and those of the curves that fit ``seen``."""
    found = {LAW: law} | {name: errors(name, seen, tests) for name in CURVES}
    return {name: mean_error(each) for name, each in found.items() if each}


def _terms(name: str, runs: Sequence[Observation]) -> Floats:
    """[runs, numbers]."""
    return np.stack(CURVES[name](np.array([one.workers for one in runs], float)), axis=-1)


def _fitted(terms: Floats, runs: Sequence[Observation]) -> Floats:
    from scipy.optimize import nnls

    weights = 1 / np.array([one.step_s * one.error for one in runs])
    found, _ = nnls(terms * weights[:, None], np.array([one.step_s for one in runs]) * weights)
    return np.asarray(found)
