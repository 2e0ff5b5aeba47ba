"""What a record says of waits for images; and the page cache that decides much of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.analysis.evidence import input_wait
from harness.records.measurement import Record
from harness.worker import proc
from harness.worker.inputs import page_cache
from tests.made import record

STEPS = 4  # as tests.made has them


def waiting(made: Record, waits: list[list[float]]) -> Record:
    """``made`` with ``waits`` (seconds) of each rank in every step."""
    repeats = [
        repeat.model_copy(
            update={
                "ranks": [
                    rank.model_copy(update={"input_wait_s": wait})
                    for rank, wait in zip(repeat.ranks, waits, strict=True)
                ]
            }
        )
        for repeat in made.repeats
    ]
    return made.model_copy(update={"repeats": repeats})


def test_a_step_waits_as_long_as_the_rank_that_waits_longest() -> None:
    made = record(nodes=2, img_per_s=[128.0, 128.0], data="/d")  # steps of 1 s
    found = input_wait(waiting(made, [[0.1, 0.3, 0.1, 0.1], [0.2, 0.2, 0.2, 0.2]]).repeats)
    assert found is not None
    assert found.per_step_s == pytest.approx((0.2 + 0.3 + 0.2 + 0.2) / 4)
    assert found.share == pytest.approx(found.per_step_s)
    assert found.rank == 1


def test_waits_of_an_emulated_device_are_in_its_own_time() -> None:
    made = waiting(record(img_per_s=[128.0], data="/d"), [[0.2] * STEPS])  # real seconds
    real, emulated = (input_wait(made.repeats, dilation) for dilation in (1.0, 4.0))
    assert real is not None and emulated is not None
    assert emulated.per_step_s == real.per_step_s / 4
    assert emulated.share == real.share


def test_without_waits_nothing_is_said_of_them() -> None:
    assert input_wait(record(nodes=2).repeats) is None
    assert input_wait(waiting(record(nodes=2, data="/d"), [[0.1] * STEPS, []]).repeats) is None


def test_a_records_waits_survive_being_written(tmp_path: Path) -> None:
    made = waiting(record(img_per_s=[80.0], data="/d"), [[0.1, 0.2, 0.3, 0.4]])
    assert Record.read(made.write(tmp_path)).repeats[0].ranks[0].input_wait_s == [0.1, 0.2, 0.3, 0.4]


# --- the page cache ----------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Eight megabytes that were just written."""
    path = tmp_path / "file"
    path.write_bytes(os.urandom(8 << 20))
    return path


def test_a_file_is_forgotten_and_fetched(file: Path) -> None:
    whole = [page_cache.Extent(str(file))]
    page_cache.forget(whole)
    assert page_cache.cached_share(whole) == 0
    page_cache.fetch(whole)
    assert page_cache.cached_share(whole) == 1


def test_a_part_of_a_file_is_looked_at_alone(file: Path) -> None:
    parts = (100, 4096), (7 << 20, 1 << 20)  # further apart than the kernel reads ahead
    first, last = (page_cache.Extent(str(file), *part) for part in parts)
    page_cache.forget([first])
    page_cache.fetch([first])
    assert (page_cache.cached_share([first]), page_cache.cached_share([last])) == (1, 0)


def test_bytes_from_storage_are_counted_those_from_the_page_cache_are_not(file: Path) -> None:
    """Also those of a process below this one, as PyTorch's decoders are."""
    whole = [page_cache.Extent(str(file))]
    page_cache.forget(whole)
    if page_cache.cached_share(whole) != 0:
        pytest.skip("this file system keeps everything in memory")
    before = proc.read_bytes()
    page_cache.fetch(whole)
    from_storage = proc.read_bytes()
    page_cache.fetch(whole)
    assert from_storage - before >= page_cache.mean_bytes(whole) == 8 << 20
    assert proc.read_bytes() - from_storage < 1 << 20
    page_cache.forget(whole)
    program = f"open({str(file)!r}, 'rb').read(); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout and child.stdout.readline()
        assert proc.read_bytes() - from_storage >= 8 << 20
        child.communicate("\n")


def test_what_is_empty_has_no_share(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert page_cache.cached_share([page_cache.Extent(str(tmp_path / "empty"))]) is None
