"""The job is the unit of chance: what a job is in results, what may be claimed of jobs, and how often that errs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import error_rates
from benchmarks.error_rates import NOISES, best, in_turn, scaling, slower
from harness import results
from harness.analysis import ab, ratios
from harness.analysis.fastest import Race, races
from harness.analysis.ratios import Sample, turn_factor
from harness.analysis.regression import ASSUMED, compare
from harness.analysis.verdict import verdict
from harness.report.text import fastest as words
from harness.report.text import regression as reports
from harness.results.result import of_training
from tests import made
from tests.unit.made_rows import HOROVOD, SERVERS, listed, run
from tests.unit.simulated import least, most

NEAR = [0.99, 0.995, 1.0, 1.005, 1.01]


def times(rate: float, factors: list[float] = NEAR) -> list[float]:
    return [rate * factor for factor in factors]


def in_jobs(*jobs: str, rate: float = 100.0, **who: Any) -> dict[str, Any]:
    """A run of 5 repeats on 2 nodes in each of these jobs."""
    values = [value * (1 + 0.001 * number) for number in range(len(jobs)) for value in times(rate)]
    return run(2, values, **who) | {"jobs": [job for job in jobs for _ in NEAR]}


def race(*rows: dict[str, Any]) -> Race:
    (only,) = races(listed(rows))
    return only


def said(*rows: dict[str, Any]) -> str:
    return " ".join(words.answer(races(listed(rows)), verdict(listed(rows))))


# --- what a job is ----------------------------------------------------------------------------------


def test_a_run_without_a_batch_system_is_one_job(tmp_path: Path) -> None:
    record = made.record()
    (jobs,) = (run.jobs for run in results.load([made.save(tmp_path / "runs", [record])]))
    assert list(jobs) == [record.id] * 3


def test_each_repeat_says_its_batch_job_also_in_a_record_that_is_read_without_its_repeats(tmp_path: Path) -> None:
    record = made.record(apart=True)
    record.write(made.save(tmp_path / "runs", [record]) / record.id)
    (jobs,) = (run.jobs for run in results.load([tmp_path / "runs"]))
    assert list(jobs) == [repeat.job for repeat in record.repeats] and len(set(jobs)) == 3


def test_runs_within_a_users_allocation_are_one_job_without_turns(tmp_path: Path) -> None:
    records = [made.record(backend, variables={"SLURM_JOB_ID": "7"}) for backend in ("pytorch", "horovod")]
    for record in records:
        record.write(made.save(tmp_path / "runs", [record]) / record.id)
    jobs = [run.jobs for run in results.load([tmp_path / "runs"])]
    assert {job for its in jobs for job in its} == {"within 7"}
    sides = [[Sample.of(record.derived.img_per_s.values, its)] for record, its in zip(records, jobs, strict=True)
             if record.derived]  # fmt: skip
    assert ratios.ratio([sides[0]], [sides[1]]).p is None


def test_published_repeats_are_of_one_job_unless_the_table_says_otherwise(tmp_path: Path) -> None:
    lines = [
        "system,backend,nodes,img_per_s,job",
        "m,horovod,2,100,",
        "m,horovod,2,101,",
        "m,pytorch,2,90,1",
        "m,pytorch,2,91,2",
    ]
    (tmp_path / "own.csv").write_text("\n".join(lines))
    jobs = {run.backend: run.jobs for run in results.load([tmp_path / "own.csv"])}
    assert (len(set(jobs["horovod"])), len(set(jobs["pytorch"]))) == (1, 2)


# --- what may be claimed ----------------------------------------------------------------------------


def test_one_job_each_is_no_claim_however_clear_and_the_sentence_says_what_would_settle_it() -> None:
    rows = in_jobs("1", rate=100, **SERVERS), in_jobs("2", rate=200, **HOROVOD)
    only = race(*rows).sizes[0]
    assert (only.decided, only.p, only.unit.fewest) == (False, None, 1)
    assert "but they ran in one job each, so that may be chance" in said(*rows)
    assert "3 jobs of each contender on 2 nodes (`--jobs 3`" in said(*rows)


def test_several_jobs_decide_and_are_named() -> None:
    rows = in_jobs("1", "2", "3", rate=100, **SERVERS), in_jobs("4", "5", "6", rate=110, **HOROVOD)
    assert race(*rows).sizes[0].decided and ", 3 jobs each." in said(*rows)


def test_turns_in_one_allocation_decide_for_that_allocation() -> None:
    rows = in_jobs("1", rate=100, **SERVERS), in_jobs("1", rate=110, **HOROVOD)
    other = times(110, [NEAR[number] for number in (2, 0, 4, 1, 3)])
    rows = rows[0], rows[1] | {"values": other}
    assert race(*rows).sizes[0].decided and ", 5 pairs in one allocation." in said(*rows)


def test_turns_in_several_allocations_make_a_difference_of_each() -> None:
    drift = [1.0, 1.3, 0.8]
    jobs = [job for job in "123" for _ in NEAR]
    rows = [
        run(2, [value * slow for slow, lead in zip(drift, leads, strict=True) for value in times(rate * lead)], **who)
        | {"jobs": jobs}
        for rate, leads, who in ((100, (1, 1, 1), SERVERS), (105, (1.001, 0.999, 1.0), HOROVOD))
    ]
    only = race(*rows).sizes[0]
    assert only.decided and only.unit == ratios.ChanceUnit(3, 3, 0)
    alone = race(rows[0], rows[1] | {"jobs": [f"{job}b" for job in jobs]}).sizes[0]
    assert not alone.decided


def test_without_turns_two_samples_are_welchs_test_with_careful_degrees_of_freedom() -> None:
    one, other = ([Sample.of(values, "123")] for values in ([100, 101, 103], [110, 111, 115]))
    limits = ratios.ratio([one], [other]).interval
    terms = [(each[0].spread / 3**0.5, 2) for each in (one, other)]
    assert 2 < ratios.satterthwaite(terms) < ratios.satterthwaite(terms, careful=False) <= 4
    assert limits and limits[0] < one[0].mean / other[0].mean < limits[1]


def test_a_side_with_one_job_is_slower_only_beyond_what_jobs_are_assumed_to_differ_by() -> None:
    def judged(rate: float, *old: float) -> str:
        records = [made.record(img_per_s=times(each), day=day) for day, each in enumerate(old)]
        old_and_new = (records, [made.record(img_per_s=times(rate), day=9)])
        found = compare(*([of_training(each, each.id) for each in side] for side in old_and_new))
        assert "a side has one job" in reports.rule(found)
        return found.pairs[0].verdict

    assert ASSUMED == 0.05
    assert [judged(rate, 100.0) for rate in (92.0, 89.0, 86.0)] == ["too noisy", "too noisy", "slower"]
    assert judged(92.0, 100.0, 99.9, 100.1, 99.8, 100.2) == "slower"  # five jobs tell how much they differ
    assert judged(99.5, 100.0, 99.9, 100.1, 99.8, 100.2) == "no significant change"


def test_two_sides_in_several_jobs_have_a_difference_of_each() -> None:
    jobs = [job for job in "123" for _ in range(2)]
    a = Sample.of([100, 101, 120, 121, 80, 81], jobs)
    factors = [1.1, 1.1, 1.101, 1.101, 1.099, 1.099]
    b = [value * factor for value, factor in zip(a.values, factors, strict=True)]
    found = ab.judge(a, Sample.of(b, jobs), 0.02)
    assert (found.answer, found.jobs) == ("B is faster", 3)


# --- how often it errs ------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["run effect 1 %, repeats 1 %", "run effect 2 %, repeats 1 %"])
def test_run_effects_make_no_false_claims(noise: str) -> None:
    draws = 100
    chance = np.random.default_rng(3)
    cells = [best(2, 1), best(2, 3), best(4, 3), scaling(3, any_size=True), slower(1, 1), in_turn(5)]
    for cell in cells:
        assert round(draws * cell(NOISES[noise], chance, draws, 0.0)) <= most(0.05, draws)


def test_drift_within_an_allocation_makes_no_false_claims() -> None:
    """Pairs without ``turn_factor`` err in 7 % of 20 pairs."""
    draws = 400
    found = in_turn(20)(NOISES["AR(1) 0.3 of repeats, 2 %"], np.random.default_rng(4), draws, 0.0)
    assert round(draws * found) <= most(0.05, draws) and 1.1 < turn_factor(20) < turn_factor(20, 4) < 1.4


@pytest.mark.parametrize(
    "cell", [best(2, 3), best(4, 3), scaling(3, sizes=(1, 8)), scaling(3)], ids=["2", "4", "2 sizes", "4 sizes"]
)
def test_three_jobs_find_five_percent(cell: error_rates.Cell) -> None:
    draws = 200
    found = cell(NOISES[error_rates.POWER], np.random.default_rng(5), draws, np.log(1.05))
    assert round(draws * found) >= least(0.9, draws)


def test_contenders_far_behind_that_scatter_less_seldom_make_a_winner() -> None:
    """Their scatter pooled with that of the two that are level, of which one scatters thrice, would in 15 % of draws."""
    draws = 200
    noise = NOISES["one contender's noise × 3, run effect 1 %"]
    assert round(draws * best(4, 3, near=2)(noise, np.random.default_rng(6), draws, 0.0)) <= most(0.06, draws)


def test_other_contenders_scatter_counts_if_it_is_alike_and_not_too_much() -> None:
    def side(middle: float, apart: float, jobs: str) -> list[Sample]:
        return [Sample.of([middle * (1 - apart), middle, middle * (1 + apart)], jobs)]

    over, under = side(104, 0.01, "123"), side(100, 0.01, "456")
    alone = ratios.ratio([over], [under])
    alike, wild = (
        ratios.ratio([over], [under], ratios.common_scatter([over, under, side(90, apart, "789")]))
        for apart in (0.01, 0.3)
    )
    assert alone.p and alike.p == pytest.approx(alone.p / ratios.TRUST)
    assert wild.p and alone.p / ratios.TRUST <= wild.p <= alone.p
    assert alone.interval and alike.interval and alone.interval[0] < alike.interval[0] < alike.value
