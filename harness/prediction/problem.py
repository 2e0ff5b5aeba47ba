"""A group's measurements as a problem: the unknowns, their likelihood, and the values that fit best.

Everything unknown is a score that is standard normal beforehand, so that ``sampling`` and least squares need not know its
meaning.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from harness.prediction import parameters as known
from harness.prediction import shipped
from harness.prediction.discrepancy import Discrepancy, scale_at
from harness.prediction.law import Law
from harness.prediction.observations import UNPUBLISHED, Observation, ObservationGroup, informative
from harness.prediction.parameters import Floats, Number, Parameters, Prior, Share
from harness.prediction.sampling import SEED, Population

STARTS = 15  # of least squares
COMPARED = 4  # points at which laws are compared
FINISHED, ROUGH, FINE = 3, 10, 100  # how many of them are followed to the end, and after how many calls each part ends
# The probability that both strategies of a published search were tried with the number of servers that won: the numbers
# that were tried are in a table that nobody here has (results/reference).
TRIED = 0.8

# The factor by which an assumed step of one worker may be off: in multiply-adds per second the figures of knl.toml, of
# PyTorch and of IntelCaffe, are 9 apart.
ASSUMED_WITHIN = 3.0

Structure = tuple[str, float]
# The law leaves these open, and the measurements may decide: MPI libraries choose how they sum; and whether parameters are
# pulled in the order of their use. That was decided for the TensorFlow of the published tables: they are
# (docs/scaling-model.md). Runs of ours say it (``ServerExchange.ordered``).
RING: Structure = ("tree", 0.0)
TREE: Structure = ("tree", 1.0)
ORDERED: Structure = ("ordered", 1.0)
IN_NO_ORDER: Structure = ("ordered", 0.0)


def single_step(run: Observation, singles: Mapping[Hashable, Any]) -> Any:
    """A single worker's step (s): measured, or one of ``singles``."""
    return singles[run.work] if run.single_s is None else run.single_s


def unit_of(run: Observation, singles: Mapping[Hashable, Number]) -> Number:
    """The unit of the observation's step in seconds."""
    return single_step(run, singles) if run.relative else 1.0


class Optimum(NamedTuple):
    """The most probable scores [dimensions], and their cost, half of the sum of squares."""

    x: Floats
    cost: float


class FitProblem:
    """A group with one structure. All that is unknown is a score, standard normal beforehand: the quantities, the share of
    forward, the scale of what the law leaves out, and steps of one worker that nobody measured.
    """

    def __init__(self, group: ObservationGroup, observations: Sequence[Observation], structure: Structure) -> None:
        self.group = group
        self.observations = informative(observations)
        self.structure = structure
        servers = group.key.mechanism == "servers"
        net = group.network
        self.known_network = net.line_rate_gb_s is not None
        self.quantities = net.quantities(group.key.transport, servers)
        share = group.forward_share or known.forward_share(group.key.device)
        self.share = Share(share, known.FORWARD_SHARE_DEVIATION)
        self.fixed = Parameters(throughput=1.0, switch_nodes=net.switch_nodes, **dict([structure]))
        # A single worker's step where nobody measured it: the smallest run's is a little longer. In 2017 it was by 4 to 7 %
        # on two devices. Without any run of that work next to nothing is known. Where there are efficiencies only, it is as
        # assumed, within a factor.
        self.unknown: dict[Hashable, Prior] = {}
        steps = {o.work: o.workload.batch_size / o.assumed.img_per_s for o in group.observations if o.assumed}
        assumed = {work: Prior(step_s, ASSUMED_WITHIN) for work, step_s in steps.items()}
        for work in sorted({run.work for run in group.observations if run.single_s is None}, key=str):
            smallest = min((run for run in observations if run.work == work), key=attrgetter("workers"), default=None)
            otherwise = Prior(smallest.step_s / 1.05, 1.05) if smallest else Prior(1.0, 10.0)
            self.unknown[work] = assumed.get(work, otherwise)
        self.scale = len(self.quantities) + 1
        self.dimensions = self.scale + 1 + len(self.unknown)
        self.measured = np.log([run.step_s for run in self.observations])
        self.discrepancy = Discrepancy(
            [run.workers for run in self.observations],
            [run.workload.way(run.law) for run in self.observations],
            [run.error for run in self.observations],
        )

    def unhidden(self) -> FitProblem:
        late = [replace(run, law=run.law.unhidden()) for run in self.observations]
        return FitProblem(self.group, late, self.structure)

    def parameters(self, scores: Floats) -> Parameters:
        """The parameters of scores [..., dimensions]."""
        values: dict[str, Any] = {q.name: q.prior.at(scores[..., n]) for n, q in enumerate(self.quantities)}
        return replace(self.fixed, forward_share=self.share.at(scores[..., self.scale - 1]), **values)

    def singles(self, scores: Floats) -> dict[Hashable, Any]:
        return {
            work: prior.at(scores[..., self.scale + 1 + number])
            for number, (work, prior) in enumerate(self.unknown.items())
        }

    def residuals(self, scores: Floats) -> Floats:
        """Logarithms of measured over predicted steps [..., observations]."""
        return self.measured - self._log_steps(scores, [(run, run.law) for run in self.observations])

    def _log_steps(self, scores: Floats, runs: Sequence[tuple[Observation, Law]]) -> Floats:
        p, singles = self.parameters(scores), self.singles(scores)
        shape = scores.shape[:-1]
        steps = np.zeros((*shape, len(runs)))
        for number, (run, law) in enumerate(runs):
            step_s = law.seconds(run.nodes, run.workers, single_step(run, singles), p)
            steps[..., number] = np.log(step_s / unit_of(run, singles))
        return steps

    def _lost(self, scores: Floats, scale: float | Floats = 0.0) -> Floats:
        """Logarithms of the chance that the loser of a search would have lost it [..., searches].

        Both are measurements. The law leaves out a part of the loser's step, too, and it may not have been tried at all.
        """
        from scipy.special import ndtr

        if not (runs := self._searches):
            return np.zeros((*scores.shape[:-1], 0))
        won = np.log([run.step_s for run, _ in runs])
        left_out = np.asarray(scale)[..., None] ** 2 * np.log2([run.workers for run, _ in runs])
        slower = ndtr((self._log_steps(scores, runs) - won) / np.sqrt(2 * UNPUBLISHED**2 + left_out))
        return np.asarray(np.log(1 - TRIED + TRIED * slower))

    def log_likelihood(self, scores: Floats) -> Floats:
        """The log likelihood of the measurements, and of the searches they won, at scores [draws, dimensions]."""
        scale = scale_at(scores[:, self.scale])
        lost: Floats = self._lost(scores, scale).sum(axis=-1)
        return self.discrepancy.log_likelihood(self.residuals(scores), scale) + lost

    @cached_property
    def key(self) -> str:
        """The digest of the measurements, of the law at some points, and of the code that solves the problem."""
        points = np.random.default_rng(SEED).standard_normal((COMPARED, self.dimensions))
        runs = [*((run, run.law) for run in self.observations), *self._searches]
        return shipped.digest([self.measured, self.discrepancy.errors, self._log_steps(points, runs)])

    @property
    def _searches(self) -> list[tuple[Observation, Law]]:
        return [(run, law) for run in self.observations for law in run.beaten]

    def best(self, population: Population, count: int = STARTS) -> Optimum:
        """The most probable scores, and their cost.

        The discrepancy is left out. Starts are the likeliest points, far away ones, and the middle of the prior: a step has
        kinks, and so there may be several optima.
        """
        if (shipped_best := shipped.best(self.key)) is not None:
            return Optimum(shipped_best, float((self._squares(shipped_best) ** 2).sum()) / 2)
        from scipy.optimize import least_squares

        likely = population.points[np.argsort(-population.weights)[: count // 3]]
        starts = [np.zeros(self.dimensions), *likely, *population.first[: count // 3]]
        starts += list(population.first[:: len(population.first) // (count - len(starts))][: count - len(starts)])
        # Slopes are wanted where squares just were: both are computed at once.
        around = lru_cache(maxsize=4)(lambda scores: self._around(np.array(scores)))

        def solved(starts: Sequence[Floats], calls: int) -> list[Any]:
            ends = [
                least_squares(lambda x: around(tuple(x))[0], start, lambda x: around(tuple(x))[1], max_nfev=calls)
                for start in starts
            ]
            return sorted(ends, key=lambda end: float(end.cost))

        near = solved([np.where(np.arange(self.dimensions) == self.scale, 0.0, start) for start in starts], ROUGH)
        first = solved([end.x for end in near[:FINISHED]], FINE)[0]
        return Optimum(first.x, float(first.cost))

    def _squares(self, scores: Floats) -> Floats:
        """The terms that are squared: residuals in units of their errors, searches lost, and the scores themselves."""
        return np.concatenate(
            [self.residuals(scores) / self.discrepancy.errors, np.sqrt(-2 * self._lost(scores)), scores], axis=-1
        )

    def _around(self, scores: Floats) -> tuple[Floats, Floats]:
        """The terms that are squared, and their slopes by differences."""
        steps = 1e-5 * np.eye(len(scores))
        around = np.concatenate([scores[None], scores + steps, scores - steps])
        here, above, below = np.split(self._squares(around), [1, 1 + len(scores)])
        return here[0], np.asarray((above - below).T / 2e-5)

    def surprise(self, scores: Floats) -> float:
        """The squared scores; without a throughput's on a network of which nothing is known: a slow one is no surprise."""
        return float((scores[0 if self.known_network else 1 :] ** 2).sum())

    def chi2(self, scores: Floats) -> tuple[float, float]:
        """χ² of the runs, and the degrees of freedom: the runs without the numbers that they determine."""
        square = float(((self.residuals(scores) / self.discrepancy.errors) ** 2).sum())
        _, jacobian = self._around(scores)
        runs = jacobian[: len(self.observations)]
        determined = float(np.trace(np.linalg.solve(jacobian.T @ jacobian, runs.T @ runs)))
        return square, len(self.observations) - determined


def structures(servers: bool, transport: str, order_is_known: bool) -> tuple[Structure, ...]:
    """The structures that are possible where neither runs nor the tables that the law was chosen on decide."""
    if servers:
        return (ORDERED,) if order_is_known else (ORDERED, IN_NO_ORDER)
    return (RING, TREE) if transport == "mpi" else (RING,)
