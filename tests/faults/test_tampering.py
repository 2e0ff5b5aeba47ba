"""A record is believed only as it was written: edits that would make a result better, or of a failure, are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from harness import models
from harness.cli.answers import verified
from harness.core.spec import RunSpec
from harness.core.statistics import FORMULA
from harness.errors import InvalidInput
from harness.records import measurement
from tests.conftest import FEW_STEPS
from tests.faults.running import Run
from tests.made import store

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


NOT_DERIVED = "the derived figures do not follow from the raw times"
NOT_DRIVEN = "the plan does not drive the {} devices of the spec"
NOT_EVERY_REPEAT = "a completed run has repeats 1 to 2"
# What is changed, and the words that it is refused with.
EDITS: dict[str, tuple[Edit, str]] = {
    "it failed": (lambda r: r.update(status="failed", reason="it failed"), "a run that is failed has no figures"),
    "it was interrupted": (
        lambda r: r.update(status="interrupted", reason="Ctrl-C"),
        "a run that is interrupted has no figures",
    ),
    "it is completed with a reason": (
        lambda r: r.update(reason="it failed"),
        "a completed run has no reason for failure",
    ),
    "an unknown status": (
        lambda r: r.update(status="great"),
        "status: must be 'completed', 'failed' or 'interrupted', not 'great'",
    ),
    "a check that did not pass": (
        lambda r: r["repeats"][1]["checks"][2].update(passed=False),
        "repeat 2 does not pass finite",
    ),
    "no checks": (lambda r: r["repeats"][0].update(checks=[]), "repeat 1 does not hold every check"),
    "a repeat removed": (lambda r: r["repeats"].pop(), NOT_EVERY_REPEAT),
    "all repeats removed": (lambda r: r.update(repeats=[]), NOT_EVERY_REPEAT),
    "a repeat counted twice": (lambda r: r["repeats"].__setitem__(1, r["repeats"][0]), NOT_EVERY_REPEAT),
    "a rank removed": (lambda r: r["repeats"][0]["ranks"].pop(), "repeat 1 does not pass all_ranks"),
    "a rank counted twice": (
        lambda r: r["repeats"][0]["ranks"].__setitem__(1, r["repeats"][0]["ranks"][0]),
        "repeat 1 does not pass all_ranks",
    ),
    "a step removed": (lambda r: r["repeats"][0]["ranks"][1]["marks_s"].pop(), "repeat 1 does not pass steps"),
    "a better mean": (lambda r: r["derived"]["img_per_s"].update(mean=1e6), NOT_DERIVED),
    "a smaller interval": (lambda r: r["derived"]["img_per_s"].update(ci95=1e-3), NOT_DERIVED),
    "a better repeat": (lambda r: r["derived"]["img_per_s"]["values"].__setitem__(0, 1e6), NOT_DERIVED),
    "less jitter": (lambda r: r["derived"]["step_times"].update(jitter_s=0.0), NOT_DERIVED),
    "another formula": (
        lambda r: r["derived"].update(formula="img_per_s/3: times two"),
        f"derived.formula: must be {FORMULA!r}, or figures are not comparable",
    ),
    "no figures": (lambda r: r.update(derived=None), "a completed run has derived figures"),
    "shorter steps": (
        lambda r: [rank.update(marks_s=[mark / 2 for mark in rank["marks_s"]]) for rank in r["repeats"][0]["ranks"]],
        NOT_DERIVED,
    ),
    "a window of no time": (
        lambda r: [rank.update(window_s=0.0) for rank in r["repeats"][0]["ranks"]],
        "repeats[0].ranks[0].window_s: must be greater than 0, not 0.0",
    ),
    "a negative window": (
        lambda r: [rank.update(window_s=-1.0) for rank in r["repeats"][0]["ranks"]],
        "repeats[0].ranks[0].window_s: must be greater than 0, not -1.0",
    ),
    "a window that is no number": (
        lambda r: r["repeats"][0]["ranks"][0].update(window_s=float("nan")),
        "repeats[0].ranks[0].window_s: must be a finite number, not nan",
    ),
    "a mark that is no number": (
        lambda r: r["repeats"][0]["ranks"][0]["marks_s"].__setitem__(1, float("nan")),
        "repeats[0].ranks[0].marks_s[1]: must be a finite number, not nan",
    ),
    "a mean that is no number": (
        lambda r: r["derived"]["img_per_s"].update(mean=float("nan")),
        "derived.img_per_s.mean: must be a finite number, not nan",
    ),
    "a larger batch": (lambda r: r["spec"].update(batch_size=64), NOT_DERIVED),
    "more nodes": (lambda r: r["spec"].update(nodes=4), NOT_DRIVEN.format(4)),
    "fewer nodes": (lambda r: r["spec"].update(nodes=1), NOT_DRIVEN.format(1)),
    "two devices per node": (lambda r: r["spec"].update(devices_per_node=2), NOT_DRIVEN.format(4)),
    "a worker of two devices": (lambda r: r["plan"]["processes"][0].update(devices=2), NOT_DRIVEN.format(2)),
    "a smaller world": (lambda r: r["plan"].update(world_size=1), NOT_DRIVEN.format(2)),
    "no plan": (lambda r: r.update(plan={}), NOT_DRIVEN.format(2)),
    "a world of one": (
        lambda r: r["repeats"][0]["ranks"][0]["evidence"].update(world_size=1),
        "repeat 1 does not pass world_size",
    ),
    "a loss that is no number": (
        lambda r: r["repeats"][0]["ranks"][1]["evidence"].update(finite=False),
        "repeat 1 does not pass finite",
    ),
    "parameters that are the initial ones": (
        lambda r: r["repeats"][0]["ranks"][0]["evidence"].update(changed=False),
        "repeat 1 does not pass trained",
    ),
    "no evidence": (lambda r: r["repeats"][0]["ranks"][0].update(evidence={}), "repeat 1 lacks evidence"),
    "another schema": (
        lambda r: r.update(schema="harness.record/0"),
        "schema: must be 'harness.record/1', not 'harness.record/0'",
    ),
    "no schema": (lambda r: r.pop("schema"), "schema: is required"),
    "an unknown field": (lambda r: r.update(verified=True), "verified: unknown field"),
    "no spec": (lambda r: r.pop("spec"), "spec: is required"),
    "an unknown model": (
        lambda r: r["spec"].update(model="resnet5000"),
        f"spec.model: unknown model 'resnet5000'; known: {', '.join(models.names())}",
    ),
}


@pytest.mark.parametrize(("edit", "words"), EDITS.values(), ids=EDITS.keys())
def test_an_edited_record_is_refused_in_words_that_say_why(
    completed: Json, tmp_path: Path, edit: Edit, words: str
) -> None:
    edited = deepcopy(completed)
    edit(edited)
    with pytest.raises(InvalidInput) as refused:
        read(tmp_path, edited)
    assert str(refused.value) == f"{tmp_path}/record.json: not a valid record: {words}"


@pytest.mark.parametrize(("edit", "words"), EDITS.values(), ids=EDITS.keys())
def test_an_edited_record_that_somebody_has_sealed_again_is_found_by_check(
    completed: Json, tmp_path: Path, edit: Edit, words: str
) -> None:
    edited = deepcopy(completed)
    edit(edited)
    file = tmp_path / "record.json"
    store(file, edited, seal=True)
    assert verified(str(file))[0] == f"{file}: not a valid record: {words}"


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
def test_a_record_that_is_cut_short_is_refused(completed: Json, tmp_path: Path, cut: int) -> None:
    store(tmp_path / "record.json", completed)
    (tmp_path / "record.json").write_text(json.dumps(completed)[:cut])
    with pytest.raises(InvalidInput, match="not a valid record: Invalid JSON") as refused:
        measurement.Record.read(tmp_path)
    assert len(str(refused.value)) < 300  # it does not quote the file
