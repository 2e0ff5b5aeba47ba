"""The table of runs."""

import csv
import io
import itertools
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness import results
from harness.core.backend import backend as known_backend
from harness.errors import InvalidInput
from harness.report.text import outcomes
from harness.report.text import runs as of_runs
from harness.report.text import table as tables
from harness.report.text.table import table as table_of
from harness.results import Result
from harness.results.result import of_training
from tests import made
from tests.conftest import Harness
from tests.unit.made_rows import HOROVOD, SERVERS, listed, run
from tests.unit.test_progress import Terminal
from tests.wording import Wording


def cells(text: str) -> list[list[str]]:
    """The lines of a table by its columns; columns are two spaces apart, as the rule under the headings shows."""
    every = text.splitlines()
    (at,) = (number for number, line in enumerate(every) if line.startswith("─"))
    ends = [(found.start(), found.end()) for found in re.finditer("─+", every[at])]
    lines = [every[at - 1], *itertools.takewhile(bool, every[at + 1 :])]
    return [[line[start : end + 1].strip() for start, end in ends] for line in lines]


def column(text: str, heading: str) -> list[str]:
    """What stands below a heading."""
    headings, *lines = cells(text)
    return [line[headings.index(heading)] for line in lines]


def printed(results_: Sequence[Result], baseline: int | None = None) -> str:
    return tables.text(of_runs.table_of_runs(results_, baseline))


# --- one line per run -----------------------------------------------------------------------------


def test_each_run_has_a_line_with_its_result_first_and_the_baseline_is_marked() -> None:
    rows = [run(1, [100.0, 102.0], **SERVERS), run(2, [180.0, 182.0], **SERVERS)]
    rows += [run(2, [190.0, 192.0], **SERVERS | {"ps": 2})]
    found = cells(printed(listed(rows)))
    assert found[0] == ["backend", "nodes", "img/s", "scaling efficiency", "configuration"]
    assert [tuple(line[1:]) for line in found[1:]] == [
        ("1", "101.00", "100.0 % (baseline)", "ps=1"),
        ("2", "181.00", "89.6 %", "ps=1"),
        ("2", "191.00", "94.6 %", "ps=2"),
    ]


def test_a_run_has_its_tag_in_a_column_as_soon_as_one_has_a_tag() -> None:
    rows = [run(1, [100.0], **HOROVOD), run(2, [180.0], **HOROVOD)]
    assert "tag" not in cells(printed(listed(rows)))[0]
    tagged = listed([rows[0], {**rows[1], "tag": "nightly"}])
    assert column(printed(tagged), "tag") == ["", "nightly"]
    as_csv = io.StringIO(tables.as_csv([of_runs.table_of_runs(tagged)]))
    assert [row["tag"] for row in csv.DictReader(as_csv)] == ["", "nightly"]


def test_what_all_rows_have_in_common_is_said_once_above_the_table() -> None:
    text = printed(listed([run(size, [100.0 * size], **HOROVOD) for size in (1, 2)]))
    (common,) = (line for line in text.splitlines() if line.startswith("All rows: "))
    assert "inception3, cuda, synthetic data" in common
    assert cells(text)[0] == ["backend", "nodes", "img/s", "scaling efficiency"]


def test_the_best_of_several_numbers_of_servers_at_the_smallest_size_is_the_baseline() -> None:
    rows = [run(2, [value], **{**SERVERS, "ps": ps}) for ps, value in ((1, 180.0), (2, 190.0))]
    assert column(printed(listed(rows)), "scaling efficiency") == ["94.7 %", "100.0 % (baseline)"]


def test_published_strategies_are_relative_to_what_they_have_in_common_as_in_the_report_of_2017() -> None:
    published_ = results.load(["reference:CSCS internship"])
    shown = of_runs.table_of_runs([run for run in published_ if "Daint" in run.system])
    found = {heading.heading: heading.cells for heading in shown.columns}
    lines = zip(found["backend"], found["nodes"], found["scaling efficiency"], strict=True)
    at_4 = [efficiency for *where, efficiency in lines if where == ["distributed_replicated", "4"]]
    assert at_4 == ["94.7 %", "94.3 %"]  # as the report has it: 94.66 % and 94.27 %
    points = of_runs.points(published_)
    assert {point["base_workers"] for point in points if point["backend"] == "distributed_replicated"} == {1}


def test_a_failed_run_is_in_the_table_with_its_reason_and_without_a_number() -> None:
    failure = {"status": "failed", "reason": "rank 1 on nid00001 exited with 1\nits log"}
    rows = [run(1, [100.0, 102.0], **HOROVOD), run(2, math.nan, **HOROVOD) | failure]
    headings, _, failed = cells(printed(listed(rows)))
    shown = {heading: cell for heading, cell in zip(headings, failed, strict=True) if cell}
    assert shown.pop("reason") == "rank 1 on nid00001 exited with 1"
    assert shown == {"backend": "horovod", "nodes": "2", "img/s": "failed"}


def test_a_table_of_failed_runs_only_is_a_table() -> None:
    found = printed(listed([run(2, math.nan, **HOROVOD) | {"status": "failed", "reason": "gone"}]))
    assert found.splitlines()[-1].endswith("gone")


def test_what_tells_runs_apart_is_in_the_configuration_and_what_does_not_is_not() -> None:
    rows = [run(1, [100.0], **HOROVOD), run(1, [50.0], **HOROVOD, batch_size=32), run(1, [90.0], **SERVERS)]
    assert column(printed(listed(rows)), "configuration") == ["batch 32", "batch 64", "batch 64"]


def test_any_option_that_differs_between_rows_of_one_backend_is_named() -> None:
    placed = [
        run(2, [value], **{**SERVERS, "options": {"sync": "accumulate", "placement": placement}})
        for placement, value in (("greedy", 180.0), ("round_robin", 120.0))
    ]
    shown = column(printed(listed(placed)), "configuration")
    assert shown == ["placement=greedy", "placement=round_robin"]


def test_a_warm_up_that_ends_by_itself_is_no_number_of_steps() -> None:
    first, again = (of_training(made.record("pytorch", 1, warmup_steps=steps), "") for steps in ("auto", 1))
    assert "All rows" in (alone := printed([first])) and "up to 200 warm-up steps" in alone
    assert column(printed([first, again]), "configuration") == ["1 warm-up step", "up to 200 warm-up steps"]
    assert (first.key, first.environment["warm-up steps"]) == (again.key, "up to 200")


def test_runs_of_the_same_measurement_are_told_apart_by_their_time() -> None:
    twice = [
        run(2, [value], **HOROVOD) | {"started": f"2026-01-0{day}T04:05:06"} for day, value in ((1, 9.0), (2, 8.0))
    ]
    assert column(printed(listed(twice)), "configuration") == ["2026-01-01 04:05:06", "2026-01-02 04:05:06"]


def test_a_reason_is_no_wider_than_a_line_and_whole_in_csv() -> None:
    reason = "rank 3 " + "of many " * 30
    shown = of_runs.table_of_runs(listed([run(2, math.nan, **HOROVOD) | {"status": "failed", "reason": reason}]))
    (short,) = column(tables.text(shown), "reason")
    assert len(short) == of_runs.REASON and short.endswith("…")
    (row,) = csv.DictReader(io.StringIO(tables.as_csv([shown])))
    assert row["reason"] == f"failed: {reason}" and row["img/s"] == "" and row["batch_size"] == "64"


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160, 240])
def test_on_a_terminal_the_table_fits_and_says_what_it_has_no_room_for(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    rows = [run(size, [1000.0 * size] * 2, **SERVERS) for size in (1, 2)]
    rows.append(run(4, math.nan, **HOROVOD) | {"status": "failed", "reason": "rank 3 " * 40})
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys, "stdout", Terminal())
    text = re.sub(r"\x1b\[[\d;]*m", "", tables.text(of_runs.table_of_runs(listed(rows))))
    lines = text.split("\n\n")[1].splitlines()
    assert max(map(len, lines)) <= width
    assert "2000.00" in text and ("no room for" in text) == ("reason" not in text.split("─")[0])


def test_formats_hold_the_same_table(harness: Harness) -> None:
    text, latex, markdown = (
        harness("table", "reference:cookbook, Horovod", "--format", name).succeeded().stdout
        for name in ("text", "latex", "markdown")
    )
    rows = csv_rows(harness, "reference:daint")
    (row,) = (row for row in rows if row["nodes"] == "128" and row["transport"] == "mpi")
    assert (row["img/s"], row["framework"], row["origin"]) == ("16051.0", "tensorflow", "published")
    assert float(row["scaling efficiency"]) == pytest.approx(16051 / 64 / 460)
    assert "16051.00" in text and "| horovod | 128 | 16051.00 | 54.5 % |" in markdown
    assert r"horovod & 128 & 16051.00 & 54.5 \% \\" in latex and latex.count(r"\toprule") == 1
    assert "All rows: tensorflow, mpi, published, Piz Daint XC50 P100, resnet50, synthetic data, batch 64," in markdown


def test_several_tables_are_one_csv_with_their_titles() -> None:
    shown = [tables.Table([tables.column_of("img/s", [("1.50", 1.5)])], title) for title in ("first", "second")]
    assert tables.as_csv(shown).splitlines() == ["table,img/s", "first,1.5", "second,1.5"]


def csv_rows(harness: Harness, *arguments: str) -> list[dict[str, str]]:
    text = harness("table", *arguments, "--format", "csv").succeeded().stdout
    return list(csv.DictReader(io.StringIO(text)))


def test_texts_of_records_stay_texts_in_markdown_and_latex() -> None:
    shown = [tables.Table([tables.Column("a|b", ["<b>_50 %_</b> & $x^2$\\n"])])]
    assert tables.as_markdown(shown).splitlines()[2] == r"| \<b\>\_50 %\_\</b\> & $x^2$\\n |"
    assert r"<b>\_50 \%\_</b> \& \$x\textasciicircum 2\$\textbackslash n \\" in tables.as_latex(shown)


def test_efficiencies_may_be_relative_to_another_baseline() -> None:
    rows = [run(size, [100.0 * size * 0.9**step], **HOROVOD) for step, size in enumerate((1, 2, 4))]
    shown = column(printed(listed(rows), baseline=2), "scaling efficiency")
    assert shown == ["111.1 %", "100.0 % (baseline)", "90.0 %"]


def test_a_baseline_that_nobody_measured_is_refused_with_those_there_are(wording: Wording) -> None:
    rows = [run(size, [100.0 * size]) for size in (1, 2)]
    for table in (of_runs.table_of_runs, of_runs.points):
        with wording("--baseline 3").raises(InvalidInput):
            table(listed(rows), 3)


def test_efficiencies_of_strong_scaling_are_relative_to_the_smallest_size_with_the_same_global_batch() -> None:
    rows = [run(size, [100.0 * size**0.5] * 2, batch_size=64 // size, **HOROVOD) for size in (1, 2, 4)]
    assert column(printed(listed(rows)), "scaling efficiency") == ["50.0 %", "70.7 %", "100.0 % (baseline)"]


def test_records_and_rows_make_the_same_table(harness: Harness, tmp_path: Path) -> None:
    records = [made.record("pytorch", size, [100.0 * size, 99.0 * size]) for size in (1, 2)]
    records.append(made.record("pytorch", 4, status="failed"))
    folder = made.save(tmp_path / "runs", records)
    table = harness("table", str(folder)).succeeded().stdout.strip()
    assert table.startswith("All rows: ") and outcomes.comparison(records).endswith(f"\n\n{table}")


def test_runs_in_another_data_format_are_another_configuration_and_the_fastest_counts(tmp_path: Path) -> None:
    rates = {"auto": [100.0, 101.0], "nchw": [120.0, 121.0]}
    records = [made.record(img_per_s=values, data_format=name) for name, values in rates.items()]
    found = results.load([made.save(tmp_path / "runs", records)])
    assert column(printed(found), "configuration") == ["", "data_format=nchw"]
    assert of_runs.points(found)[0]["best"]["options"]["data_format"] == "nchw" and found[0].key != found[1].key


def test_points_for_scripts_have_all_values_and_no_nan() -> None:
    found = of_runs.points(listed([run(1, [100.0, 104.0, 101.0]), run(2, [180.0, 190.0, 184.0])]))
    values = [(point["workers"], point["best"]["sample"]["values"]) for point in found]
    assert values == [(1, [100.0, 104.0, 101.0]), (2, [180.0, 190.0, 184.0])]
    assert found[1]["base_workers"] == 1 and found[1]["efficiency_interval"][0] < found[1]["efficiency"]
    published_only = of_runs.points(results.load(["reference:1712.09388"]))
    assert [one["img_per_s"] for one in published_only] == [None] * 3


def test_json_of_published_results_is_valid(harness: Harness) -> None:
    found = harness("table", "reference", "--json").succeeded().json
    assert {"workers", "img_per_s", "efficiency", "tried", "scaling"} <= set(found[0])


# --- on a terminal --------------------------------------------------------------------------------


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output is a terminal of 40 columns."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)


ROWS = [("what", "img/s"), ("[bold]pytorch[/] gloo inception3 on every node of the system", "12.50"), ("short", "1.25")]


def test_a_table_fits_the_terminal_with_numbers_on_the_right_and_loses_nothing(narrow: None) -> None:
    shown = re.sub(r"\x1b\[[0-9;]*m", "", table_of(ROWS, right={1}))
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 40 and lines[-1].rstrip().endswith("   1.25")
    assert set("".join(ROWS[1][0].split())) <= set("".join(shown.split())) and "[bold]" in shown


def test_sentences_end_between_words_on_a_terminal_and_items_of_lists_are_indented(narrow: None) -> None:
    text = (
        "On daint:gpu it is undecided whether --repeats=5 would be enough.\n  - an item that is longer than a line is"
    )
    assert tables.prose(text).splitlines() == [
        "On daint:gpu it is undecided whether",
        "--repeats=5 would be enough.",
        "  - an item that is longer than a line",
        "    is",
    ]


def test_in_a_pipe_a_sentence_is_a_line() -> None:
    assert tables.prose("word " * 100) == "word " * 100


def test_a_table_has_colours_on_a_terminal_unless_they_are_not_wanted(
    narrow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "\x1b[" in table_of(ROWS) and "36m" in table_of(ROWS)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "36m" not in table_of(ROWS)


def test_a_table_in_a_pipe_is_as_wide_as_it_must_be() -> None:
    lines = table_of(ROWS, right={1}).splitlines()
    assert lines[2] == f"{ROWS[1][0]}  12.50" and lines[3].endswith("   1.25") and "\x1b" not in "".join(lines)


@pytest.mark.parametrize(
    ("backend", "packages", "software"),
    [
        ("jax", {"jax": "0.9.0", "jaxlib": "0.9.0"}, "JAX 0.9.0"),
        ("horovod", {"torch": "2.13.0", "horovod": "0.28.1"}, "PyTorch 2.13.0, Horovod 0.28.1"),
        ("caffe2", {"torch": "1.10.2"}, "Caffe2 (PyTorch 1.10.2)"),
        ("parameter_server", {"tensorflow_cpu": "2.21.0"}, "TensorFlow 2.21.0"),
    ],
)
def test_software_is_named_once(backend: str, packages: dict[str, str], software: str) -> None:
    framework = "torch" if backend == "horovod" else next(iter(known_backend(backend).frameworks))
    record = made.record(backend, packages=packages, framework=framework)
    assert of_training(record, "record.json").software == software
