"""The record of a measurement: when its repeats count."""

from contextlib import nullcontext
from itertools import accumulate

import pytest

from harness.core.emulation import STEADY, Kept
from harness.records import measurement
from harness.records.measurement import judge
from harness.records.record import Check
from tests import made
from tests.wording import Wording


@pytest.mark.parametrize(("slowest_s", "failed"), [(2.0, []), (2.01, ["no_straggler"])])
def test_a_rank_may_take_twice_as_long_as_the_median_rank_and_no_longer(slowest_s: float, failed: list[str]) -> None:
    record = made.record(nodes=3)
    times_s = zip(record.repeats[0].ranks, (0.9, slowest_s, 1.0), strict=True)
    ranks = [rank.model_copy(update={"finished_s": finished_s}) for rank, finished_s in times_s]
    checks = judge(record.spec, {"world_size": 3}, ranks, record.expected_updates)
    assert [check.name for check in checks if not check.passed] == failed
    assert checks[-1].detail == f"rank 1 on nid00001 took {slowest_s:.2f} × the median rank, limit 2"


@pytest.mark.parametrize(
    ("starts", "counts"),
    [
        ([("7", 0), ("7", 1)], False),
        ([("7", 1), ("7", 1)], True),
        ([("7", 0), ("8", 1)], True),
        ([(None, 0), (None, 0)], True),
    ],
)
def test_repeats_from_before_and_after_a_job_was_requeued_are_no_result(
    starts: list[tuple[str | None, int]], counts: bool, wording: Wording
) -> None:
    record = made.record(img_per_s=[100.0, 101.0])
    repeats = [
        repeat.model_copy(update={"job": job, "restart": restart})
        for repeat, (job, restart) in zip(record.repeats, starts, strict=True)
    ]
    with nullcontext() if counts else wording("requeued").raises(ValueError):
        record.model_copy(update={"repeats": repeats}).verify()


def test_a_real_run_whose_steps_trend_says_so_beside_its_number() -> None:
    record = made.record(steps=40)
    rank = record.repeats[0].ranks[0]
    slower = [0.0, *accumulate(1 + step / 100 for step in range(40))]
    repeat = record.repeats[0].model_copy(update={"ranks": [rank.model_copy(update={"marks_s": slower})]})
    derived = measurement.derive(record.spec, [repeat])
    assert derived.steady and derived.steady[0].trends
    (note,) = derived.notes
    assert note.startswith("repeat 1 was not steady: steps change by +")
    assert measurement.derive(record.spec, [record.repeats[0]]).notes == ()


def test_an_emulated_window_that_trends_does_not_count() -> None:
    real = made.record(steps=6)
    spec = real.spec.model_copy(update={"device": "emulated:p100", "dilation": 10.0})
    rank = real.repeats[0].ranks[0]
    kept = Kept(
        busy=[0.1],
        late_sum_s=0.0,
        late_p99_s=0.0,
        stalled_s=0.0,
        computed_s=0.1,
        sent=1,
        resent=0,
        link_bytes_per_s=None,
    )

    def check(*durations_s: float) -> Check:
        marks_s = [0.0, *accumulate(durations_s)]
        looked = rank.model_copy(update={"marks_s": marks_s, "kept": kept, "window_s": marks_s[-1]})
        return measurement.judge(spec, {"world_size": 1}, [looked], 16)[-1]

    assert check(10.5, 16.4, 16.5, 17.7, 20.1, 20.4).passed is False
    steady = check(10.5, 14.4, 14.5, 14.4, 14.3, 14.4)
    assert (steady.name, steady.passed) == (STEADY, True)
    assert check(14.4, 14.4, 14.4).detail == "too few steps to tell whether they are steady"
