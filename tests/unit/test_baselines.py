"""`harness baseline`: records kept under a name, whole or not at all."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness import results
from harness.errors import InvalidInput
from harness.results import baselines
from tests import made
from tests.conftest import Harness
from tests.wording import Case, Wording, cases


def save(name: str, sources: Sequence[str], replace: bool = False) -> baselines.Baseline:
    """What `harness baseline save` does."""
    return baselines.save(name, results.load(sources), sources, replace=replace)


def test_a_baseline_is_saved_shown_and_compared_with(shelf: Path, harness: Harness, tmp_path: Path) -> None:
    made.save(tmp_path / "runs", [made.record(nodes=1), made.record(nodes=2), made.record(nodes=4, status="failed")])
    saved = harness("baseline", "save", "v1", "runs", "--note", "before the upgrade").succeeded()
    assert saved.stdout == f"baseline v1: 2 records; 1 without a number left out\n{shelf}/v1\n"
    (listed,) = harness("baseline", "list", "--json").succeeded().json
    assert (listed["name"], listed["records"], listed["note"]) == ("v1", 2, "before the upgrade")
    assert "scaling efficiency" in harness("table", "v1").succeeded().stdout
    made.save(tmp_path / "runs", [made.record(nodes=1, day=1)])
    compared = harness("compare", "v1", "runs").succeeded().stdout
    assert "2 runs of NEW are also in OLD, and count there only" in compared
    shutil.rmtree(shelf / "v1")
    assert harness("baseline", "list").stdout == f"no baselines in {shelf}\n"


def test_a_file_in_the_place_of_their_folder_is_not_a_folder_without_any(
    shelf: Path, harness: Harness, wording: Wording, tmp_path: Path
) -> None:
    shelf.touch()
    wording("baseline list").refused(harness("baseline", "list"), HERE=tmp_path)


def test_a_path_is_stronger_than_a_baseline_of_that_name(shelf: Path, harness: Harness, tmp_path: Path) -> None:
    made.save(tmp_path / "runs", [made.record(img_per_s=[50.0, 51.0])])
    harness("baseline", "save", "v1", "runs").succeeded()
    made.save(tmp_path / "v1", [made.record(img_per_s=[100.0, 101.0])])
    made.save(tmp_path / "new", [made.record(img_per_s=[100.0, 101.0], day=1)])
    assert harness("compare", "v1", "new", "--json").succeeded().json["pairs"][0]["old"]["rate"] > 100


def test_records_are_kept_as_they_were(shelf: Path, tmp_path: Path) -> None:
    one = made.record()
    made.save(tmp_path / "runs", [one])
    save("v1", [str(tmp_path / "runs")])
    original, kept = tmp_path / "runs" / one.id / "record.json", shelf / "v1" / one.id / "record.json"
    assert kept.read_bytes() == original.read_bytes()


def test_a_baseline_is_replaced_only_when_told_to(shelf: Path, tmp_path: Path, wording: Wording) -> None:
    for name, nodes in (("a", (1,)), ("b", (2, 4))):
        made.save(tmp_path / name, [made.record(nodes=number) for number in nodes])
    save("v1", [str(tmp_path / "a")])
    with wording("v1").raises(InvalidInput):
        save("v1", [str(tmp_path / "b")])
    assert baselines.get("v1").records == 1
    save("v1", [str(tmp_path / "b")], replace=True)
    assert baselines.get("v1").records == len(list(shelf.glob("v1/*/record.json"))) == 2
    assert [entry.name for entry in shelf.iterdir()] == ["v1"]


def test_a_name_that_is_taken_is_refused_before_anything_is_read(
    shelf: Path, tmp_path: Path, harness: Harness, wording: Wording
) -> None:
    made.save(tmp_path / "a", [made.record()])
    save("v1", [str(tmp_path / "a")])
    wording("baseline save").refused(harness("baseline", "save", "v1", "nowhere"))


def test_a_baseline_may_be_made_of_another_and_more(shelf: Path, tmp_path: Path) -> None:
    made.save(tmp_path / "a", [made.record(nodes=1)])
    made.save(tmp_path / "b", [made.record(nodes=2)])
    save("v1", [str(tmp_path / "a")])
    assert save("v1", ["v1", str(tmp_path / "b")], replace=True).records == 2
    assert len(list(shelf.glob("v1/*/record.json"))) == 2


def test_a_save_that_fails_leaves_the_old_baseline_and_nothing_else(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    made.save(tmp_path / "a", [made.record(nodes=1)])
    save("v1", [str(tmp_path / "a")])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(baselines.shutil, "copyfile", full)
    made.save(tmp_path / "b", [made.record(nodes=2)])
    with wording("a full disk").raises(InvalidInput, HERE=tmp_path):
        save("v1", [str(tmp_path / "b")], replace=True)
    assert [entry.name for entry in shelf.iterdir()] == ["v1"]
    assert baselines.get("v1").sources == [str(tmp_path / "a")]


def test_a_replacement_that_cannot_take_its_place_leaves_the_old_baseline_there(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    made.save(tmp_path / "a", [made.record(nodes=1)])
    save("v1", [str(tmp_path / "a")])
    rename = Path.rename

    def but_not_the_new_one(path: Path, target: Path) -> Path:
        if path.name == "new":
            raise OSError(5, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", but_not_the_new_one)
    made.save(tmp_path / "b", [made.record(nodes=2)])
    with wording("a broken disk").raises(InvalidInput, HERE=tmp_path):
        save("v1", [str(tmp_path / "b")], replace=True)
    assert [entry.name for entry in shelf.iterdir()] == ["v1"]
    assert baselines.get("v1").sources == [str(tmp_path / "a")] and len(list(shelf.glob("v1/*/record.json"))) == 1


@pytest.mark.parametrize("source", ["", ".", "..", "v1/..", "v1/one", "../baselines"])
def test_no_folder_but_one_on_the_shelf_is_a_baseline(shelf: Path, source: str) -> None:
    (shelf / "v1" / "one").mkdir(parents=True)
    assert baselines.find("v1") == shelf / "v1"
    assert baselines.find(source) is None


@cases
def test_a_name_that_is_none_is_refused(shelf: Path, case: Case) -> None:
    with case.raises(InvalidInput):
        baselines.save(eval(case.request), [], [])
    assert not shelf.exists()


def test_what_has_no_number_is_no_baseline(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    made.save(tmp_path / "runs", [made.record(status="failed")])
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    for source in ("runs", "empty", "none", "reference"):
        with wording(source).raises(InvalidInput):
            save("v1", [source])
    assert not shelf.exists()


def test_a_folder_that_is_no_baseline_is_named(shelf: Path, wording: Wording) -> None:
    (shelf / "v1").mkdir(parents=True)
    with wording("nothing").raises(InvalidInput, SHELF=shelf):
        baselines.all_saved()
    (shelf / "v1" / "baseline.json").write_text("{}")
    with wording("{}").raises(InvalidInput, SHELF=shelf):
        baselines.get("v1")


def test_a_folder_that_cannot_be_written_is_one_line(shelf: Path, tmp_path: Path, wording: Wording) -> None:
    made.save(tmp_path / "runs", [made.record()])
    shelf.write_text("a file where the folder should be")  # root may write into any folder, but not into a file
    with wording("a file").raises(InvalidInput, HERE=tmp_path):
        save("v1", [str(tmp_path / "runs")])
