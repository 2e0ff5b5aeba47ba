"""Fitting the law: the most probable parameters, how sure one can be of them, and how well they do on other measurements.

The logarithms of steps are fitted by least squares, weighted with their errors, together with what is known of the
parameters beforehand (``parameters``). Intervals come from the posterior distribution: parameters drawn around the best
ones, weighted with how well they explain the measurements, and drawn again.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from harness.predict import parameters as known
from harness.predict.observations import Group, Observation
from harness.predict.parameters import Algorithm, Parameters, Prior, Quantity, network, normal
from harness.predict.profile import Floats

PROPOSED, DRAWN = 4000, 400
SEED = 2017
LEVEL = 0.9  # of the intervals of parameters and predictions
CLEARLY = 2.0
TAIL = 5  # degrees of freedom of the proposals: heavier tails than the posterior's
# A parameter whose interval is not much narrower than it was beforehand is not known from the measurements.
UNTOLD = 0.8


@dataclass(frozen=True)
class Estimate:
    """A parameter's value with its interval, in SI units, and where it comes from."""

    quantity: Quantity
    value: float
    low: float
    high: float
    how: str


@dataclass(frozen=True)
class Fit:
    """The parameters of a group. ``singles`` are steps of one worker (s) that had to be fitted too, by their work.

    ``draws`` are ``Parameters`` whose values are arrays [DRAWN] from the posterior, ``single_draws`` likewise.
    """

    group: Group
    parameters: Parameters
    estimates: tuple[Estimate, ...]
    singles: dict[Hashable, float]
    draws: Parameters
    single_draws: dict[Hashable, Floats]
    cost: float

    @property
    def fitted(self) -> int:
        """How many numbers were fitted."""
        return len(self.estimates) + len(self.singles)

    def single_s(self, observation: Observation) -> float:
        """A single worker's step for what ``observation`` does."""
        return float(_single_s(observation, self.singles))

    def step_s(self, observation: Observation) -> float:
        """The predicted step, in the unit of the observation."""
        single = self.single_s(observation)
        return float(observation.law.seconds(observation.nodes, observation.workers, single, self.parameters))

    def error(self, observation: Observation) -> float:
        """Predicted over measured throughput, minus 1."""
        return observation.step_s / self.step_s(observation) - 1

    @cached_property
    def errors(self) -> tuple[float, ...]:
        """Those of all observations that are not baselines by themselves."""
        return tuple(self.error(one) for one in tested(self.group.observations))


def tested(observations: Sequence[Observation]) -> list[Observation]:
    """Those that say something about the law: a measured single worker's step is taken as it is."""
    return [one for one in observations if not (one.workers == 1 and one.single_s is not None)]


def mean_error(errors: Sequence[float]) -> float:
    """The mean of the errors' sizes (MAPE, as a share)."""
    return sum(map(abs, errors)) / len(errors)


def _single_s(one: Observation, singles: Mapping[Hashable, Any]) -> Any:
    """A single worker's step for ``one``: as measured, else as fitted."""
    return singles[one.work] if one.single_s is None else one.single_s


class _Problem:
    """A group's least-squares problem: logarithms of parameters in, weighted residuals out."""

    def __init__(self, group: Group, observations: Sequence[Observation], algorithm: Algorithm) -> None:
        self.group = group
        self.observations = tested(observations)
        net = network(group.key.system)
        self.fixed = Parameters(
            throughput=1.0,
            forward_share=group.forward_share or known.FORWARD_SHARE[group.key.device],
            algorithm=algorithm,
            switch_nodes=net.switch_nodes,
        )
        self.quantities = [net.throughput(group.key.transport), known.OVERHEAD, known.MESSAGE]
        self.quantities += [known.REPLICA_OVERHEAD] if group.replicas else []
        self.unknown = sorted({one.work for one in group.observations if one.single_s is None}, key=str)
        starts = [self._first_single(work) for work in self.unknown]
        priors = [normal(one.prior) for one in self.quantities] + [normal(one) for one in starts]
        self.mean, self.deviation = (np.array(part, float) for part in zip(*priors, strict=True))

    def _first_single(self, work: Hashable) -> Prior:
        """Where nobody measured one worker: the smallest run's step is a little longer. In 2017 it was by 4 to 7 % on two
        devices.
        """
        least = min((one for one in self.group.observations if one.work == work), key=lambda one: one.workers)
        return Prior(least.step_s / 1.05, 1.05)

    def parameters(self, logs: Floats) -> Parameters:
        """From logarithms [..., dimensions]."""
        values = np.exp(logs)
        named = {one.name: values[..., number] for number, one in enumerate(self.quantities)}
        return self.fixed.with_values(named)

    def singles(self, logs: Floats) -> dict[Hashable, Any]:
        """The fitted single workers' steps."""
        first = len(self.quantities)
        return {work: np.exp(logs[..., first + number]) for number, work in enumerate(self.unknown)}

    def misfits(self, logs: Floats, forward_share: Any = None) -> Floats:
        """Weighted residuals of the observations [..., observations]."""
        p, singles = self.parameters(logs), self.singles(logs)
        if forward_share is not None:
            p = replace(p, forward_share=forward_share)
        found = [
            np.log(one.law.seconds(one.nodes, one.workers, _single_s(one, singles), p) / one.step_s) / one.error
            for one in self.observations
        ]
        shape = logs.shape[:-1]
        return np.stack([np.broadcast_to(one, shape) for one in found], axis=-1) if found else np.zeros((*shape, 0))

    def residuals(self, logs: Floats) -> Floats:
        """Those of the observations and of what is known beforehand."""
        before = (logs - self.mean) / self.deviation
        return np.concatenate([self.misfits(logs), before], axis=-1)

    def jacobian(self, logs: Floats) -> Floats:
        """By differences, all at once."""
        width = 1e-5
        steps = np.concatenate([logs + width * np.eye(len(logs)), logs - width * np.eye(len(logs))])
        ends = self.residuals(steps)
        return np.asarray((ends[: len(logs)] - ends[len(logs) :]).T / (2 * width))

    def solve(self, starts: Sequence[Floats]) -> tuple[Floats, float]:
        """The best logarithms from any of the ``starts``, and their cost."""
        from scipy.optimize import least_squares

        solved = [least_squares(self.residuals, start, self.jacobian, x_scale=self.deviation) for start in starts]
        best = min(solved, key=lambda one: float(one.cost))
        return best.x, float(best.cost)

    @property
    def starts(self) -> list[Floats]:
        """What is known beforehand, and throughputs to both sides of it: a step has kinks, and so several optima."""
        first = np.eye(len(self.mean))[0] * self.deviation[0]
        return [self.mean, self.mean + first, self.mean - first]


def fit(group: Group, observations: Sequence[Observation] | None = None) -> Fit:
    """The parameters that explain ``observations``, by default all of the group's.

    Without servers the gradients may be summed in a ring or along a tree. It is a ring, unless a tree explains them clearly
    better (by ``CLEARLY`` in the logarithm of the likelihood).
    """
    chosen = group.observations if observations is None else observations
    problem = _Problem(group, chosen, "ring")
    logs, cost = problem.solve(problem.starts)
    if group.key.mechanism == "allreduce":
        other = _Problem(group, chosen, "tree")
        other_logs, other_cost = other.solve(other.starts)
        if other_cost < cost - CLEARLY:
            problem, logs, cost = other, other_logs, other_cost
    drawn, shares = _posterior(problem, logs)
    singles = problem.singles(logs)
    return Fit(
        group=group,
        parameters=_plain(problem.parameters(logs)),
        estimates=tuple(_estimate(problem, number, logs, drawn) for number in range(len(problem.quantities))),
        singles={work: float(value) for work, value in singles.items()},
        draws=replace(problem.parameters(drawn), forward_share=shares),
        single_draws=problem.singles(drawn),
        cost=cost,
    )


def left_one_out(fitted: Fit) -> tuple[float, ...]:
    """Errors of the tested observations, each predicted from all others."""
    errors = []
    group = fitted.group
    for one in tested(group.observations):
        others = [other for other in group.observations if other is not one]
        problem = _Problem(group, others, fitted.parameters.algorithm)
        start = np.log([*(getattr(fitted.parameters, q.name) for q in problem.quantities), *fitted.singles.values()])
        logs, _ = problem.solve([start])
        singles = problem.singles(logs)
        step = float(one.law.seconds(one.nodes, one.workers, _single_s(one, singles), problem.parameters(logs)))
        errors.append(one.step_s / step - 1)
    return tuple(errors)


def _plain(p: Parameters) -> Parameters:
    """With numbers instead of arrays of no dimension."""
    return p.with_values({name: float(getattr(p, name)) for name in known.NAMES})


def _posterior(problem: _Problem, best: Floats) -> tuple[Floats, Floats]:
    """Logarithms of parameters [DRAWN, dimensions] from the posterior, and shares of forward [DRAWN].

    Importance sampling: proposals are half from a multivariate t around ``best`` and half from what is known beforehand,
    so that directions in which the measurements say nothing are covered as well.
    """
    from scipy.special import logsumexp

    random = np.random.default_rng(SEED)
    dimensions = len(best)
    jacobian = problem.jacobian(best)
    covariance = np.linalg.pinv(jacobian.T @ jacobian)
    root = np.linalg.cholesky(covariance + 1e-12 * np.eye(dimensions))
    half = PROPOSED // 2
    normal_ = random.standard_normal((half, dimensions)) @ root.T
    heavy = normal_ / np.sqrt(random.chisquare(TAIL, (half, 1)) / TAIL)
    before = problem.mean + problem.deviation * random.standard_normal((half, dimensions))
    logs = np.concatenate([best + heavy, before])
    shares = problem.fixed.forward_share + known.FORWARD_SHARE_DEVIATION * random.standard_normal(PROPOSED)
    target = -0.5 * (problem.misfits(logs, shares) ** 2).sum(axis=-1)
    standard = (logs - problem.mean) / problem.deviation
    prior = -0.5 * (standard**2).sum(axis=-1) - np.log(problem.deviation).sum() - dimensions / 2 * math.log(2 * math.pi)
    proposal = logsumexp(np.stack([_log_t(logs - best, np.asarray(root)), prior]), axis=0) - math.log(2)
    weights = target + prior - proposal
    chances = np.exp(weights - logsumexp(weights))
    chosen = random.choice(PROPOSED, DRAWN, p=chances)
    return logs[chosen], shares[chosen]


def _log_t(offsets: Floats, root: Floats) -> Floats:
    """Log density of a multivariate t with ``TAIL`` degrees of freedom and scale ``root @ root.T``, at ``offsets``."""
    dimensions = offsets.shape[-1]
    scaled = np.linalg.solve(root, offsets.T)
    whole = math.lgamma((TAIL + dimensions) / 2) - math.lgamma(TAIL / 2) - dimensions / 2 * math.log(TAIL * math.pi)
    log_root = float(np.log(np.diag(root)).sum())
    return np.asarray(whole - log_root - (TAIL + dimensions) / 2 * np.log1p((scaled**2).sum(axis=0) / TAIL))


def _estimate(problem: _Problem, number: int, logs: Floats, drawn: Floats) -> Estimate:
    quantity = problem.quantities[number]
    low, high = np.quantile(drawn[:, number], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    if drawn[:, number].std() > UNTOLD * problem.deviation[number]:
        how = "assumed; the measurements say little about it"
    else:
        runs = len(problem.observations)
        how = f"fitted to {runs} run{'s' * (runs != 1)}"
    value = float(np.exp(logs[number]))
    # The most probable value may lie at the very edge of what is possible, as a throughput does that hides completely.
    return Estimate(quantity, value, min(value, float(np.exp(low))), max(value, float(np.exp(high))), how)
