"""A record is believed only as it was written: edits that would make a result better, or of a failure, are refused."""

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from harness.cli.answers import verified
from harness.core.spec import RunSpec
from harness.errors import InvalidInput
from harness.records import measurement
from tests.conftest import FEW_STEPS
from tests.faults.running import Run
from tests.made import edited, store
from tests.wording import Case, Wording, cases

Json = dict[str, Any]
Edit = Callable[[Json], object]


@pytest.fixture(scope="module")
def completed(tmp_path_factory: pytest.TempPathFactory, environment: Callable[[str], Path]) -> Json:
    """The record of a real run."""
    environment("pytorch")
    folder = tmp_path_factory.mktemp("completed")
    run = Run(folder, "--backend", "pytorch", "--nodes", "2", *FEW_STEPS, "--repeats", "2").end()
    assert run.code == 0, run.stderr
    return run.record


def read(tmp_path: Path, edited: Json) -> measurement.Record:
    store(tmp_path / "record.json", edited)
    return measurement.Record.read(tmp_path)


def test_the_record_of_a_real_run_is_believed(completed: Json, tmp_path: Path) -> None:
    found = read(tmp_path, completed)
    assert found.derived and found.derived.img_per_s.mean > 0


@cases
def test_an_edited_record_is_refused_in_words_that_say_why(completed: Json, tmp_path: Path, case: Case) -> None:
    """Also where somebody has sealed it again, by ``harness results check``."""
    file, edit = tmp_path / "record.json", edited(completed, case.request)
    with case.raises(InvalidInput, FILE=file):
        read(tmp_path, edit)
    store(file, edit, seal=True)
    case.answered(verified(str(file))[0], FILE=file)


FAILURES: dict[str, Edit] = {
    "which crashed in its second repeat": lambda r: r["repeats"].pop(),
    "which diverged": lambda r: r["repeats"][1]["checks"][2].update(passed=False),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
def test_a_failed_run_does_not_become_a_result_by_its_status(completed: Json, tmp_path: Path, failure: Edit) -> None:
    failed = deepcopy(completed)
    failure(failed)
    repeats = [measurement.Repeat.model_validate(repeat) for repeat in failed["repeats"]]
    seen = measurement.window_seen_by(RunSpec.model_validate(failed["spec"]), repeats)
    failed.update(status="failed", reason="as it was", derived=None, seen=seen.model_dump(mode="json"))
    assert read(tmp_path, failed).derived is None
    for changed in ({"status": "completed"}, {"status": "completed", "reason": None, "derived": completed["derived"]}):
        with pytest.raises(InvalidInput):
            read(tmp_path, failed | changed)


@pytest.mark.parametrize("cut", [0, 1, 100, -2])
def test_a_record_that_is_cut_short_is_refused(completed: Json, tmp_path: Path, cut: int, wording: Wording) -> None:
    store(tmp_path / "record.json", completed)
    (tmp_path / "record.json").write_text(json.dumps(completed)[:cut])
    with pytest.raises(InvalidInput) as refused:
        measurement.Record.read(tmp_path)
    wording("a cut").answered(refused.value, HERE=tmp_path)
    assert len(str(refused.value)) < 300  # it does not quote the file
