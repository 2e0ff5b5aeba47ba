"""Fitting the law: the parameters that explain the measurements, their uncertainty, and whether the law holds.

Logarithms of steps are compared. Each has the error of its measurement, and a part that the law leaves out
(``discrepancy``); the parameters have priors (``parameters``). Predictions and intervals come from the posterior
distribution (``sampling``). The single most probable parameters (``Fit.best``), which explanations use, and χ², which says
whether the law can be right, come from least squares with measurement errors alone, from many starts.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from harness.core.text import plural
from harness.prediction import parameters as known
from harness.prediction import shipped
from harness.prediction.discrepancy import Discrepancy, scale_at
from harness.prediction.law import Law
from harness.prediction.observations import LEAST_ERROR, UNPUBLISHED, Observation, ObservationGroup, informative
from harness.prediction.parameters import Floats, Parameters, Prior, Quantity, Share
from harness.prediction.problem import FINISHED, FitProblem, Optimum, Structure, single_step, structures, unit_of
from harness.prediction.sampling import SEED, Population, sample, softmax

DRAWN = 1000
LEVEL = 0.9  # of the intervals of parameters and predictions
# A parameter is not identified if its interval is wider than this factor, or not much narrower than it was beforehand; a
# share is if its interval is narrower than this.
WIDE, UNTOLD, NARROW = 2.5, 0.8, 0.5
# Measurements contradict the law at p-values below these, of the residuals and of the residuals together with the
# parameters, and how much better a law without overlap has to fit, in the logarithm of the likelihood. Chosen by
# simulation: together they raise one false alarm in ten tables (benchmarks/law_coverage.py).
UNLIKELY, UNUSUAL, BETTER = 0.05, 0.2, 0.1


@dataclass(frozen=True)
class Estimate:
    """A parameter's median with its interval, in SI units, and whether the measurements tell it."""

    quantity: Quantity
    value: float
    low: float
    high: float
    identified: bool
    how: str


@dataclass(frozen=True)
class Misfit:
    """The distance of the measurements from the law: χ² of the most probable parameters, with measurement errors alone.

    ``freedom`` counts the runs without the numbers that they determine; None for ``p_value`` if hardly any are left.
    ``usual`` is the p-value of residuals and parameters together, given the priors of both (Box 1980): low if the law fits
    with parameters only that nobody would expect. ``unhidden`` is by how much a law in which compute hides
    nothing fits better, in the logarithm of the likelihood.
    """

    chi2: float
    freedom: float
    p_value: float | None
    usual: float
    unhidden: float

    @property
    def contradiction(self) -> str:
        """The reasons why the law is contradicted, in a sentence; "" if nothing contradicts it."""
        if self.p_value is None:  # as many numbers as runs: nothing is left that could contradict
            return ""
        reasons = []
        if self.p_value < UNLIKELY:
            reasons.append(self.chances)
        elif self.usual < UNUSUAL:
            reasons.append("it fits with unusual parameters only")
        if self.unhidden > BETTER:
            reasons.append("a law in which compute hides nothing fits better")
        return f"the measurements contradict the law: {'; '.join(reasons)}" if reasons else ""

    @property
    def chances(self) -> str:
        """``χ² 4.9 on 3.8 degrees of freedom, p = 0.27``."""
        if self.p_value is None:
            p_value = "too few runs for a p-value"
        else:
            p_value = f"p = {self.p_value:.2g}" if self.p_value >= 1e-4 else "p < 0.0001"
        return f"χ² {self.chi2:.1f} on {self.freedom:.1f} degrees of freedom, {p_value}"


@dataclass(frozen=True, eq=False)
class Draws:
    """Draws of the parameters, whose values are arrays [draws], and of the discrepancy.

    ``residuals`` [draws, runs] are the discrepancy at sizes that were measured, ``scale`` [draws] is its scale at others.
    ``error`` is the relative standard error of a measurement that is predicted.
    """

    parameters: Parameters
    discrepancy: Discrepancy
    residuals: Floats
    scale: Floats
    error: float

    def steps(self, law: Law, nodes: int, workers: int, single_s: Any, way: Hashable, seed: int = SEED) -> Floats:
        """Draws [draws] of the mean step that would be measured, in the unit of ``single_s``.

        The discrepancy and the error of the measurement are drawn anew with another ``seed``.
        """
        random = np.random.default_rng(seed)
        steps = law.seconds(nodes, workers, single_s, self.parameters)
        if workers == 1:
            return steps
        left_out = self.discrepancy.continued(workers, way, self.residuals, self.scale, random)
        return np.asarray(steps * np.exp(left_out + self.error * random.standard_normal(len(steps))))


def middle(draws: Floats) -> tuple[float, float, float]:
    """The median, and the ends of the interval."""
    low, median, high = np.quantile(draws, [(1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2])
    return float(median), float(low), float(high)


@dataclass(frozen=True, eq=False)
class Fit:
    """The fit to a group's measurements. ``chances`` are the probabilities of the structures that were possible.

    ``single_draws`` are draws of steps of one worker (s) that had to be fitted too, by their work.
    """

    group: ObservationGroup
    problems: tuple[FitProblem, ...]
    populations: tuple[Population, ...]
    chances: tuple[float, ...]
    draws: Draws
    single_draws: dict[Hashable, Floats]

    @property
    def effective(self) -> float:
        """The number of independent draws from the posterior distribution that it rests on."""
        return 1 / sum(c**2 / p.effective for c, p in zip(self.chances, self.populations, strict=True))

    @cached_property
    def _likeliest(self) -> tuple[FitProblem, Population]:
        number = int(np.argmax(self.chances))
        return self.problems[number], self.populations[number]

    @cached_property
    def best(self) -> Optimum:
        """The most probable scores, and their cost."""
        problem, population = self._likeliest
        return problem.best(population)

    @cached_property
    def optima(self) -> list[tuple[FitProblem, Optimum]]:
        """The likeliest problem with its optimum, and, if there are observations, the same without overlap."""
        problem, population = self._likeliest
        unhidden = problem.unhidden()
        others = [(unhidden, unhidden.best(population, FINISHED + 3))] if unhidden.observations else []
        return [(problem, self.best), *others]

    @cached_property
    def parameters(self) -> Parameters:
        return self._likeliest[0].parameters(self.best.x).plain()

    @cached_property
    def singles(self) -> dict[Hashable, float]:
        """The most probable steps of one worker, where they had to be fitted."""
        return {work: float(value) for work, value in self._likeliest[0].singles(self.best.x).items()}

    @cached_property
    def estimates(self) -> tuple[Estimate, ...]:
        problem = self._likeliest[0]
        estimates = []
        for quantity in problem.quantities:
            drawn, prior = getattr(self.draws.parameters, quantity.name), quantity.prior
            value, low, high = middle(drawn)
            if isinstance(prior, Prior):
                identified = bool(np.log(drawn).std() < UNTOLD * np.log(prior.factor) and high < WIDE * low)
            else:
                identified = high - low < NARROW
            runs = plural(len(problem.observations), "run")
            how = f"fitted to {runs}" if identified else "not identified; mostly assumed"
            estimates.append(Estimate(quantity, value, low, high, identified, how))
        return tuple(estimates)

    @cached_property
    def misfit(self) -> Misfit:
        from scipy.special import chdtrc  # the χ² distribution's upper tail; scipy.stats takes half a second to import

        problem = self._likeliest[0]
        square, freedom = problem.chi2(self.best.x)
        _, *unhidden = self.optima
        return Misfit(
            chi2=square,
            freedom=freedom,
            p_value=float(chdtrc(freedom, square)) if freedom >= 0.5 else None,
            usual=float(chdtrc(max(1, len(problem.observations)), square + problem.surprise(self.best.x))),
            unhidden=self.best.cost - unhidden[0][1].cost if unhidden else 0.0,
        )

    @property
    def fitted(self) -> float:
        """The count of numbers that the runs determined: that of the runs without the degrees of freedom left."""
        return len(self._likeliest[0].observations) - self.misfit.freedom

    def single_s(self, observation: Observation) -> float:
        return float(single_step(observation, self.singles))

    def step_s(self, observation: Observation, law: Law | None = None) -> float:
        """The step by the law alone with the most probable parameters, in the unit of the observation."""
        run = observation
        seconds = (law or run.law).seconds(run.nodes, run.workers, self.single_s(run), self.parameters)
        return float(seconds / unit_of(run, self.singles))

    def forecast(self, observation: Observation) -> tuple[float, float, float]:
        """The predicted step, as a median and the ends of its interval, in the unit of the observation."""
        run, single_s = observation, single_step(observation, self.single_draws)
        steps = self.draws.steps(run.law, run.nodes, run.workers, single_s, run.workload.way(run.law))
        return middle(steps / unit_of(run, self.single_draws))

    @cached_property
    def searches(self) -> tuple[tuple[Observation, float], ...]:
        """The observations that won a search, each with the ratio, by the law alone, of the loser's step to its own."""
        return tuple(
            (run, self.step_s(run, law) / self.step_s(run))
            for run in informative(self.group.observations)
            for law in run.beaten
        )

    @cached_property
    def errors(self) -> tuple[float, ...]:
        """The law's throughput over the measured one, minus 1, of all observations that are not baselines by themselves."""
        return tuple(run.step_s / self.step_s(run) - 1 for run in informative(self.group.observations))

    def two_lines(self, runs: Sequence[Observation]) -> float:
        """The mean error of two lines on ``runs``: at the link's nominal rate, or the fitted one where none is known."""
        p, share = self.parameters, self.problems[0].share.typical
        nominal = known.nominal_rate(self.group.key.system, self.group.link_gb_s)
        rate = float(p.throughput) if nominal is None else nominal
        errors = []
        for run in runs:
            measured_s = float(run.step_s * unit_of(run, self.singles))
            errors.append(measured_s / run.law.two_lines_s(run.nodes, self.single_s(run), share, rate) - 1)
        return mean_error(errors)


def mean_error(errors: Sequence[float]) -> float:
    """The mean of the errors' sizes (MAPE, as a share)."""
    return sum(map(abs, errors)) / len(errors)


@lru_cache(maxsize=64)
def fit(
    group: ObservationGroup,
    observations: tuple[Observation, ...] | None = None,
    possible: tuple[Structure, ...] | None = None,
) -> Fit:
    """Fit the parameters of ``group`` to ``observations``, by default all of its own.

    Where the law leaves something open every possibility (``structures``) is fitted, and counts by its evidence.
    """
    chosen = group.observations if observations is None else observations
    if possible is None:
        ordered = group.selected_on or all(run.law.order_is_known for run in chosen)
        possible = structures(group.key.mechanism == "servers", group.key.transport, ordered)
    problems = tuple(FitProblem(group, chosen, structure) for structure in possible)
    ready = [shipped.population(problem.key) for problem in problems]
    if sum(len(population.points) for population in ready if population) == DRAWN:  # all structures of a fit that ships
        populations = tuple(population for population in ready if population)
    else:
        populations = tuple(sample(problem.log_likelihood, problem.dimensions) for problem in problems)
    chances = softmax(np.array([population.log_evidence for population in populations]))
    random = np.random.default_rng(SEED)
    counts = shares(chances)
    drawn = [p.draw(count, random) for p, count in zip(populations, counts, strict=True)]
    first = problems[0]
    scores = np.concatenate(drawn)
    # Values of one structure may be numbers: they are repeated, to be joined with those of others.
    every = [problem.parameters(scores) for problem, scores in zip(problems, drawn, strict=True)]
    values: dict[str, Any] = {
        name: np.concatenate([np.broadcast_to(getattr(p, name), (n,)) for p, n in zip(every, counts, strict=True)])
        for name in Parameters.__dataclass_fields__
    }
    draws = Draws(
        Parameters(**values | {"switch_nodes": every[0].switch_nodes}),
        first.discrepancy,
        np.concatenate([problem.residuals(scores) for problem, scores in zip(problems, drawn, strict=True)]),
        scale_at(scores[:, first.scale]),
        float(np.median(first.discrepancy.errors)) if first.observations else LEAST_ERROR,
    )
    return Fit(group, problems, populations, tuple(map(float, chances)), draws, first.singles(scores))


def shares(chances: Sequence[float] | Floats) -> list[int]:
    """The number of draws from each structure, by its probability."""
    counts = [round(DRAWN * float(chance)) for chance in chances]
    counts[int(np.argmax(counts))] += DRAWN - sum(counts)
    return counts


def beforehand(quantities: Sequence[Quantity], share: float, possible: Sequence[Structure]) -> Draws:
    """Draw from the priors. The first of two structures is three times as possible as the other."""
    random = np.random.default_rng(SEED)
    values: dict[str, Any] = {q.name: q.prior.at(random.standard_normal(DRAWN)) for q in quantities}
    values["forward_share"] = Share(share, known.FORWARD_SHARE_DEVIATION).at(random.standard_normal(DRAWN))
    weighted = [possible[0], possible[0], *possible]
    values[possible[0][0]] = random.permutation(np.resize([value for _, value in weighted], DRAWN))
    nothing, scale = Discrepancy((), (), ()), scale_at(random.standard_normal(DRAWN))
    return Draws(Parameters(**values), nothing, np.zeros((DRAWN, 0)), scale, UNPUBLISHED)


def left_one_out(fitted: Fit) -> tuple[float, ...]:
    """Errors of the informative observations, each predicted from all others: fitted anew, from the beginning."""
    errors = []
    for run in informative(fitted.group.observations):
        others = fit(fitted.group, tuple(other for other in fitted.group.observations if other is not run))
        errors.append(run.step_s / others.forecast(run)[0] - 1)
    return tuple(errors)
