"""A record is believed only as it was written: edits that would make a result better, or of a failure, are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from harness.cli.answers import verified
from harness.errors import InvalidInput
from harness.records import measurement
from harness.records.record import sealed
from tests.conftest import FEW_STEPS
from tests.faults.running import Run

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
    (tmp_path / "record.json").write_text(json.dumps(edited))
    return measurement.Record.read(tmp_path)


def test_the_record_of_a_real_run_is_believed(completed: Json, tmp_path: Path) -> None:
    found = read(tmp_path, completed)
    assert found.derived and found.derived.img_per_s.mean > 0


EDITS: dict[str, Edit] = {
    "it failed": lambda r: r.update(status="failed", reason="it failed"),
    "it was interrupted": lambda r: r.update(status="interrupted", reason="Ctrl-C"),
    "an unknown status": lambda r: r.update(status="great"),
    "a check that did not pass": lambda r: r["repeats"][1]["checks"][2].update(passed=False),
    "no checks": lambda r: r["repeats"][0].update(checks=[]),
    "a repeat removed": lambda r: r["repeats"].pop(),
    "all repeats removed": lambda r: r.update(repeats=[]),
    "a repeat counted twice": lambda r: r["repeats"].__setitem__(1, r["repeats"][0]),
    "a rank removed": lambda r: r["repeats"][0]["ranks"].pop(),
    "a rank counted twice": lambda r: r["repeats"][0]["ranks"].__setitem__(1, r["repeats"][0]["ranks"][0]),
    "a step removed": lambda r: r["repeats"][0]["ranks"][1]["marks_s"].pop(),
    "a better mean": lambda r: r["derived"]["img_per_s"].update(mean=1e6),
    "a smaller interval": lambda r: r["derived"]["img_per_s"].update(ci95=1e-3),
    "a better repeat": lambda r: r["derived"]["img_per_s"]["values"].__setitem__(0, 1e6),
    "less jitter": lambda r: r["derived"]["step_times"].update(jitter_s=0.0),
    "another formula": lambda r: r["derived"].update(formula="img_per_s/2: times two"),
    "no figures": lambda r: r.update(derived=None),
    "a shorter window": lambda r: [rank.update(window_s=1e-3) for rank in r["repeats"][0]["ranks"]],
    "a window of no time": lambda r: [rank.update(window_s=0.0) for rank in r["repeats"][0]["ranks"]],
    "a negative window": lambda r: [rank.update(window_s=-1.0) for rank in r["repeats"][0]["ranks"]],
    "a window that is no number": lambda r: r["repeats"][0]["ranks"][0].update(window_s=float("nan")),
    "a mark that is no number": lambda r: r["repeats"][0]["ranks"][0]["marks_s"].__setitem__(1, float("nan")),
    "a mean that is no number": lambda r: r["derived"]["img_per_s"].update(mean=float("nan")),
    "a larger batch": lambda r: r["spec"].update(batch_size=64),
    "more nodes": lambda r: r["spec"].update(nodes=4),
    "fewer nodes": lambda r: r["spec"].update(nodes=1),
    "two devices per node": lambda r: r["spec"].update(devices_per_node=2),
    "a worker of two devices": lambda r: r["plan"]["processes"][0].update(devices=2),
    "a smaller world": lambda r: r["plan"].update(world_size=1),
    "no plan": lambda r: r.update(plan={}),
    "a world of one": lambda r: r["repeats"][0]["ranks"][0]["evidence"].update(world_size=1),
    "a loss that is no number": lambda r: r["repeats"][0]["ranks"][1]["evidence"].update(finite=False),
    "no evidence": lambda r: r["repeats"][0]["ranks"][0].update(evidence={}),
    "another schema": lambda r: r.update(schema="harness.record/0"),
    "no schema": lambda r: r.pop("schema"),
    "an unknown field": lambda r: r.update(verified=True),
    "no spec": lambda r: r.pop("spec"),
    "an unknown model": lambda r: r["spec"].update(model="resnet5000"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_an_edited_record_is_refused_in_one_line(completed: Json, tmp_path: Path, edit: Edit) -> None:
    edited = deepcopy(completed)
    edit(edited)
    with pytest.raises(InvalidInput, match=r"record\.json: not a valid record: .") as refused:
        read(tmp_path, edited)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_an_edited_record_that_somebody_has_sealed_again_is_found_by_check(
    completed: Json, tmp_path: Path, edit: Edit
) -> None:
    edited = deepcopy(completed)
    del edited["seal"]
    edit(edited)
    file = tmp_path / "record.json"
    file.write_bytes(sealed(json.dumps(edited).removesuffix("}").encode()))
    assert re.fullmatch(r".*record\.json: not a valid record: .+", verified(str(file))[0])


FAILURES: dict[str, Edit] = {
    "which crashed in its second repeat": lambda r: r["repeats"].pop(),
    "which diverged": lambda r: r["repeats"][1]["checks"][2].update(passed=False),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
def test_a_failed_run_does_not_become_a_result_by_its_status(completed: Json, tmp_path: Path, failure: Edit) -> None:
    failed = deepcopy(completed)
    failure(failed)
    failed.update(status="failed", reason="as it was", derived=None)
    assert read(tmp_path, failed).derived is None
    for changed in ({"status": "completed"}, {"status": "completed", "reason": None, "derived": completed["derived"]}):
        with pytest.raises(InvalidInput):
            read(tmp_path, failed | changed)


@pytest.mark.parametrize("cut", [0, 1, 100, -2])
def test_a_record_that_is_cut_short_is_refused(completed: Json, tmp_path: Path, cut: int) -> None:
    (tmp_path / "record.json").write_text(json.dumps(completed)[:cut])
    with pytest.raises(InvalidInput, match="not a valid record: Invalid JSON") as refused:
        measurement.Record.read(tmp_path)
    assert len(str(refused.value)) < 300  # it does not quote the file
