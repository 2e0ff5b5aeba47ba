"""The law with a reader: a step is as long as reading its images, if nothing takes longer; and the figure of 2017."""

from dataclasses import replace

import pytest

import harness as api
from harness.errors import InvalidInput
from harness.prediction import forecast
from harness.prediction.forecast import Basis, Reader
from harness.prediction.parameters import Parameters
from harness.prediction.workload import Workload
from tests.conftest import Harness
from tests.scripts import script

figure = script("benchmarks/reading_2017.py")
STEP_S = 0.46
SERVERS = Workload("parameter_server", "inception3", 64)
ALONE = Basis(Parameters(throughput=2.4e9, overhead=0.02, replica_overhead=0.01, message=1e-6, token=1e-6), STEP_S)
BY_HAND = (
    "model",
    "predict",
    "--backend",
    "horovod",
    "--model",
    "inception3",
    "--single",
    "138",
    "--network",
    "9.5GB/s",
)


def reading(**rates: float) -> Basis:
    return replace(ALONE, reader=Reader(**rates))


def test_a_step_is_as_long_as_a_node_reads_or_as_all_nodes_read_whichever_is_longer() -> None:
    free = forecast.at(SERVERS, ALONE, 8, 2)
    assert (free.read_wait_s, free.read_by) == (0.0, None)
    for rates, read_s, by in (
        ({"node": 100.0}, 0.64, "node"),
        ({"shared": 800.0}, 0.64, "shared"),
        ({"node": 100.0, "shared": 400.0}, 1.28, "shared"),
        ({"node": 50.0, "shared": 800.0}, 1.28, "node"),
    ):
        bound = forecast.at(SERVERS, reading(**rates), 8, 2)
        assert bound.read_by == by
        assert bound.step_s == bound.law_s == bound.two_lines_s == pytest.approx(read_s)
        assert bound.img_per_s == pytest.approx(8 * 64 / read_s)
        assert bound.read_wait_s == pytest.approx(read_s - free.step_s)
    assert forecast.at(SERVERS, reading(node=1000.0), 8, 2).step_s == free.step_s


def test_a_nodes_devices_share_its_rate() -> None:
    two_devices = replace(SERVERS, devices_per_node=2)
    assert forecast.at(two_devices, reading(node=100.0), 4, 1).step_s == pytest.approx(2 * 64 / 100)


def test_where_reading_binds_no_more_servers_are_called_best_than_it_takes() -> None:
    fast, slow = (forecast.best(SERVERS, basis, [64])[0] for basis in (ALONE, reading(node=20.0)))
    assert slow.ps < fast.ps
    assert slow.img_per_s == pytest.approx(64 * 20.0)


def test_a_prediction_says_that_it_waits_for_data_by_which_rate_and_for_how_long(harness: Harness) -> None:
    bound = (*BY_HAND, "--nodes", "1,4", "--read-rate", "100img/s,shared:300img/s")
    shown = harness(*bound).succeeded().stdout
    assert "data: 100 img/s a node, 0.18 s of the 0.64 s step" in shown
    assert "data: 300 img/s for all nodes, " in shown
    assert "  data: 100 img/s a node and 300 img/s for all nodes, as given" in shown
    alone, four = harness(*bound, "--json").succeeded().json["predictions"]
    assert (alone["read_by"], four["read_by"]) == ("node", "shared")
    assert alone["read_wait_s"] == pytest.approx(64 / 100 - 64 / 138)
    explained = ("model", "explain", *BY_HAND[2:], "--nodes", "4", "--read-rate", "shared:300img/s")
    assert "reading bounds the step, which waits for images: 300 img/s" in harness(*explained).succeeded().stdout


def test_python_takes_a_number_or_what_the_command_takes() -> None:
    start = {"model": "inception3", "single": 138, "network": "9.5GB/s", "nodes": [1]}
    rates = [api.predict("horovod", read_rate=rate, **start).img_per_s[0] for rate in (100, "100img/s", "shared:100")]
    assert rates == pytest.approx([100.0] * 3)
    with pytest.raises(InvalidInput, match="--read-rate 'fast': must be a rate such as 180img/s a node"):
        api.predict("horovod", read_rate="fast", **start)


# --- the figure of 2017, as docs/scaling-model.md tells it ---------------------------------------------------------------


@pytest.mark.parametrize("system", figure.ONE_DEVICE)
def test_no_constant_rate_explains_the_overhead_of_2017(system: str) -> None:
    """What the largest run reads, and what a node alone reads, is more than any run with an overhead asks for."""
    every = figure.sizes(system)
    rates = {"node": figure.node_rate(every), "shared": figure.shared_rate(every)}
    costly = [size for size in every if size.overhead > figure.NOTABLE]
    assert [size.real.nodes for size in costly] == ([8, 16, 32, 64] if "Daint" in system else [32])
    assert all(0.104 <= size.overhead < 0.115 for size in costly)
    assert all(size.overhead < 0.02 for size in every if size not in costly)
    for reader in (Reader(**rates), *(Reader(**{name: rate}) for name, rate in rates.items())):
        assert [size.with_reader(reader) for size in costly] == [0.0] * len(costly)
    # All that were costly had servers and waited for compute; no other strategy was.
    assert {size.real.backend for size in costly} == {"parameter_server"}


@pytest.mark.parametrize("system", figure.ONE_DEVICE)
def test_the_network_hides_a_slower_worker_where_2017_saw_no_overhead_at_the_largest_sizes(system: str) -> None:
    every = figure.sizes(system)
    share = figure.slower(every)
    assert 0.14 < share < 0.147
    by_law = {size.real.nodes: figure.of_slower_workers(size, every, share) for size in every}
    for size in every:
        if size.overhead > figure.NOTABLE:
            assert 0.07 < by_law[size.real.nodes] < 0.11
        elif size.real.nodes >= 64:
            assert by_law[size.real.nodes] < 0.002 and size.overhead < 0.02


def test_a_node_of_eight_devices_reads_more_slowly_and_a_shared_file_system_does_not_explain_it() -> None:
    every = figure.sizes("EC2 p2.8xlarge K80")
    costly = [size for size in every if size.overhead > figure.NOTABLE]
    assert [size.real.workers for size in costly] == [8, 16, 32, 64, 128]
    assert [round(size.real.img_per_s / size.real.nodes) for size in costly] == [190, 194, 179, 179, 177]
    shared = Reader(shared=figure.shared_rate(every))
    assert [size.with_reader(shared) for size in costly[:-1]] == [0.0] * 4
    own = [size.with_reader(Reader(node=figure.node_rate(every))) for size in costly]
    assert all(0 <= size.overhead - by_law < 0.081 for size, by_law in zip(costly, own, strict=True))
