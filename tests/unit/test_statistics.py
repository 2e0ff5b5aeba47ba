"""The definitions of img/s, its interval, step times and efficiency."""

import pytest

from harness.core import statistics


def test_the_interval_is_students_t() -> None:
    summary = statistics.summarise([10.0, 12.0, 11.0, 13.0, 9.0])
    assert summary.mean == 11.0
    assert summary.stdev == pytest.approx(1.5811388)
    assert summary.ci95 == pytest.approx(2.7764451 * 1.5811388 / 5**0.5)  # t(0.975, 4) = 2.7764


def test_a_single_repeat_has_no_interval() -> None:
    summary = statistics.summarise([10.0])
    assert (summary.mean, summary.stdev, summary.ci95) == (10.0, None, None)


def test_step_times_are_percentiles_of_the_steps_of_all_ranks() -> None:
    figures = statistics.step_times([1.0, 1.0, 1.0, 1.0, 1.0, 4.0], [[3.0, 6.0]])
    assert figures.p50_s == 1.0
    assert figures.p99_s == pytest.approx(3.9, abs=0.1)
    assert figures.jitter_s == 0.0
    assert (figures.slowest_rank, figures.slowest_over_median) == (1, pytest.approx(6 / 4.5))


def test_jitter_is_the_scaled_median_absolute_deviation_of_the_steps_of_all_ranks_and_repeats() -> None:
    figures = statistics.step_times([1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 5.0, 9.0], [[3.0, 7.0], [3.0, 14.0]])
    assert figures.p50_s == 2.5
    assert figures.jitter_s == pytest.approx(1.4826 * 1.5)  # of 0.5, 0.5, 0.5, 1.5, 1.5, 1.5, 2.5, 6.5


def test_the_slowest_rank_is_that_of_all_repeats_together() -> None:
    figures = statistics.step_times([1.0] * 6, [[9.0, 3.0, 2.0], [3.0, 5.0, 4.0]])
    assert (figures.slowest_rank, figures.slowest_over_median) == (0, pytest.approx(6 / 4))


def test_efficiency_of_the_published_daint_points() -> None:
    """CSCS 2017, table 1: 138.23 img/s on one node, 7118.31 on 64, 9219.7 on 128."""
    assert statistics.scaling_efficiency(7118.31, 64, 138.23, 1) == pytest.approx(0.8046, abs=1e-4)
    assert statistics.scaling_efficiency(9219.7, 128, 138.23, 1) == pytest.approx(0.5211, abs=1e-4)
