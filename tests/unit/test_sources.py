"""Results from records: what can be read, what is left out, and what backends say of them."""

from pathlib import Path

import pytest

from harness import results
from harness.core.backend import backend
from harness.core.spec import OTHER_TRAINING
from harness.errors import InvalidInput
from harness.results import result as of_records
from tests import made
from tests.conftest import Harness
from tests.wording import Wording


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return made.save(
        tmp_path / "runs", [made.record(nodes=nodes, img_per_s=(100.0 * nodes, 90.0 * nodes)) for nodes in (1, 2, 4)]
    )


def test_the_software_names_the_package_that_brings_a_framework(tmp_path: Path) -> None:
    caffe2 = made.record("caffe2", packages={"torch": "1.10.2", "numpy": "1.23.5"})
    horovod = made.record("horovod", packages={"tensorflow_cpu": "2.21.0", "horovod": "0.28.1"})
    loaded = results.load([made.save(tmp_path / "runs", [caffe2, horovod])])
    assert {each.software for each in loaded} == {"Caffe2 (PyTorch 1.10.2)", "TensorFlow 2.21.0, Horovod 0.28.1"}


def damaged(folder: Path, *names: str) -> list[Path]:
    """Records that are cut short, as a full disk leaves them."""
    (good, *_) = sorted(folder.glob("*/record.json"))
    files = [folder / name / "record.json" for name in names]
    for file in files:
        file.parent.mkdir()
        file.write_bytes(good.read_bytes()[:-200])
    return files


def test_a_record_that_cannot_be_believed_is_named_and_the_others_are_there(runs: Path, wording: Wording) -> None:
    (bad,) = damaged(runs, "zz-last")
    reasons: list[str] = []
    assert len(results.load([runs], unreadable=reasons.append)) == 3
    assert len(reasons) == 1
    wording("a bad record").answered(reasons[0], FILE=bad)
    with wording("a bad record").raises(InvalidInput, FILE=bad):
        results.load([runs])
    made.record(nodes=8, img_per_s=(700.0, 700.0)).write(bad.parent)
    assert len(results.load([runs])) == 4


def test_a_record_that_cannot_be_looked_at_is_named_too(runs: Path) -> None:
    (loop := runs / "loop").mkdir()
    (loop / "record.json").symlink_to("record.json")
    reasons: list[str] = []
    assert len(results.load([runs], unreadable=reasons.append)) == 3
    assert reasons == [f"{loop / 'record.json'}: Too many levels of symbolic links"]


def test_progress_is_told_for_each_record_of_a_source(runs: Path) -> None:
    calls: list[tuple[int, int]] = []
    loaded = results.load([runs], lambda done, of: calls.append((done, of)))
    assert calls == [(1, 3), (2, 3), (3, 3)]
    assert {each.source for each in loaded} == {str(file) for file in runs.glob("*/record.json")}


@pytest.mark.parametrize(
    "command",
    [
        ["table"],
        ["table", "--json"],
        ["best"],
        ["report", "-o", "-"],
        ["results", "export", "--format", "csv"],
        ["history"],
        ["baseline", "save", "kept", "--replace"],
        [
            "model",
            "predict",
            "--backend",
            "pytorch",
            "--model",
            "inception3",
            "--single",
            "97",
            "--nodes",
            "4",
            "--from",
        ],
    ],
    ids=" ".join,
)
def test_every_command_leaves_out_what_cannot_be_read_and_names_three_of_it(
    shelf: Path, harness: Harness, runs: Path, command: list[str]
) -> None:
    made.save(runs, [made.record(nodes=2, img_per_s=(200.0, 190.0), day=day) for day in range(1, 7)])
    files = damaged(runs, "bad-1", "bad-2", "bad-3", "bad-4")
    done = harness(*command, str(runs)).succeeded()
    (line,) = (line for line in done.stderr.splitlines() if "left out" in line)
    assert line.startswith(f"4 records were left out: {files[0]}: not a valid record: Invalid JSON: ")
    assert all(str(file) in line for file in files[:3]) and str(files[3]) not in line and line.endswith("; …")


def test_both_sides_of_a_comparison_leave_out_what_cannot_be_read_in_one_line(harness: Harness, runs: Path) -> None:
    slower = [made.record(nodes=nodes, img_per_s=(50.0 * nodes, 45.0 * nodes), day=1) for nodes in (1, 2, 4)]
    new = made.save(runs.parent / "new", slower)
    files = [*damaged(runs, "bad"), *damaged(new, "bad")]
    done = harness("compare", str(runs), str(new))
    lines = [line for line in done.stderr.splitlines() if "left out" in line]
    assert done.code == 1 and len(lines) == 1 and all(str(file) in lines[0] for file in files)


def test_where_no_record_can_be_read_there_is_nothing_to_answer_with(
    harness: Harness, runs: Path, wording: Wording
) -> None:
    files = [str(file) for file in damaged(runs, "bad-1", "bad-2")]
    wording("table").refused(harness("table", *files), FILE=files[0])


def test_an_option_that_its_backend_calls_another_training_makes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise runs that are no longer comparable would still meet in a verdict."""
    folder = made.save(tmp_path / "runs", [made.record("parameter_server", ps=1, sync="barrier"), made.record()])
    marked = backend("parameter_server").options.model_fields["sync"].json_schema_extra
    assert isinstance(marked, dict)
    for different, trainings in ((["none"], {""}), (["none", "barrier"], {"", "sync=barrier"})):
        monkeypatch.setitem(marked, OTHER_TRAINING, different)
        assert {each.training for each in results.load([folder])} == trainings


def test_a_backend_that_is_not_installed_counts_as_a_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = made.record()
    other = record.spec.model_copy(update={"backend": "other", "options": {}})
    folder = made.save(tmp_path / "runs", [record.model_copy(update={"spec": other})])
    assert [each.family for each in results.load([folder])] == ["toolkit"]
    monkeypatch.setattr(of_records.backends, "backend", lambda name: backend("multi_worker_mirrored"))
    assert [each.family for each in results.load([folder])] == ["collectives"]


def test_an_empty_folder_has_no_results(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert results.load([tmp_path / "empty"]) == []
