"""The check before a run, on this machine, with real processes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness.core.spec import RunSpec
from harness.records.measurement import Record
from harness.records.pairs import Preflight
from harness.running.prepare import Place
from harness.running.request import carry_out, execute
from harness.running.run import Listener, Run

SMALLEST = {"model": "pointwise", "batch_size": 2, "image_size": 32, "warmup_steps": 1, "steps": 2, "threads": 1}


class Hearing(Listener):
    """Keeps what checks have found, and whether a repeat had ended before."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def checked(self, run: Run, found: Preflight) -> None:
        self.heard.append(found)

    def ended(self, run: Run, *_: object) -> None:
        self.heard.append("repeat")


@pytest.mark.slow
def test_the_nodes_are_checked_before_the_first_repeat(environment: Callable[..., Path], tmp_path: Path) -> None:
    environment("pytorch")
    spec = RunSpec.validated(backend="pytorch", nodes=2, device="cpu", repeats=2, **SMALLEST)
    hearing = Hearing()
    (record,) = carry_out([spec], Place(output=tmp_path), hearing, preflight=True).records
    assert isinstance(record, Record) and record.status == "completed" and record.spec.nodes == 2
    assert hearing.heard == [record.preflight, "repeat", "repeat"]
    assert record.preflight and record.preflight.pairs and record.preflight.problem == ""
    assert record.preflight.pairs.nodes == ["node 0", "node 1"]
    assert all(rate > 1e6 for rate in record.preflight.pairs.flop_per_s)


@pytest.mark.slow
def test_a_check_that_fails_is_recorded_and_the_run_goes_on(environment: Callable[..., Path], tmp_path: Path) -> None:
    environment("pytorch")
    place = Place(output=tmp_path)
    spec = RunSpec.validated(backend="pytorch", nodes=2, device="cpu", repeats=1, **SMALLEST)
    run = place.with_preflight(place.prepare(spec))
    assert run.preflight
    hasty = run.preflight.spec.model_copy(update={"timeout_s": 0.1})
    (record,) = execute([replace(run, preflight=replace(run.preflight, spec=hasty))], Listener())
    assert isinstance(record, Record) and record.status == "completed"
    assert record.preflight and record.preflight.pairs is None and "0.1" in record.preflight.problem
