"""The check before a run: over what it is done, where it stands in a job, and what a record says of it."""

import json
from pathlib import Path

import pytest

from harness.core.spec import RunSpec
from harness.records.measurement import Record
from harness.records.pairs import CheckedPairs, Preflight, Slow
from harness.report.text import outcomes
from harness.running.preflight import outcome
from harness.running.prepare import Place
from harness.running.request import carry_out, jobs_of
from tests import made
from tests.conftest import Harness
from tests.wording import Case, cases

SLOW = Slow(kind="sends", node="n1", rate=1e9, usual=2e9)
FOUND = CheckedPairs(nodes=["n0", "n1"], flop_per_s=[1e9, 1e9], bytes_per_s=[[None, 1e9], [1e9, None]], slow=[SLOW])
CHECKED = Preflight(backend="mpi4py", transport="mpi", pairs=FOUND)


def place(tmp_path: Path) -> Place:
    return Place("daint", account="s123", output=tmp_path / "runs", dry_run=True)


@pytest.mark.parametrize(
    ("backend", "device", "over"),
    [
        ("pytorch", "cpu", ("pytorch", "gloo")),
        ("horovod", "cpu", ("mpi4py", "mpi")),
        ("horovod", "cuda", ("pytorch", "nccl")),
    ],
)
def test_nodes_are_checked_over_the_runs_own_transport_or_the_first_that_can(
    tmp_path: Path, backend: str, device: str, over: tuple[str, str]
) -> None:
    spec = RunSpec.validated(backend=backend, nodes=4, device=device)
    (run,) = carry_out([spec], place(tmp_path), preflight=True).runs
    assert run.preflight
    checking = run.preflight.spec
    assert (checking.backend, checking.transport, checking.subject, checking.nodes) == (*over, "pairs", 4)
    assert run.preflight.folder == run.folder / "preflight"


def test_nodes_of_servers_are_checked_too(tmp_path: Path) -> None:
    spec = RunSpec.validated(
        backend="parameter_server", nodes=4, options={"ps": 2, "ps_nodes": "dedicated"}, device="cpu"
    )
    (run,) = carry_out([spec], place(tmp_path), preflight=True).runs
    assert run.preflight and run.preflight.spec.nodes == 6


def test_the_check_comes_first_in_the_job_and_is_no_repeat(tmp_path: Path) -> None:
    specs = [RunSpec.validated(backend="pytorch", nodes=4, repeats=2, learning_rate=rate) for rate in (0.1, 0.2)]
    at = place(tmp_path)
    first, second = carry_out(specs, at, preflight=True).runs
    ((job, text),) = jobs_of([first, second], at.options)
    steps = [(Path(step.run_dir), step.repeat) for step in job.steps]
    check = (first.folder / "preflight", 1)
    assert steps == [check, (first.folder, 1), (second.folder, 1), (second.folder, 2), (first.folder, 2)]
    assert text.count("\nmeasure ") == 5
    ((alone, _),) = jobs_of([first], at.options)
    assert alone.title.endswith("2 repeats") and len(alone.steps) == 3


@cases
def test_what_cannot_be_checked_is_refused(refused: Harness, case: Case) -> None:
    case.refused(refused(*case.words()))


def test_a_dry_run_says_what_is_checked_before(harness: Harness) -> None:
    shown = harness("run", "--backend", "pytorch", "--nodes", "4", "--preflight", "--dry-run").succeeded().stdout
    assert "\nchecked before: pairs of pytorch (torch) · 4 nodes × 1 cpu · gloo · " in shown


def test_a_record_has_what_was_found(tmp_path: Path) -> None:
    record = made.record().model_copy(update={"preflight": CHECKED})
    record.write(tmp_path)
    assert Record.read(tmp_path) == record
    assert Record.read(tmp_path, figures=True).preflight == CHECKED
    assert "\n  preflight  warning: n1 sends at 1 GB/s, 50% of the others' 2\n" in outcomes.summary(record, "")


def test_a_check_that_has_not_ended_is_said_to_have_not(tmp_path: Path) -> None:
    assert outcome(tmp_path) is None, "nothing was to be checked"
    (tmp_path / "preflight").mkdir()
    spec = {"backend": "mpi4py", "transport": "mpi", "nodes": 2, "kernel": {"name": "pairs", "sizes": [1024]}}
    (tmp_path / "preflight" / "spec.json").write_text(json.dumps(spec))
    found = Preflight(backend="mpi4py", transport="mpi", pairs=None, problem="it has not ended")
    assert outcome(tmp_path) == found
    record = made.record().model_copy(update={"preflight": found})
    assert "  preflight  warning: the nodes were not checked: it has not ended" in outcomes.summary(record, "")
