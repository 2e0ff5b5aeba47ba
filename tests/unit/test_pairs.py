"""Nodes by pairs: who meets whom, what a wrong message leads to, and what is called slow."""

import queue
import random
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from harness import kernels
from harness.analysis.slow import pairs as compared
from harness.analysis.slow import slow_links, slow_nodes
from harness.core.spec import RunSpec
from harness.kernels.pairs import flop, partners
from harness.records.kernel import KernelRank, KernelRecord, judge
from harness.records.pairs import Slow
from harness.report.text import kernels as texts
from harness.report.text.pairs import findings
from harness.worker.fabric import Arithmetic, Fabric
from tests.unit.test_kernels import recorded

STEPS, SIZE = 3, 1 << 20
Rate = Callable[[int, int], float]


@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 8, 13])
def test_every_rank_meets_every_other_one_once_and_one_at_a_time(ranks: int) -> None:
    met = [partners(rank, ranks) for rank in range(ranks)]
    assert {len(each) for each in met} == {ranks - 1 + ranks % 2}
    for rank, each in enumerate(met):
        assert sorted([rank, *(other for other in each if other is not None)]) == list(range(ranks))
    for round_ in zip(*met, strict=True):
        assert all(partner is None or round_[partner] == rank for rank, partner in enumerate(round_))


class Threads(Fabric):
    """One rank of a world of threads, whose messages wait until they are received; one of them may arrive wrong."""

    arithmetic = Arithmetic()

    def __init__(self, rank: int, size: int, mail: Any, wrong: float) -> None:
        self.rank, self.size, self._mail, self._wrong = rank, size, mail, wrong

    def array(self, values: np.ndarray) -> np.ndarray:
        return values.copy()

    def values(self, array: np.ndarray) -> np.ndarray:
        return array

    def send(self, array: np.ndarray, rank: int) -> None:
        self._mail[self.rank, rank].put(array.copy())

    def recv(self, array: np.ndarray, rank: int) -> np.ndarray:
        array[:] = self._mail[rank, self.rank].get(timeout=60)
        if (rank, self.rank) == (2, 1):
            array[-1] += self._wrong
        return array


@pytest.mark.parametrize("ranks", [3, 4])
@pytest.mark.parametrize(("wrong", "problem"), [(0.0, ""), (1.0, "of rank 2's message 1 of 256 numbers are wrong")])
def test_every_message_arrives_and_a_wrong_number_in_it_is_noticed(ranks: int, wrong: float, problem: str) -> None:
    mail: Any = defaultdict(queue.Queue)
    for sender in range(ranks):  # two threads that ask for a queue at once must not make two
        for receiver in range(ranks):
            _ = mail[sender, receiver]
    bodies = [kernels.body("pairs", 0)(Threads(rank, ranks, mail, wrong), 1024, seed=1) for rank in range(ranks)]

    def work(body: Any) -> None:
        for _ in range(STEPS + 1):
            body.step()

    with ThreadPoolExecutor(len(bodies)) as pool:
        list(pool.map(work, bodies))
    assert [body.problem() for body in bodies] == [problem if rank == 1 else "" for rank in range(ranks)]
    for rank, body in enumerate(bodies):
        timed = body.own_times(STEPS)
        assert len(timed["products_s"]) == STEPS * (ranks - 1)
        assert all((each_s > 0) == (sender != rank) for row in timed["received_s"] for sender, each_s in enumerate(row))


def test_a_wrong_product_is_noticed() -> None:
    body = kernels.body("pairs", 0)(Threads(0, 1, {}, 0.0), 1024, seed=1)
    body._multiply()
    assert body.problem() == ""
    body._product[3, 4] += 1
    assert body.problem() == "of the product 1 of 65536 numbers are wrong"


def rates(nodes: int, rate: Rate) -> list[list[float | None]]:
    return [[rate(i, j) if i != j else None for j in range(nodes)] for i in range(nodes)]


def noisy(rate: Rate, share: float = 0.05, seed: int = 1) -> Rate:
    """Each rate up to so much lower: what disturbs a message never makes it faster."""
    chance = random.Random(seed)
    return lambda sender, receiver: rate(sender, receiver) * (1 - share * chance.random())


def named(found: list[Slow]) -> list[tuple[str, str, str]]:
    return [(slow.kind, slow.node, slow.other) for slow in found]


NODES = [f"n{number}" for number in range(8)]


@pytest.mark.parametrize("seed", range(20))
def test_healthy_links_are_not_named(seed: int) -> None:
    assert slow_links(NODES, rates(8, noisy(lambda i, j: 1e9, 0.2, seed))) == []


def test_a_link_throttled_to_half_is_named_once_for_each_direction() -> None:
    found = slow_links(NODES, rates(8, noisy(lambda i, j: 0.5e9 if 3 in (i, j) else 1e9)))
    assert named(found) == [("sends", "n3", ""), ("receives", "n3", "")]
    assert found[0].rate / found[0].usual == pytest.approx(0.5, rel=0.05)


def test_a_link_that_is_slow_in_one_direction_is_named_for_that() -> None:
    assert named(slow_links(NODES, rates(8, noisy(lambda i, j: 0.5e9 if i == 3 else 1e9)))) == [("sends", "n3", "")]


def test_a_pair_that_is_slow_by_itself_is_named_beside_a_slow_node() -> None:
    def rate(sender: int, receiver: int) -> float:
        return 0.5e9 if 3 in (sender, receiver) or (sender, receiver) == (5, 6) else 1e9

    expected = [("sends", "n3", ""), ("receives", "n3", ""), ("pair", "n5", "n6")]
    assert named(slow_links(NODES, rates(8, noisy(rate)))) == expected


def test_two_groups_of_nodes_that_are_nearer_to_each_other_are_notslow_nodes() -> None:
    """Half of a node's pairs go through a switch more, as fast as four fifths."""
    assert slow_links(NODES, rates(8, noisy(lambda i, j: 1e9 if i // 4 == j // 4 else 0.8e9))) == []


def test_rates_that_differ_much_anyhow_name_nobody() -> None:
    spread = [1.0, 1.5, 0.6, 1.3, 0.8, 1.2, 0.7, 0.9]
    assert slow_nodes("computes", NODES, spread) == []
    rates = [1.0, 1.02, 0.99, 0.5, 1.01, 1.0, 0.98, 1.0]
    assert named(slow_nodes("computes", NODES, rates)) == [("computes", "n3", "")]


def spec(nodes: int) -> RunSpec:
    kernel = {"name": "pairs", "sizes": (SIZE,)}
    return RunSpec.validated(backend="mpi4py", transport="mpi", nodes=nodes, steps=STEPS, repeats=1, kernel=kernel)


def record(
    nodes: int,
    rate: Rate,
    hosts: Callable[[int], str] = "nid{}".format,
    per_node: int = 1,
    machines: Callable[[int], str] = "machine {}".format,
    product_s: Callable[[int], float] = lambda node: 1e-3,
) -> KernelRecord:
    """Of ranks whose messages have this rate, except in the first step, which is slow; by node, machines and products."""
    count = nodes * per_node

    def received_s(rank: int) -> list[list[float]]:
        row = [0.0 if sender == rank else SIZE / rate(sender, rank) for sender in range(count)]
        return [[10 * each_s for each_s in row], *[row] * (STEPS - 1)]

    def rank(number: int) -> KernelRank:
        node, place = divmod(number, per_node)
        own = {"products_s": [product_s(node)] * STEPS * (count - 1), "received_s": received_s(number)}
        reading = {"machine": machines(node), "counters": [], "missing": [], "unread": [], "interval_s": 3.0}
        marks = {"marks_s": [float(step) for step in range(STEPS + 1)], "finished_s": 3.0, "window_s": 3.0}
        times = {"size": SIZE, **marks, "problem": "", "own": own, "energy": reading if place == 0 else None}
        evidence = {"world_size": count, "transport": "MPICH"}
        return KernelRank(rank=number, host=hosts(node), sizes=[times], evidence=evidence)

    of = spec(nodes).model_copy(update={"devices_per_node": per_node})
    seats = [{"role": "worker", "rank": each, "node": each // per_node, "devices": 1} for each in range(count)]
    ranks = [rank(number) for number in range(count)]
    return recorded(of, [ranks], plan={"world_size": count, "processes": seats})


def test_a_rate_is_that_of_the_fastest_step() -> None:
    found = compared(record(4, lambda i, j: 1e9))
    assert found.nodes == ["nid0", "nid1", "nid2", "nid3"]
    assert found.flop_per_s == [pytest.approx(flop(cuda=False) / 1e-3)] * 4
    assert found.bytes_per_s[1][2] == pytest.approx(1e9) and found.bytes_per_s[1][1] is None
    (line,) = findings(found)
    assert line.startswith("no node and no link is slow against the others: messages 1 to 1 GB/s, arithmetic 33.5")


def test_ranks_of_a_node_share_its_link_and_are_not_paired_with_each_other() -> None:
    found = compared(record(4, lambda i, j: 0.5e9 if 2 in (i // 2, j // 2) else 1e9, per_node=2))
    assert found.nodes == ["nid0", "nid1", "nid2", "nid3"]
    assert findings(found) == [
        "warning: nid2 sends at 0.5 GB/s, 50% of the others' 1",
        "warning: nid2 receives at 0.5 GB/s, 50% of the others' 1",
    ]


def test_a_slow_processor_is_named_but_not_among_nodes_that_share_the_cores_of_a_machine() -> None:
    def slow(node: int) -> float:
        return 2e-3 if node == 1 else 1e-3

    own = compared(record(4, lambda i, j: 1e9, per_node=2, product_s=slow))
    assert named(own.slow) == [("computes", "nid1", "")] and not own.shared_cores
    shared = compared(record(4, lambda i, j: 1e9, product_s=slow, machines=lambda node: f"machine {node // 2}"))
    assert shared.slow == [] and shared.shared_cores
    (line,) = findings(shared)
    assert line.endswith("arithmetic 16.7 to 33.5 Gflop/s, not compared: nodes share a machine's cores")
    link = compared(record(4, lambda i, j: 0.5e9 if i == 1 else 1e9, product_s=slow, machines=lambda node: "one"))
    assert named(link.slow) == [("sends", "nid1", "")], "what is shaped for each of them is compared"


def test_the_page_of_the_network_names_what_is_slow_instead_of_a_table() -> None:
    shown = texts.network([record(4, lambda i, j: 0.5e9 if i == 1 else 1e9)]).splitlines()
    assert shown[0].startswith("nodes by pairs, over mpi of mpi4py: each rank's message to each other one")
    assert shown[1:] == ["", "warning: nid1 sends at 0.5 GB/s, 50% of the others' 1"]


def test_nodes_on_one_machine_and_few_nodes_are_not_compared() -> None:
    def slow(sender: int, receiver: int) -> float:
        return 0.5e9 if 2 in (sender, receiver) else 1e9

    here, few = compared(record(4, slow, hosts=lambda node: "here")), compared(record(3, slow))
    assert here.slow == few.slow == []
    assert here.nodes == ["node 0", "node 1", "node 2", "node 3"]
    assert findings(here)[0].startswith("nothing was compared: all nodes are on one machine")
    assert findings(few)[0].startswith("nothing was compared: with fewer than 4 nodes")


def test_times_that_are_missing_are_no_result() -> None:
    ranks = record(4, lambda i, j: 1e9).repeats[0].ranks
    times = ranks[1].sizes[0]
    assert times.own
    short = times.own.model_copy(update={"received_s": times.own.received_s[1:]})
    for own in (None, short):
        without = ranks[1].model_copy(update={"sizes": [times.model_copy(update={"own": own})]})
        failed = [check for check in judge(spec(4), [ranks[0], without, *ranks[2:]], 4) if not check.passed]
        assert [(check.name, check.detail) for check in failed] == [("timed", "times are missing of ranks [1]")]
