"""How well a law predicts what it has not seen, and curves without a network in them, which it has to beat.

Of these a step takes what it would if only the number of workers mattered:

- linear: a + b (N − 1);
- logarithmic: a + b log₂ N;
- universal scalability law: a (1 + σ (N − 1) + κ N (N − 1)), N. Gunther 1993.

All are sums of terms with coefficients that are not negative, so that the best ones follow without a search.
"""

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from harness.errors import InvalidInput
from harness.prediction.fitting import Fit, fit, mean_error
from harness.prediction.observations import Observation, ObservationGroup, informative
from harness.prediction.parameters import Floats

FIELDS = ("nodes", "workers", "ps")

LAW = "the law"
Terms = Callable[[Floats], tuple[Floats, ...]]
CURVES: dict[str, Terms] = {
    "linear": lambda n: (np.ones_like(n), n - 1),
    "logarithmic": lambda n: (np.ones_like(n), np.log2(n)),
    "USL": lambda n: (np.ones_like(n), n - 1, n * (n - 1)),
}


@dataclass(frozen=True)
class HeldOut:
    """A fit to some observations of a group, and those it has not seen."""

    fit: Fit
    seen: tuple[Observation, ...]
    unseen: tuple[Observation, ...]

    @cached_property
    def errors(self) -> tuple[float, ...]:
        """Of those it has not seen: predicted over measured throughput, minus 1."""
        return tuple(one.step_s / self.fit.forecast(one)[0] - 1 for one in self.unseen)

    @cached_property
    def covered(self) -> int:
        """How many of those the intervals contain."""
        intervals = [(self.fit.forecast(one), one.step_s) for one in self.unseen]
        return sum(low <= step_s <= high for (_, low, high), step_s in intervals)


def condition(text: str) -> str:
    """Which observations are to be held out, as a query of a DataFrame with ``FIELDS``; commas mean "and".

    Raises InvalidInput for what is no condition.
    """
    parts = [re.fullmatch(r"\s*(\w+)\s*(>=|<=|==|!=|>|<|=)\s*(\d+)\s*", part) for part in text.split(",")]
    if not all(part and part[1] in FIELDS for part in parts):
        raise InvalidInput(
            f"--hold-out '{text}': must be conditions such as nodes>=64 or workers>32,ps=116, on {', '.join(FIELDS)}"
        )
    return " and ".join(f"{part[1]} {'==' if part[2] == '=' else part[2]} {part[3]}" for part in parts if part)


def parted(group: ObservationGroup, unseen: str) -> tuple[tuple[Observation, ...], tuple[Observation, ...]] | None:
    """The observations of ``group`` to fit and those to test with; None if there are none of one kind."""
    import pandas

    table = pandas.DataFrame([[getattr(one, name) for name in FIELDS] for one in group.observations], columns=FIELDS)
    hidden = set(table.query(unseen).index)
    left = tuple(one for number, one in enumerate(group.observations) if number not in hidden)
    tests = tuple(informative([one for number, one in enumerate(group.observations) if number in hidden]))
    return (left, tests) if tests and informative(left) else None


def hold_out(group: ObservationGroup, unseen: str) -> HeldOut | None:
    """The fit of ``group`` without some of its observations; None if that leaves none to fit or none to test."""
    parts = parted(group, unseen)
    return parts and HeldOut(fit(group, parts[0]), *parts)


def errors(name: str, seen: Sequence[Observation], tests: Sequence[Observation]) -> tuple[float, ...] | None:
    """Predicted over measured throughput, minus 1, of ``tests``, by the curve that fits ``seen`` best.

    Relative steps are fitted, weighted with their errors; a single worker's is one of them where it was measured. Each kind
    of work has a curve of its own. None if one of them has fewer sizes than numbers to fit.
    """
    from scipy.optimize import nnls

    coefficients: dict[Hashable, Floats] = {}
    for work in {one.work for one in tests}:
        runs = [one for one in seen if one.work == work]
        terms = _terms(name, runs)
        if len({one.workers for one in runs}) < terms.shape[1]:
            return None
        weights = 1 / np.array([run.step_s * run.error for run in runs])
        coefficients[work], _ = nnls(terms * weights[:, None], np.array([run.step_s for run in runs]) * weights)
    return tuple(float(one.step_s / (_terms(name, [one]) @ coefficients[one.work])[0] - 1) for one in tests)


def beside(law: Sequence[float], seen: Sequence[Observation], tests: Sequence[Observation]) -> dict[str, float]:
    """Mean errors on ``tests``: the law's, of which ``law`` are the errors, and those of the curves that fit ``seen``."""
    found = {LAW: law} | {name: errors(name, seen, tests) for name in CURVES}
    return {name: mean_error(each) for name, each in found.items() if each}


def _terms(name: str, runs: Sequence[Observation]) -> Floats:
    """[runs, numbers]."""
    return np.stack(CURVES[name](np.array([one.workers for one in runs], float)), axis=-1)
