"""`harness results export`: results for other tools, without loss, and nothing but what was measured."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest

from harness import export, results
from harness.api import load
from harness.errors import InvalidInput
from harness.results.frame import OF_TRAININGS, kinds
from tests import made
from tests.conftest import Harness
from tests.wording import Case, Wording, cases

LISTS = ("values", "jobs", "joules_values")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    records = [
        made.record("horovod", 2, (100.0, 101.0, 99.0), fp16_allreduce=True),
        made.record("parameter_server", 4, (1 / 3, 0.5), ps=3, day=1),
        made.record("pytorch", 1, (7.0,), day=2),
        made.record("pytorch", 2, status="failed", reason="rank 1 on nid00001:\n  loss is nan", day=3),
    ]
    return made.save(tmp_path / "runs", records)


def written(source: Path | str, name: str, everything: bool = False) -> bytes:
    stream = io.BytesIO()
    export.write(export.exported(results.load([source]), [str(source)], everything), name, stream)
    return stream.getvalue()


def test_csv_read_by_pandas_is_the_table_that_was_written(runs: Path) -> None:
    expected = load(runs, status=None)
    options = pandas.DataFrame(list(map(json.loads, expected.pop("options"))))
    kept_as_text = [name for name, kind in kinds(OF_TRAININGS).items() if kind is str and name in expected]
    found = pandas.read_csv(
        io.BytesIO(written(runs, "csv", everything=True)),
        dtype={name: str(kind) for name, kind in expected.dtypes.items() if name not in LISTS},
        converters=dict.fromkeys(LISTS, json.loads),
        keep_default_na=False,
        na_values={name: [""] for name in [*expected, *options] if name not in kept_as_text},
    )
    assert list(found) == [*expected, *options]
    for name in LISTS:
        assert found.pop(name).tolist() == [list(values) for values in expected.pop(name)]
    pandas.testing.assert_frame_equal(found[list(expected)], expected, check_exact=True)
    pandas.testing.assert_frame_equal(found[list(options)], options, check_exact=True, check_dtype=False)


def test_parquet_keeps_lists_integers_and_truth_values(runs: Path) -> None:
    found = pandas.read_parquet(io.BytesIO(written(runs, "parquet", everything=True)), dtype_backend="pyarrow")
    types = {name: str(kind) for name, kind in found.dtypes.items()}
    assert types["values"] == "list<element: double>[pyarrow]"
    assert types["nodes"] == types["ps"] == "int64[pyarrow]"
    assert types["fp16_allreduce"] == "bool[pyarrow]"
    assert types["fusion_threshold_mb"] == types["img_per_s"] == "double[pyarrow]"
    assert [list(values) for values in found["values"]] == [[100.0, 101.0, 98.99999999999999], [1 / 3, 0.5], [7.0], []]


def test_parquet_of_published_rows_alone_has_the_same_types_as_of_records(runs: Path) -> None:
    found, published = (
        pandas.read_parquet(io.BytesIO(written(source, "parquet")), dtype_backend="pyarrow").dtypes
        for source in (runs, "reference")
    )
    assert published.to_dict().items() <= found.to_dict().items()


def test_json_has_null_for_what_is_missing_and_the_spec_as_an_object(runs: Path) -> None:
    found = json.loads(written(runs, "json", everything=True))
    assert [row["backend"] for row in found] == ["horovod", "parameter_server", "pytorch", "pytorch"]
    assert found[1]["values"] == [1 / 3, 0.5]
    assert found[1]["spec"]["options"]["ps"] == 3
    assert found[2]["ci95"] is None  # one repeat
    assert found[3]["img_per_s"] is None and found[3]["reason"] == "rank 1 on nid00001:\n  loss is nan"


def test_an_option_called_like_a_column_gets_a_column_of_its_own(runs: Path) -> None:
    options: list[dict[str, Any]] = [{"note": "mine", "level": 3}, {"level": "high"}, {}]
    completed = [run for run in results.load([runs]) if run.completed]
    varied = [replace(run, options=own) for run, own in zip(completed, options, strict=True)]
    stream = io.BytesIO()
    export.write(varied, "parquet", stream)
    wide = pandas.read_parquet(stream)
    assert wide["option_note"].isna().tolist() == [False, True, True]
    assert wide["note"].tolist() == ["", "", ""]
    assert wide["level"].fillna("").tolist() == ["3", '"high"', ""]  # of two kinds: as JSON text


def test_runs_without_a_number_are_exported_only_with_all(harness: Harness, runs: Path) -> None:
    for option, count in ((), 3), (("--all",), 4):
        rows = harness("results", "export", str(runs), "--format", "json", *option).succeeded().json
        assert len(rows) == count


@pytest.mark.parametrize("suffix", ["csv", "parquet", "json"])
def test_the_files_suffix_says_which_format_is_meant(harness: Harness, runs: Path, tmp_path: Path, suffix: str) -> None:
    done = harness("results", "export", str(runs), "-o", f"out.{suffix}").succeeded()
    assert done.stdout == f"3 results: out.{suffix}\n"
    assert (tmp_path / f"out.{suffix}").read_bytes() == written(runs, suffix)


@cases
def test_what_cannot_be_written_is_refused_in_one_line(harness: Harness, runs: Path, case: Case) -> None:
    case.refused(harness(*case.words()))


def test_sources_without_a_result_are_refused(tmp_path: Path, wording: Wording) -> None:
    with wording("csv").raises(InvalidInput, HERE=tmp_path):
        written(tmp_path, "csv")


def test_a_file_stays_as_it_was_when_the_export_fails(harness: Harness, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "out.csv").write_text("kept")
    assert harness("results", "export", str(runs), "nowhere", "-o", "out.csv").code == 2
    assert (tmp_path / "out.csv").read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "runs"]
