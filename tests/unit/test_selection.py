"""Selections: which records of a source count, in every command that takes results."""

import csv
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import harness as package
from harness import results
from harness.errors import InvalidInput
from harness.results import baselines
from harness.results.selection import Selection, at_time, parted
from tests import made
from tests.conftest import Finished, Harness
from tests.unit.test_kernel_results import measured, saved
from tests.wording import Case, Wording, cases

pytestmark = pytest.mark.usefixtures("shelf")
NOW = datetime(2026, 3, 15, 12, 0, tzinfo=UTC)


def tagged(tag: str, **fields: Any) -> Any:
    return made.record(**fields).model_copy(update={"tag": tag})


# --- how it is written ---


@cases
def test_a_window_counts_from_now_or_has_times_of_iso_8601_and_may_be_open(case: Case) -> None:
    """Those times have colons themselves."""
    selection = Selection.read(case.request, NOW)
    case.answered(f"from {selection.start} to {selection.end}")


def test_conditions_may_come_in_any_order_and_read_as_they_are_written() -> None:
    text = "2026-03-01T00:00:00Z: tag=nightly site=daint:gpu"
    selection = Selection.read("site=daint:gpu 2026-03-01: tag=nightly", NOW)
    assert str(selection) == text and Selection.read(text, NOW) == selection


@cases
def test_what_makes_no_sense_is_refused_in_one_line_that_says_what_would(
    refused: Harness, tmp_path: Path, case: Case
) -> None:
    made.save(tmp_path / "runs", [made.record()])
    case.refused(refused(*case.words()))


def test_a_path_may_have_the_sign_in_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("me@home", "a @ b", "runs @ now-7d:"):
        made.save(Path(name), [made.record(), made.record(day=1)])
        assert parted(name) == (name, None) and len(results.load([name])) == 2
        assert len(results.load([f"{name} @ 2026-01-02:"])) == 1
    with wording("no such").raises(InvalidInput):
        results.load(["no such @ now-7d:"])
    with wording("runs@now-7d:").raises(InvalidInput):
        results.load(["runs@now-7d:"])


# --- what it leaves ---


def test_a_window_holds_its_beginning_and_not_its_end_so_that_windows_that_meet_share_no_run(tmp_path: Path) -> None:
    folder = made.save(tmp_path / "runs", [made.record(day=day) for day in range(4)])
    days = {
        window: [each.started[8:10] for each in results.load([f"{folder} @ {window}"])]
        for window in (":2026-01-02", "2026-01-02:2026-01-04", "2026-01-04:")
    }
    assert list(days.values()) == [["01"], ["02", "03"], ["04"]]


def test_a_site_has_partitions_and_a_run_without_a_profile_is_local(tmp_path: Path) -> None:
    sites = ("daint:gpu", "daint:mc", "daintier:gpu", None)
    folder = made.save(tmp_path / "runs", [made.record(site=site) for site in sites])
    names = ("daint", "daint:mc", "local")
    left = {name: [each.site for each in results.load([f"{folder} @ site={name}"])] for name in names}
    assert left == {"daint": ["daint:gpu", "daint:mc"], "daint:mc": ["daint:mc"], "local": ["local"]}


def test_all_conditions_have_to_be_met_and_several_sources_add_up(tmp_path: Path) -> None:
    runs = [tagged(tag, day=day, site=site) for tag in ("a", "b") for day in (0, 1) for site in ("daint", "alps")]
    folder = made.save(tmp_path / "runs", [*runs, made.record()])
    assert len(results.load([f"{folder} @ tag=a site=alps 2026-01-02:"])) == 1
    assert len(results.load([f"{folder} @ tag=a", f"{folder} @ tag=b", f"{folder} @ tag=b site=alps"])) == 8


def test_baselines_are_selected_from_too_and_what_was_published_is_not(
    harness: Harness, tmp_path: Path, wording: Wording
) -> None:
    made.save(tmp_path / "runs", [made.record(day=day) for day in range(3)])
    harness("baseline", "save", "before", "runs").succeeded()
    assert len(results.load(["before @ 2026-01-02:"])) == 2
    wording("reference").refused(harness("table", "reference:daint @ now-7d:"))


@pytest.mark.parametrize(("conditions", "runs", "of_kernels"), [("2026-01-02:", 2, 1), ("2026-01-03:", 1, 0)])
def test_kernels_are_selected_as_runs_are_and_one_of_both_is_enough(
    harness: Harness, tmp_path: Path, conditions: str, runs: int, of_kernels: int
) -> None:
    saved(made.save(tmp_path / "runs", [made.record(day=day) for day in range(3)]), measured(day=1), measured(day=2))
    said = harness("table", f"runs @ {conditions}").succeeded().stdout
    assert (said.count("horovod") + said.count("pytorch"), "allreduce" in said) == (runs + of_kernels, bool(of_kernels))


def test_what_leaves_nothing_says_how_many_there_are_when_and_what_they_are_called(
    harness: Harness, tmp_path: Path, wording: Wording
) -> None:
    runs = [tagged("nightly", day=day) for day in range(3)]
    saved(made.save(tmp_path / "runs", runs), measured(sizes=(1024, 4096)))
    for command in (["table"], ["history"], ["report"], ["results", "export", "--format", "csv"], ["results", "check"]):
        wording("tag=weekly").refused(harness(*command, "runs @ tag=weekly"))


def test_each_source_has_to_leave_something(harness: Harness, tmp_path: Path) -> None:
    made.save(tmp_path / "runs", [made.record()])
    harness("table", "runs", "runs @ :2026-01-01").refused("'runs @ :2026-01-01T00:00:00Z' leaves none of 1 record")


def test_a_record_that_cannot_be_read_does_not_hide_that_nothing_is_left(
    harness: Harness, tmp_path: Path, wording: Wording
) -> None:
    folder = made.save(tmp_path / "runs", [made.record()])
    (folder / "bad").mkdir()
    (folder / "bad" / "record.json").write_text("{}")
    for command in ("table", "best"):
        wording("runs").ended(harness(command, "runs @ :2026-01-01"), 2)


# --- in every command ---


@pytest.fixture
def two_weeks(tmp_path: Path) -> Path:
    """Last week and this one, three backends on two sizes a day; this week is a fifth slower, and carries a tag."""
    ago = (datetime.now(UTC) - made.FIRST).total_seconds() / 86400
    folder = tmp_path / "runs"
    for day in range(1, 15):
        speed, tag = (80.0, "new") if day <= 7 else (100.0, "old")
        first, started = speed * (1 + 0.001 * (day % 3)), ago - day + 0.1
        runs = [
            tagged(tag, backend=backend, nodes=nodes, img_per_s=(first * nodes, 1.01 * speed * nodes), day=started)
            for backend in ("pytorch", "horovod", "parameter_server")
            for nodes in (1, 2)
        ]
        made.save(folder, runs)
    return folder


LAST, THIS = "runs @ now-14d:now-7d", "runs @ now-7d:now"


def test_last_week_is_compared_with_this_one_in_the_same_folder(harness: Harness, two_weeks: Path) -> None:
    done = harness("compare", LAST, THIS, "--json")
    assert done.code == 1
    assert (done.json["old"]["records"], done.json["new"]["records"], done.json["counts"]["slower"]) == (42, 42, 6)
    same = harness("compare", "runs @ tag=old", "runs @ tag=new site=daint", "--json")
    assert (same.code, same.json["pairs"]) == (1, done.json["pairs"])
    assert harness("compare", THIS, LAST).code == 0
    compared = package.compare(f"{two_weeks} @ now-14d:now-7d", f"{two_weeks} @ now-7d:now")
    assert set(compared["verdict"]) == {"slower"}


def test_windows_relative_to_now_meet_however_long_reading_takes(harness: Harness, two_weeks: Path) -> None:
    said = harness("compare", LAST, THIS, "--json").json
    begins, ends = (said["sources"][side].removeprefix("runs @ ") for side in ("new", "old"))
    assert begins[:20] == ends[-20:] and begins[19] == "Z"


Count = Callable[[Finished, Path], int]


def lines_of_csv(done: Finished, folder: Path) -> int:
    return len(list(csv.DictReader(StringIO(done.stdout))))


@pytest.mark.parametrize(
    ("command", "count"),
    [
        (["table", "--format", "csv"], lines_of_csv),
        (["results", "export", "--format", "csv"], lines_of_csv),
        (["report"], lambda done, folder: int(done.stdout.split(": ")[1].split()[0])),
        (["history", "--json"], lambda done, folder: sum(len(series["runs"]) for series in done.json["series"])),
        (["baseline", "save", "this"], lambda done, folder: baselines.get("this").records),
        (["results", "check"], lambda done, folder: int(done.stdout.split()[0])),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_takes_the_records_of_a_window_alone(
    harness: Harness, two_weeks: Path, command: Sequence[str], count: Count
) -> None:
    assert count(harness(*command, THIS).succeeded(), two_weeks) == 42
    if command[0] != "baseline":
        assert count(harness(*command, "runs").succeeded(), two_weeks) == 84


PREDICT = ["model", "predict", "--backend", "pytorch", "--nodes", "4"]


@pytest.mark.parametrize("command", [["best"], [*PREDICT, "--network", "9GB/s", "--single"]], ids=" ".join)
def test_an_answer_is_that_of_the_selected_records(harness: Harness, two_weeks: Path, command: list[str]) -> None:
    last, this = (harness(*command, source).succeeded().stdout for source in (LAST, THIS))
    assert last != this


@pytest.mark.parametrize(
    "command",
    [
        ["compare", "runs"],
        ["model", "fit"],
        ["model", "explain", "RUN", "--from"],
        [*PREDICT, "--from"],
        [*PREDICT, "--network"],
    ],
    ids=" ".join,
)
def test_a_wrong_selection_is_refused_wherever_results_are_taken(
    harness: Harness, two_weeks: Path, command: list[str], wording: Wording
) -> None:
    wording("now-7y").refused(harness(*command, "runs @ now-7y:"))


def test_what_a_network_does_may_be_that_of_a_window(harness: Harness, tmp_path: Path) -> None:
    folder = saved(tmp_path / "network", *(measured(day=day, sizes=(1024, 4096)) for day in (1, 2)))
    predict = [
        "model",
        "predict",
        "--backend",
        "pytorch",
        "--transport",
        "gloo",
        "--nodes",
        "4",
        "--single",
        "9",
        "--network",
    ]
    harness(*predict, f"{folder} @ 2027-01-01:").refused("leaves none of 2 records")
    assert len(results.load([f"{folder} @ 2026-01-02:"])) == 2


def test_a_saved_baseline_names_the_window_that_it_was_taken_from(harness: Harness, two_weeks: Path) -> None:
    harness("baseline", "save", "kept", THIS).succeeded()
    (source,) = baselines.get("kept").sources
    assert "now" not in source and at_time(source, NOW) == source


def test_check_looks_at_any_kind_of_record_and_says_what_is_wrong_with_those_that_are_selected(
    harness: Harness, tmp_path: Path, wording: Wording
) -> None:
    folder = saved(made.save(tmp_path / "runs", [made.record(), tagged("new", day=1)]), measured())
    for file in folder.glob("*/record.json"):
        made.tampered(file)
    wording("a record").ended(harness("results", "check", "runs @ tag=new"), 1)
    wording("runs").ended(harness("results", "check", "runs"), 1)
    (folder / "bad").mkdir()
    (folder / "bad" / "training.json").write_text("[]")
    wording("whatever it is").ended(harness("results", "check", "runs @ tag=new"), 1)  # it is not what was asked for
