"""Emulated devices: how long what takes, what is refused, and when a run does not count."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from harness import models
from harness.core.backend import backend
from harness.core.emulation import Kept, emulation, kept_up, known, profile, remedy, short, system
from harness.core.plan import Allocation, Node, complete, launch_plan, with_options
from harness.core.spec import RunSpec
from harness.errors import InvalidInput
from harness.prediction.parameters import nominal_rate
from harness.worker.emulation import Stream, link_limit, units
from harness.worker.job import Job
from tests.wording import Case, cases

QUIET = Kept(
    **{"busy": [0.2] * 40, "late_sum_s": 0.01, "late_p99_s": 0.001, "stalled_s": 1.0, "computed_s": 1.0},
    **{"sent": 100_000, "resent": 0, "link_bytes_per_s": None},
)


def job(tmp_path: Path, **given: Any) -> Job:
    fields = {
        "backend": "pytorch",
        "model": "inception3",
        "nodes": 2,
        "device": "emulated:p100",
        "dilation": 20.0,
    } | given
    chosen = backend("pytorch")
    allocation = Allocation(tuple(Node(f"node{i}", "127.0.0.1") for i in range(2)), 1, 20000)
    spec = complete(with_options(RunSpec.validated(**fields), chosen), chosen, allocation)
    plan = launch_plan(spec, chosen, chosen.seats(spec), allocation, "python", str(tmp_path)).as_dict()
    return Job(tmp_path, 1, spec.model_dump(), plan, plan["processes"][1])


@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_the_layers_of_a_step_take_the_published_time_and_have_all_tensors(tmp_path: Path, scale: float) -> None:
    layers = units(job(tmp_path, bytes_scale=scale))
    forward_s, backward_s = sum(unit.forward_s for unit in layers), sum(unit.backward_s for unit in layers)
    assert forward_s + backward_s == pytest.approx(20 * 64 / 138.23)
    assert forward_s / (forward_s + backward_s) == pytest.approx(0.30)
    names = [name for unit in layers for name in unit.tensors]
    assert names == [tensor.name for tensor in models.specification("inception3").tensors]
    assert all(unit.tensors[0].endswith("kernel") for unit in layers)


def test_bytes_are_scaled_tensor_by_tensor_and_time_is_not() -> None:
    whole, tenth = models.specification("resnet50"), models.specification("resnet50", 0.1)
    assert tenth.bytes == pytest.approx(whole.bytes / 10, rel=1e-4)
    assert [tensor.name for tensor in tenth.tensors] == [tensor.name for tensor in whole.tensors]
    assert tenth.multiply_adds(224) == whole.multiply_adds(224)


def test_hep_cnn_on_knl_is_what_2_tflops_per_second_make_of_its_multiply_adds() -> None:
    step = profile("knl").steps["hep_cnn"]
    flop = 3 * 2 * sum(models.specification("hep_cnn").multiply_adds(224))  # forward, and backward twice as much
    assert step.img_per_s == pytest.approx(2e12 / flop, rel=0.01)
    assert step.batch_size == 128


def test_every_known_device_says_where_its_figures_are_from() -> None:
    assert {"a100", "h100", "k80", "knl", "p100"} <= set(known())
    for name in known():
        assert all(len(step.source) > 20 for step in profile(name).steps.values())


@cases
def test_what_cannot_be_emulated_is_refused(tmp_path: Path, case: Case) -> None:
    with case.raises(InvalidInput):
        job(tmp_path, **eval(f"dict({case.request})"))


@cases
def test_a_file_of_a_device_that_makes_no_sense_is_refused(tmp_path: Path, case: Case) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(case.text)
    with case.raises(InvalidInput, FILE=file):
        profile(str(file))


def test_a_measurement_without_an_emulated_device_has_the_spec_that_it_always_had() -> None:
    spec = RunSpec.validated(backend="pytorch")
    assert not {"dilation", "bytes_scale", "emulation"} & spec.model_dump().keys()
    assert emulation(spec) is None


@pytest.mark.parametrize(
    ("worse", "failed"),
    [
        ({}, []),
        ({"busy": [0.8] * 40}, ["machine_kept_up"]),
        ({"busy": [0.2] * 36 + [1.0] * 4}, ["machine_kept_up"]),  # a tenth of the time, hidden by the average
        ({"busy": []}, ["machine_kept_up"]),  # nobody has looked
        ({"late_sum_s": 0.3}, ["device_kept_time"]),
        ({"late_p99_s": 0.05}, ["device_kept_time"]),
        ({"resent": 500}, ["links_kept_segments"]),
    ],
)
def test_a_run_on_a_machine_that_could_not_keep_up_has_no_number(worse: dict[str, Any], failed: list[str]) -> None:
    found = kept_up([QUIET, QUIET.model_copy(update=worse)], [10.0, 10.0], dilation=20)
    assert [name for name, (passed, _) in found.items() if not passed] == failed
    assert bool(remedy(failed)) == bool(failed) and not remedy(["finite"])


def test_a_link_is_as_fast_as_what_it_carries_in_a_second_of_the_device() -> None:
    spec = RunSpec.validated(backend="pytorch", device="emulated:p100", dilation=20, bytes_scale=0.1)
    assert system(spec, "P100", 12.15e6) == "emulated P100 with 0.1 of the bytes and links of 2.43 GB/s"
    assert system(spec.model_copy(update={"bytes_scale": 1.0}), "P100", None) == "emulated P100"


def test_short_names_of_systems_leave_out_the_host_unless_it_tells_them_apart() -> None:
    long = [
        "virtual:normal, emulated NVIDIA Tesla P100 with 0.25 of the bytes and links of 2.25 GB/s",
        "virtual:normal, emulated NVIDIA Tesla P100 with links of 9.5 GB/s",
        "vm, emulated NVIDIA Tesla K80, links without a limit",
    ]
    assert list(short(long).values()) == [
        "emulated P100 with 0.25 of the bytes at 2.25 GB/s",
        "emulated P100 at 9.5 GB/s",
        "emulated K80, links without a limit",
    ]
    same = ["one:normal, emulated NVIDIA Tesla P100", "two:normal, emulated NVIDIA Tesla P100", "daint:gpu"]
    assert short(same) == {name: name for name in same}
    assert all(nominal_rate(new) == nominal_rate(name) for name, new in short(long).items())


def test_the_limit_of_a_link_is_not_that_of_a_peers_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``tc`` has printed it for a node with 15 peers: the classes come in no order."""
    (tmp_path / "tc").write_text(
        """#!/bin/sh
[ "$1" = qdisc ] && echo "qdisc htb 1: root refcnt 3 r2q 10 default 0x12 direct_packets_stat 0 direct_qlen 1000" && exit
echo "class htb 1:11 parent 1:1 leaf 11: prio 0 rate 27777Kbit ceil 1Gbit burst 8Kb cburst 122Kb"
echo "class htb 1:1 root rate 500Mbit ceil 500Mbit burst 122Kb cburst 122Kb"
echo "class htb 1:10 parent 1:1 leaf 10: prio 0 rate 27777Kbit ceil 1Gbit burst 8Kb cburst 122Kb"
"""
    )
    (tmp_path / "tc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert link_limit("eth0") == 62.5e6


def test_delays_of_a_stream_do_not_add_up_and_late_inputs_are_waited_for(tmp_path: Path) -> None:
    stream = Stream(job(tmp_path))
    began = stream.clock()
    for _ in range(50):
        stream.run(began, 0.002)
        time.sleep(0.0005)  # the host is late, which the device does not notice
    assert stream.clock() - began >= 50 * 0.002
    assert sum(stream.stalls_s) == 0
    stream.run(
        began + 50 * 0.002 + 0.05, 0.001
    )  # 50 ms after the deadline of the work before it, however late it is now
    assert sum(stream.stalls_s) == pytest.approx(0.05)
    assert stream.computed_s >= 50 * 0.002 + 0.001
    assert stream.gradient_factor == pytest.approx(4 / 3)  # the second of two devices
