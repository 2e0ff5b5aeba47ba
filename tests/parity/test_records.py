"""A real run's record: what is in it, and how it is read."""

import json
import math
from pathlib import Path

import pytest

from harness.api import load
from harness.core import statistics
from harness.records import measurement
from tests.conftest import FEW_STEPS, SMALLEST, Harness

QUICK = [*SMALLEST, *FEW_STEPS, "--repeats", "1"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("records")


def test_a_run_prints_its_total_and_its_record_holds_the_raw_times(harness: Harness, runs: Path) -> None:
    twice = ["--nodes", "2", *QUICK, "--repeats", "2", "--output", str(runs)]
    done = harness("run", "--backend", "pytorch", *twice, OMP_DYNAMIC="false").succeeded()
    (folder,) = runs.iterdir()
    kept = measurement.Record.read(folder)
    assert kept.derived
    assert f"total images/sec: {kept.derived.img_per_s.mean:.2f}" == done.stdout.splitlines()[-1]
    assert kept.variables["OMP_DYNAMIC"] == "false"
    assert kept.software["packages"]["torch"].startswith("2.")
    assert kept.derived.formula == statistics.FORMULA
    for repeat in kept.repeats:
        for rank in repeat.ranks:
            assert len(rank.marks_s) == kept.spec.steps + 1
            assert rank.marks_s == sorted(rank.marks_s)
            assert rank.marks_s[-1] <= rank.finished_s <= rank.window_s
    assert kept.derived.steady
    rates = []
    for repeat, steady in zip(kept.repeats, kept.derived.steady, strict=True):
        first_s = max(rank.marks_s[steady.left_out] for rank in repeat.ranks)
        period_s = (max(rank.marks_s[-1] for rank in repeat.ranks) - first_s) / (kept.spec.steps - steady.left_out)
        rates.append(2 * kept.spec.batch_size / period_s)
    assert math.isclose(kept.derived.img_per_s.mean, sum(rates) / 2)


def test_records_load_into_a_data_frame_without_the_runs_that_failed(harness: Harness, runs: Path) -> None:
    failed = harness("run", "--backend", "pytorch", *QUICK, "--learning-rate", "1e30", "--output", str(runs))
    assert failed.code == 1
    frame = load(runs)
    assert list(frame["status"]) == ["completed"]
    assert frame.loc[0, "workers"] == 2 and frame.loc[0, "img_per_s"] > 0
    assert json.loads(frame.loc[0, "options"])["bucket_mb"] == 25
    everything = load(runs, status=None)
    assert sorted(everything["status"]) == ["completed", "failed"]
    assert math.isnan(everything.set_index("status").loc["failed", "img_per_s"])
    table = harness("table", str(runs)).stdout
    assert "failed" in table and "100.0 % (baseline)" in table
