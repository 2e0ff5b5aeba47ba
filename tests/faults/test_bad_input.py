"""A request that cannot be carried out: one line that says what, where and what would be right; nothing is started."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import made
from tests.conftest import Finished, Harness

RUN = ["run", "--backend"]
PYTORCH = [*RUN, "pytorch"]
PS = [*RUN, "parameter_server"]
REPLICATED = [*RUN, "distributed_replicated"]
HOROVOD = [*RUN, "horovod"]
MIRRORED = [*RUN, "multi_worker_mirrored"]
CAFFE2 = [*RUN, "caffe2"]
JAX = [*RUN, "jax"]
TORCH_PS = [*RUN, "torch_parameter_server"]
STRATEGY = [*RUN, "parameter_server_strategy"]

# Arguments, and what the line must say.
WRONG: list[tuple[list[str], list[str]]] = [
    # counts
    ([*PS, "--ps", "5", "--nodes", "4"], ["--ps 5", "--nodes 4", "--ps 1..4", "--ps-nodes dedicated"]),
    ([*PS, "--ps", "0"], ["--ps 0", "greater than or equal to 1"]),
    ([*PS, "--ps", "many"], ["--ps many", "whole number"]),
    ([*PS, "--ps-per-node", "0"], ["--ps-per-node 0", "greater than or equal to 1"]),
    ([*REPLICATED, "--workers-per-node", "0"], ["--workers-per-node 0", "greater than or equal to 1"]),
    ([*TORCH_PS, "--workers-per-node", "2"], ["--devices-per-node 1", "give a multiple of 2"]),
    ([*PYTORCH, "--ps-per-node", "2"], ["--ps-per-node is an option of distributed_replicated, parameter_server"]),
    ([*PS, "--ps", "1000", "--ps-nodes", "dedicated"], ["--ps 1000", "use --ps 1..161"]),
    ([*PYTORCH, "--nodes", "0"], ["--nodes 0", "greater than or equal to 1"]),
    ([*PYTORCH, "--nodes", "-3"], ["--nodes -3", "greater than or equal to 1"]),
    ([*PYTORCH, "--nodes", "two"], ["--nodes two", "whole number"]),
    ([*PYTORCH, "--nodes", "1.5"], ["--nodes 1.5", "whole number"]),
    ([*PYTORCH, "--nodes", "1,2"], ["--nodes 1,2", "whole number"]),
    ([*PYTORCH, "--nodes", ""], ["--nodes ''", "must not be empty"]),
    ([*PYTORCH, "--nodes", "30000000"], ["--nodes 30000000", "less than or equal to 65536"]),
    (
        [*PYTORCH, "--nodes", "60000", "--devices-per-node", "1000"],
        ["--devices-per-node 1000", "at most 65536 workers"],
    ),
    (
        [*RUN, "parameter_server", "--order", "none", "--window", "1MiB"],
        ["--window 1MiB", "is for --order forward"],
    ),
    ([*PYTORCH, "--batch-size", "0"], ["--batch-size 0", "greater than or equal to 1"]),
    ([*PYTORCH, "--steps", "0"], ["--steps 0", "greater than or equal to 1"]),
    ([*PYTORCH, "--steps", "1e100"], ["--steps 1e100", "whole number"]),
    ([*PYTORCH, "--steps", "9" * 30], [f"--steps {'9' * 30}", "less than or equal to 1000000"]),
    ([*PYTORCH, "--warmup", "-1"], ["--warmup -1", "greater than or equal to 0"]),
    ([*PYTORCH, "--repeats", "0"], ["--repeats 0", "greater than or equal to 1"]),
    ([*PYTORCH, "--threads", "0"], ["--threads 0", "greater than or equal to 1"]),
    ([*PYTORCH, "--data-threads", "0"], ["--data-threads 0", "greater than or equal to 1"]),
    ([*PYTORCH, "--seed", "-1"], ["--seed -1", "greater than or equal to 0"]),
    ([*PYTORCH, "--image-size", "8"], ["--image-size 8", "greater than or equal to 16"]),
    ([*PYTORCH, "--image-size", "40", "--model", "inception3"], ["--image-size 40", "inception3 needs at least 75"]),
    # numbers that are none
    ([*PYTORCH, "--learning-rate", "nan"], ["--learning-rate nan", "must be"]),
    ([*PYTORCH, "--learning-rate", "inf"], ["--learning-rate inf", "finite number"]),
    ([*PYTORCH, "--learning-rate", "0"], ["--learning-rate 0", "greater than 0"]),
    ([*PYTORCH, "--timeout", "-1"], ["--timeout -1", "greater than 0"]),
    ([*PYTORCH, "--timeout", "inf"], ["--timeout inf", "finite number"]),
    ([*PYTORCH, "--timeout", "soon"], ["--timeout soon", "number"]),
    ([*PYTORCH, "--straggler-limit", "1"], ["--straggler-limit 1", "greater than 1"]),
    ([*PYTORCH, "--bucket-mb", "inf"], ["--bucket-mb inf", "finite number"]),
    # names
    (["run"], ["--backend is required", "harness list backends"]),
    ([*RUN, "mpi"], ["unknown backend 'mpi'", "parameter_server, parameter_server_strategy, pytorch"]),
    ([*RUN, ""], ["unknown backend ''", "parameter_server, parameter_server_strategy, pytorch"]),
    ([*RUN, "horovod:torch"], ["unknown backend 'horovod:torch'; give 'horovod', and", "--framework and --transport"]),
    ([*RUN, "../pytorch"], ["unknown backend '../pytorch'", "parameter_server, parameter_server_strategy, pytorch"]),
    ([*RUN, "one\ntwo"], ["unknown backend 'one two'", "parameter_server, parameter_server_strategy, pytorch"]),
    ([*PYTORCH, "--model", "vgg16"], ["--model vgg16", "known: hep_cnn, inception3", "resnet50"]),
    ([*PYTORCH, "--model", ""], ["--model ''"]),
    ([*PYTORCH, "--gpus", "2"], ["No such option '--gpus'"]),
    ([*PYTORCH, "stray"], ["unexpected extra argument (stray)"]),
    ([*PYTORCH, "--nodes"], ["--nodes", "requires an argument"]),
    ([*PYTORCH, "--ps", "2"], ["--ps is an option of distributed_replicated, parameter_server,", "not of pytorch"]),
    ([*PYTORCH, "--framework", "jax"], ["--framework jax", "pytorch supports torch"]),
    ([*PS, "--framework", "torch"], ["--framework torch", "parameter_server supports tensorflow"]),
    ([*PYTORCH, "--framework", ""], ["--framework ''", "must not be empty"]),
    (["frobnicate"], ["there is no command 'frobnicate'"]),
    # choices
    ([*PYTORCH, "--device", "tpu"], ["--device tpu", "'auto', 'cpu', 'cuda' or 'emulated:"]),
    ([*PYTORCH, "--precision", "fp8"], ["--precision fp8", "'fp32', 'tf32', 'amp' or 'fp16'"]),
    (
        [*PYTORCH, "--precision", "tf32", "--device", "cpu"],
        ["--precision tf32 needs --device cuda", "on CPUs use fp32"],
    ),
    ([*PS, "--transport", "mpi"], ["--transport mpi", "parameter_server on --device cpu supports grpc"]),
    ([*PYTORCH, "--transport", ""], ["--transport ''", "must not be empty"]),
    ([*PYTORCH, "--transport", "nccl", "--device", "cpu"], ["--transport nccl: pytorch on --device cpu", "gloo, mpi"]),
    ([*MIRRORED, "--transport", "nccl", "--device", "cpu"], ["--transport nccl: multi_worker_mirrored on", "grpc"]),
    ([*MIRRORED, "--pack-mb", "-1"], ["--pack-mb -1", "greater than or equal to 0"]),
    ([*HOROVOD, "--transport", "nccl", "--device", "cpu"], ["--transport nccl: horovod on", "mpi, gloo"]),
    ([*HOROVOD, "--framework", "keras"], ["--framework keras", "horovod supports tensorflow, torch"]),
    ([*HOROVOD, "--cycle-time-ms", "0"], ["--cycle-time-ms 0", "greater than 0"]),
    ([*HOROVOD, "--bucket-mb", "1"], ["--bucket-mb is an option of pytorch, not of horovod"]),
    ([*CAFFE2, "--transport", "grpc"], ["--transport grpc: caffe2 on --device cpu supports gloo, mpi"]),
    ([*CAFFE2, "--framework", "torch"], ["--framework torch", "caffe2 supports caffe2"]),
    ([*CAFFE2, "--precision", "amp"], ["--precision amp", "caffe2", "fp32"]),
    ([*JAX, "--transport", "mpi"], ["--transport mpi: jax on --device cpu supports gloo"]),
    ([*JAX, "--precision", "amp"], ["--precision amp: jax supports fp32, tf32"]),
    ([*CAFFE2, "--device", "cuda"], ["--device cuda", "caffe2", "cpu"]),
    ([*CAFFE2, "--mpi-operators", "openmpi"], ["--mpi-operators openmpi", "'auto', 'caffe2' or 'mpi4py'"]),
    ([*REPLICATED, "--transport", "mpi"], ["--transport mpi", "distributed_replicated on --device cpu supports grpc"]),
    ([*REPLICATED, "--ps", "3", "--nodes", "2"], ["--ps 3", "--nodes 2", "--ps 1..2", "--ps-nodes dedicated"]),
    (
        [*REPLICATED, "--sync", "none"],
        ["--sync is an option of parameter_server, parameter_server_strategy, torch_parameter_server, not of distr"],
    ),
    (
        [*TORCH_PS, "--transport", "grpc"],
        ["--transport grpc", "torch_parameter_server on --device cpu supports gloo, mpi"],
    ),
    ([*TORCH_PS, "--device", "cuda"], ["--device cuda", "torch_parameter_server supports cpu"]),
    ([*TORCH_PS, "--devices-per-node", "2"], ["--devices-per-node 2", "has one device", "--workers-per-node 2"]),
    ([*STRATEGY, "--devices-per-node", "2"], ["--devices-per-node 2", "has one device", "--workers-per-node 2"]),
    ([*STRATEGY, "--placement", "greedy"], ["--placement greedy", "'round_robin' or 'partitioned'"]),
    ([*STRATEGY, "--sync", "barrier"], ["--sync barrier", "'accumulate' or 'none'"]),
    ([*STRATEGY, "--precision", "amp"], ["--precision amp: parameter_server_strategy supports fp32"]),
    ([*TORCH_PS, "--sync", "barrier"], ["--sync barrier", "'accumulate' or 'none'"]),
    ([*TORCH_PS, "--order", "backward"], ["--order backward", "'none' or 'forward'"]),
    ([*TORCH_PS, "--ps", "3", "--nodes", "2"], ["--ps 3", "--nodes 2", "--ps 1..2", "--ps-nodes dedicated"]),
    ([*PS, "--placement", "diagonal"], ["--placement diagonal", "'greedy', 'round_robin' or 'partitioned'"]),
    ([*PS, "--ps-nodes", "some"], ["--ps-nodes some", "'shared' or 'dedicated'"]),
    ([*PS, "--sync", "sometimes"], ["--sync sometimes", "'accumulate', 'barrier' or 'none'"]),
    ([*PS, "--slice-size", "huge"], ["--slice-size huge", "512KiB, 1MiB or 4MB"]),
    ([*PS, "--slice-size", "9" * 400], ["--slice-size 999", "512KiB, 1MiB or 4MB"]),
    ([*PS, "--slice-size", "1B"], ["--slice-size 1B", "at least 1KiB"]),
    # ports
    ([*PYTORCH, "--port", "0"], ["--port", "0 is not in the range 1<=x<=65535"]),
    ([*PYTORCH, "--port", "-1"], ["--port", "-1 is not in the range"]),
    ([*PYTORCH, "--port", "70000"], ["--port", "70000 is not in the range"]),
    ([*PYTORCH, "--port", "65535", "--nodes", "2"], ["--port 65535", "the highest is 65535"]),
    ([*PYTORCH, "--port", "http"], ["--port", "'http' is not a valid integer"]),
    # paths
    ([*PYTORCH, "--data", "/does/not/exist"], ["--data", "/does/not/exist does not exist", "<class>/*.JPEG"]),
    ([*PYTORCH, "--data", "file"], ["--data", "file is not a folder", "<class>/*.JPEG"]),
    ([*PYTORCH, "--data", "empty"], ["--data", "no class folders in", "<class>/*.JPEG"]),
    ([*PYTORCH, "--data", "imageless"], ["--data", "no images", "<class>/*.JPEG"]),
    ([*PYTORCH, "--data", "single", "--nodes", "2"], ["--data", "1 images for 2 ranks"]),
    ([*PYTORCH, "--data", "three", "--model", "hep_cnn"], ["holds 3 classes", "a model of 3 classes takes 2"]),
    ([*PYTORCH, "--data", "incomplete"], ["--data", "lacks train-00001-of-00002", "1 of 2 shards"]),
    (
        [*PYTORCH, "--data", "damaged"],
        ["--data", "bad shard", "train-00000-of-00001: at byte 0: no TFRecord starts here"],
    ),
    ([*PYTORCH, "--data", ""], ["--data ''", "must not be empty"]),
    ([*PYTORCH, "--data", "x" * 5000], ["--data", "File name too long"]),
    ([*PYTORCH, "--env", "/nowhere"], ["no Python that runs for pytorch at /nowhere", "venv"]),
    ([*PYTORCH, "--env", "file"], ["no Python that runs for pytorch at file", "venv"]),
    ([*PYTORCH, "--env", ""], ["--env ''", "must not be empty"]),
    ([*PYTORCH, "--env", "x" * 5000], ["--env", "File name too long"]),
    ([*PYTORCH, "--output", "file"], ["--output", "/file", "Not a directory"]),
    ([*PYTORCH, "--output", "/proc/here"], ["--output /proc/here", "No such file or directory"]),
    ([*PYTORCH, "--output", ""], ["--output ''", "must not be empty"]),
    ([*PYTORCH, "--output", "x" * 5000], ["--output", "File name too long"]),
    # other commands
    (["measure", "--nodes", "1,two"], ["--nodes '1,two'", "such as 8, 1,2,4"]),
    (["measure", "--nodes", "0"], ["--nodes '0'", "such as 8, 1,2,4"]),
    (["measure", "--nodes", ","], ["--nodes ','", "such as 8, 1,2,4"]),
    (
        ["measure", "--backends", "pytorch,mpi"],
        ["unknown backend 'mpi'", "parameter_server, parameter_server_strategy, pytorch"],
    ),
    (["measure", "--backends", ""], ["--backends ''", "a list such as caffe2,"]),
    (["measure", "--backends", "pytorch", "--ps", "1"], ["--ps is an option of", "parameter_server"]),
    (["table"], ["Missing argument 'RESULTS...'"]),
    (["table", "/nowhere"], ["/nowhere", "no such file or folder"]),
    (["table", "/" + "a" * 5000], ["/aaa", "File name too long"]),
    (["table", "empty"], ["no record.json at or below empty"]),
    (["table", "file"], ["file: not a valid record"]),
    (["env", "path", "mpi"], ["mpi", "parameter_server, parameter_server_strategy, pytorch"]),
    (["env", "build", "mpi"], ["mpi", "parameter_server, parameter_server_strategy, pytorch"]),
    (["env", "check", "pytorch", "--env", "/nowhere"], ["no Python that runs for pytorch at /nowhere"]),
    (["data", "make", "imageless"], ["imageless is there already and no empty folder", "name a new one"]),
    (["data", "make", "file"], ["file is there already and no empty folder", "name a new one"]),
    (["data", "make", "new", "--images", "0"], ["0 images in 8 classes"]),
    (["data", "make", "new", "--width", "0"], ["--width", "1<=x<=4096"]),
    (["data", "make", "new", "--height", "100000"], ["--height", "1<=x<=4096"]),
    (["data", "make", "new", "--seed", "-1"], ["--seed", "-1 is not in the range"]),
    (["data", "convert", "single", "new"], ["Missing option '--shards'"]),
    (["data", "convert", "single", "new", "--shards", "0"], ["--shards", "1<=x<=99999"]),
    (["data", "convert", "single", "new", "--shards", "2"], ["--shards 2", "only 1 images in train"]),
    (["data", "convert", "single", "imageless", "--shards", "1"], ["imageless is not empty", "name a new folder"]),
    (["data", "convert", "single", "file/new", "--shards", "1"], ["file/new: cannot be written: Not a directory"]),
    (["data", "make", "file/new"], ["file/new: cannot be written: Not a directory"]),
    (["data", "convert", "imageless", "new", "--shards", "1"], ["no images", "ILSVRC2012_img_train.tar"]),
    (["data", "check", "imageless"], ["no shards such as train-00000-of-00016 in imageless", "no images"]),
    (["data", "check", "file"], ["file is not a folder"]),
    (["data", "check", "single", "--classes", "5"], ["--classes 5", "folders of images"]),
]


@pytest.fixture
def things(tmp_path: Path) -> Path:
    """A folder with a file, and data sets that are none."""
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    three = [f"three/{name}/one.jpg" for name in "abc"]
    for name in ("imageless/a/notes.txt", "single/a/one.jpg", *three):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    for name in ("incomplete/train-00000-of-00002", "damaged/train-00000-of-00001"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"not a TFRecord, though as long as one")
    return tmp_path


@pytest.mark.parametrize(("arguments", "said"), WRONG, ids=lambda value: " ".join(value)[:60].replace("\n", " "))
def test_a_wrong_request_is_refused_in_one_line(
    refused: Harness, things: Path, arguments: list[str], said: list[str]
) -> None:
    before = set(things.rglob("*"))
    refused_in_one_line(refused(*arguments), *said)
    made = set(things.rglob("*")) - before
    assert made <= {things / "runs"}, "nothing but an empty folder for runs may be there"


def test_cuda_without_a_gpu_is_refused(harness: Harness) -> None:
    done = harness(*PYTORCH, "--device", "cuda", CUDA_VISIBLE_DEVICES="")
    refused_in_one_line(done, "--device cuda", "0 GPUs", "--devices-per-node asks for 1")


@pytest.mark.parametrize(
    ("options", "missing"), [("", "torch"), ("-S", "numpy and torch")], ids=["no framework", "nothing"]
)
def test_a_python_without_the_packages_is_refused_before_anything_is_begun(
    harness: Harness, tmp_path: Path, options: str, missing: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {options} "$@"\n')
    python.chmod(0o755)
    done = harness(*PYTORCH, "--env", str(python))
    refused_in_one_line(done, f"{python} is a Python without {missing}: give --env PYTHON of one that has what pytorch")
    assert not (tmp_path / "runs").exists()
    harness(*PYTORCH, "--env", str(python), "--dry-run").succeeded()


def test_a_busy_port_is_refused_by_its_number(harness: Harness) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        refused_in_one_line(harness(*PYTORCH, "--port", str(port)), f"--port {port}", f"port {port} is in use")
        # … also when it is not the first one of the run
        refused_in_one_line(harness(*PYTORCH, "--nodes", "2", "--port", str(port - 1)), f"port {port} is in use")


@pytest.mark.parametrize(
    ("request_", "named", "command"),
    [
        ("pytorch", "pytorch", "pytorch"),
        ("parameter_server", "parameter_server", "parameter_server"),
        ("distributed_replicated", "distributed_replicated", "distributed_replicated"),
        ("multi_worker_mirrored", "multi_worker_mirrored", "multi_worker_mirrored"),
        ("horovod", "horovod with tensorflow", "horovod --framework tensorflow"),
        ("horovod --framework torch", "horovod with torch", "horovod --framework torch"),
        ("caffe2", "caffe2", "caffe2"),
        ("jax", "jax", "jax"),
        ("torch_parameter_server", "torch_parameter_server", "torch_parameter_server"),
        ("parameter_server_strategy", "parameter_server_strategy", "parameter_server_strategy"),
    ],
)
def test_a_missing_environment_is_refused_with_the_command_that_builds_it(
    harness: Harness, tmp_path: Path, request_: str, named: str, command: str
) -> None:
    done = harness("run", "--backend", *request_.split(), HARNESS_CACHE=str(tmp_path / "cache"))
    refused_in_one_line(done, f"the environment of {named} is not built", f"run `harness env build {command}`")
    assert list(tmp_path.iterdir()) == []


def test_a_comparison_checks_every_run_before_it_starts_one(harness: Harness, things: Path) -> None:
    done = harness("measure", "--nodes", "1,2", "--data", "single")
    refused_in_one_line(done, "--data", "1 images for 2 ranks")
    assert not (things / "runs").exists()


def test_output_that_cannot_be_written_is_one_line_too() -> None:
    for command in (["list", "backends"], [*PYTORCH, "--dry-run"], ["--help"]):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "harness", *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )
        assert (done.returncode, done.stderr) == (1, "harness: cannot write the output: No space left on device\n")


def test_what_an_encoding_has_no_characters_for_is_no_error(harness: Harness, tmp_path: Path) -> None:
    made.save(tmp_path / "plain", [made.record(nodes=2)])
    made.save(tmp_path / "mit ü", [made.record(nodes=4)])
    assert "pytorch      2  100.00" in harness("table", "plain", PYTHONIOENCODING="ascii").succeeded().stdout
    in_ascii = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = harness("table", ".", **in_ascii).succeeded()
    assert "pytorch      2  100.00" in done.stdout and "pytorch      4" not in done.stdout
    assert done.stderr.startswith("1 record was left out: ./mit \\udcc3\\udcbc/") and "LC_ALL=C.UTF-8" in done.stderr
    refused_in_one_line(harness("table", "mit ü", **in_ascii), "its path is no text in this locale")


def test_an_output_whose_name_no_record_could_hold_is_refused_before_anything_is_written(
    harness: Harness, things: Path
) -> None:
    before = {*things.iterdir()}
    refused_in_one_line(harness(*PYTORCH, "--output", os.fsdecode(b"runs-\xff")), "--output '/", "is no text in")
    assert {*things.iterdir()} == before


def refused_in_one_line(done: Finished, *said: str) -> None:
    assert (done.code, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith("harness: ") and done.stderr.endswith("\n") and done.stderr.count("\n") == 1
    assert all(text in done.stderr for text in said), done.stderr
