"""Rows of records that are kept between commands: used as long as they hold, never believed beyond that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas
import pytest

from harness import results
from harness.core.backend import backend
from harness.core.spec import OTHER_TRAINING
from harness.errors import InvalidInput
from harness.results import rows as result_rows
from harness.results import sources as kept_rows
from harness.results.selection import Selected
from harness.results.sources import Progress, Unreadable, refuse
from tests import made
from tests.conftest import ROOT, Harness

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return made.save(
        tmp_path / "runs", [made.record(nodes=nodes, img_per_s=(100.0 * nodes, 90.0 * nodes)) for nodes in (1, 2, 4)]
    )


def kept(folder: Path, progress: Progress, unreadable: Unreadable = refuse) -> pandas.DataFrame:
    (frame,) = kept_rows.of_each([folder], kept_rows.MEASUREMENTS, progress, unreadable, Selected())
    return frame


def rows(folder: Path) -> tuple[pandas.DataFrame, int]:
    """The rows, and how many records had to be read for them."""
    calls: list[tuple[int, int]] = []
    frame = kept(folder, lambda done, of: calls.append((done, of)))
    return frame, calls[-1][1] if calls else 0


def kept_file(cache: Path) -> Path:
    (file,) = (cache / "rows").iterdir()
    return file


def test_the_software_names_the_package_that_brings_a_framework(tmp_path: Path) -> None:
    caffe2 = made.record("caffe2", packages={"torch": "1.10.2", "numpy": "1.23.5"})
    horovod = made.record("horovod", packages={"tensorflow_cpu": "2.21.0", "horovod": "0.28.1"})
    frame, _ = rows(made.save(tmp_path / "runs", [caffe2, horovod]))
    assert set(frame["software"]) == {"Caffe2 (PyTorch 1.10.2)", "TensorFlow 2.21.0, Horovod 0.28.1"}


def test_records_are_read_once_and_their_rows_are_the_same_afterwards(runs: Path) -> None:
    first, read = rows(runs)
    again, read_again = rows(runs)
    assert (read, read_again) == (3, 0)
    lists = [frame.pop("values").map(list).tolist() for frame in (first, again)]
    assert lists[0] == lists[1] == [[100.0 * n, 90.0 * n] for n in (1, 2, 4)]
    pandas.testing.assert_frame_equal(first, again)


def test_a_new_record_is_read_alone(runs: Path) -> None:
    rows(runs)
    made.save(runs, [made.record("horovod", 2)])
    frame, read = rows(runs)
    assert (len(frame), read) == (4, 1)


def test_a_record_that_is_gone_has_no_row(runs: Path) -> None:
    frame, _ = rows(runs)
    Path(frame["source"].iloc[1]).unlink()
    left, read = rows(runs)
    assert left["source"].tolist() == [frame["source"].iloc[0], frame["source"].iloc[2]] and read == 0


def test_a_record_that_was_replaced_is_read_again(runs: Path) -> None:
    frame, _ = rows(runs)
    file = Path(frame["source"].iloc[0])
    made.record(nodes=1, img_per_s=(50.0, 50.0)).write(file.parent)
    again, read = rows(runs)
    assert (again["img_per_s"].iloc[0], read) == (50.0, 1)
    assert again["img_per_s"].iloc[1:].tolist() == frame["img_per_s"].iloc[1:].tolist()


def test_a_change_that_leaves_size_and_time_as_they_were_is_not_seen(runs: Path) -> None:
    """The limit of what is noticed: who edits a record and restores its time also has to delete the cache."""
    frame, _ = rows(runs)
    file = Path(frame["source"].iloc[0])
    before, text = file.stat(), file.read_text()
    file.write_text(text.replace('"status":"completed"', '"status":"completeD"'))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert rows(runs)[1] == 0
    os.utime(file)
    with pytest.raises(InvalidInput, match="not a valid record: status"):
        rows(runs)


def damaged(folder: Path, *names: str) -> list[Path]:
    """Records that are cut short, as a full disk leaves them."""
    (good, *_) = sorted(folder.glob("*/record.json"))
    files = [folder / name / "record.json" for name in names]
    for file in files:
        file.parent.mkdir()
        file.write_bytes(good.read_bytes()[:-200])
    return files


def test_a_record_that_cannot_be_believed_is_tried_again_by_every_command_and_the_others_are_kept(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_rows, "TOGETHER", 1)
    (bad,) = damaged(runs, "zz-last")
    for expected in (4, 1, 1):
        calls, reasons = [0], list[str]()
        frame = kept(runs, lambda done, of, calls=calls: calls.append(of), reasons.append)
        assert (len(frame), calls[-1]) == (3, expected)
        assert len(reasons) == 1 and reasons[0].startswith(f"{bad}: not a valid record: ")
    with pytest.raises(InvalidInput, match=f"{bad}: not a valid record"):
        rows(runs)
    made.record(nodes=8, img_per_s=(700.0, 700.0)).write(bad.parent)
    frame, read = rows(runs)
    assert (len(frame), read) == (4, 1)


def test_a_record_that_cannot_be_looked_at_is_named_too(runs: Path) -> None:
    (loop := runs / "loop").mkdir()
    (loop / "record.json").symlink_to("record.json")
    reasons: list[str] = []
    frame = kept(runs, lambda done, of: None, reasons.append)
    assert len(frame) == 3 and reasons == [f"{loop / 'record.json'}: Too many levels of symbolic links"]


def test_of_many_records_shared_out_among_processes_those_that_cannot_be_read_are_left_out(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_rows, "ALONE", 2)
    damaged(runs, "bad")
    reasons: list[str] = []
    assert len(results.load([runs], unreadable=reasons.append)) == 3 and len(reasons) == 1


@pytest.mark.parametrize(
    "command",
    [
        ["table"],
        ["table", "--json"],
        ["verdict"],
        ["report", "-o", "-"],
        ["export", "--format", "csv"],
        ["history"],
        ["baseline", "save", "kept", "--replace"],
        ["predict", "--backend", "pytorch", "--model", "inception3", "--single", "97", "--nodes", "4", "--from"],
    ],
    ids=" ".join,
)
def test_every_command_leaves_out_what_cannot_be_read_and_names_three_of_it(
    harness: Harness, runs: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("HARNESS_BASELINES", str(runs.parent / "baselines"))
    made.save(runs, [made.record(nodes=2, img_per_s=(200.0, 190.0), day=day) for day in range(1, 7)])
    files = damaged(runs, "bad-1", "bad-2", "bad-3", "bad-4")
    done = harness(*command, str(runs)).succeeded()
    (line,) = (line for line in done.stderr.splitlines() if "left out" in line)
    assert line.startswith(f"4 records were left out: {files[0]}: not a valid record: Invalid JSON: ")
    assert all(str(file) in line for file in files[:3]) and str(files[3]) not in line and line.endswith("; …")
    refused = harness(*command, str(runs), "--strict")
    assert (refused.code, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"harness: {files[0]}: not a valid record: ")


def test_both_sides_of_a_comparison_leave_out_what_cannot_be_read_in_one_line(harness: Harness, runs: Path) -> None:
    slower = [made.record(nodes=nodes, img_per_s=(50.0 * nodes, 45.0 * nodes), day=1) for nodes in (1, 2, 4)]
    new = made.save(runs.parent / "new", slower)
    files = [*damaged(runs, "bad"), *damaged(new, "bad")]
    done = harness("regression", str(runs), str(new))
    lines = [line for line in done.stderr.splitlines() if "left out" in line]
    assert done.code == 1 and len(lines) == 1 and all(str(file) in lines[0] for file in files)
    assert harness("regression", str(runs), str(new), "--strict").code == 2


def test_where_no_record_can_be_read_there_is_nothing_to_answer_with(harness: Harness, runs: Path) -> None:
    files = [str(file) for file in damaged(runs, "bad-1", "bad-2")]
    done = harness("table", *files)
    assert (done.code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"harness: {files[0]}: not a valid record: ")
    assert done.stderr.endswith("; 1 more cannot be read either\n")


def test_a_changed_record_does_not_keep_its_old_row_when_reading_stops_before_it(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_rows, "TOGETHER", 1)
    frame, _ = rows(runs)
    files = [Path(file) for file in frame["source"]]
    good = files[2].read_text()
    made.record(nodes=1, img_per_s=(50.0, 50.0)).write(files[0].parent)
    files[1].write_text("{}")
    files[2].write_text(good + "\n")
    with pytest.raises(InvalidInput):
        rows(runs)
    made.record(nodes=2, img_per_s=(60.0, 60.0)).write(files[1].parent)
    made.record(nodes=4, img_per_s=(70.0, 70.0)).write(files[2].parent)
    again, read = rows(runs)
    assert again["img_per_s"].tolist() == [50.0, 60.0, 70.0]
    assert read == 2  # the first was kept


@pytest.mark.parametrize("damage", [b"", b"PAR1 nonsense PAR1", None], ids=["empty", "nonsense", "cut off"])
def test_a_damaged_cache_is_made_again(runs: Path, cache: Path, damage: bytes | None) -> None:
    frame, _ = rows(runs)
    file = kept_file(cache)
    file.write_bytes(file.read_bytes()[:-100] if damage is None else damage)
    again, read = rows(runs)
    assert (again["img_per_s"].tolist(), read) == (frame["img_per_s"].tolist(), 3)
    assert rows(runs)[1] == 0


def test_rows_that_other_code_has_made_are_not_used(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows(runs)
    monkeypatch.setattr(kept_rows, "_code", lambda: "other code")
    assert rows(runs)[1] == 3


def test_every_file_that_the_package_has_decides_which_code_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that it reaches by links, such as the backends'."""
    package, backends = tmp_path / "package", tmp_path / "backends"
    for folder in (package / "core", backends / "pytorch"):
        folder.mkdir(parents=True)
        (folder / "module.py").write_text("ONE = 1\n")
    (package / "backends").symlink_to(backends)
    monkeypatch.setattr(kept_rows, "PACKAGE", package)
    codes = []
    for file in (package / "core" / "module.py", backends / "pytorch" / "module.py"):
        for value in (1, 2):
            file.write_text(f"ONE = {value}\n")
            kept_rows._code.cache_clear()
            codes.append(kept_rows._code())
    kept_rows._code.cache_clear()
    assert codes[1] == codes[2] and len(set(codes)) == 3


def test_an_option_that_its_backend_calls_another_training_from_now_on_does_so_in_rows_made_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise runs that are no longer comparable would still meet in a verdict."""
    folder = made.save(tmp_path / "runs", [made.record("parameter_server", ps=1, sync="barrier"), made.record()])
    servers = backend("parameter_server")
    marked = servers.options.model_fields["sync"].json_schema_extra
    assert isinstance(marked, dict)
    monkeypatch.setitem(marked, OTHER_TRAINING, ["none"])
    before, _ = rows(folder)
    monkeypatch.setitem(marked, OTHER_TRAINING, ["none", "barrier"])
    after, read = rows(folder)
    assert (set(before["training"]), set(after["training"]), read) == ({""}, {"", "sync=barrier"}, 0)


def test_a_backend_that_is_installed_after_a_row_was_made_says_on_which_side_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = made.record()
    other = record.spec.model_copy(update={"backend": "other", "options": {}})
    folder = made.save(tmp_path / "runs", [record.model_copy(update={"spec": other})])
    before, _ = rows(folder)
    monkeypatch.setattr(result_rows.backends, "backend", lambda name: backend("multi_worker_mirrored"))
    after, read = rows(folder)
    assert (before["family"].tolist(), after["family"].tolist(), read) == (["toolkit"], ["collectives"], 0)


@pytest.mark.parametrize("blocked", ["cache", "cache/rows"])
def test_a_cache_that_cannot_be_written_costs_time_and_nothing_else(runs: Path, tmp_path: Path, blocked: str) -> None:
    (tmp_path / blocked).parent.mkdir(exist_ok=True)
    (tmp_path / blocked).write_text("a file where a folder should be")
    assert [rows(runs)[1] for _ in range(2)] == [3, 3]


def test_an_empty_folder_has_no_rows_but_all_columns(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for _ in range(2):
        frame, _ = rows(tmp_path / "empty")
        assert frame.empty and list(frame) == list(results.COLUMNS)


def test_the_same_folder_under_another_name_has_sources_of_that_name(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows(runs)
    monkeypatch.chdir(tmp_path)
    frame, _ = rows(Path("runs"))
    assert all(source.startswith("runs/") for source in frame["source"])


def test_many_records_are_read_by_several_processes_in_the_order_of_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made.save(tmp_path / "many", [made.record(img_per_s=(float(n),)) for n in range(1, 41)])
    monkeypatch.setattr(kept_rows, "ALONE", 10)
    monkeypatch.setattr(kept_rows, "BATCH", 5)
    calls: list[tuple[int, int]] = []
    frame = kept(folder, lambda done, of: calls.append((done, of)))
    assert frame["source"].tolist() == sorted(frame["source"])
    assert frame["img_per_s"].tolist() == pytest.approx([float(n) for n in range(1, 41)])
    assert calls == [(done, 40) for done in range(5, 41, 5)]


def test_commands_at_the_same_time_give_the_same_answer_and_leave_a_cache_that_holds(
    runs: Path, cache: Path, tmp_path: Path
) -> None:
    made.save(runs, [made.record(img_per_s=(float(n),)) for n in range(1, 120)])
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "harness", "export", str(runs), "--format", "json"]
    together = [subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE) for _ in range(4)]
    answers = [process.communicate()[0] for process in together]
    assert [process.returncode for process in together] == [0] * 4
    assert len(set(answers)) == 1 and len(json.loads(answers[0])) == 122
    assert len(list((cache / "rows").iterdir())) == 1  # and no temporary files
    assert rows(runs)[1] == 0
