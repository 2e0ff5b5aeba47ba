"""The record of a measurement: when its repeats count."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from harness.records.measurement import judge
from tests import made


@pytest.mark.parametrize(("slowest_s", "failed"), [(2.0, []), (2.01, ["no_straggler"])])
def test_a_rank_may_take_twice_as_long_as_the_median_rank_and_no_longer(slowest_s: float, failed: list[str]) -> None:
    record = made.record(nodes=3)
    times_s = zip(record.repeats[0].ranks, (0.9, slowest_s, 1.0), strict=True)
    ranks = [rank.model_copy(update={"finished_s": finished_s}) for rank, finished_s in times_s]
    checks = judge(record.spec, ranks, 3, record.expected_updates)
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
    starts: list[tuple[str | None, int]], counts: bool
) -> None:
    record = made.record(img_per_s=[100.0, 101.0])
    repeats = [
        repeat.model_copy(update={"job": job, "restart": restart})
        for repeat, (job, restart) in zip(record.repeats, starts, strict=True)
    ]
    refused = pytest.raises(ValueError, match="repeats from before and after the job was requeued are mixed")
    with nullcontext() if counts else refused:
        record.model_copy(update={"repeats": repeats}).verify()
