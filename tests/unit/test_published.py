"""Published measurements: what comes with harness, and tables that people bring themselves."""

import json
import math
import tomllib
from pathlib import Path

import pytest

from harness import kernels, results
from harness.api import load
from harness.core.statistics import scaling_efficiency
from harness.errors import InvalidInput
from harness.prediction.observations import groups
from harness.report.page import figures, lines
from harness.results import imported, published
from harness.results.frame import OF_TRAININGS
from tests import made
from tests.conftest import Harness
from tests.wording import Case, Wording, cases

TABLES = sorted(published.FOLDER.glob("*.csv"))
THROUGHPUT = {
    "source": "a paper",
    "system": "Cluster",
    "framework": "TensorFlow 1.1",
    "strategy": "parameter_server",
    "transport": "grpc",
    "model": "resnet50",
    "batch_per_device": "64",
    "devices": "4",
    "devices_per_node": "2",
    "num_ps": "1",
    "data": "synthetic",
    "img_per_s": "100.5",
    "stdev": "",
    "note": "",
}
COLUMNS = ",".join(THROUGHPUT)
EFFICIENCY = {
    "source": "a paper",
    "system": "Cluster",
    "framework": "Horovod",
    "model": "resnet50",
    "workers": "256",
    "num_ps": "",
    "scaling_efficiency": "0.9",
    "note": "",
}


def table(path: Path, *rows: dict[str, str]) -> Path:
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


# --- what comes with harness ----------------------------------------------------------------------


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_every_row_meets_the_schema_and_names_its_source(path: Path) -> None:
    rows = published.read(path)
    assert rows and all(row.source.strip() and row.system.strip() for row in rows)


def test_both_kinds_of_table_come_with_harness() -> None:
    kinds = {type(row) for path in TABLES for row in published.read(path)}
    assert kinds == {published.Throughput, published.Efficiency}


def test_the_systems_that_the_documentation_names_are_there() -> None:
    systems = {row.system for row in published.select()}
    assert systems >= {"Piz Daint XC50 P100", "EC2 p2.xlarge K80", "NVIDIA DGX-1 P100", "Cori KNL"}


def test_no_configuration_is_there_twice() -> None:
    frame = load("reference")
    columns = ["source", "system", "software", "backend", "transport", "model", "data", "workers", "img_per_s"]
    assert not frame.duplicated(columns).any()


def test_published_throughputs_scale_at_most_5_per_cent_better_than_ideally() -> None:
    """With image files 6 per cent: the more nodes, the larger the part of them that memory holds."""
    frame = load("reference")
    for _, alike in frame[frame["img_per_s"].notna()].groupby(["source", "system", "model", "data"]):
        smallest = alike.loc[alike["workers"].idxmin()]
        for row in alike.itertuples():
            efficiency = scaling_efficiency(row.img_per_s, row.workers, smallest.img_per_s, smallest.workers)
            assert efficiency <= (1.06 if row.data == "real" else 1.05), row


def test_the_list_of_references_counts_every_row(harness: Harness) -> None:
    listed = harness("list", "references", "--json").succeeded().json
    assert sum(group["rows"] for group in listed) == len(published.select())
    assert {group["system"] for group in listed} == {row.system for row in published.select()}
    daint = next(group for group in listed if group["source"] == "CSCS internship report 2017, table 1")
    assert daint["backends"] == ["distributed_replicated", "parameter_server"]
    assert (daint["data"], daint["workers"]) == (["synthetic", "real"], [1, 2, 4, 8, 16, 32, 64, 128])


def test_the_list_of_references_says_how_to_use_them(harness: Harness) -> None:
    text = harness("list", "references").succeeded().stdout
    assert "Piz Daint XC50 P100" in text and "1–128" in text and "harness report reference:daint" in text


# --- choosing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["daint", "DAINT", "Piz Daint"])
def test_reference_with_a_text_selects_what_names_it_in_any_case(text: str) -> None:
    assert {each.system for each in results.load([f"reference:{text}"])} == {"Piz Daint XC50 P100"}


def test_reference_selects_by_backend_framework_model_and_source_too() -> None:
    for text, column in (("horovod 0.15", "software"), ("vgg16", "model"), ("1712.09388", "source")):
        assert all(text in getattr(each, column).lower() for each in results.load([f"reference:{text}"]))


def test_a_text_that_nothing_names_is_refused_with_the_systems_there_are(wording: Wording) -> None:
    with wording("frontier").raises(
        InvalidInput, SYSTEMS=", ".join(dict.fromkeys(row.system for row in published.select()))
    ):
        results.load(["reference:frontier"])


# --- one DataFrame with records -------------------------------------------------------------------


def test_published_and_measured_results_have_the_same_columns_and_types(tmp_path: Path) -> None:
    runs = str(made.save(tmp_path / "runs", [made.record("parameter_server", 2, ps=2), made.record()]))
    measured, taken, both = load(runs), load("reference"), load(runs, "reference")
    assert list(measured) == list(taken) == list(both) == list(OF_TRAININGS)
    assert measured.dtypes.to_dict() == taken.dtypes.to_dict() == both.dtypes.to_dict()
    assert [name for name, kind in both.dtypes.items() if str(kind) == "object"] == ["values", "jobs", "joules_values"]
    assert len(both) == len(measured) + len(taken)


def test_a_published_row_says_nothing_that_its_source_does_not(tmp_path: Path) -> None:
    (row,) = results.load([table(tmp_path / "own.csv", EFFICIENCY)])
    assert (row.published_efficiency, row.workers, row.family) == (0.9, 256, "toolkit")
    assert math.isnan(row.img_per_s) and math.isnan(row.stdev)
    assert (row.data, row.transport, row.nodes, row.batch_size, row.published_base) == ("", "", 0, 0, 0)


def test_an_efficiency_may_tell_what_it_is_relative_to(tmp_path: Path) -> None:
    own = table(tmp_path / "own.csv", EFFICIENCY | {"base": "8"}, EFFICIENCY | {"base": ""})
    assert [each.published_base for each in results.load([own])] == [8, 0]
    caffe2, *_ = results.load(["reference:facebook"])
    assert (caffe2.backend, caffe2.published_base, caffe2.note) == ("caffe2", 8, "relative to 8 GPUs")


def test_devices_fill_nodes(tmp_path: Path) -> None:
    rows = results.load([table(tmp_path / "own.csv", *(THROUGHPUT | {"devices": n} for n in ("1", "2", "3", "8")))])
    assert [(row.nodes, row.devices_per_node) for row in rows] == [(1, 1), (1, 2), (2, 2), (4, 2)]


# --- tables that people bring ---------------------------------------------------------------------


@cases
def test_a_wrong_field_is_refused_with_its_line(tmp_path: Path, case: Case) -> None:
    column, _, value = case.text.partition("=")
    path = table(tmp_path / "own.csv", THROUGHPUT, THROUGHPUT | {column: value})
    with case.raises(InvalidInput, FILE=path):
        published.read(path)


@cases
def test_what_is_no_table_of_published_measurements_is_refused(tmp_path: Path, case: Case) -> None:
    path = tmp_path / "own.csv"
    path.write_bytes(case.text.encode("latin-1"))
    with case.raises(InvalidInput, FILE=path):
        published.read(path)


def test_system_backend_nodes_and_img_per_s_are_enough(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("system,backend,nodes,img_per_s\nMine,parameter-server,4,100\nMine,deepspeed,2,90.5\n")
    servers, other = results.load([path])
    assert (servers.backend, servers.family) == ("parameter_server", "parameter_servers")
    assert (servers.nodes, servers.workers) == (4, 4)
    assert (other.backend, other.family, other.img_per_s) == ("deepspeed", "toolkit", 90.5)
    assert {other.model, other.transport, other.data, other.software} == {""} and other.batch_size == 0
    assert other.source == str(path)


def test_what_a_table_does_not_say_is_claimed_by_nobody(tmp_path: Path, harness: Harness, wording: Wording) -> None:
    """Neither what was read, nor which model it was; and backends that no harness knows stay apart."""
    path = tmp_path / "own.csv"
    path.write_text(
        "system,backend,nodes,img_per_s\nMine,deepspeed,1,100\nMine,deepspeed,2,190\nMine,megatron,1,90\nMine,megatron,2,150\n"
    )
    lines_ = lines.of(results.load([path]))
    assert [(line.name, [point.img_per_s for point in line.curve.points]) for line in lines_] == [
        ("deepspeed", [100.0, 190.0]),
        ("megatron", [90.0, 150.0]),
    ]
    assert len({line.style for line in lines_}) == 2
    assert figures.panel_name("", "") == "a model that is not stated"
    shown = harness("table", "own.csv").succeeded().stdout
    assert "All rows: published, Mine." in shown and "real" not in shown and "synthetic" not in shown
    wording("fit").ended(harness("model", "fit", "own.csv"), 2)


def test_rows_that_differ_in_their_throughput_only_are_repeats(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(
        "system,backend,nodes,devices_per_node,img_per_s,stdev\n"
        "Mine,horovod,2,4,100,\nMine,horovod,2,4,110,\nMine,horovod,2,4,120,\nMine,horovod,4,4,200,3.5\n"
    )
    repeated, once = results.load([path])
    assert (repeated.values, repeated.img_per_s, repeated.stdev) == ((100.0, 110.0, 120.0), 110.0, 10.0)
    assert repeated.ci95 == pytest.approx(4.303 * 10 / 3**0.5, rel=1e-3)
    assert (repeated.workers, once.stdev, len(once.values)) == (8, 3.5, 0)


def test_a_table_may_say_what_a_link_carries_also_after_its_export(tmp_path: Path, harness: Harness) -> None:
    """The scaling model starts from it, as from what is known of a system by its name."""
    head = "system,link_gb_s,backend,transport,model,batch_size,nodes,img_per_s\n"
    rows = "".join(f"Mine,12.5,horovod,nccl,resnet50,64,{nodes},{90 * nodes}\n" for nodes in (1, 2, 4))
    (tmp_path / "own.csv").write_text(head + rows)
    harness("results", "export", "own.csv", "-o", "again.csv").succeeded()
    for name in ("own.csv", "again.csv"):
        (group,) = groups(results.load([tmp_path / name]))[0]
        assert group.network.line_rate_gb_s == 12.5
    asked = ("model", "predict", "--from", "own.csv", "--model", "resnet50", "--backend", "horovod", "--nodes", "8")
    assert "a link carries 12.41 GB/s, the nominal rate" in harness(*asked).succeeded().stdout


def test_the_template_is_a_table_with_every_column(harness: Harness, tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(harness("list", "csv-template").succeeded().stdout)
    rows = results.load([path])
    assert [len(row.values) for row in rows] == [0, 2, 0]
    header, *_ = published.TEMPLATE.read_text(encoding="utf-8").split("\n")
    known = {published._field(published.Throughput, name) for name in header.split(",")}
    assert known | {"devices"} == set(published.Throughput.model_fields)


def test_a_folder_that_is_called_like_a_table_is_refused(tmp_path: Path, wording: Wording) -> None:
    (tmp_path / "own.csv").mkdir()
    with wording("own.csv").raises(InvalidInput, HERE=tmp_path):
        published.read(tmp_path / "own.csv")


def test_tables_that_a_spreadsheet_saved_are_read(tmp_path: Path) -> None:
    path = table(tmp_path / "own.csv", THROUGHPUT | {"note": '"two\nlines"'}, THROUGHPUT)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert [row.note for row in published.read(path)] == ["two\r\nlines", ""]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@cases
def test_numbers_and_columns_are_read_as_others_write_them(tmp_path: Path, encoding: str, case: Case) -> None:
    (tmp_path / "own.csv").write_text(case.text, newline="", encoding=encoding)
    case.answered([each.img_per_s for each in results.load([tmp_path / "own.csv"])])


def test_a_measurement_that_is_there_twice_counts_once_and_decides_nothing(
    tmp_path: Path, harness: Harness, wording: Wording
) -> None:
    for name, rate in (("old", 1650.2), ("new", 1500.1)):
        (tmp_path / f"{name}.csv").write_text("system,backend,nodes,img_per_s\n" + 2 * f"Mine,horovod,8,{rate}\n")
    done = harness("compare", "old.csv", "new.csv")
    assert "SLOWER" not in done.stdout
    wording("twice").ended(done, 2)
    # Nor do figures of several jobs that are all alike.
    for name, rate in (("old", 1650.2), ("new", 1500.1)):
        rows = "".join(f"Mine,horovod,8,{rate},{job}\n" for job in ("Monday", "Tuesday", "Friday"))
        (tmp_path / f"{name}.csv").write_text("system,backend,nodes,img_per_s,job\n" + rows)
    done = harness("compare", "old.csv", "new.csv")
    wording("alike").ended(done, 2)


def test_logs_of_mlperf_become_a_table_with_their_deviation(tmp_path: Path, harness: Harness, wording: Wording) -> None:
    """Of an epoch 1,000 samples are trained in 10 s to 10.2 s; the first one takes longer."""

    def event(key: str, time_ms: int, value: object = None) -> str:
        return ":::MLLOG " + json.dumps({"key": key, "value": value, "time_ms": time_ms, "metadata": {}})

    about = {"submission_benchmark": "cosmoflow", "submission_org": "CSCS", "global_batch_size": 256}
    about |= {"submission_platform": "=\x1b[1mPiz Daint GPU", "train_samples": 1000}
    (tmp_path / "logs").mkdir()
    for number in range(3):
        lines = [event(key, 0, value) for key, value in about.items()]
        for epoch, took_ms in enumerate((50_000, 10_000 + 100 * number, 10_000 + 100 * number)):
            begin = 100_000 * epoch
            lines += [event("epoch_start", begin), event("eval_start", begin + took_ms)]
            lines += [event("epoch_stop", begin + 60_000)]
        (tmp_path / "logs" / f"result_{number}.txt").write_text("a line of another kind\n" + "\n".join(lines))
    wanted = ["--backend", "horovod", "--devices", "128"]
    (tmp_path / "daint.csv").write_text(harness("results", "import", "logs", *wanted).succeeded().stdout)
    (row,) = results.load([tmp_path / "daint.csv"])
    assert ",'=Piz Daint GPU," in "," + (tmp_path / "daint.csv").read_text().splitlines()[1]  # no formula
    assert (row.system, row.model, row.workers, row.batch_size, row.runs) == ("=Piz Daint GPU", "cosmoflow", 128, 2, 3)
    assert (row.img_per_s, row.stdev) == pytest.approx((99.0164, 0.9804), rel=1e-3)
    (tmp_path / "other.txt").write_text("img/s 3")
    wording("other.txt").refused(harness("results", "import", "other.txt", *wanted))


def test_the_network_may_be_what_other_suites_printed(tmp_path: Path, harness: Harness) -> None:
    osu = "# OSU MPI Bandwidth Test v5.7.1\n# Size      Bandwidth (MB/s)\n1   2.31\n4194304   9480.00\n"
    head = "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n"
    nccl = f"# nThread 1\n{head}# (B) (elements) (us) (GB/s)\n 8 2 float sum -1 12.9 0.00 0.00 0 12.8 0.00 0.00 0\n"
    nccl += (
        " 536870912 134217728 float sum -1 1806.7 297.16 586.06 0 1835.9 292.43 576.74 0\n# Avg bus bandwidth : 293\n"
    )
    for text, rate in ((osu, 9.48e9), (nccl, 586.06e9)):
        (tmp_path / "printed.txt").write_text(text)
        assert imported.network_rate(tmp_path / "printed.txt") == pytest.approx(rate)
    (tmp_path / "printed.txt").write_text(osu)
    predict = ["model", "predict", "--single", "220", "--backend", "horovod", "--nodes", "8", "--json", "--network"]
    ours, theirs = (harness(*predict, network).succeeded().json for network in ("printed.txt", "9.48GB/s"))
    assert ours == theirs


HEAD = (
    "source,system,framework,backend,transport,model,batch_size,nodes,devices_per_node,ps,data,img_per_s,stdev,runs\n"
)


def test_what_two_laboratories_measured_is_never_averaged(tmp_path: Path, harness: Harness) -> None:
    row = "{},EC2,TensorFlow 1.1.0,{},inception3,64,8,8,{},synthetic,{},,\n"
    rows = row.format("Google", "distributed_replicated,grpc", 8, 1783)
    rows += row.format("CSCS", "distributed_replicated,grpc", 8, 1731.31)
    rows += row.format("CSCS", "horovod,mpi", "", 1770)
    (tmp_path / "own.csv").write_text(HEAD + rows)
    said = harness("best", "own.csv", "--details").succeeded().stdout
    assert "1783 against 1770 img/s" in said and "1757" not in said
    assert "1,783 img/s counts (Google), the best beside 1,731 (CSCS)" in said


@pytest.mark.parametrize(
    ("stdev", "runs", "verdict"), [("1 %", "10", "Yes"), ("1 %", "", "Yes"), ("", "", "Undecided")]
)
def test_published_deviations_decide_and_without_them_it_is_said_what_chance_would_take(
    tmp_path: Path, harness: Harness, stdev: str, runs: str, verdict: str
) -> None:
    rows = [("parameter_server,grpc", 1, 1, 134.4), ("parameter_server,grpc", 64, 4, 4000)]
    rows += [("horovod,mpi", 1, "", 134.4), ("horovod,mpi", 64, "", 8000)]
    row = "S,M,TensorFlow 1,{},inception3,64,{},1,{},synthetic,{},{},{}\n"
    lines = [row.format(*each, each[-1] / 100 if stdev else "", runs) for each in rows]
    (tmp_path / "own.csv").write_text(HEAD + "".join(lines))
    said = harness("best", "own.csv", "--details").succeeded().stdout
    assert f"Do MPI-based toolkits scale better than parameter servers? {verdict}" in said
    assert ("Chance takes runs that scatter by 25.0 %" in said) == (verdict == "Undecided")
    assert (f"by published deviations of {runs or 2} runs each" in said) == (verdict == "Yes")


def test_a_publication_is_the_same_after_its_export(tmp_path: Path, harness: Harness) -> None:
    rows = "".join(f"S,M,TensorFlow 1,horovod,mpi,inception3,64,8,1,,synthetic,{rate},9.5,5,{how}\n" for rate, how in
                   ((1204, "sharded"), (1500, "partitioned")))  # fmt: skip
    (tmp_path / "own.csv").write_text(HEAD.rstrip() + ",variant\n" + rows)
    harness("results", "export", "own.csv", "--format", "csv", "-o", "again.csv").succeeded()
    before, after = (results.load([tmp_path / file]) for file in ("own.csv", "again.csv"))
    told = [[(each.img_per_s, each.stdev, each.runs, each.publication) for each in side] for side in (before, after)]
    assert told[0] == told[1]


def test_what_sets_runs_apart_does_so_after_their_export(tmp_path: Path, harness: Harness) -> None:
    runs = [made.record("parameter_server", 2, ps=2), made.record("parameter_server", 2, ps=2, sync="none")]
    made.save(tmp_path / "runs", [*runs, made.record("pytorch", 2, device="cuda", precision="tf32")])
    harness("results", "export", "runs", "--format", "csv", "-o", "again.csv").succeeded()
    names = ("backend", "framework", "training", "device", "precision", "data", "threads", "workers", "ps", "values")
    before, after = (
        sorted(tuple(getattr(each, name) for name in names) for each in results.load([tmp_path / file]))
        for file in ("runs", "again.csv")
    )
    assert before == after


def test_what_harness_writes_it_reads_again(tmp_path: Path, harness: Harness) -> None:
    runs = [made.record("parameter_server", 2, ps=2), made.record("parameter_server", 2, ps=2, placement="partitioned")]
    made.save(tmp_path / "runs", [*runs, made.record("horovod", 4)])
    measured = results.load([tmp_path / "runs"])
    harness("results", "export", "runs", "--format", "csv", "-o", "exported.csv").succeeded()
    (tmp_path / "table.csv").write_text(harness("table", "runs", "--format", "csv").succeeded().stdout)
    for file in ("exported.csv", "table.csv"):
        again = results.load([tmp_path / file])
        assert sorted((each.backend, each.nodes) for each in again) == sorted((m.backend, m.nodes) for m in measured)
        assert sorted(each.img_per_s for each in again) == pytest.approx(sorted(each.img_per_s for each in measured))
    exported = results.load([tmp_path / "exported.csv"])
    assert sorted(each.values for each in exported) == sorted(each.values for each in measured)
    harness("results", "export", "reference", "--format", "csv", "-o", "reference.csv").succeeded()
    ours, theirs = (harness("best", what, "--details").succeeded().stdout for what in ("reference.csv", "reference"))
    assert ours.splitlines()[:4] == theirs.splitlines()[:4]


def test_a_complaint_after_a_field_of_several_lines_names_the_files_line(tmp_path: Path, wording: Wording) -> None:
    path = table(tmp_path / "own.csv", THROUGHPUT | {"note": '"two\nlines"'}, THROUGHPUT | {"devices": "0"})
    with wording("devices").raises(InvalidInput, HERE=tmp_path):
        published.read(path)


def test_the_published_figures_of_kernels_are_of_kernels_that_there_are_and_have_a_unit_and_limits() -> None:
    figures = tomllib.loads((published.FOLDER / "kernels.toml").read_text())["figure"]
    assert {each["kernel"] for each in figures} == {"stream", "matmul", "cg", "fft"} <= set(kernels.names())
    for each in figures:
        assert each["unit"] in ("GB/s", "Gflop/s", "times as fast") and {"low", "high"} & set(each)
        assert each.get("low", 0) <= each.get("high", float("inf"))
        assert len(each.get("devices", [])) == (2 if each["unit"] == "times as fast" else each["unit"] == "Gflop/s")
