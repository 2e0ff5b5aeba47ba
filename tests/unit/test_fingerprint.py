"""Fingerprints: what makes one, where two of them part, and what `harness compare` and `harness history` say of it."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.analysis import work
from harness.cli.answers import verified
from harness.core import fingerprint
from harness.core.fingerprint import FIRST, Fingerprint, Parting, allowed, odd_repeats, parting, spread, taken
from harness.records import measurement
from harness.records.measurement import Record
from harness.report.text import outcomes
from harness.report.text import regression as report
from tests import made
from tests.conftest import run_in_process
from tests.unit.test_regression import compared
from tests.wording import Case, cases

TOLERANCE = allowed("fp32", "cpu")
USUAL = (7.0, 6.5, 6.25, 6.125, 6.0)
OTHER = (7.0, 6.5, 6.35, 6.225, 6.1)  # from the third step on
LAST_BIT = (*USUAL[:-1], math.nextafter(USUAL[-1], 7.0))


def of(*repeats: Sequence[float], parameters: Sequence[str] = ()) -> Fingerprint:
    """The fingerprint of repeats on one rank, with these losses; their parameters are the same unless told."""
    digests = parameters or ["d"] * len(repeats)
    return taken([([losses], digest) for losses, digest in zip(repeats, digests, strict=True)])


def ran(*repeats: Sequence[float], day: float = 0.0, **fields: object) -> Record:
    return made.record(img_per_s=[100.0] * len(repeats), losses=repeats, day=day, **fields)  # type: ignore[arg-type]


def test_losses_may_differ_by_less_on_processors_where_it_was_measured() -> None:
    off = tuple(loss * (1 + 5e-4) for loss in USUAL)
    on_cpu, on_gpu = (parting(of(USUAL), of(off), allowed("fp32", device)) for device in ("cpu", "cuda"))
    assert on_cpu and on_cpu.beyond and on_gpu is None


# --- what makes a fingerprint ---------------------------------------------------------------------


def test_repeats_that_are_the_same_bit_for_bit_are_one_outcome_and_the_most_come_first() -> None:
    found = of(LAST_BIT, USUAL, USUAL)
    assert [outcome.repeats for outcome in found.outcomes] == [(2, 3), (1,)]
    assert found.usual.losses == USUAL and found.steps == len(USUAL)
    assert found.exact and not of(USUAL, LAST_BIT).exact and not of(USUAL).exact


def test_the_losses_are_means_over_all_ranks_of_the_first_steps() -> None:
    long = [float(step) for step in range(FIRST + 5)]
    found = taken([([long, [3 * loss for loss in long]], "d")])
    assert found.usual.losses == tuple(2.0 * step for step in range(FIRST)) and found.steps == FIRST + 5


@pytest.mark.parametrize(("step", "parted"), [(10, 10), (11, 0)])
def test_the_first_10_steps_are_told_apart_and_later_ones_by_their_bits_only(step: int, parted: int) -> None:
    usual = [7.0] * 12
    other = [*usual[: step - 1], 8.0, *usual[step:]]
    apart = parting(of(usual, usual), of(other, other), TOLERANCE)
    assert apart is not None and (apart.step, apart.beyond) == (parted, step <= 10)


def test_any_bit_of_any_rank_any_step_and_the_parameters_makes_other_bits() -> None:
    long = [7.0] * (FIRST + 5)
    late = [*long[:-1], math.nextafter(7.0, 8.0)]
    alike = [([long, late], "d"), ([late, long], "d"), ([long, long], "d"), ([long, long], "e")]
    found = taken(alike)  # type: ignore[arg-type]
    assert len({outcome.bits for outcome in found.outcomes}) == len(found.outcomes) == 4
    assert len({outcome.losses for outcome in found.outcomes}) == 1


@pytest.mark.parametrize(
    ("record", "note"),
    [
        (made.record("parameter_server", 2, ps=1), fingerprint.UNREPORTED),
        (made.record(data="/images", losses=[USUAL] * 3), fingerprint.REAL),
    ],
)
def test_a_record_without_a_fingerprint_says_why(record: Record, note: str) -> None:
    assert record.derived and record.derived.fingerprint == Fingerprint(note=note)
    assert f"\n  work       no fingerprint: {note}\n" in outcomes.summary(record, "here")


def test_asynchronous_steps_have_no_fingerprint() -> None:
    """Nor has one of 2017's, in which workers apply their gradients one after the other. One worker has an order."""
    for updates, note in ((10, fingerprint.EACH_BY_ITSELF), (5, "")):
        record = made.record("parameter_server", 2, ps=1, losses=[USUAL] * 3)
        for rank in (rank for repeat in record.repeats for rank in repeat.ranks):
            rank.evidence["updates"] = updates
        assert measurement.fingerprint_of(record.spec, record.repeats).note == note


def test_a_record_keeps_its_fingerprint(tmp_path: Path) -> None:
    record = ran(USUAL, USUAL, LAST_BIT)
    assert record.derived and record.derived.fingerprint
    assert record.derived.fingerprint.outcomes[0].losses == USUAL
    file = record.write(tmp_path)
    for figures in (False, True):
        assert measurement.Record.read(file, figures=figures).derived == record.derived
    assert verified(str(file))[0] == ""


def test_losses_that_were_edited_do_not_fit_the_fingerprint(tmp_path: Path) -> None:
    file = ran(USUAL, USUAL, USUAL).write(tmp_path)
    file.write_text(file.read_text().replace("6.125", "6.126", 1))
    assert "the derived figures do not follow from the raw times" in verified(str(file))[0]


# --- where two part -------------------------------------------------------------------------------


def test_where_repeats_of_both_are_the_same_bit_for_bit_a_single_bit_is_noticed() -> None:
    old = of(USUAL, USUAL)
    assert parting(old, of(USUAL, USUAL), TOLERANCE) is None
    assert parting(old, of(LAST_BIT, LAST_BIT), TOLERANCE) == Parting(5, 6.0, LAST_BIT[-1], beyond=False)
    late = of(USUAL, USUAL, parameters=["e", "e"])
    assert parting(old, late, TOLERANCE) == Parting(0, 6.0, 6.0, beyond=False)
    assert parting(old, of(OTHER, OTHER), TOLERANCE) == Parting(3, 6.25, 6.35, beyond=True)


def test_of_runs_of_other_lengths_the_steps_that_both_have_are_compared() -> None:
    old = of(USUAL, USUAL)
    assert parting(old, of(USUAL[:4], USUAL[:4]), TOLERANCE) is None
    assert parting(old, of((*USUAL, 5.9), (*USUAL, 5.9)), TOLERANCE) is None


def test_where_repeats_differ_or_there_is_one_rounding_is_excused_and_more_is_not() -> None:
    for old in (of(USUAL), of(USUAL, LAST_BIT)):
        assert parting(old, of(tuple(loss * (1 + 0.9 * TOLERANCE) for loss in USUAL)), TOLERANCE) is None
        assert parting(old, of(OTHER), TOLERANCE) == Parting(3, 6.25, 6.35, beyond=True)


def test_repeats_that_differ_among_themselves_excuse_as_much() -> None:
    wide = of(USUAL, (7.0, 6.5, 6.4, 6.2, 6.1))
    assert parting(wide, of(OTHER), TOLERANCE) is None
    far = (7.0, 6.5, 7.4, 6.2, 6.1)
    assert parting(wide, of(far), TOLERANCE) == Parting(3, 6.4, 7.4, beyond=True)


def test_a_repeat_that_is_not_like_the_others_is_found() -> None:
    bit, work_ = of(USUAL, LAST_BIT, USUAL), of(USUAL, USUAL, OTHER)
    ((odd, apart),) = odd_repeats(bit, TOLERANCE)
    assert odd.repeats == (2,) and not apart.beyond
    ((odd, apart),) = odd_repeats(work_, TOLERANCE)
    assert odd.repeats == (3,) and apart == Parting(3, 6.25, 6.35, beyond=True)
    assert list(odd_repeats(of(USUAL, LAST_BIT), TOLERANCE)) == []  # rounding, in two repeats of which none is usual
    assert spread(work_) == pytest.approx(0.1 / 6.1) and spread(of(USUAL)) == 0


def test_losses_of_zero_are_compared_too() -> None:
    assert parting(of((0.0,)), of((0.0,)), TOLERANCE) is None
    assert parting(of((0.0,)), of((1e-9,)), TOLERANCE) == Parting(1, 0.0, 1e-9, beyond=True)


# --- what is said of it ---------------------------------------------------------------------------


def found(old: Record, new: Record) -> tuple[str, str]:
    (pair,) = compared([old], [new]).pairs
    assert pair.work
    return pair.work.answer, pair.work.text


def test_other_losses_on_the_same_software_are_not_of_the_same_work() -> None:
    old, new = ran(USUAL, USUAL), ran(OTHER, OTHER, day=1)
    text = "same software, other losses: from step 3 on, 6.25 against 6.35; "
    text += "results of these two are not of the same work"
    assert found(old, new) == ("other work", text)
    comparison = compared([old], [new])
    shown = report.terminal(comparison, "a", "b")
    assert shown.splitlines()[0].endswith("; NOT THE SAME WORK in 1 measurement")
    assert f"other work: pytorch torch gloo inception3 1 node: {text}" in " ".join(shown.split())
    for written in (report.junit(comparison, "a", "b"), report.markdown(comparison, "a", "b")):
        assert "from step 3 on, 6.25 against 6.35" in written
    assert '"answer": "other work"' in report.as_json(comparison, "a", "b")


def test_other_bits_are_told_from_other_losses() -> None:
    answer, text = found(ran(USUAL, USUAL), ran(LAST_BIT, LAST_BIT, day=1))
    assert answer == "other bits"
    assert text.startswith("same software, other bits: from step 5 on, 6 against 6.000000000000001;")


def test_the_same_losses_are_the_same_work_whatever_else_takes_longer() -> None:
    assert found(ran(USUAL, USUAL), ran(USUAL, USUAL, day=1, hosts=["nid00077"])) == ("same work", "")


def test_of_other_software_it_says_only_that_losses_cannot_be_compared() -> None:
    newer = made.PACKAGES | {"torch": "2.14.0"}
    answer, text = found(ran(USUAL, USUAL), ran(OTHER, OTHER, day=1, packages=newer))
    assert answer == "cannot say"
    assert text == "the software differs (package torch 2.13.0 → 2.14.0), so losses cannot be compared"


def test_another_harness_is_not_other_software_because_it_promises_the_same_work() -> None:
    newer = ran(OTHER, OTHER, day=1).model_copy(update={"harness": {"version": "0.2.0", "commit": None}})
    assert found(ran(USUAL, USUAL), newer)[0] == "other work"


@cases
def test_software_is_what_may_change_arithmetic(case: Case) -> None:
    before, after = map(work.software, eval(case.request))
    case.answered("the same" if before == after else "another")


def test_a_new_run_is_compared_with_the_last_old_one_on_its_software() -> None:
    newer = made.PACKAGES | {"torch": "2.14.0"}
    old = [ran(OTHER, OTHER), ran(USUAL, USUAL, day=1), ran(OTHER, OTHER, day=2, packages=newer)]
    (pair,) = compared(old, [ran(USUAL, USUAL, day=3)]).pairs
    assert pair.work and pair.work.answer == "same work"


def test_a_repeat_unlike_its_siblings_is_said_of_the_run_and_by_a_comparison() -> None:
    odd = ran(USUAL, USUAL, OTHER, day=1)
    said = outcomes.summary(odd, "here")
    assert "\n  work       losses 7 to 6 in the first 5 steps; 2 of 3 repeats the same bit for bit\n" in said
    assert "\n             OTHER WORK in repeat 3 than in repeats 1 and 2: from step 3 on, 6.25 against 6.35\n" in said
    answer, text = found(ran(USUAL, USUAL), odd)
    assert answer == "other work" and text.startswith(f"{odd.id}: other work in repeat 3 than in repeats 1 and 2")


@pytest.mark.usefixtures("cache")
def test_history_says_when_the_work_and_when_the_software_became_another_one(tmp_path: Path) -> None:
    newer = made.PACKAGES | {"torch": "2.14.0"}
    records = [ran(*[OTHER if day >= 4 else USUAL] * 3, day=day) for day in range(6)]
    records += [ran(OTHER, OTHER, OTHER, day=6, packages=newer), ran(USUAL, USUAL, OTHER, day=7, packages=newer)]
    made.save(tmp_path / "runs", records)
    said = run_in_process(tmp_path, "history", "runs").succeeded().stdout
    for line in (
        "the work of pytorch torch gloo inception3 1 node on daint:gpu\n  2026-01-05 00:00: same software, other",
        f"{records[3].id}  →  {records[4].id}\n",
        "  2026-01-07 00:00: the software differs (package torch 2.13.0 → 2.14.0), so losses cannot",
        "  2026-01-08 00:00: other work in repeat 3 than in repeats 1 and 2: from step 3 on, 6.25 against 6.35\n",
    ):
        assert line in said
    (series,) = run_in_process(tmp_path, "history", "runs", "--json").succeeded().json["series"]
    answers = [change["work"]["answer"] for change in series["work"]]
    assert answers == ["other work", "cannot say", "other work", "other work"]
