"""How often the answers err: false claims where nothing differs, and how often a true 5 % is found, by simulation.

    python benchmarks/error_rates.py [--draws 500] [--only PATTERN] [--seed 1]

Rows of results are made with noise of a known kind, and handed to what the commands call: ``fastest.races`` (best),
``verdict.verdict``, ``regression.compare`` and ``ab.judge``. Each contender's jobs are drawn by themselves, as are
those of both sides of a regression. Where contenders take turns in one allocation they share its noise, repeat after
repeat. docs/error-rates.md has a selection of the tables. With 500 draws a share of 5 % has a standard error of 1 %.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.analysis import ab, fastest, regression, verdict
from harness.analysis.ratios import Sample
from harness.results import Result

Values = NDArray[np.float64]  # logarithms, [contender, job, repeat]


@dataclass(frozen=True)
class Noise:
    """Standard deviations and correlations of log(img/s).

    ``run`` is between jobs, ``repeat`` between repeats, whose AR(1) has ``rho``; ``tails`` are the degrees of freedom of
    Student's t. One job in ``1 / slow_share`` is ``slow`` slower. ``across`` is the AR(1) of a contender's own jobs.
    ``drift`` is what the machine gains over all jobs, which contenders measure in turn. ``unequal`` multiplies the noise of
    the first contender.
    """

    repeat: float
    run: float = 0.0
    rho: float = 0.0
    tails: float = 0.0
    slow: float = 0.0
    slow_share: float = 0.2
    across: float = 0.0
    drift: float = 0.0
    unequal: float = 1.0

    def draw(self, chance: np.random.Generator, contenders: int, jobs: int, repeats: int) -> Values:
        """Each contender's jobs by themselves."""
        of_repeats = self._repeats(chance, (contenders, jobs, repeats))
        effects = self.run * autoregressive(chance.standard_normal((contenders, jobs)), self.across)
        effects -= self.slow * (chance.random((contenders, jobs)) < self.slow_share)
        both = of_repeats + effects[:, :, None]
        both[0] *= self.unequal
        order = np.arange(jobs * contenders).reshape(jobs, contenders).T
        return both + self.drift * (order / order.size)[:, :, None]

    def in_turn(self, chance: np.random.Generator, contenders: int, repeats: int) -> Values:
        """Contenders that take turns there and back in one job, one repeat after the other."""
        series = self._repeats(chance, (contenders * repeats,)) + self.drift * np.linspace(0, 1, contenders * repeats)
        turns = series.reshape(repeats, contenders).copy()
        turns[1::2] = turns[1::2, ::-1]
        turns[:, 0] *= self.unequal
        both: Values = turns.T[:, None, :] + self.run * chance.standard_normal()
        return both

    def _repeats(self, chance: np.random.Generator, shape: tuple[int, ...]) -> Values:
        drawn = chance.standard_normal(shape)
        if self.tails:
            drawn = chance.standard_t(self.tails, shape) / np.sqrt(self.tails / (self.tails - 2))
        return self.repeat * autoregressive(drawn, self.rho)


def autoregressive(drawn: Values, rho: float) -> Values:
    """An AR(1) along the last axis, of variance 1, from independent values."""
    values = drawn.copy()
    for number in range(1, drawn.shape[-1]):
        values[..., number] = rho * values[..., number - 1] + np.sqrt(1 - rho**2) * drawn[..., number]
    return values


NOISES = {
    "independent, 3 %": Noise(0.03),
    "run effect 0.5 %, repeats 1 %": Noise(0.01, run=0.005),
    "run effect 1 %, repeats 1 %": Noise(0.01, run=0.01),
    "run effect 2 %, repeats 1 %": Noise(0.01, run=0.02),
    "AR(1) 0.3 of repeats, 2 %": Noise(0.02, rho=0.3),
    "AR(1) 0.6 of repeats, 2 %": Noise(0.02, rho=0.6),
    "one job in five 3 % slower, 1 %": Noise(0.01, slow=0.03),
    "heavy tails (t, 3), 3 %": Noise(0.03, tails=3),
    "run effect 3 %, repeats 1 %": Noise(0.01, run=0.03),
    "run effect 5 %, repeats 1 %": Noise(0.01, run=0.05),
    "one contender's noise × 3, run effect 1 %": Noise(0.01, run=0.01, unequal=3),
    "machine drifts by 5 %, run effect 1 %": Noise(0.01, run=0.01, drift=0.05),
    "AR(1) 0.3 of a contender's jobs, 1 %": Noise(0.01, run=0.01, across=0.3),
    "AR(1) 0.6 of a contender's jobs, 1 %": Noise(0.01, run=0.01, across=0.6),
}
POWER = "run effect 1 %, repeats 1 %"
SIZES = (1, 2, 4, 8)


def result(system: int, backend: str, size: int, logs: Values, jobs: Sequence[str], started: int = 0) -> Result:
    """A run with these repeats, [job, repeat]. Each system has its own draws."""
    servers = backend == "parameter_server"
    values = np.exp(logs).ravel() * 100.0 * size
    name = f"{system}-{backend}-{size}-{started}"
    return Result(
        **{"system": f"s{system}", "site": "s", "model": "resnet50", "id": name, "source": name},
        **{"backend": backend, "family": "parameter_servers" if servers else "toolkit", "framework": "torch"},
        **{"software": backend, "transport": "gloo", "ps": int(servers)},
        **{"nodes": size, "devices_per_node": 1, "workers": size, "batch_size": 64, "image_size": 224},
        **{"data": "synthetic", "device": "cpu", "precision": "fp32", "threads": 1},
        **{"warmup_steps": 10, "steps": 100, "started": f"2026-01-01T{started // 60:02}:{started % 60:02}:00+00:00"},
        rate=float(values.mean()),
        values=tuple(values.tolist()),
        jobs=tuple(job for job in jobs for _ in range(logs.shape[1])),
        spec={
            **{"backend": backend, "framework": "torch", "transport": "gloo", "model": "resnet50", "nodes": size},
            **{"devices_per_node": 1, "options": {}},
        },
    )


BACKENDS = ("parameter_server", "horovod", "pytorch", "caffe2")
Cell = Callable[[Noise, np.random.Generator, int, float], float]  # the share of so many draws with a claim


def contest(
    noise: Noise,
    chance: np.random.Generator,
    contenders: int,
    jobs: Sequence[int],
    effect: float,
    system: int,
    size: int,
    together: bool = False,
    near: int = 4,
) -> Iterator[Result]:
    """Rows of contenders with so many ``jobs`` of 5 repeats each; the second one is better by the ``effect``.

    Those after the first ``near`` ones are far behind. ``together`` they take turns in the same jobs.
    """
    shared = [noise.in_turn(chance, contenders, 5) for _ in range(jobs[0])] if together else []
    drawn = np.concatenate(shared, axis=1) if together else noise.draw(chance, contenders, max(jobs), 5)
    for number in range(contenders):
        many = jobs[number % len(jobs)]
        names = [f"{system}-{size}-{'' if together else number}-{job}" for job in range(many)]
        better = effect if number == 1 else 0.0 if number < near else -0.5
        yield result(system, BACKENDS[number], size, drawn[number, :many] + better, names)


def best(contenders: int, *jobs: int, together: bool = False, near: int = 4) -> Cell:
    """The share of races of one size in which a winner is named; with an effect, in which the right one is."""

    def cell(noise: Noise, chance: np.random.Generator, draws: int, effect: float) -> float:
        made = [
            each
            for draw in range(draws)
            for each in contest(noise, chance, contenders, jobs, effect, draw, 8, together, near)
        ]
        decided = [race.sizes[-1] for race in fastest.races(made) if race.sizes[-1].decided]
        right = [each for each in decided if not effect or each.best.facets["backend"] == BACKENDS[1]]
        return len(right) / draws

    return cell


def scaling(*jobs: int, sizes: Sequence[int] = SIZES, any_size: bool = False, together: bool = False) -> Cell:
    """The share of verdicts in which the largest size, or any, is called different; with an effect there, better."""

    def cell(noise: Noise, chance: np.random.Generator, draws: int, effect: float) -> float:
        made = [
            each
            for draw in range(draws)
            for size in sizes
            for each in contest(noise, chance, 2, jobs, effect if size == sizes[-1] else 0.0, draw, size, together)
        ]
        found = [each.sizes for each in verdict.verdict(made).comparisons]
        assert len(found) == draws
        if any_size:
            return sum(any(size.significant for size in each) for each in found) / draws
        return sum(each[-1].direction == "better" if effect else each[-1].significant for each in found) / draws

    return cell


def slower(old: int, new: int) -> Cell:
    """The share of comparisons of so many jobs that call the new side slower; with an effect, where it is."""

    def cell(noise: Noise, chance: np.random.Generator, draws: int, effect: float) -> float:
        count = 0
        for _ in range(draws):
            drawn = noise.draw(chance, 2, max(old, new), 5)
            before, after = (
                [
                    result(
                        0, "horovod", 8, drawn[side, job : job + 1] - side * effect, [f"{side}-{job}"], 60 * side + job
                    )
                    for job in range(many)
                ]
                for side, many in enumerate((old, new))
            )
            found = regression.compare(before, after)
            count += found.pairs[0].verdict == "slower"
        return count / draws

    return cell


def in_turn(pairs: int) -> Cell:
    """The share of comparisons of two sides in one allocation that call one of them faster."""

    def cell(noise: Noise, chance: np.random.Generator, draws: int, effect: float) -> float:
        count = 0
        for _ in range(draws):
            a, b = (Sample.of(np.exp(each[0]), ["1"] * pairs) for each in noise.in_turn(chance, 2, pairs))
            b = Sample.of([value * np.exp(effect) for value in b.values], b.jobs)
            count += ab.judge(a, b, 0.02).answer in ("B is faster", *(() if effect else ("A is faster",)))
        return count / draws

    return cell


FALSE: dict[str, Cell] = {
    "best, 2 contenders, 1 job each": best(2, 1),
    "best, 2 jobs": best(2, 2),
    "best, 3 jobs": best(2, 3),
    "best, 5 jobs": best(2, 5),
    "best, 2 and 5 jobs": best(2, 2, 5),
    "best, 4 contenders, 3 jobs": best(4, 3),
    "best, 2 of 4 far behind, 3 jobs": best(4, 3, near=2),
    "best, 2 in turn in one allocation": best(2, 1, together=True),
    "best, 4 in turn in one": best(4, 1, together=True),
    "best, 2 in turn in 3 jobs": best(2, 3, together=True),
    "verdict, 3 jobs: largest size": scaling(3),
    "verdict, any size": scaling(3, any_size=True),
    "verdict, in turn in one job a size: any": scaling(1, any_size=True, together=True),
    "regression, 1 against 1 job": slower(1, 1),
    "regression, 5 against 1": slower(5, 1),
    "regression, 5 against 5": slower(5, 5),
    "ab, 5 pairs": in_turn(5),
}
FOUND: dict[str, Cell] = {
    "best, 2 contenders, 3 jobs each": best(2, 3),
    "best, 4 contenders, 3 jobs each": best(4, 3),
    "best, 2 contenders in turn in 3 jobs": best(2, 3, together=True),
    "best, 2 contenders in turn in one allocation": best(2, 1, together=True),
    "verdict, 2 sizes, 3 jobs each": scaling(3, sizes=(1, 8)),
    "verdict, 2 sizes, 4 jobs each": scaling(4, sizes=(1, 8)),
    "verdict, 4 sizes, 3 jobs each": scaling(3),
    "verdict, 4 sizes, 5 jobs each": scaling(5),
    "verdict, 4 sizes, in turn in 3 jobs a size": scaling(3, together=True),
    "regression, 3 against 3 jobs": slower(3, 3),
    "regression, 5 against 5 jobs": slower(5, 5),
    "regression, 5 against 1 job": slower(5, 1),
    "regression, 30 against 1 job": slower(30, 1),
    "ab, 5 pairs": in_turn(5),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--only", default="", help="columns whose name matches this regular expression")
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    columns = {name: cell for name, cell in FALSE.items() if re.search(wanted.only, name)}
    print(f"False claims where nothing differs, {wanted.draws} draws, 5 repeats in each job:\n")
    print(f"| noise | {' | '.join(columns)} |\n|---|{'--:|' * len(columns)}")
    for name, noise in NOISES.items():
        shares = [
            f"{100 * cell(noise, np.random.default_rng([wanted.seed, number]), wanted.draws, 0.0):.1f}"
            for number, cell in enumerate(columns.values())
        ]
        print(f"| {name} | {' | '.join(shares)} |", flush=True)
    print(f"\nA true difference of 5 % that is found, {POWER}, 5 repeats in each job, in %:\n")
    for number, (name, cell) in enumerate(FOUND.items()):
        if re.search(wanted.only, name):
            share = cell(NOISES[POWER], np.random.default_rng([wanted.seed, number]), wanted.draws, np.log(1.05))
            print(f"| {name} | {100 * share:.1f} |", flush=True)


if __name__ == "__main__":
    main()
