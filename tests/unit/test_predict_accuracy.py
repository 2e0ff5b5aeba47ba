"""How well the law does on what was published, held as goals; and whether it knows how sure it may be."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from harness import results
from harness.predict import fitting, forecast
from harness.predict.basis import basis, of_site
from harness.predict.explain import partitioned
from harness.predict.fitting import DRAWN, Fit
from harness.predict.forecast import Basis, What
from harness.predict.holdout import HeldOut, condition, hold_out
from harness.predict.observations import DISCREPANCY, Group, Observation, groups
from harness.predict.parameters import Parameters

TF_2017 = ["Piz Daint XC50 P100", "EC2 p2.xlarge K80", "EC2 p2.8xlarge K80"]
WITHIN_S = 10.0


@cache
def group(system: str, software: str = "TensorFlow 1.1.0") -> Group:
    found, _ = groups(results.load(["reference"]))
    return next(one for one in found if (one.key.system, one.key.software) == (system, software))


@cache
def fitted(system: str, software: str = "TensorFlow 1.1.0") -> Fit:
    return fitting.fit(group(system, software))


def mean(errors: list[float] | tuple[float, ...]) -> float:
    return sum(map(abs, errors)) / len(errors)


def unseen(system: str, which: str, software: str = "TensorFlow 1.1.0") -> HeldOut:
    found = hold_out(group(system, software), condition(which))
    assert found is not None
    return found


# --- goals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", TF_2017)
def test_fitted_to_all_sizes_it_is_within_3_percent_on_average(system: str) -> None:
    assert len(fitted(system).errors) == 7  # 2 to 128 workers
    assert mean(fitted(system).errors) <= 0.03


@pytest.mark.parametrize("system", TF_2017)
def test_fitted_up_to_32_workers_it_predicts_64_and_128(system: str) -> None:
    found = unseen(system, "workers>32")
    assert [one.workers for one in found.unseen] == [64, 128]
    assert max(one.workers for one in found.seen) == 32
    assert max(map(abs, found.errors)) <= 0.10


def test_fitted_up_to_32_workers_64_and_128_are_within_5_percent_on_average() -> None:
    assert mean([error for system in TF_2017 for error in unseen(system, "workers>32").errors]) <= 0.05


def test_cori_on_128_follows_from_512_to_5_points_of_efficiency() -> None:
    found = unseen("Cori KNL", "workers=128", "TensorFlow gRPC sync")
    (one,) = found.unseen
    assert [other.workers for other in found.seen] == [512]
    assert abs(1 / found.fit.step_s(one) - 1 / one.step_s) <= 0.05


def test_horovod_without_nccl_on_daint_is_within_8_percent_at_every_size() -> None:
    found = fitted("Piz Daint XC50 P100", "TensorFlow 1.7, Horovod 0.15.1")
    assert [one.workers for one in found.group.observations] == [2, 4, 8, 16, 32, 64, 128]
    assert max(map(abs, found.errors)) <= 0.08


@pytest.mark.parametrize("system", TF_2017)
def test_far_fewer_numbers_are_fitted_than_there_are_sizes(system: str) -> None:
    assert fitted(system).fitted == len(fitted(system).estimates) == 4 < 7


@pytest.mark.parametrize("system", TF_2017)
def test_sizes_that_it_has_not_seen_are_no_better_predicted_than_those_that_it_has(system: str) -> None:
    assert mean(fitting.left_one_out(fitted(system))) >= mean(fitted(system).errors)


def test_two_sizes_that_compute_hides_do_not_tell_a_throughput_and_it_says_so() -> None:
    nccl = fitted("Piz Daint XC50 P100", "TensorFlow 1.14, Horovod 0.16.4")
    throughput = nccl.estimates[0]
    assert throughput.quantity.name == "throughput"
    assert throughput.how.startswith("assumed")
    assert throughput.high / throughput.low > 10


# --- how sure it is -------------------------------------------------------------------------------

SEEDS = 40
TRUTH = Parameters(throughput=2.4e9, overhead=0.02, replica_overhead=0.015, message=1e-6)


def made_up(system: str, seed: int, software: str = "TensorFlow 1.1.0") -> Group:
    """The published sizes, but with steps that the law gives with ``TRUTH``, and 2 % of noise."""
    noise = np.random.default_rng(seed)

    def of(one: Observation) -> Observation:
        if one.workers == 1:
            return one
        assert one.single_s is not None
        step_s = float(one.law.seconds(one.nodes, one.workers, one.single_s, TRUTH))
        return replace(one, step_s=step_s * float(np.exp(DISCREPANCY * noise.standard_normal())))

    known = group(system, software)
    return Group(known.key, tuple(of(one) for one in known.observations))


@cache
def refitted() -> tuple[Fit, ...]:
    return tuple(fitting.fit(made_up("Piz Daint XC50 P100", seed)) for seed in range(SEEDS))


def share(holds: Callable[[Fit], bool]) -> float:
    return sum(map(holds, refitted())) / SEEDS


def test_nine_of_ten_intervals_hold_the_throughput_that_the_measurements_were_made_with() -> None:
    assert share(lambda fit: fit.estimates[0].low <= TRUTH.throughput <= fit.estimates[0].high) >= 0.75


def test_most_intervals_are_narrow_where_the_network_binds() -> None:
    widths = [fit.estimates[0].high / fit.estimates[0].low for fit in refitted()]
    assert np.median(widths) < 1.15


@pytest.mark.parametrize(("nodes", "ps"), [(256, 116), (256, 8), (128, 1), (32, 12)])
def test_nine_of_ten_intervals_of_predictions_hold_what_would_be_measured(nodes: int, ps: int) -> None:
    """Twice the largest size among them, and numbers of servers that nobody tried."""
    what = What("parameter_server", "inception3", 64)
    noise = np.random.default_rng(7)

    def holds(fit: Fit) -> bool:
        single_s = next(one.step_s for one in fit.group.observations if one.workers == 1)
        start = Basis(fit.parameters, single_s, fit.draws, np.full(DRAWN, single_s))
        step_s = float(what.law(ps).seconds(nodes, nodes, single_s, TRUTH))
        step_s *= float(np.exp(DISCREPANCY * noise.standard_normal()))
        one = forecast.at(what, start, nodes, ps)
        return one.low <= nodes * 64 / step_s <= one.high

    assert share(holds) >= 0.75


def test_an_interval_holds_its_own_prediction() -> None:
    what = What("parameter_server", "inception3", 64)
    start = basis(of_site("daint"), what)
    for one in forecast.best(what, start, [1, 2, 8, 64, 128, 256, 512]):
        assert one.low < one.img_per_s < one.high


# --- how quick it is ------------------------------------------------------------------------------


@pytest.mark.alone
@pytest.mark.parametrize(
    "what",
    [
        What("parameter_server", "inception3", 64),
        partitioned(What("parameter_server", "inception3", 64)),
        What("distributed_replicated", "inception3", 64, options=json.dumps({"placement": "round_robin"})),
    ],
    ids=lambda what: f"{what.backend} {json.loads(what.options).get('placement', 'greedy')}",
)
def test_every_number_of_servers_at_every_size_up_to_4096_nodes_takes_seconds(what: What) -> None:
    start = basis(of_site("daint"), what)
    began = time.perf_counter()
    counts, steps = forecast.sweep(what, start, range(1, 4097))
    assert time.perf_counter() - began < WITHIN_S
    assert steps.shape == (len(counts), 4096)
    assert counts == list(range(1, len(counts) + 1))
    # A server has a place where there are as many nodes, and nowhere else.
    assert math.isinf(steps[7, 6])
    assert np.isfinite(steps[7, 7:]).all()
    assert steps[7, 127] == pytest.approx(forecast.at(what, start, 128, 8).step_s, rel=1e-12)
