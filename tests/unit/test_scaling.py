"""Curves, the best of several configurations, and intervals that say what they claim to say."""

import math
import random
import statistics
from typing import Any

import pytest
import scipy.stats

from harness import results
from harness.analysis import ratios, scaling
from harness.analysis.ratios import Sample
from harness.analysis.scaling import Curve
from tests.unit.made_rows import HOROVOD, listed, run
from tests.unit.simulated import draws, least


def sample(values: list[float]) -> Sample:
    return Sample(statistics.fmean(values), tuple(values))


def repeats(chance: random.Random, mean: float, noise: float = 0.02, count: int = 5) -> Sample:
    return sample([chance.gauss(mean, noise * mean) for _ in range(count)])


def only(rows: list[dict[str, Any]], **how: Any) -> Curve:
    (curve,) = scaling.curves(listed(rows), **how)
    return curve


# --- intervals ------------------------------------------------------------------------------------


@draws(4000)
@pytest.mark.parametrize("configurations", [1, 6, 12])
def test_the_interval_of_the_best_of_equal_configurations_covers_the_true_throughput(
    configurations: int, count: int
) -> None:
    """The worst case for picking the best: all are equally good, and the luckiest one is picked."""
    chance = random.Random(configurations)
    covered = 0
    for _ in range(count):
        found = ratios.best_interval([repeats(chance, 100.0) for _ in range(configurations)])
        assert found
        covered += found[0] <= 100.0 <= found[1]
    assert covered >= least(0.95, count)


def test_of_one_configuration_it_is_students_interval_of_the_logarithm() -> None:
    values = [10.0, 12.0, 11.0, 13.0, 9.0]
    factor = math.exp(scipy.stats.t.ppf(0.975, 4) * scipy.stats.sem(values) / 11.0)
    assert ratios.best_interval([sample(values)]) == pytest.approx((11.0 / factor, 11.0 * factor))


def test_no_interval_of_a_throughput_reaches_below_zero() -> None:
    low, high = ratios.best_interval([sample([16.0, 52.8])]) or (0.0, 0.0)
    assert 0 < low < 34.4 < high


def test_the_lower_limit_allows_for_the_choice_and_the_upper_one_needs_not() -> None:
    one = sample([98.0, 99.0, 100.0, 101.0, 102.0])
    alone, chosen = ratios.best_interval([one]), ratios.best_interval([one] * 6)
    assert alone and chosen
    error = statistics.stdev(one.values) / math.sqrt(5) / 100
    assert chosen[0] == pytest.approx(100 * math.exp(-scipy.stats.t.ppf(0.975 ** (1 / 6), 24) * error))
    assert chosen[1] == pytest.approx(100 * math.exp(scipy.stats.t.ppf(0.975, 24) * error))


@draws(4000)
@pytest.mark.parametrize("configurations", [1, 6])
@pytest.mark.parametrize("noise", [0.005, 0.05])
def test_the_interval_of_a_ratio_covers_the_true_ratio(configurations: int, noise: float, count: int) -> None:
    """As in the verdict: the servers' throughput is the best of several at the larger size."""
    chance = random.Random(configurations)
    covered = 0
    for _ in range(count):
        over = [[repeats(chance, 900.0, noise)], [repeats(chance, 100.0, noise)]]
        under = [[repeats(chance, 120.0, noise)], [repeats(chance, 700.0, noise) for _ in range(configurations)]]
        found = ratios.ratio(over, under).interval
        assert found
        covered += found[0] <= 900 * 100 / (120 * 700) <= found[1]
    assert covered >= least(0.95, count)


def test_without_a_choice_the_interval_of_a_ratio_is_welchs_on_logarithms() -> None:
    one, other = sample([100.0, 102.0, 98.0]), sample([50.0, 51.0, 49.5, 50.5, 49.0])
    squares = [statistics.variance(each.values) / each.mean**2 / len(each.values) for each in (one, other)]
    freedom = sum(squares) ** 2 / (squares[0] ** 2 / 2 + squares[1] ** 2 / 4)
    width = scipy.stats.t.ppf(0.975, freedom) * math.sqrt(sum(squares))
    assert ratios.ratio([[one]], [[other]]).interval == pytest.approx((2 * math.exp(-width), 2 * math.exp(width)))


def test_a_ratio_is_significant_when_its_interval_leaves_out_1() -> None:
    chance = random.Random(3)
    for _ in range(200):
        over, under = [[repeats(chance, 100.0)]], [[repeats(chance, 101.0) for _ in range(3)]]
        found = ratios.ratio(over, under)
        limits = found.interval
        assert limits and found.p is not None
        assert (found.p < 0.05) == (not limits[0] <= 1 <= limits[1])


def test_a_throughput_without_repeats_has_no_interval() -> None:
    once, often = Sample(100.0, (100.0,)), sample([99.0, 100.0, 101.0])
    assert ratios.best_interval([once]) is None
    assert ratios.best_interval([once, often]) is None, "who knows how lucky the one was that ran once"
    assert ratios.ratio([[often]], [[once]]).interval is None
    assert ratios.ratio([[often]], [[once]]).p is None


def test_the_repeats_that_an_interval_takes_are_enough_and_no_fewer_would_be() -> None:
    chance = random.Random(5)
    choices = [[repeats(chance, 100.0, 0.05)] for _ in range(4)]
    distance = math.log(1.05)
    sides = choices[:2], choices[2:]
    needed, surer = (ratios.units_for(*sides, distance, 0.0, level) for level in (ratios.LEVEL, 0.99))
    assert needed and surer
    relative = [choice[0].spread ** 2 for choice in choices]

    def width(count: int, level: float = 0.95) -> float:
        terms = [variance / count for variance in relative if variance is not None]
        freedom = sum(terms) ** 2 / sum(term**2 / (count - 1) for term in terms)
        return float(scipy.stats.t.ppf((1 + level) / 2, freedom)) * math.sqrt(sum(terms))

    assert width(needed) <= distance < width(needed - 1)
    assert width(surer, 0.99) <= distance < width(surer - 1, 0.99)
    assert ratios.units_for(*sides, 0.0, distance, 0.99) == needed, "to be within a margin takes no higher level"
    assert ratios.units_for([[Sample(100.0)]], [[Sample(100.0)]], 1.0, 0.0, 0.95) is None


def test_holm_stops_at_the_first_that_is_not_significant() -> None:
    assert ratios.holm([0.04, 0.001, 0.02], [1] * 3) == [True, True, True]  # 0.001 < 0.05/3, 0.02 < 0.05/2, 0.04 < 0.05
    assert ratios.holm([0.04, 0.001, 0.03], [1] * 3) == [False, True, False]
    assert ratios.holm([0.02, None], [1] * 2) == [True, False]
    assert ratios.holm([], []) == []


def test_a_test_with_more_weight_gets_more_of_the_error() -> None:
    assert ratios.holm([0.03, 0.024], [1, 1]) == [True, True]  # 0.024 < 0.05/2, then 0.03 < 0.05
    assert ratios.holm([0.9, 0.9, 0.024], [1, 1, 2]) == [False, False, True]  # 0.024 < 0.05 · 2/4
    assert ratios.holm([0.9, 0.9, 0.024], [1, 1, 1]) == [False, False, False]  # 0.024 > 0.05/3


# --- curves ---------------------------------------------------------------------------------------


def test_a_weak_scaling_curve_has_the_best_configuration_at_each_size() -> None:
    of_one_server = [run(1, [100.0, 102.0], ps=1), run(2, [180.0, 182.0], ps=1)]
    of_two = [run(2, [190.0, 192.0], ps=2), run(4, [300.0, 302.0], ps=2)]
    curve = only([*of_one_server, *of_two])
    assert curve.scaling == "weak" and curve.facets["batch_size"] == 64
    points = [(point.workers, point.best.ps, len(point.tried)) for point in curve.points]
    assert points == [(1, 1, 1), (2, 2, 2), (4, 2, 1)]
    assert curve.baseline and curve.baseline.best is curve.points[0].best
    assert [point.efficiency for point in curve.points] == pytest.approx([1.0, 191 / 2 / 101, 301 / 4 / 101], rel=1e-3)
    assert curve.points[2].speedup == pytest.approx(301 / 101, rel=1e-3)
    limits = curve.points[1].efficiency_interval
    assert limits and limits[0] < curve.points[1].efficiency < limits[1]


def test_runs_of_one_configuration_are_pooled_and_those_of_another_version_are_not() -> None:
    rows = [run(1, [100.0, 102.0]), run(1, [104.0]), run(1, [110.0, 112.0], software="TensorFlow 2.17.0")]
    older, newer = scaling.curves(listed(rows))
    assert older.points[0].best.sample.values == (100.0, 102.0, 104.0)
    assert older.points[0].best.sources == (rows[0]["source"], rows[1]["source"])
    assert newer.points[0].best.sample.values == (110.0, 112.0)
    (joined,) = scaling.curves(listed(rows), by="family")
    assert [one.sample.values for one in joined.points[0].tried] == [(100.0, 102.0, 104.0), (110.0, 112.0)]
    assert joined.points[0].best.software == "TensorFlow 2.17.0"


def test_a_familys_curve_takes_the_better_strategy_at_each_size() -> None:
    rows = [run(1, [100.0, 101.0]), run(2, [190.0, 191.0]), run(4, [300.0, 301.0])]
    rows += [
        run(size, [value, value + 1], backend="distributed_replicated") for size, value in ((2, 180.0), (4, 320.0))
    ]
    assert len(scaling.curves(listed(rows))) == 2
    curve = only(rows, by="family")
    assert [point.best.backend for point in curve.points] == [
        "parameter_server",
        "parameter_server",
        "distributed_replicated",
    ]


def test_efficiency_is_relative_to_the_baseline_that_is_asked_for() -> None:
    rows = [run(size, [100.0 * size * 0.9**step] * 2) for step, size in enumerate((1, 2, 4))]
    curve = only(rows, baseline=2)
    assert curve.baseline and curve.baseline.workers == 2
    assert [point.efficiency for point in curve.points] == pytest.approx([1 / 0.9, 1.0, 0.9])
    assert [point.speedup for point in curve.points] == pytest.approx([1 / 0.9, 2.0, 4 * 0.9])
    lacking = only(rows, baseline=3)
    assert lacking.baseline is None and all(math.isnan(point.efficiency) for point in lacking.points)


def test_sizes_with_one_global_batch_make_a_strong_scaling_curve() -> None:
    rows = [run(size, [100.0 * size**0.8] * 3, batch_size=64 // size) for size in (1, 2, 4)]
    found = scaling.curves(listed(rows))
    (strong,) = [one for one in found if one.scaling == "strong"]
    assert strong.facets["global_batch"] == 64
    assert [point.speedup for point in strong.points] == pytest.approx([1, 2**0.8, 4**0.8])
    assert [point.efficiency for point in strong.points] == pytest.approx([1, 2**-0.2, 4**-0.2])
    assert sorted(len(one.points) for one in found if one.scaling == "weak") == [1, 1, 1]


def test_a_weak_scaling_series_is_no_strong_scaling_curve() -> None:
    rows = [run(size, [100.0 * size] * 2) for size in (1, 2, 4)]
    assert [one.scaling for one in scaling.curves(listed(rows))] == ["weak"]


def test_runs_on_one_node_are_the_beginning_of_curves_with_several_devices_per_node() -> None:
    rows = [run(devices, [100.0 * devices] * 2, devices_per_node=devices) for devices in (1, 2, 4)]
    rows += [run(8, [700.0] * 2, devices_per_node=4), run(2, [150.0] * 2, devices_per_node=1)]
    slim, wide = scaling.curves(listed(rows))
    assert (slim.facets["devices_per_node"], [point.workers for point in slim.points]) == (1, [1, 2])
    assert (wide.facets["devices_per_node"], [point.workers for point in wide.points]) == (4, [1, 2, 4, 8])
    assert [point.nodes for point in wide.points] == [1, 1, 1, 2]


def test_the_order_of_results_changes_nothing() -> None:
    rows = [run(size, [100.0 * size, 99.0 * size], ps=ps) for size in (1, 2, 4) for ps in (1, 2)]
    straight = listed(rows)
    mixed = random.Random(1).sample(straight, len(straight))
    one, other = (
        [(point.workers, point.best.ps, point.img_per_s, point.efficiency_interval) for point in curve.points]
        for curve in (scaling.curves(straight)[0], scaling.curves(mixed)[0])
    )
    assert one == other
    point = scaling.curves(mixed)[0].points[0]
    assert {each.ps for each in point.best.runs} == {point.best.ps}


# --- published rows and I/O overhead --------------------------------------------------------------


def test_published_rows_have_efficiencies_without_intervals() -> None:
    found = scaling.curves(results.load(["reference:Daint"]), by="family")
    servers = next(
        one for one in found if one.facets["family"] == "parameter_servers" and one.facets["data"] == "synthetic"
    )
    assert [point.workers for point in servers.points] == [1, 2, 4, 8, 16, 32, 64, 128]
    assert servers.points[-1].efficiency == pytest.approx(9219.7 / 128 / 138.23)
    assert servers.points[-1].interval is None and servers.points[-1].efficiency_interval is None
    assert not servers.points[-1].best.sample.values


def test_a_published_efficiency_stands_without_a_throughput() -> None:
    found = scaling.curves(results.load(["reference:Cori"]))
    points = {(one.facets["model"], point.workers): point for one in found for point in one.points}
    assert points["resnet50", 512].efficiency == 0.23
    assert math.isnan(points["resnet50", 512].img_per_s) and all(one.baseline is None for one in found)


@pytest.mark.parametrize(
    ("system", "printed"),
    [("Piz Daint XC50 P100", {8: 92.07, 64: 80.46, 128: 52.11}), ("EC2 p2.xlarge K80", {16: 88.31, 64: 50.96})],
)
def test_efficiencies_are_as_the_report_of_2017_printed_them(system: str, printed: dict[int, float]) -> None:
    curves = scaling.curves(results.load(["reference:CSCS internship"]), by="family")
    (curve,) = [each for each in curves if (each.facets["system"], each.facets["data"]) == (system, "synthetic")]
    shares = {point.workers: 100 * point.efficiency for point in curve.points if point.workers in printed}
    assert shares == pytest.approx(printed, abs=0.005)


def test_io_overhead_is_what_real_images_cost_of_the_synthetic_throughput() -> None:
    rows = [run(8, [100.0, 101.0, 99.0]), run(8, [90.0, 91.0, 89.0], data="real"), run(16, [200.0] * 3)]
    ((curve, (found,)),) = scaling.io_overheads(scaling.curves(listed(rows)))
    assert curve.facets["data"] == "real"
    assert found.overhead == pytest.approx(0.1, abs=1e-3)
    limits = ratios.ratio([[found.real.best.sample]], [[found.synthetic.best.sample]]).interval
    assert limits and found.interval == pytest.approx((1 - limits[1], 1 - limits[0]))
    assert found.interval[0] < 0.1 < found.interval[1]


def test_io_overhead_needs_a_curve_that_is_equal_but_for_the_data() -> None:
    rows = [run(8, [100.0, 101.0]), run(8, [90.0, 91.0], data="real", precision="amp"), run(8, [1.0, 1.1], **HOROVOD)]
    assert scaling.io_overheads(scaling.curves(listed(rows))) == []


def test_io_overheads_of_published_tables() -> None:
    found = scaling.curves(results.load(["reference:CSCS internship"]), by="family")
    told = {
        (curve.facets["system"], one.workers): one for curve, several in scaling.io_overheads(found) for one in several
    }
    printed = {("Piz Daint XC50 P100", 8): 10.44, ("Piz Daint XC50 P100", 16): 11.43, ("EC2 p2.8xlarge K80", 8): 17.65}
    for place, overhead in printed.items():
        assert 100 * told[place].overhead == pytest.approx(overhead, abs=0.005)
    assert told["Piz Daint XC50 P100", 8].interval is None
    assert len(told) == 24
