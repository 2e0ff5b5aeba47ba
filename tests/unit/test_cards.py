"""What network cards count: trees of files as drivers of several makes have them, and what follows for a run."""

from pathlib import Path
from typing import NamedTuple

import pytest

from harness.core.spec import RunSpec
from harness.records import carried
from harness.running.prepare import Place
from harness.worker import cards

# Files below /sys/class, as seen on an Alps node (HPE Cassini), a cluster with InfiniBand, and an EC2 instance with EFA.
TREES = {
    "alps": {
        "cxi/cxi0/device/telemetry/hni_sts_tx_ok_octets": "1000@1764500000.123456789",
        "cxi/cxi0/device/telemetry/hni_sts_rx_ok_octets": "2000@1764500000.123456789",
        "net/hsn0/statistics/tx_bytes": "76",
        "net/hsn0/statistics/rx_bytes": "152",
        "net/hsn0/statistics/tx_packets": "1",
        "net/hsn0/statistics/rx_packets": "2",
    },
    "infiniband": {
        "infiniband/mlx5_0/ports/1/counters/port_xmit_data": "250",
        "infiniband/mlx5_0/ports/1/counters/port_rcv_data": "500",
        "infiniband/mlx5_0/ports/1/counters/port_xmit_packets": "7",
        "infiniband/mlx5_1/ports/1/counters/port_xmit_data": "1",
        "infiniband/mlx5_1/ports/1/counters/port_rcv_data": "2",
        "infiniband/mlx5_1/ports/2/counters/port_xmit_data": "10",
        "infiniband/mlx5_1/ports/2/counters/port_rcv_data": "20",
        "net/lo/statistics/tx_bytes": "9",
        "net/lo/statistics/rx_bytes": "9",
    },
    "efa": {
        "infiniband/rdmap0s6/ports/1/hw_counters/tx_bytes": "1000",
        "infiniband/rdmap0s6/ports/1/hw_counters/rx_bytes": "2000",
        "infiniband/rdmap0s6/ports/1/counters/port_xmit_data": "0",
        "infiniband/rdmap0s7/ports/1/counters/port_xmit_data": "N/A (no PMA)",
        "infiniband/rdmap0s7/ports/1/counters/port_rcv_data": "N/A (no PMA)",
        "net/eth0/statistics/tx_bytes": "76",
        "net/eth0/statistics/rx_bytes": "86",
        "net/eth0/statistics/tx_packets": "1",
        "net/eth0/statistics/rx_packets": "1",
    },
}
COUNTS = {
    "alps": {"cxi/cxi0": (1000, 2000), "net/hsn0": (10, 20)},
    "infiniband": {"infiniband/mlx5_0": (1000, 2000), "infiniband/mlx5_1": (44, 88)},
    "efa": {"infiniband/rdmap0s6": (1000, 2000), "net/eth0": (10, 20)},
}


@pytest.mark.parametrize("machine", TREES)
def test_bytes_are_read_as_each_driver_counts_them(machine: str, tmp_path: Path) -> None:
    for name, text in TREES[machine].items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert cards.read(tmp_path) == COUNTS[machine]


def test_between_two_looks_a_card_that_is_gone_does_not_count() -> None:
    assert cards.between({"net/a": (1, 2), "net/b": (1, 1)}, {"net/a": (4, 6), "net/c": (9, 9)}) == {"net/a": (3, 4)}


class Rank(NamedTuple):
    host: str
    cards: dict[str, tuple[int, int]]


def spec_and_plan(backend: str, **options: object) -> tuple[RunSpec, dict[str, object]]:
    spec = RunSpec.validated(backend=backend, nodes=2, steps=10, model="pointwise", options=options, device="cpu")
    run = Place(dry_run=True).prepare(spec)
    return run.spec, run.plan.as_dict()


@pytest.mark.parametrize(("backend", "options"), [("pytorch", {}), ("parameter_server", {"ps": 1})])
def test_shares_are_of_what_the_plan_has_between_nodes(backend: str, options: dict[str, object]) -> None:
    spec, plan = spec_and_plan(backend, **options)
    planned = carried.planned(spec, plan)
    parameters = 12.2e6  # of the model, about: one way between two nodes, whichever way they are exchanged
    assert planned == pytest.approx([parameters] * 2, rel=0.01)
    # Every rank tells of its whole host; the second worker of a node says the same again.
    counts = [{"cxi/cxi0": (int(9.8 * each), 0), "net/hsn0": (int(0.1 * each), 0)} for each in planned]
    ranks = [Rank("one", counts[0]), Rank("two", counts[1])]
    over_cxi, over_hsn = carried.carried(spec, plan, [ranks, ranks])
    assert str(over_cxi) == "98 % over cxi0" and over_hsn.share == pytest.approx(0.01, rel=0.01)
    assert carried.by_rdma(spec, plan, ranks) == (True, "cxi0 carried 98 % of the planned bytes of node 1, limit 80 %")


def test_a_run_that_fell_back_to_tcp_is_told_which_node_and_interface() -> None:
    spec, plan = spec_and_plan("pytorch")
    full = int(10 * carried.planned(spec, plan)[0])
    ranks = [
        Rank("one", {"infiniband/mlx5_0": (full, full), "net/eth0": (0, 0)}),
        Rank("two", {"infiniband/mlx5_0": (full // 50, 0), "net/eth0": (full, full)}),
    ]
    passed, told = carried.by_rdma(spec, plan, ranks)
    assert not passed
    assert told == "mlx5_0 carried 2 % of the planned bytes of node 1; they fell back to TCP on eth0, limit 80 %"
    alone = [Rank("one", {"net/eth0": (full, full)}), Rank("two", {"net/eth0": (full, full)})]
    told = "node 1 has no card with RDMA; they fell back to TCP on eth0, limit 80 %"
    assert carried.by_rdma(spec, plan, alone) == (False, told)
