"""Who was late in a run, by what its ranks say."""

from dataclasses import astuple

from harness.analysis.evidence import late
from harness.records.pairs import CheckedPairs, Preflight, Slow
from tests import made


def test_waits_for_images_and_what_the_check_before_the_run_found_tell_of_real_devices() -> None:
    record = made.record("pytorch", 4, [100.0, 101.0])
    assert late(record) == []
    found = CheckedPairs(
        nodes=["nid00001"], flop_per_s=[1e9], bytes_per_s=[[None]], slow=[
            Slow(kind="sends", node="nid00001", rate=1.3e7, usual=2.5e7)
        ],
    )  # fmt: skip
    waiting = [
        repeat.model_copy(
            update={
                "ranks": [
                    rank.model_copy(update={"input_wait_s": [rank.window_s / 4 if rank.rank == 3 else 0.0] * 4})
                    for rank in repeat.ranks
                ]
            }
        )
        for repeat in record.repeats
    ]
    checked = Preflight(backend="pytorch", transport="mpi", pairs=found)
    link, images = late(record.model_copy(update={"repeats": waiting, "preflight": checked}))
    assert astuple(link) == (None, "nid00001", "before the run it sends at 0.013 GB/s, 52% of the others' 0.025")
    assert str(images).startswith("rank 3 on nid00003: it waited 2.5") and images.why.endswith("the others 0 s")
