"""What the scaling model claims about itself: that its optimum is one, that its draws are enough, that its intervals hold,
and that it says so where it does not know or where measurements contradict it.
"""

import math
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from harness import results
from harness.prediction import fitting, forecast, sampling, shipped
from harness.prediction.basis import StartingPoint, basis, of_site
from harness.prediction.discrepancy import Discrepancy
from harness.prediction.fitting import Fit
from harness.prediction.holdout import HeldOut, condition, hold_out
from harness.prediction.observations import LEAST_ERROR, UNPUBLISHED, Observation, ObservationGroup, groups, informative
from harness.prediction.parameters import Parameters
from harness.prediction.workload import Workload
from tests.conftest import ROOT
from tests.scripts import script
from tests.unit.simulated import draws, least, most

DAINT, XLARGE, EIGHT = TF_2017 = ("Piz Daint XC50 P100", "EC2 p2.xlarge K80", "EC2 p2.8xlarge K80")
OVER_MPI, OVER_NCCL = "TensorFlow 1.7, Horovod 0.15.1", "TensorFlow 1.11, Horovod 0.15.0"
ALEXNET_TOO = "TensorFlow 1.12, Horovod 0.16.0"


@cache
def group(system: str, software: str = "TensorFlow 1.1.0") -> ObservationGroup:
    found, _ = groups(results.load(["reference"]))
    return next(one for one in found if (one.key.system, one.key.software) == (system, software))


@cache
def fitted(system: str, software: str = "TensorFlow 1.1.0") -> Fit:
    return fitting.fit(group(system, software))


@cache
def unseen(system: str, which: str = "workers>32", software: str = "TensorFlow 1.1.0") -> HeldOut:
    found = hold_out(group(system, software), condition(which))
    assert found is not None
    return found


# --- the fits that ship ---------------------------------------------------------------------------


def test_the_fits_that_ship_follow_from_the_rows_and_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change of the published rows, the law or its solver, ``studies/published/fits.py`` writes them anew."""
    shipped_arrays = dict(shipped.arrays())
    monkeypatch.setattr(shipped, "arrays", dict)
    fitting.fit.cache_clear()
    anew = script("studies/published/fits.py").computed()
    assert anew.keys() == shipped_arrays.keys()
    # Rounding differs between processors, and with it single draws.
    for name, array in anew.items():
        if not name.endswith(".draws"):
            assert array == pytest.approx(shipped_arrays[name], rel=0.1, abs=0.02), name
        elif len(array) > 100:
            assert array.mean(axis=0) == pytest.approx(shipped_arrays[name].mean(axis=0), abs=0.1)
            assert array.std(axis=0) == pytest.approx(shipped_arrays[name].std(axis=0), rel=0.1)
    fitting.fit.cache_clear()


# --- the optimum, and the draws -------------------------------------------------------------------


@pytest.mark.parametrize("seen", [pytest.param(128, marks=pytest.mark.slow), 32])
def test_no_other_start_and_no_profile_finds_a_better_optimum_on_p2_8xlarge(seen: int) -> None:
    """Three starts that differed in throughput alone once ended at 2.6 times the cost here.

    Least squares stop at kinks of a step. What is better by less than this changes χ² by 0.1, the last digit printed.
    """
    same = 0.05
    from scipy.optimize import least_squares

    fit = fitting.fit(group(EIGHT), tuple(one for one in group(EIGHT).observations if one.workers <= seen))
    problem, best = fit.problems[0], fit.best
    random = np.random.default_rng(1)
    for start in random.standard_normal((25, problem.dimensions)):
        without = np.where(np.arange(problem.dimensions) == problem.scale, 0.0, start)
        found = least_squares(problem._squares, without, lambda scores: problem._around(scores)[1], max_nfev=60)
        assert found.cost > best.cost - same
    for which in range(len(problem.quantities)):
        for score in np.linspace(-3, 3, 7):

            def fixed(scores: np.ndarray, which: int = which, score: float = score) -> np.ndarray:
                return problem._squares(np.where(np.arange(problem.dimensions) == which, score, scores))

            at = least_squares(fixed, best.x, max_nfev=15).cost + score**2 / 2
            assert at > best.cost - same, (problem.quantities[which].name, score)


@pytest.mark.parametrize(("system", "software"), [*((one, "TensorFlow 1.1.0") for one in TF_2017), (DAINT, OVER_MPI)])
def test_the_posterior_has_the_draws_that_it_states(
    system: str, software: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipped, "arrays", dict)  # fits that ship have draws of one weight
    fit = fitting.fit.__wrapped__(group(system, software))
    assert fit.effective >= 400
    for population in fit.populations:
        assert population.effective == pytest.approx(1 / (population.weights**2).sum())
        assert population.weights.sum() == pytest.approx(1)


def test_draws_are_those_of_a_distribution_that_is_known() -> None:
    """A narrow ring in two of five dimensions: bent, and with its mass nowhere near the mean."""

    def log_likelihood(points: np.ndarray) -> np.ndarray:
        return np.asarray(-0.5 * ((np.hypot(points[:, 0], points[:, 1]) - 2) / 0.05) ** 2)

    found = sampling.sample(log_likelihood, 5)
    assert found.effective >= sampling.WANTED
    radius = np.hypot(found.points[:, 0], found.points[:, 1])
    assert float(found.weights @ radius) == pytest.approx(2, abs=0.02)
    assert float(found.weights @ found.points[:, 0]) == pytest.approx(0, abs=0.2)
    assert float(found.weights @ found.points[:, 3] ** 2) == pytest.approx(1, abs=0.15)
    # Beforehand the radius has the density r exp(−r²/2), and the ring is 0.05 √2π wide.
    assert found.log_evidence == pytest.approx(math.log(2 * math.exp(-2) * 0.05 * math.sqrt(2 * math.pi)), abs=0.1)


def test_each_run_that_is_left_out_is_predicted_by_a_fit_that_never_saw_it() -> None:
    fit = fitted(EIGHT)
    number, one = next((n, one) for n, one in enumerate(informative(fit.group.observations)) if one.workers == 128)
    alone = fitting.fit(fit.group, tuple(other for other in fit.group.observations if other is not one))
    assert all(len(problem.observations) == 6 for problem in alone.problems)
    assert fitting.left_one_out(fit)[number] == one.step_s / alone.forecast(one)[0] - 1


# --- what is known, and what is not ---------------------------------------------------------------


@pytest.mark.parametrize("system", TF_2017)
def test_fitted_to_all_sizes_the_law_is_within_3_percent_on_average(system: str) -> None:
    assert len(fitted(system).errors) == 7  # 2 to 128 workers
    assert fitting.mean_error(fitted(system).errors) <= 0.03
    assert fitted(system).fitted < 5


def test_daint_above_32_workers_is_predicted_from_the_others() -> None:
    found = unseen(DAINT)
    assert [one.workers for one in found.unseen] == [64, 128]
    assert max(one.workers for one in found.seen) == 32
    assert max(map(abs, found.errors)) <= 0.10
    assert found.covered == 2


def test_p2_xlarge_above_32_workers_is_not_predicted_and_its_intervals_show_that_little_is_known() -> None:
    """One run up to 32 waits for the network at all: half of a step more or less is within the interval."""
    found = unseen(XLARGE)
    assert max(map(abs, found.errors)) > 0.2
    for one in found.unseen:
        _, low, high = found.fit.forecast(one)
        assert high > 1.3 * low


def test_cori_on_128_and_hep_cnn_follow_from_512_to_5_points_of_efficiency() -> None:
    found = unseen("Cori KNL", "workers<512", "TensorFlow gRPC sync")
    assert [other.workers for other in found.seen] == [512]
    assert [one.workload.model for one in found.unseen] == ["resnet50", "hep_cnn"]
    for one in found.unseen:
        assert abs(1 / found.fit.step_s(one) - 1 / one.step_s) <= 0.05
    assert found.covered == 2


def test_efficiencies_of_several_models_share_a_throughput_and_have_steps_of_their_own() -> None:
    fit = fitted("Cori KNL", "TensorFlow gRPC sync")
    assert sorted(one.workload.model for one in fit.group.observations) == ["hep_cnn", "resnet50", "resnet50"]
    assert len(fit.singles) == 2
    assert max(map(abs, fit.errors)) <= 0.02


def test_an_efficiency_tells_the_product_of_throughput_and_single_step_and_neither_alone() -> None:
    fit = fitted("Cori KNL", "TensorFlow gRPC sync")
    assert not identified(fit)["throughput"]
    (work,) = [work for work in fit.singles if "resnet50" in work]
    throughput, single_s = np.asarray(fit.draws.parameters.throughput), fit.single_draws[work]
    assert np.log(throughput * single_s).std() < 0.5 * min(np.log(throughput).std(), np.log(single_s).std())


def test_what_was_published_is_what_the_law_was_selected_on_and_other_measurements_are_not() -> None:
    assert group(DAINT).selected_on
    key = group(DAINT).key._replace(system="My cluster")
    assert not replace(group(DAINT), key=key).selected_on


def identified(fit: Fit) -> dict[str, bool]:
    return {one.quantity.name: one.identified for one in fit.estimates}


def test_a_parameter_that_measurements_do_not_tell_is_called_that() -> None:
    assert identified(fitted(DAINT))["throughput"] and identified(fitted(XLARGE))["throughput"]
    assert identified(fitted(DAINT, ALEXNET_TOO))["throughput"]
    for system in TF_2017:
        assert not identified(fitted(system))["message"]


def test_two_sizes_that_compute_hides_tell_no_throughput() -> None:
    nccl = fitted(DAINT, OVER_NCCL)
    throughput = nccl.estimates[0]
    assert throughput.quantity.name == "throughput"
    assert not throughput.identified
    assert throughput.how.startswith("not identified")
    assert throughput.high / throughput.low > fitting.WIDE


def test_published_spreads_are_used() -> None:
    """Horovod over MPI: 8.3, 11.6 and 4.5 % at 32, 64 and 128 nodes."""
    errors = {one.workers: one.error for one in group(DAINT, OVER_MPI).observations}
    assert errors[32] == pytest.approx(math.hypot(LEAST_ERROR, 465 / 5608))
    assert errors[64] == pytest.approx(math.hypot(LEAST_ERROR, 1093 / 9417))
    assert errors[2] == pytest.approx(LEAST_ERROR, rel=0.01)
    assert {one.error for one in group(DAINT).observations} == {UNPUBLISHED}


def test_what_lost_a_published_search_is_data() -> None:
    winners = [one for system in TF_2017 for one in group(system).observations if one.beaten]
    assert len(winners) == 21
    for one in winners:
        (lost,) = one.beaten
        assert lost.copies_back != one.law.copies_back
    agreed = sum(longer > 1 for system in TF_2017 for _, longer in fitted(system).searches)
    assert agreed >= 14  # the law of before had it in 9


# --- how sure it is -------------------------------------------------------------------------------

TRUTH = Parameters(2.4e9, overhead=0.025, replica_overhead=0.012, message=1e-6, token=1e-6, serial=0.5)


def made_up(seed: int, fall: float = 0.0) -> ObservationGroup:
    """Daint's sizes with steps that the law gives with ``TRUTH`` and 2 % of noise; throughput may fall with the size."""
    noise = np.random.default_rng(seed)

    def of(one: Observation) -> Observation:
        if one.workers == 1:
            return one
        p = replace(TRUTH, throughput=TRUTH.throughput * one.nodes**-fall)
        step_s = float(one.law.seconds(one.nodes, one.workers, one.single_s, p))
        return replace(one, step_s=step_s * float(np.exp(UNPUBLISHED * noise.standard_normal())), beaten=())

    return replace(group(DAINT), observations=tuple(map(of, group(DAINT).observations)))


@cache
def tables(fall: float, count: int) -> list[HeldOut]:
    made = [hold_out(made_up(seed, fall), condition("workers>32")) for seed in range(count)]
    return [one for one in made if one is not None]


@pytest.mark.slow
@pytest.mark.parametrize(("count", "chance"), [(50, 0.01), pytest.param(100, 0.01, marks=pytest.mark.exhaustive)])
def test_where_the_law_is_true_intervals_hold_and_no_misfit_is_seen(count: int, chance: float) -> None:
    """The whole table, with 200 of each truth: benchmarks/law_coverage.py. A table's two sizes hold or fail together, so
    each is counted by itself. ``chance`` is that of breaking a bound by what is as good as it says: of 100 tables 82 have
    to hold.
    """
    for size in (64, 128):
        steps = [(next(run for run in one.unseen if run.workers == size), one.fit) for one in tables(0.0, count)]
        forecasts = [(run.step_s, *fit.forecast(run)) for run, fit in steps]
        assert sum(low <= step_s <= high for step_s, _, low, high in forecasts) >= least(0.9, count, chance)
    assert sum(bool(one.fit.misfit.contradiction) for one in tables(0.0, count)) <= most(0.1, count, chance)
    held = [one.fit.estimates[0].low <= TRUTH.throughput <= one.fit.estimates[0].high for one in tables(0.0, count)]
    assert sum(held) >= least(0.9, count, chance)


@draws(30, few=6)
def test_where_throughput_falls_with_the_size_the_misfit_is_seen(count: int) -> None:
    assert sum(one.covered for one in tables(0.2, count)) / (2 * count) < 0.5
    assert sum(bool(one.fit.misfit.contradiction) for one in tables(0.2, count)) / count >= 0.9
    assert tables(0.2, count)[0].fit.misfit.contradiction.startswith("the measurements contradict the law")


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_whole_table_is_printed_by_a_command() -> None:
    script = [sys.executable, str(ROOT / "benchmarks" / "law_coverage.py"), "--tables", "1"]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    lines = subprocess.run(script, env=environ, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    assert lines[0].startswith("| truth")
    assert sum("stragglers, 3 %" in line for line in lines) == len(TF_2017) + 1
    assert sum("Horovod 0.15.1" in line for line in lines) == 3


def test_what_the_law_leaves_out_is_continued_and_less_sure_the_further_away() -> None:
    d = Discrepancy([2, 4, 8, 16, 32], ["one way"] * 5, [0.01] * 5)
    missing = np.tile(0.03 * np.log2([2, 4, 8, 16, 32]), (4000, 1))
    scale = np.full(4000, 0.03)
    draws = {n: d.continued(n, "one way", missing, scale, np.random.default_rng(3)) for n in (32, 64, 128, 512)}
    assert all(draws[n].mean() == pytest.approx(0.15, abs=0.01) for n in draws)  # that of 32, which is nearest
    assert all(draws[near].std() < draws[far].std() for near, far in pairwise(draws))
    assert draws[128].std() == pytest.approx(0.03 * math.sqrt(2), rel=0.1)
    other = d.continued(32, "another way", missing, scale, np.random.default_rng(3))
    assert other.mean() == pytest.approx(0.075, abs=0.01) and other.std() > 2 * draws[32].std()
    # Whoever has seen nothing knows only that it grows.
    nothing = Discrepancy((), (), ()).continued(128, "", np.zeros((4000, 0)), scale, np.random.default_rng(3))
    assert nothing.std() == pytest.approx(0.03 * math.sqrt(7), rel=0.05)


def test_an_interval_holds_its_own_prediction() -> None:
    what = Workload("parameter_server", "inception3", 64)
    start = basis(of_site("daint"), what, StartingPoint())
    found = forecast.best(what, start, [1, 2, 8, 64, 128, 256, 512])
    assert [found[0].low, found[0].high] == pytest.approx([found[0].img_per_s] * 2)  # one worker was measured
    assert all(one.low < one.img_per_s < one.high for one in found[1:])
    widths = [one.high / one.low for one in found[4:]]
    assert widths == sorted(widths)


def test_a_gain_has_an_interval_and_is_1_against_itself() -> None:
    what = Workload("parameter_server", "inception3", 64)
    start = basis(of_site("daint"), what, StartingPoint())
    value, low, high = forecast.gain((what, start, 116), (what, start, 116), 128)
    assert low < value < high and value == pytest.approx(1, abs=0.02)
    value, low, high = forecast.gain((what, start, 116), (what.sliced(), start, 40), 128)
    assert 1.2 < low < value < high < 2.2


def test_published_points_follow_from_one_worker_and_a_line_rate_within_intervals_that_choose() -> None:
    """The priors were chosen with these points in sight: this holds them, and does not prove them."""
    zero_shot = script("benchmarks/zero_shot.py")
    points = [point for each in groups(results.load(["reference"]))[0] for point in zero_shot.points(each)]
    assert len(points) > 50
    assert sum(point.inside for point in points) >= 0.85 * len(points)
    assert np.mean([abs(point.error) for point in points if point.model != "vgg16"]) < 0.07
    assert np.median([point.width for point in points]) < 1.4
