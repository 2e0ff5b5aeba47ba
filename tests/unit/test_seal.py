"""Seals: what harness has written is believed at once, all else is verified; `harness results check` verifies all."""

from pathlib import Path

import pytest

from harness import results
from harness.cli.answers import verified
from harness.errors import InvalidInput
from harness.records import measurement
from harness.records.record import RAW, AnyRecord, sealed
from harness.records.training import TrainingRecord
from harness.results.result import of_training
from tests import made
from tests.conftest import Harness
from tests.unit import test_training
from tests.wording import Case, Wording, cases


def edited(file: Path, old: str, new: str) -> Path:
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))
    return file


def forged(file: Path) -> Path:
    """The file with a seal that fits what it holds now."""
    content, _, _ = file.read_bytes().rpartition(b',\n "seal"')
    file.write_bytes(sealed(content))
    return file


def training() -> TrainingRecord:
    epochs = [test_training.epoch(number, 0.2 * number) for number in range(1, 4)]
    return test_training.record(test_training.spec(epochs=3), epochs)


@pytest.mark.parametrize("record", [made.record(nodes=2), made.record(status="failed"), training()])
def test_what_is_written_is_sealed_and_reads_as_it_was(tmp_path: Path, record: AnyRecord) -> None:
    file = record.write(tmp_path)
    assert '"seal": ' in file.read_text().splitlines()[-2]
    assert type(record).read(tmp_path) == type(record).read(file) == record
    assert verified(str(file))[0] == ""


def test_a_record_with_a_seal_that_fits_is_not_verified_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = made.record()
    file = record.write(tmp_path)
    seen = []
    monkeypatch.setattr(measurement.Record, "verify", lambda self: seen.append(self.id))
    assert measurement.Record.read(file) == record and not seen
    verified(str(file))
    assert seen == [record.id]


def test_an_edit_makes_the_seal_void_and_is_refused(tmp_path: Path, wording: Wording) -> None:
    file = edited(made.record().write(tmp_path), '"mean": 100.0', '"mean": 900.0')
    with wording("mean").raises(InvalidInput, FILE=file):
        measurement.Record.read(file)
    assert measurement.Record.read(forged(file)).derived.img_per_s.mean == 900.0  # the limit of what reading notices
    wording("mean").answered(verified(str(file))[0], FILE=file)


def test_a_record_without_its_raw_times_is_read_for_its_figures_only(tmp_path: Path, wording: Wording) -> None:
    file = made.record().write(tmp_path)
    file.with_name(RAW).unlink()
    assert measurement.Record.read(file, figures=True).derived.img_per_s.mean == 100.0
    with wording("raw.json").raises(InvalidInput, FILE=file):
        measurement.Record.read(file)


def test_a_change_that_no_figure_depends_on_is_found_by_check(tmp_path: Path) -> None:
    file = edited(made.record().write(tmp_path), '"kernel": "5.3.18"', '"kernel": "6.1.0"')
    assert measurement.Record.read(file).machine["kernel"] == "6.1.0"
    assert verified(str(file))[0].endswith("it has changed since it was written: its seal does not fit")


def test_figures_of_another_formula_are_refused_whatever_their_seal(tmp_path: Path, wording: Wording) -> None:
    file = forged(edited(made.record().write(tmp_path), '"img_per_s/3: ', '"img_per_s/0: '))
    with wording("img_per_s/0").raises(InvalidInput, FILE=file):
        measurement.Record.read(file)


def test_a_record_that_claims_too_much_cannot_be_written(tmp_path: Path, wording: Wording) -> None:
    better = made.record().model_copy(update={"derived": made.record(img_per_s=(900.0,) * 3).derived})
    with wording("900.0").raises(ValueError):
        better.write(tmp_path)
    assert not list(tmp_path.iterdir())


def test_check_names_every_record_that_cannot_be_believed(harness: Harness, tmp_path: Path, wording: Wording) -> None:
    for number in range(3):
        (tmp_path / f"runs/{number}").mkdir(parents=True)
        made.record().write(tmp_path / f"runs/{number}")
    (tmp_path / "runs/training").mkdir()
    training().write(tmp_path / "runs/training")
    fine = harness("results", "check", "runs").succeeded()
    assert fine.stdout == "4 records: every figure follows from its raw times, and every judgement from its evidence\n"
    made.record(status="failed").write(tmp_path / "runs/2")
    assert harness("results", "check", "runs").succeeded().stdout == fine.stdout.replace("\n", "; 1 has no number\n")
    forged(edited(tmp_path / "runs/1/record.json", '"mean": 100.0', '"mean": 900.0'))
    edited(tmp_path / "runs/training/training.json", '"best_top1": ', '"best_top1": 0.9, "was": ')
    harness("table", "runs").succeeded()
    bad = harness("results", "check", "runs")
    wording("check runs").ended(bad, 1)
    wording("records").answered(bad.stdout.removesuffix("\n"))


@cases
def test_nothing_to_check_is_a_mistake_of_the_request(harness: Harness, tmp_path: Path, case: Case) -> None:
    (tmp_path / "empty").mkdir()
    case.refused(harness(*case.words()))


@cases
def test_what_is_no_record_is_none_beside_others_of_its_kind_and_whatever_its_seal(tmp_path: Path, case: Case) -> None:
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
        made.record().write(tmp_path / name)
    assert results.load([tmp_path / "good"])[0].completed
    bad = forged(edited(tmp_path / "bad" / "record.json", *case.text.split(" => ")))
    with case.raises(InvalidInput, FILE=bad):
        results.load([bad])


def test_a_row_of_a_record_that_was_edited_is_refused(tmp_path: Path, wording: Wording) -> None:
    file = edited(made.record().write(tmp_path), '"mean": 100.0', '"mean": 900.0')
    with wording("mean").raises(InvalidInput, FILE=file):
        results.load([file])


def test_figures_are_those_of_the_record_and_need_a_seal_that_fits(tmp_path: Path, wording: Wording) -> None:
    record = made.record(nodes=2)
    file = record.write(tmp_path)
    figures = measurement.Record.read(file, figures=True)
    assert (figures.derived, figures.seen, figures.repeats[0].ranks) == (record.derived, record.seen, [])
    assert vars(of_training(figures, file)) == vars(of_training(record, file))
    edited(file, '"mean": 100.0', '"mean": 900.0')
    with wording("mean").raises(InvalidInput, FILE=file):
        measurement.Record.read(file, figures=True)
