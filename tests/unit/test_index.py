"""Rows of records that are kept between commands: used as long as they hold, never believed beyond that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas
import pytest

from harness.errors import InvalidInput
from harness.records import measurement
from harness.results import index
from harness.results import rows as results
from tests import made
from tests.conftest import ROOT


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return made.save(
        tmp_path / "runs", [made.record(nodes=nodes, img_per_s=(100.0 * nodes, 90.0 * nodes)) for nodes in (1, 2, 4)]
    )


class Read:
    """How many records were read, as ``told`` hears it."""

    def __init__(self) -> None:
        self.last = (0, 0)

    def __call__(self, done: int, of: int) -> None:
        self.last = (done, of)


def rows(folder: Path) -> tuple[pandas.DataFrame, int]:
    """The rows, and how many records had to be read for them."""
    told = Read()
    return index.rows(folder, told), told.last[1]


def kept_file(cache: Path) -> Path:
    (file,) = (cache / "index").iterdir()
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
    measurement.write(made.record(nodes=1, img_per_s=(50.0, 50.0)), file.parent)
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


def test_a_record_that_cannot_be_believed_is_refused_by_every_command_and_the_others_are_kept(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "TOGETHER", 1)
    bad = runs / "zz-last" / "record.json"
    bad.parent.mkdir()
    bad.write_text("{}")
    for _ in range(2):
        with pytest.raises(InvalidInput, match=f"{bad}: not a valid record"):
            rows(runs)
    bad.unlink()
    frame, read = rows(runs)
    assert (len(frame) == 3 and read == 0) or read == 3  # one part of few records is read as a whole


def test_a_changed_record_does_not_keep_its_old_row_when_reading_stops_before_it(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "TOGETHER", 1)
    frame, _ = rows(runs)
    files = [Path(file) for file in frame["source"]]
    good = files[2].read_text()
    measurement.write(made.record(nodes=1, img_per_s=(50.0, 50.0)), files[0].parent)
    files[1].write_text("{}")
    files[2].write_text(good + "\n")
    with pytest.raises(InvalidInput):
        rows(runs)
    measurement.write(made.record(nodes=2, img_per_s=(60.0, 60.0)), files[1].parent)
    measurement.write(made.record(nodes=4, img_per_s=(70.0, 70.0)), files[2].parent)
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
    monkeypatch.setattr(index, "_code", lambda: "other code")
    assert rows(runs)[1] == 3


@pytest.mark.parametrize("blocked", ["cache", "cache/index"])
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
    monkeypatch.setattr(index, "ALONE", 10)
    monkeypatch.setattr(index, "TOGETHER", 5)
    told: list[tuple[int, int]] = []
    frame = index.rows(folder, lambda done, of: told.append((done, of)))
    assert frame["source"].tolist() == sorted(frame["source"])
    assert frame["img_per_s"].tolist() == pytest.approx([float(n) for n in range(1, 41)])
    assert told == [(done, 40) for done in range(5, 41, 5)]


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
    assert len(list((cache / "index").iterdir())) == 1  # and no temporary files
    assert rows(runs)[1] == 0
