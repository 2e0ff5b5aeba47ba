"""What kernels say of a network, as parameters of the scaling model."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import models
from harness.errors import InvalidInput
from harness.prediction import carried
from harness.prediction.basis import StartingPoint, chosen_basis
from harness.prediction.forecast import at
from harness.prediction.workload import Workload
from harness.results import Result
from tests.conftest import Harness
from tests.wording import Case, Wording, cases

RATE, MESSAGE_S = 1e8, 2e-4  # of a made network: bytes per second of a node, and what the smallest message takes
SMALL, LARGE = 1024, 1 << 22


def network(contention: float = 0.0, workers: int = 4) -> list[Result]:
    """Kernels as they would be measured where bytes and messages take their time and nothing else does."""
    made: list[Result] = []

    def add(kernel: str, backend: str, transport: str, ps: int, passes: float, messages: float, longer: float) -> None:
        for size in (SMALL, LARGE):
            seconds = (messages * MESSAGE_S if size == SMALL else passes * size / RATE) * longer
            fields: dict[str, Any] = {"size": size, "nodes": workers, "workers": workers, "ci95": 0.0}
            fields |= {"kernel": kernel, "backend": backend, "transport": transport, "ps": ps}
            options = {"ps_nodes": "shared"} if ps else {}
            made.append(Result(**fields, rate=size / seconds, options=options))

    add("allreduce", "pytorch", "mpi", 0, 2 * (workers - 1) / workers, 2 * (workers - 1) / workers, 1)
    for kernel in ("incast", "outcast"):
        add(kernel, "parameter_server", "grpc", 1, workers - 1, workers - 1, 1)
        crowded = 1 + contention * (1 - 1 / (workers - 1))
        add(kernel, "parameter_server", "grpc", workers, (workers - 1) / workers, workers - 1, crowded)
    return made


def typical(measured: list[Result], *asked: Any) -> dict[str, float]:
    return {name: prior.at(0.0) for name, prior in carried.priors(measured, *asked).items()}


def test_what_went_into_a_made_network_comes_out() -> None:
    of_both = {"throughput": RATE, "overhead": 0, "message": 0}
    of_servers = of_both | {"replica_overhead": 0, "contention": 0.4}
    servers = typical(network(contention=0.4), "parameter_server", "grpc", True, 1.0)
    assert servers == pytest.approx(of_servers)
    assert typical(network(), "pytorch", "mpi", False, 1.0) == pytest.approx(of_both)


def test_several_servers_on_a_node_say_nothing_of_one_that_is_alone() -> None:
    of_one = network()
    of_two = [replace(each, rate=2 * each.rate, options={"ps_per_node": 2}) for each in of_one]
    asked = ("parameter_server", "grpc", True, 1.0)
    assert typical([*of_two, *of_one], *asked) == typical(of_one, *asked)


def test_a_device_whose_time_is_dilated_sees_a_faster_network() -> None:
    found = typical(network(), "pytorch", "mpi", False, 16.0)
    assert found["throughput"] == pytest.approx(16 * RATE)


def test_a_backend_without_kernels_is_predicted_by_those_that_went_over_its_transport(wording: Wording) -> None:
    assert typical(network(), "caffe2", "mpi", False, 1.0)["throughput"] == pytest.approx(RATE)
    with wording("gloo").raises(InvalidInput):
        carried.priors(network(), "caffe2", "gloo", False, 1.0)


@pytest.mark.parametrize(("backend", "transport", "ps"), [("pytorch", "mpi", 0), ("parameter_server", "grpc", 1)])
def test_a_step_that_the_network_bounds_takes_its_bytes_at_the_measured_rate(
    backend: str, transport: str, ps: int
) -> None:
    what = Workload(backend, "resnet50", 4, 64)
    found = at(what, chosen_basis(what, StartingPoint(transport, "cpu", 1e6, network=network()), None), 8, ps)
    bytes_ = models.specification("resnet50").bytes
    passes = 2 * 7 if ps else 2 * 7 / 8
    assert found.step_s == pytest.approx(passes * bytes_ / RATE, rel=0.05)
    assert found.low < found.img_per_s < found.high < 1.5 * found.low


@cases
def test_a_folder_without_what_is_needed_and_a_record_without_the_model_are_refused(
    refused: Harness, tmp_path: Path, case: Case
) -> None:
    case.refused(refused(*case.words(HERE=tmp_path)), HERE=tmp_path)
