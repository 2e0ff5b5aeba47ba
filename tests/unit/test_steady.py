"""Steady steps: what is left out after a barrier, what trends, and how long a step takes."""

import random
from collections.abc import Callable, Sequence
from statistics import fmean

import pytest

from harness.worker.steady import LIMIT, drift, settled, steadiness, step_s


def marks(durations_s: Sequence[float]) -> list[float]:
    return [sum(durations_s[:count]) for count in range(len(durations_s) + 1)]


def test_the_period_is_that_between_the_moments_at_which_all_ranks_have_made_a_step() -> None:
    ranks = [marks([1.0, 2.0, 2.0, 2.0]), marks([1.0, 2.0, 2.0, 2.3])]
    assert step_s(ranks, 1) == pytest.approx(2.1)
    # The first of these takes 2.067 s by itself.
    out_of_phase = [marks([1.0, 2.2, 2.0, 2.0]), marks([1.2, 2.0, 2.0, 2.0])]
    assert step_s(out_of_phase, 1) == pytest.approx(2.0)


def test_the_first_step_after_the_barrier_is_left_out() -> None:
    """PyTorch's servers on emulated nodes, whose first step waits for no push of the step before."""
    steady = steadiness([1.05, 1.44, 1.45, 1.43, 1.44], scatters=False)
    assert (steady.left_out, steady.trends) == (1, False)
    assert steady.drift == pytest.approx(0, abs=0.01)


def test_what_takes_longer_to_settle_is_left_out_up_to_a_third() -> None:
    settling = [1.0, 1.5, 1.9, *[2.0] * 7]
    steady = steadiness(settling, scatters=False)
    assert (steady.left_out, steady.trends) == (2, False)


@pytest.mark.parametrize(
    "steps",
    [
        [1.05, 1.64, 1.65, 1.77, 2.01, 2.04],  # servers that drifted apart, 8 nodes and 0.5 GB/s
        [0.77, 1.026, 1.138, 1.145, 1.102],  # the same at 0.8 GB/s
        [1.0 + 0.01 * step for step in range(8)],
        [1.0 - 0.01 * step for step in range(8)],
        [*[1.0] * 6, *[1.1] * 6],
        [1.05, 1.05, 1.10, 1.16, 1.12, 1.18, 1.15, 1.2],  # more than scatter explains
    ],
)
def test_what_changes_to_the_end_trends(steps: list[float]) -> None:
    assert steadiness(steps, scatters=False).trends


def test_waited_for_steps_that_scatter_may_change_a_little_by_chance() -> None:
    rng = random.Random(3)  # 1.2 % are those of TensorFlow's servers on 4 nodes, in a new order in every step
    noise = [[rng.gauss(0, 0.012) for _ in range(7)] for _ in range(400)]
    for rise, least, most in ((0.0, 0.0, 0.05), (0.02, 0.95, 1.0)):
        windows = [[1 + rise * number + error for number, error in enumerate(errors)] for errors in noise]
        assert least <= fmean(steadiness(steps, scatters=False).trends for steps in windows) <= most


def test_three_steps_or_fewer_cannot_be_told_to_be_steady() -> None:
    assert [steadiness([1.0] * steps, scatters=False).drift is None for steps in (1, 2, 3, 4)] == [True] * 3 + [False]


def test_steps_that_scatter_trend_only_if_that_is_more_than_chance() -> None:
    """Half of the noise is handed on from step to step, as on a machine that others use, too."""

    def trends(count: int, change: Callable[[int], float]) -> float:
        rng, flagged = random.Random(7), 0
        for _ in range(400):
            noise, steps = 0.0, []
            for step in range(count):
                noise = 0.5 * noise + rng.gauss(0, 0.02)
                steps.append((1 + noise) * change(step))
            flagged += steadiness(steps, scatters=True).trends
        return flagged / 400

    assert trends(100, lambda step: 1.0) < 0.05
    assert trends(100, lambda step: 1 + 0.15 * step / 99) > 0.9
    assert steadiness([1.0, 1.1, 0.9, 1.2, 1.0], scatters=True).drift is None, "too few to tell"


def test_one_slow_step_is_no_trend() -> None:
    for position in range(20):
        steps = [1.0] * 20
        steps[position] = 4.0
        assert not steadiness(steps, scatters=True).trends
        assert not steadiness(steps, scatters=False).trends


def test_drift_is_from_the_first_to_the_last_step() -> None:
    change, p = drift([1.0 + 0.01 * step for step in range(10)])
    assert change == pytest.approx(0.09 / 1.045) and change > LIMIT
    assert p < 0.001


def test_warm_up_ends_once_the_last_steps_do_not_trend_and_asks_at_the_same_steps_everywhere() -> None:
    slower = [1.0 + 0.1 * step for step in range(40)]
    assert [settled(slower[:count], scatters=False) for count in (4, 5, 6)] == [None, None, False]
    assert settled([*slower, *[5.0] * 4], scatters=False) is True
    assert settled([*slower, 5.0], scatters=True) is None  # 41 steps
    assert settled([*slower, *[5.0] * 8], scatters=True) is False
    assert settled([*slower, *[5.0] * 14], scatters=True) is True
