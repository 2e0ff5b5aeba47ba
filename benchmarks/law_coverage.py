"""Do the scaling model's intervals hold what they promise, and does it notice when its law is wrong? A table.

    python benchmarks/law_coverage.py --tables 200

The published tables of 2017 are made up again, ``--tables`` times for every truth and system: the same sizes, but with
steps that a truth gives, and the noise that is assumed where no spread was published. Parameters are drawn from the
posterior distribution of the real fit. The model is fitted to at most ``SEEN`` workers and predicts the others. A truth is
handled if 90 % intervals hold 85 to 95 % (the law itself) or at least 80 % (another truth), or if the fit to the sizes seen
says in at least 90 % of the tables that the measurements contradict the law. At the end, the same with what was really
published.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from harness import results
from harness.prediction import fitting
from harness.prediction.fitting import fit
from harness.prediction.holdout import HeldOut, condition, hold_out
from harness.prediction.observations import UNPUBLISHED, Observation, ObservationGroup, groups
from harness.prediction.parameters import Parameters

SYSTEMS = ("Piz Daint XC50 P100", "EC2 p2.xlarge K80", "EC2 p2.8xlarge K80")
SOFTWARE = "TensorFlow 1.1.0"
SEEN = 32  # workers
ENOUGH_TRUE, ENOUGH_WRONG, FLAGGED = (0.85, 0.95), 0.80, 0.90
CUTS = (8, 16, 32)

Truth = Callable[[Observation, Parameters], float]


def law(one: Observation, p: Parameters) -> float:
    """The law itself."""
    return float(one.law.seconds(one.nodes, one.workers, one.single_s, p))


def stragglers(share: float) -> Truth:
    """Each doubling of the workers makes a step longer by ``share``."""
    return lambda one, p: law(one, p) * (1 + share * math.log2(one.workers))


def falling(nodes: int) -> Truth:
    """Throughput falls as N^−0.2, and is the fitted one on so many nodes."""
    return lambda one, p: law(one, replace(p, throughput=p.throughput * (one.nodes / nodes) ** -0.2))


def unhidden(one: Observation, p: Parameters) -> float:
    """Compute hides nothing of the network."""
    return float(one.law.unhidden().seconds(one.nodes, one.workers, one.single_s, p))


TRUTHS: dict[str, Truth] = {
    "the law": law,
    "stragglers, 1.5 % · log₂ N": stragglers(0.015),
    "stragglers, 3 % · log₂ N": stragglers(0.03),
    "R ∝ N^−0.2, as fitted on 1 node": falling(1),
    "R ∝ N^−0.2, as fitted on 32 nodes": falling(32),
    "no overlap": unhidden,
}


@dataclass(frozen=True)
class Outcome:
    """Of one made-up table: how many of the sizes not seen are in their intervals, and whether the misfit was noticed."""

    covered: int
    sizes: int
    flagged: bool
    effective: float


@cache
def known(system: str, software: str = SOFTWARE) -> ObservationGroup:
    """The published group."""
    return next(one for one in groups(results.load(["reference"]))[0] if one.key[:2] == (system, software))


@cache
def draws(system: str) -> Parameters:
    """Of the real fit's posterior distribution, as arrays."""
    return fit(known(system)).draws.parameters


def made_up(system: str, truth: str, number: int) -> ObservationGroup:
    """A table of that truth. Nothing in it has won a search."""
    random = np.random.default_rng([SYSTEMS.index(system), list(TRUTHS).index(truth), number])
    every = draws(system)
    values = {name: float(getattr(every, name)[number % fitting.DRAWN]) for name in drawn_names(every)}
    p = replace(every, **values)

    def of(one: Observation) -> Observation:
        if one.workers == 1:
            return one
        step_s = TRUTHS[truth](one, p) * math.exp(UNPUBLISHED * random.standard_normal())
        return replace(one, step_s=step_s, beaten=())

    group = known(system)
    return replace(group, observations=tuple(of(one) for one in group.observations))


def drawn_names(p: Parameters) -> list[str]:
    """The parameters of which there are draws."""
    return [name for name in Parameters.__dataclass_fields__ if isinstance(getattr(p, name), np.ndarray)]


def outcome(task: tuple[str, str, int]) -> Outcome:
    """Fit one table and look."""
    held = hold_out(made_up(*task), condition(f"workers>{SEEN}"))
    assert held is not None
    return Outcome(held.covered, len(held.unseen), bool(held.fit.misfit.contradiction), held.fit.effective)


def line(truth: str, system: str, found: list[Outcome]) -> list[str]:
    """The line of a truth and a system: how its tables fared."""
    covered = sum(one.covered for one in found) / sum(one.sizes for one in found)
    flagged = sum(one.flagged for one in found) / len(found)
    if truth == "the law":
        good = ENOUGH_TRUE[0] <= covered <= ENOUGH_TRUE[1]
    else:
        good = covered >= ENOUGH_WRONG or flagged >= FLAGGED
    few = sum(one.effective < 400 for one in found)
    return [truth, system, str(len(found)), f"{covered:.0%}", f"{flagged:.0%}", "yes" if good else "**no**", str(few)]


def real(system: str, software: str = SOFTWARE) -> list[list[str]]:
    """The published tables, cut at several sizes."""
    group = known(system, software)
    rows = []
    for cut in CUTS:
        held: HeldOut | None = hold_out(group, condition(f"workers>{cut}"))
        assert held is not None
        errors = ", ".join(f"{error:+.0%}" for error in held.errors)
        flagged = "yes" if held.fit.misfit.contradiction else "no"
        rows.append([system, software, str(cut), errors, f"{held.covered} of {len(held.unseen)}", flagged])
    return rows


def markdown(rows: list[list[str]]) -> str:
    """For docs/scaling-model.md."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]])


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", type=int, default=200, help="of each truth and system (default 200)")
    given = parser.parse_args()
    rows = [["truth", "system", "tables", "in 90 %", "misfit noticed", "good", "below 400 effective draws"]]
    os.environ["OMP_NUM_THREADS"] = "1"
    with multiprocessing.get_context("spawn").Pool() as pool:
        for truth in TRUTHS:
            every = []
            for system in SYSTEMS:
                found = pool.map(outcome, [(system, truth, n) for n in range(given.tables)], 5)
                rows.append(line(truth, system, found))
                print(" · ".join(rows[-1]), file=sys.stderr, flush=True)
                every += found
            rows.append(line(truth, "all", every))
    print(markdown(rows))
    cuts = [["system", "software", "fitted to", "errors of the others", "in 90 %", "misfit noticed"]]
    for system in SYSTEMS:
        cuts += real(system)
    cuts += real(SYSTEMS[0], "TensorFlow 1.7, Horovod 0.15.1")
    print()
    print(markdown(cuts))


if __name__ == "__main__":
    main()
