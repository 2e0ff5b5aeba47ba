"""predict, fit and explain as people call them: what they answer, and that bad input is one line and exit code 2."""

import json
import re
from itertools import chain
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest

import harness as harness_api
from harness import results
from harness.core.emulation import Kept
from harness.prediction import observations
from harness.records.measurement import Record
from tests import made
from tests.conftest import ROOT, Harness
from tests.scripts import script
from tests.wording import Case, Wording, cases

zero_shot = script("benchmarks/zero_shot.py")

DAINT = ("--site", "daint", "--model", "inception3")
SERVERS = (*DAINT, "--backend", "parameter_server")
HOROVOD = (*DAINT, "--backend", "horovod")
BY_HAND = ("--model", "inception3", "--backend", "horovod", "--single")
COLUMNS = (
    "source,system,framework,strategy,transport,model,batch_per_device,devices,devices_per_node,num_ps,data,"
    "img_per_s,stdev,note"
)


def strictly(text: str) -> Any:
    """JSON as everyone reads it: NaN and Infinity are Python's own."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def at(line: str) -> list[str]:
    return line.split()


# --- bad input ------------------------------------------------------------------------------------


@cases
def test_bad_input_is_one_line(harness: Harness, case: Case) -> None:
    case.refused(harness(*case.words()))


# --- predict --------------------------------------------------------------------------------------


def test_sizes_double_and_the_best_number_of_servers_is_told(harness: Harness) -> None:
    lines = harness("model", "predict", *SERVERS, "--nodes", "1..100").succeeded().stdout.splitlines()
    rows = [at(line) for line in lines[4:12]]
    assert [row[0] for row in rows] == ["1", "2", "4", "8", "16", "32", "64", "100"]
    assert all(1 <= int(row[2]) <= int(row[0]) for row in rows)


def test_a_prediction_says_what_it_was_made_from(harness: Harness) -> None:
    said = harness("model", "predict", *HOROVOD, "--transport", "nccl", "--nodes", "128").succeeded().stdout
    assert "one worker: measured, 148.2 img/s" in said
    assert "Horovod 0.16.0, allreduce over nccl" in said
    assert "not identified by those runs, and mostly assumed: overhead, message, beside" in said


def test_one_node_and_a_line_rate_are_enough_and_what_is_not_known_widens_the_interval(harness: Harness) -> None:
    little = (*BY_HAND[:2], "--single", "138", "--nodes", "8,128", "--json")
    told = {}
    for name, more in {
        "rate": ("--backend", "horovod", "--network", "9.5GB/s"),
        "bits": ("--backend", "horovod", "--network", "76 Gbit/s"),
        "slow": ("--backend", "horovod", "--network", "10Mbit/s"),
        "servers": ("--backend", "parameter_server", "--network", "9.5GB/s"),
        "fitted": ("--backend", "parameter_server", "--site", "daint"),
    }.items():
        single = () if name != "fitted" else ("--single", "138")
        arguments = little if name != "fitted" else (*BY_HAND[:2], *single, "--nodes", "8,128", "--json")
        told[name] = harness("model", "predict", *arguments, *more).succeeded().json
    assert told["rate"]["predictions"] == told["bits"]["predictions"]
    assert told["slow"]["predictions"][1]["img_per_s"] < 0.05 * told["rate"]["predictions"][1]["img_per_s"]
    widths = {name: one["predictions"][1]["high"] / one["predictions"][1]["low"] for name, one in told.items()}
    assert widths["fitted"] < 1.3 < 2 < widths["rate"] < widths["servers"]
    # What was measured on Daint is not outside what could be expected of its network.
    assert told["servers"]["predictions"][1]["low"] < 9219.7 < told["servers"]["predictions"][1]["high"]
    assumed = "nothing was measured on several nodes, so all else is assumed"
    assert any(assumed in line for line in told["rate"]["made_from"])


def test_measurements_that_contradict_the_law_say_so_in_the_first_line(harness: Harness, tmp_path: Path) -> None:
    """More workers, less throughput, and then more again: no law of ours does that."""
    rows = [
        f"mine,My cluster,TensorFlow 1.1.0,parameter_server,grpc,inception3,64,{workers},1,1,synthetic,{rate},,"
        for workers, rate in ((1, 100), (2, 120), (4, 390), (8, 300), (16, 1500), (32, 900))
    ]
    (tmp_path / "odd.csv").write_text("\n".join([COLUMNS, *rows]))
    predicted = ("model", "predict", "--from", "odd.csv", *SERVERS[2:], "--nodes", "64")
    explained = ("model", "explain", *predicted[2:], "--ps", "1")
    for command in (("model", "fit", "odd.csv"), predicted, explained):
        first = harness(*command).succeeded().stdout.splitlines()[0]
        assert first.startswith(
            "MISFIT: My cluster, TensorFlow 1.1.0, servers over grpc: the measurements contradict the law"
        )
        assert "χ²" in first and "p < 0.0001" in first
        assert ("computed with the most probable parameters" in first) == (command[1] != "fit")
    assert harness(*predicted, "--json").succeeded().json["warning"]
    assert harness("model", "fit", "odd.csv", "--json").succeeded().json["fits"][0]["misfit"]["contradiction"]


def test_two_lines_stand_beside_the_law(harness: Harness) -> None:
    told = strictly(
        harness("model", "fit", "reference:p2.xlarge", "--hold-out", "workers>32", "--json").succeeded().stdout
    )
    shown = harness("model", "fit", "reference:p2.xlarge", "--hold-out", "workers>32").succeeded().stdout
    (one,) = told["fits"]
    heading, _, line, *_ = shown.splitlines()
    assert heading.count("two lines") == 2
    assert f"{one['two_lines_mape']:.1%}" in line
    held = sum(abs(run["error"]) for run in one["held_out"]) / len(one["held_out"])
    assert 0.2 < held < one["two_lines_held_out_mape"] < 0.3
    assert f"{one['two_lines_held_out_mape']:.1%}" in line


def test_two_lines_stand_beside_every_prediction(harness: Harness) -> None:
    known = ("--single", "100", "--network", "1GB/s", "--model", "inception3", "--backend", "horovod")
    (one,) = harness("model", "predict", *known, "--nodes", "4", "--json").succeeded().json["predictions"]
    summed_s = 1.5 * 95.3e6 / (0.993 * 1e9)
    assert one["two_lines_s"] == pytest.approx(max(0.64, 0.3 * 0.64 + summed_s), rel=0.01)
    said = harness("model", "predict", *known, "--nodes", "4").succeeded().stdout
    assert "img/s by two lines" in said and "two lines: a link carries 0.9927 GB/s, the nominal rate" in said
    explained = harness("model", "explain", *known, "--nodes", "4", "--json").succeeded().json
    assert explained["two_lines_s"] == one["two_lines_s"]
    assert "two lines say" in harness("model", "explain", *known, "--nodes", "4").succeeded().stdout
    sizes = {"nodes": [4], "single": 100, "network": 1e9}
    frame = harness_api.predict("horovod", model="inception3", **sizes)  # type: ignore[arg-type]
    assert frame["two_lines_s"].tolist() == pytest.approx([one["two_lines_s"]])


def test_what_is_far_from_all_measurements_is_said_first(harness: Harness) -> None:
    far = (*HOROVOD, "--batch-size", "100000", "--nodes")
    words = "from 128 nodes to 10,000 and from 64 images per device to 100,000"
    for command in ("predict", "explain"):
        assert harness("model", command, *far, "10000").succeeded().stdout.startswith(f"EXTRAPOLATES {words}: ")
    (one,) = harness("model", "predict", *far, "10000", "--json").succeeded().json["predictions"]
    assert one["extrapolates"] == words
    assert "EXTRAPOLATES" not in harness("model", "predict", *HOROVOD, "--nodes", "1..512").succeeded().stdout


def test_json_is_json_and_has_intervals(harness: Harness) -> None:
    by_hand = ("--single", "100", "--network", "2GB/s", "--backend", "parameter_server")
    for start in (SERVERS, (*by_hand, "--model", "inception3")):
        told = strictly(harness("model", "predict", *start, "--nodes", "8,128", "--json").succeeded().stdout)
        assert [one["nodes"] for one in told["predictions"]] == [8, 128]
        explained = strictly(
            harness("model", "explain", *start, "--nodes", "128", "--ps", "116", "--json").succeeded().stdout
        )
        for one in (*told["predictions"], explained):
            assert one["low"] < one["img_per_s"] < one["high"]
    assert strictly(harness("model", "fit", "reference", "--hold-out", "workers=128", "--json").succeeded().stdout)[
        "fits"
    ]


def test_a_backend_without_kernels_for_a_device_is_predicted_by_its_exchange(harness: Harness) -> None:
    """Caffe2 trains on CPUs only here, and Piz Daint had GPUs. A simple net computes nothing while it sums."""
    asked = ("model", "predict", *DAINT, "--nodes", "128", "--json", "--backend")
    told = [harness(*asked, *backend).succeeded().json for backend in (["caffe2"], ["caffe2", "--net-type", "simple"])]
    assert "caffe2 runs on cpu only: its workers are taken to compute as fast as these" in told[0]["made_from"]
    dag, simple = (each["predictions"][0]["step_s"] for each in told)
    (fused,) = harness(*asked, "horovod:tensorflow:mpi").succeeded().json["predictions"]
    assert dag == pytest.approx(fused["step_s"], rel=0.05) and simple > 1.4 * dag


def test_every_number_of_servers_that_has_a_place_is_a_line(harness: Harness) -> None:
    lines = harness("model", "predict", *SERVERS, "--nodes", "2..3+1", "--ps", "1..3+1").succeeded().stdout.splitlines()
    shown = [f"{at(line)[0]} nodes, {at(line)[2]} PS" for line in lines[4:9]]
    assert shown == [f"{nodes} nodes, {ps} PS" for nodes in (2, 3) for ps in range(1, nodes + 1)]


def test_a_faster_worker_leaves_the_network_as_it_was_measured(harness: Harness) -> None:
    """--single of a system whose own was measured asks what would be, and must not change the fit."""
    usual, faster = (
        harness("model", "predict", *SERVERS, *more, "--nodes", "4,512", "--json").succeeded().json["predictions"]
        for more in ((), ("--single", "276.46"))
    )
    assert faster[0]["img_per_s"] > 1.8 * usual[0]["img_per_s"]  # of which overhead is a larger part now
    assert faster[1]["img_per_s"] == pytest.approx(usual[1]["img_per_s"], rel=0.02)  # the network binds


def test_a_network_measured_with_gpus_tells_of_backends_that_have_none(harness: Harness) -> None:
    """What a worker computes is another's; what nodes exchange is not."""
    caffe2 = ("model", "predict", "--site", "daint", "--backend", "caffe2", "--nodes", "2", "--single", "10")
    said = harness(*caffe2).succeeded().stdout
    assert "one worker: 10 img/s, as given" in said and "network: fitted to Piz Daint XC50 P100" in said


def test_where_only_efficiencies_are_known_they_do_not_depend_on_how_fast_a_worker_is(harness: Harness) -> None:
    cori = (
        "model",
        "predict",
        "--site",
        "cori",
        "--backend",
        "parameter_server",
        "--nodes",
        "512",
        "--ps",
        "64",
        "--json",
    )
    found = [harness(*cori, "--single", single) for single in ("1", "10", "100")]
    efficiencies = [one.succeeded().json["predictions"][0]["efficiency"] for one in found]
    assert efficiencies == pytest.approx([0.23] * 3, abs=0.03)
    assert "only efficiencies were published" in harness("model", "fit", "reference:Cori").succeeded().stdout


def test_efficiencies_predict_with_the_step_of_a_devices_file_which_may_be_far_off(harness: Harness) -> None:
    cori = ("model", "predict", "--from", "reference:Cori", "--model", "hep_cnn", "--backend", "parameter_server")
    cori = (*cori, "--nodes", "256", "--ps", "1")
    text = harness(*cori).succeeded().stdout
    assert "as it was measured: --batch-size 128" in text
    assert "assumed beforehand: 127 img/s, within a factor of 3 (knl, by Kurth et al." in text
    (assumed,), (given,) = (
        harness(*cori, "--json", *more).succeeded().json["predictions"] for more in ((), ("--single", "127"))
    )
    for one in (assumed, given):
        assert one["efficiency"] == pytest.approx(0.83, abs=0.05)  # published as more than 0.8
        assert one["low"] < one["img_per_s"] < one["high"]
    assert given["high"] / given["low"] < 1.3 < assumed["high"] / assumed["low"]


@pytest.mark.parametrize(("model", "single", "published"), [("inception3", "80", 0.9), ("vgg16", "30", 0.68)])
def test_models_of_which_nobody_has_a_figure_are_predicted_from_that_of_one(
    harness: Harness, model: str, single: str, published: float
) -> None:
    """Inception-v3, ResNet-101 and VGG-16 share a throughput; --single gives seconds to one of them, and so to all."""
    horovod = (
        "model",
        "predict",
        "--from",
        "reference:128 servers",
        "--backend",
        "horovod",
        "--model",
        model,
        "--nodes",
        "512",
    )
    (one,) = harness(*horovod, "--single", single, "--json").succeeded().json["predictions"]
    assert one["efficiency"] == pytest.approx(published, abs=0.01)


CORI_SECTION = (ROOT / "docs/scaling-model.md").read_text(encoding="utf-8").partition("\n## Three causes on Cori")[2]
CORI_COMMANDS = re.findall(r"^harness model (predict --single .*)$", CORI_SECTION.partition("\n## ")[0], re.M)
CORI_ROWS = re.findall(r"^\| [^|]+ \| (?:`(.*)`)? *\| (.*) \|$", CORI_SECTION.partition("\n## ")[0], re.M)


@pytest.mark.parametrize("column", range(3))
def test_the_table_of_three_causes_on_cori_is_what_the_law_predicts(harness: Harness, column: int) -> None:
    assert len(CORI_COMMANDS) == 3 and len(CORI_ROWS) == 7
    for more, cells in CORI_ROWS:
        options = dict(re.findall(r"(--\S+) (\S+)", f"{CORI_COMMANDS[column]} {more}"))
        if options["--backend"] == "multi_worker_mirrored":
            del options["--ps"]
        (one,) = harness("model", "predict", *chain(*options.items()), "--json").succeeded().json["predictions"]
        ends = [100 * one["efficiency"] * one[end] / one["img_per_s"] for end in ("img_per_s", "low", "high")]
        assert list(map(int, re.findall(r"\d+", cells.split(" | ")[column]))) == pytest.approx(ends, abs=1), more


def test_results_say_what_is_predicted_and_slow_rates_keep_their_digits(
    harness: Harness, tmp_path: Path, wording: Wording
) -> None:
    shape: dict[str, Any] = {"model": "pointwise", "batch_size": 1, "image_size": 32, "device": "cpu"}
    slow = [made.record("pytorch", n, [rate, 1.01 * rate], **shape) for n, rate in ((1, 9.0), (2, 2.41))]
    made.save(tmp_path / "runs", slow)
    predict = ("model", "predict", "--from", "runs", "--backend", "pytorch", "--nodes")
    said = harness(*predict, "1,4").succeeded().stdout
    assert said.startswith("pytorch, pointwise, 1 image per device and step\n")
    shown_shape = "--model pointwise --batch-size 1 --image-size 32 --devices-per-node 1 --device cpu"
    assert f"as it was measured: {shown_shape}" in said
    rows = [at(line) for line in said.splitlines()[4:6]]
    assert rows[0][2:4] == ["9.04", "100.0%"]  # no interval: of one worker nothing is predicted
    assert rows[0][-1] == "nothing"
    assert all(len(figure.replace(".", "")) == 3 for figure in (rows[1][2], rows[1][3], rows[1][5])), rows[1]
    assert "backward: network (" in said
    # What is said on the command line is not taken from the results.
    other = harness(*predict, "4", "--batch-size", "2").succeeded().stdout
    assert "2 images per device" in other and "scaled from 1 to 2 images" in other and "--batch-size" not in other
    wording("resnet50").refused(harness(*predict, "4", "--model", "resnet50"))


def test_where_nothing_waits_no_culprit_is_named(harness: Harness) -> None:
    arguments = ("model", "predict", "--backend", "horovod", "--single", "3", "--nodes", "1,4", "--network")
    fast = harness(*arguments, "9.5GB/s").succeeded().stdout.splitlines()
    assert [line.split()[-1] for line in fast[4:6]] == ["nothing", "nothing"]
    slow = harness(*arguments, "1Mbit/s").succeeded().stdout.splitlines()
    assert "backward: network (" in slow[5]


@pytest.mark.parametrize(("rate_alone", "mean_error"), [(False, 0.06), (True, 0.10)])
def test_what_was_published_lies_within_what_one_worker_and_a_link_predict(rate_alone: bool, mean_error: float) -> None:
    """Nothing of a system but a single worker's throughput and its links is given away."""
    groups, _ = observations.groups(results.load(["reference"]))
    points = [point for group in groups for point in zero_shot.points(group, rate_alone)]
    assert len(points) > 50 and fmean(point.inside for point in points) >= 0.85
    assert fmean(abs(point.error) for point in points) <= mean_error
    assert median(point.width for point in points) < 1.4


def test_mpi_uses_less_of_a_link_through_sockets_than_by_rdma() -> None:
    rates = {
        network: harness_api.predict("horovod", nodes=16, model="vgg16", single=150.0, network=network)
        .iloc[0]
        .img_per_s
        for network in ("rdma:40Gbit/s", "sockets:40Gbit/s", "40Gbit/s", 5e9)
    }
    assert rates["sockets:40Gbit/s"] < 0.6 * rates["rdma:40Gbit/s"]
    assert rates["sockets:40Gbit/s"] < rates["40Gbit/s"] == rates[5e9] < rates["rdma:40Gbit/s"]


def test_every_number_of_servers_that_was_asked_for_is_a_row_or_has_a_reason(harness: Harness) -> None:
    asked = ("model", "predict", *SERVERS, "--nodes", "64,128", "--ps", "32,128,192,256")
    told = harness(*asked, "--json").succeeded().json
    assert [(one["nodes"], one["ps"]) for one in told["predictions"]] == [(64, 32), (128, 32), (128, 128)]
    reasons = [
        "--ps 128, 192 and 256: at most 64, by the places on 64 nodes and the pieces of inception3",
        "--ps 192 and 256: at most 128, by the places on 128 nodes and the pieces of inception3",
    ]
    assert told["left_out"] == reasons
    assert all(reason in harness(*asked).succeeded().stdout for reason in reasons)
    more = harness_api.predict("parameter_server", nodes=8, ps="1..64+1", site="daint", model="inception3")
    assert len(more) == 8
    assert more.attrs["left_out"] == [
        "--ps 9, 10, 11, … and 64: at most 8, by the places on 8 nodes and the pieces of inception3"
    ]


# --- fit ------------------------------------------------------------------------------------------


def test_fit_tells_how_many_numbers_it_fitted_how_well_and_what_it_left_out(harness: Harness) -> None:
    told = strictly(harness("model", "fit", "reference", "--hold-out", "workers>32", "--json").succeeded().stdout)
    daint = next(one for one in told["fits"] if one["system"].startswith("Piz") and one["mechanism"] == "servers")
    assert 2 < daint["numbers"] < len(daint["parameters"])
    assert daint["misfit"]["p_value"] > 0.1 and daint["misfit"]["contradiction"] == ""
    assert daint["effective_draws"] >= 400 and daint["selected_on"] is True
    assert daint["two_lines_mape"] > daint["mape"]  # at the nominal rate, of which servers reach a quarter
    assert daint["parameters"]["throughput"]["identified"] and not daint["parameters"]["message"]["identified"]
    assert len(daint["runs"]) == 7
    assert daint["mape"] <= daint["left_one_out_mape"]
    assert [one["workers"] for one in daint["held_out"]] == [64, 128]
    assert any("image files" in line for line in told["left_out"])


def test_fit_takes_a_table_of_ones_own(harness: Harness, tmp_path: Path, wording: Wording) -> None:
    rows = [
        f"mine,My cluster,TensorFlow 1.1.0,parameter_server,grpc,inception3,64,{workers},1,{ps},synthetic,{rate},,"
        for workers, ps, rate in ((1, 1, 100), (4, 2, 380), (16, 4, 1400), (32, 8, 2100))
    ]
    (tmp_path / "mine.csv").write_text("\n".join([COLUMNS, *rows]))
    told = harness("model", "fit", "mine.csv", "--json").succeeded().json
    (one,) = told["fits"]
    assert (one["system"], len(one["runs"])) == ("My cluster", 3)
    said = harness(
        "model", "predict", "--from", "mine.csv", "--backend", "parameter-server", "--model", "inception3"
    ).succeeded()
    assert "one worker: measured, 100 img/s (My cluster" in said.stdout
    (tmp_path / "bad.csv").write_text("\n".join([COLUMNS, rows[0].replace("synthetic", "imaginary")]))
    wording("bad.csv").refused(harness("model", "fit", "bad.csv"))


def test_other_training_is_left_out_of_a_fit(harness: Harness, tmp_path: Path) -> None:
    runs = [
        made.record("horovod", 1, [100.0, 101.0]),
        made.record("horovod", 4, [390.0, 391.0]),
        made.record("horovod", 8, [999.0, 998.0], fp16_allreduce=True),
        made.record("parameter_server", 8, [888.0, 887.0], ps=2, sync="none"),
    ]
    made.save(tmp_path / "runs", runs)
    told = harness("model", "fit", "runs", "--json").succeeded().json
    assert [one["nodes"] for fit in told["fits"] for one in fit["runs"]] == [4]
    reasons = sorted(line.partition(": ")[2].partition(":")[0] for line in told["left_out"])
    assert reasons == ["fp16_allreduce=True", "sync=none"]


# --- explain --------------------------------------------------------------------------------------


def test_explain_names_the_server_the_tensor_and_what_would_help(harness: Harness) -> None:
    said = harness("model", "explain", *SERVERS, "--nodes", "128", "--ps", "116").succeeded().stdout
    assert "holds dense.kernel (8.2 MB): 127 workers pull and push 1.04 GB each way per step" in said
    assert "partitioning tensors to 1 MiB slices" in said


def test_a_record_is_explained_with_the_runs_beside_it(harness: Harness, tmp_path: Path) -> None:
    one, eight = made.record("parameter_server", 1, ps=1), made.record("parameter_server", 8, [400.0, 404.0], ps=2)
    folder = made.save(tmp_path / "runs", [one, eight])
    for path in (folder / eight.id, folder / eight.id / "record.json"):
        said = harness("model", "explain", str(path)).succeeded().stdout
        assert "parameter_server, inception3, 8 nodes, 2 PS" in said
        assert "measured 1.27 s" in said
        assert "one worker: measured, 100 img/s" in said
    told = strictly(harness("model", "explain", str(folder / eight.id), "--json").succeeded().stdout)
    assert told["measured_step_s"] == pytest.approx(8 * 64 / 402)
    assert told["binding"]["name"].startswith("PS ")
    alone = harness("model", "explain", str(folder / one.id)).succeeded().stdout
    assert alone.startswith("parameter_server, inception3, 1 node, 1 PS")


def test_a_record_alone_says_that_a_single_worker_is_missing(
    harness: Harness, tmp_path: Path, wording: Wording
) -> None:
    eight = made.record("parameter_server", 8, [400.0, 404.0], ps=2)
    folder = made.save(tmp_path / "alone", [eight])
    wording("alone").refused(harness("model", "explain", str(folder / eight.id)), RUN=folder / eight.id)
    given = harness("model", "explain", str(folder / eight.id), "--single", "60").succeeded().stdout
    assert "one worker: 60 img/s, as given" in given
    elsewhere = made.save(tmp_path / "elsewhere", [made.record("parameter_server", 1, ps=1)])
    found = harness("model", "explain", str(folder / eight.id), "--from", str(elsewhere)).succeeded().stdout
    assert "one worker: measured, 100 img/s" in found


def test_what_is_no_run_with_a_number_is_not_explained(harness: Harness, tmp_path: Path, wording: Wording) -> None:
    failed = made.record("parameter_server", 4, ps=2, status="failed")
    run = made.save(tmp_path / "runs", [failed, made.record("parameter_server", 8, ps=2)]) / failed.id
    (tmp_path / "empty").mkdir()
    wording("a run").refused(harness("model", "explain", str(run)), RUN=run)
    for path in ("runs", "empty"):
        wording(path).refused(harness("model", "explain", path))


# --- a run beside what was predicted of it ---------------------------------------------------------

MEASURED = ROOT / "results" / "experiments"
(ALONE,) = (MEASURED / "alone").glob("*-pytorch-inception3-n1-*")
NETWORK = MEASURED / "network"
HEALTHY = MEASURED / "steady" / "steady-8-links-2.25-dilation-32"
BEGUN = ("--single", str(ALONE), "--network", str(NETWORK))
EMULATED: dict[str, Any] = {"device": "emulated:p100", "dilation": 8, "batch_size": 64}
STEP_S = 64 / 136.4  # of one emulated device, which 4 steps of a made record take 8 times as long


def kept(computed: float = 1.0, link: float | None = 5e7) -> Kept:
    """Of a rank whose device computed so many times as long as it should, over a link of so many bytes/s."""
    times = {"late_sum_s": 0.0, "late_p99_s": 0.0, "stalled_s": 1.0, "computed_s": 4 * 8 * STEP_S * computed}
    return Kept(busy=[0.2], sent=1000, resent=0, link_bytes_per_s=link, **times)


def emulated(img_per_s: float, *ranks: Kept) -> Record:
    return made.record("pytorch", 4, [img_per_s], transport="gloo", kept=ranks, **EMULATED)


def explained(harness: Harness, folder: Path, record: Record, *more: str) -> Any:
    return (
        harness("model", "explain", str(made.save(folder, [record]) / record.id), *(more or BEGUN), "--json")
        .succeeded()
        .json
    )


def test_a_run_that_was_measured_on_good_nodes_is_inside_and_what_it_starts_from_says_emulated(
    harness: Harness,
) -> None:
    ran = HEALTHY.glob("*-pytorch-*/record.json")
    (record,) = (file.parent for file in ran if '"transport": "gloo"' in file.read_text())
    said = harness("model", "explain", str(record), *BEGUN).succeeded().stdout.splitlines()
    assert said[1] == "  measured 0.48 s, predicted 0.48 s (0.46 s to 0.51 s): inside"
    assert said[-3].endswith("as measured on emulated NVIDIA Tesla P100, its time dilated by 16")
    assert "as kernels over gloo say; a second of the device is 32 of theirs" in said[-2]
    predicted = (
        "model",
        "predict",
        "--backend",
        "pytorch",
        "--nodes",
        "4",
        "--single",
        str(ALONE),
        "--network",
        "1GB/s",
    )
    assert "img/s, as measured on emulated NVIDIA Tesla P100, its time dilated by 16" in harness(*predicted).stdout
    fitted = harness(
        "model", "predict", "--backend", "pytorch", "--nodes", "8", "--from", str(HEALTHY), "--single", str(ALONE)
    )
    assert "emulated NVIDIA Tesla P100 with links of 2.25 GB/s" in fitted.succeeded().stdout
    assert ", allreduce over gloo, its time dilated by 32\n" in fitted.stdout


def test_python_predicts_from_a_record_and_what_kernels_measured_as_the_command_does(harness: Harness) -> None:
    said = harness("model", "predict", "--backend", "pytorch", "--nodes", "4", *BEGUN, "--json").succeeded().json
    (of_command,) = said["predictions"]
    (row,) = harness_api.predict("pytorch", nodes=4, single=ALONE, network=str(NETWORK)).to_dict("records")
    assert all(row[name] == of_command[name] for name in ("nodes", "step_s", "img_per_s"))


@pytest.mark.parametrize(
    ("slow", "why"),
    [
        (kept(computed=1.2), "its device computed 0.563 s per step, the others' 0.469 s"),
        (kept(link=2.5e7), "its link carries 25 MB/s, the others' 50 MB/s"),
    ],
)
def test_a_run_that_is_slower_than_its_node_and_its_network_explain_names_who_was_late(
    harness: Harness, tmp_path: Path, slow: Kept, why: str
) -> None:
    record = emulated(4 * 64 / 0.65, kept(), kept(), slow, kept())
    found = explained(harness, tmp_path, record)
    low, high = found["predicted_step_interval_s"]
    assert low < found["step_s"] < high < found["measured_step_s"] == pytest.approx(0.65)
    assert not found["inside"] and found["beyond"] == pytest.approx(0.65 / high - 1)
    assert found["late"] == [{"rank": 2, "host": "nid00002", "why": why}]
    said = harness("model", "explain", str(tmp_path / record.id), *BEGUN).succeeded().stdout
    outside = f"outside, slower by {found['beyond']:.1%} than its node and its network explain"
    assert f"{outside}\n  rank 2 on nid00002: " in said


def test_a_run_that_is_faster_and_one_of_which_nobody_was_late_say_that(harness: Harness, tmp_path: Path) -> None:
    fast = emulated(4 * 64 / STEP_S, *[kept()] * 4)
    assert explained(harness, tmp_path / "fast", fast)["beyond"] < 0
    slow = emulated(4 * 64 / 0.65, *[kept()] * 4)
    assert explained(harness, tmp_path / "slow", slow)["late"] == []
    said = harness("model", "explain", str(tmp_path / "slow" / slow.id), *BEGUN).succeeded().stdout
    assert "no rank says that it was late; `harness run --preflight` compares nodes and links" in said


def test_one_worker_does_what_those_on_several_nodes_do(harness: Harness, tmp_path: Path) -> None:
    """On one machine a node alone has all cores: what it did says nothing of what half of them do."""
    shape = {"transport": "gloo", "site": None}
    alone = made.record("pytorch", 1, [200.0, 201.0], threads=24, **shape)
    several = [made.record("pytorch", n, [n * 99.0, n * 99.5], threads=12, **shape) for n in (2, 4)]
    made.save(tmp_path / "runs", [alone, *several])
    done = harness("model", "predict", "--from", "runs", "--backend", "pytorch", "--nodes", "2", "--json").succeeded()
    assert done.json["predictions"][0]["img_per_s"] == pytest.approx(198, rel=0.03)
    told = harness("model", "predict", "--from", "runs", "--backend", "pytorch", "--nodes", "2").succeeded().stdout
    assert "one worker: fitted" in told and "the worker that was measured alone has other threads" in told


def test_one_worker_is_of_the_same_device(harness: Harness, tmp_path: Path, wording: Wording) -> None:
    real = made.record("pytorch", 4, [99.0], batch_size=64)
    done = harness("model", "explain", str(made.save(tmp_path, [real]) / real.id), *BEGUN)
    wording("cpu").refused(done)
