"""The law of a step, by what anyone can check: bytes, limits, symmetries, and the same step event by event."""

import math
import random
from collections import defaultdict
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core.exchange import AllreduceExchange, ServerExchange, bytes_per_server, place
from harness.models import specification
from harness.prediction import forecast, parameters
from harness.prediction.forecast import Basis
from harness.prediction.law import Law, ModelProfile, profile
from harness.prediction.parameters import Parameters
from harness.prediction.workload import OwnOptions, Workload

STEP_S = 0.46
DAINT_LIKE = Parameters(throughput=2.4e9, overhead=0.02, replica_overhead=0.01, message=1e-6, token=1e-6)
MB = 1e6
MODEL = "inception3"
LARGEST = max(tensor.bytes for tensor in specification(MODEL).tensors)
TOTAL = sum(tensor.bytes for tensor in specification(MODEL).tensors)
SERVERS = Workload("parameter_server", MODEL, 64)
REPLICATED = Workload("distributed_replicated", MODEL, 64)
BASIS = Basis(DAINT_LIKE, STEP_S)


def with_options(what: Workload, **options: Any) -> Workload:
    return replace(what, options=tuple(options.items()))


def rate(what: Workload, nodes: int, ps: int, basis: Basis = BASIS) -> float:
    return forecast.at(what, basis, nodes, ps).img_per_s


# --- two lines, and far away ------------------------------------------------------------------------


def test_two_lines_of_servers_are_the_longer_of_a_pass_and_of_the_fullest_servers_bytes() -> None:
    held = max(bytes_per_server(place(specification(MODEL).tensors, 4, "greedy", 2**20), 4))
    law = SERVERS.law(4)
    for rate_, network_s in ((7 * held / 0.1, 0.1), (7 * held / 0.2, 0.2), (7 * held / 0.5, 0.5)):  # on 8 nodes
        hand_s = max(0.3 * STEP_S, network_s) + max(0.7 * STEP_S, network_s)
        assert law.two_lines_s(8, STEP_S, 0.3, rate_) == pytest.approx(hand_s, rel=1e-9)
    unordered = with_options(SERVERS, order="none").law(4)
    assert unordered.two_lines_s(8, STEP_S, 0.3, 7 * held / 0.1) == pytest.approx(STEP_S + 0.1, rel=1e-9)
    assert law.two_lines_s(1, STEP_S, 0.3, 1.0) == pytest.approx(STEP_S)  # nothing leaves the node


def test_two_lines_of_a_ring_hide_what_the_backward_pass_can() -> None:
    law = Workload("horovod", MODEL, 64).law(0)
    for summed_s, hand_s in ((0.1, STEP_S), (0.7 * STEP_S + 0.05, STEP_S + 0.05)):
        assert law.two_lines_s(4, STEP_S, 0.3, 1.5 * TOTAL / summed_s) == pytest.approx(hand_s, rel=1e-9)
    assert law.two_lines_s(1, STEP_S, 0.3, 1.0) == STEP_S


def test_two_lines_start_from_the_nominal_rate_or_else_from_the_rate_that_is_known() -> None:
    assert parameters.nominal_rate("Piz Daint XC50 P100") == pytest.approx(9.48e9 * 8948 / 9014)
    assert parameters.nominal_rate("emulated P100 with links of 2.5 GB/s") == pytest.approx(2.5e9 * 8948 / 9014)
    assert parameters.nominal_rate("My cluster") is None
    fitted, nominal = (forecast.at(SERVERS, replace(BASIS, rate=r), 128, 116).two_lines_s for r in (None, 9.4e9))
    assert fitted == pytest.approx(2 * 127 * LARGEST / 2.4e9, rel=1e-3)
    assert nominal == pytest.approx(0.3 * STEP_S + 0.7 * STEP_S)


@pytest.mark.parametrize(
    ("nodes", "batch", "far"),
    [
        (512, 64, []),
        (513, 64, ["from 128 nodes to 513"]),
        (1, 256, []),
        (1, 257, ["from 64 images per device to 257"]),
        (1, 8, []),
        (1, 7, ["from 32 images per device to 7"]),
        (10_000, 100_000, ["from 128 nodes to 10,000", "from 64 images per device to 100,000"]),
    ],
)
def test_more_than_four_times_what_was_measured_is_called_extrapolation(nodes: int, batch: int, far: list[str]) -> None:
    measured = replace(BASIS, nodes=128, batches=(32, 64))
    what = replace(SERVERS, batch_size=batch)
    assert forecast.at(what, measured, nodes, 1).extrapolates == " and ".join(far)
    assert forecast.at(what, BASIS, nodes, 1).extrapolates == ""  # of measurements nobody knows


# --- what bounds a step ---------------------------------------------------------------------------


def test_ps_holding_the_largest_tensor_bounds_the_step() -> None:
    tensors = specification(MODEL).tensors
    pieces = place(tensors, 116, "greedy", 2**20)
    holder = next(piece.ps for piece in pieces if piece.bytes == LARGEST)
    held = bytes_per_server(pieces, 116)
    # But for a beta it is alone on its server, which is the fullest all the same.
    assert held[holder] == max(held) == pytest.approx(LARGEST, rel=1e-3)
    assert LARGEST == 2048 * 1001 * 4

    predicted = forecast.at(SERVERS, BASIS, 128, 116)
    assert [bound.phase for bound in predicted.bounds] == ["forward", "backward"]
    for bound in predicted.bounds:
        assert (bound.tensor, bound.server, bound.name) == ("dense.kernel", holder, f"PS {holder}")
        assert bound.tensor_bytes == LARGEST
        assert bound.bytes == pytest.approx(
            127 * LARGEST, rel=1e-3
        )  # 128 workers, less the one on the server's own node
        # The bytes at the throughput, and one message for each worker; at most the pass that they wait for besides.
        wire_s = 127 * (LARGEST / 2.4e9 + 1e-6)
        assert wire_s <= bound.seconds < wire_s + STEP_S
    passes = sum(bound.seconds for bound in predicted.bounds)
    assert predicted.step_s == pytest.approx(passes + 0.02, rel=1e-12)


def test_a_step_that_the_network_cannot_slow_down_is_compute_and_overhead() -> None:
    infinite = replace(DAINT_LIKE, throughput=math.inf, message=0.0)
    several = [(SERVERS, 116), (SERVERS, 1), (SERVERS.sliced(), 40), (Workload("horovod", MODEL, 64), 0)]
    for what, ps in several:
        assert forecast.at(what, Basis(infinite, STEP_S), 128, ps).step_s == pytest.approx(STEP_S + 0.02, rel=1e-12)
        assert forecast.at(what, Basis(infinite, STEP_S), 128, ps).bounds[0].name == "compute"
    replicated = forecast.at(REPLICATED, Basis(infinite, STEP_S), 128, 116)
    assert replicated.step_s == pytest.approx(STEP_S + 8 * 0.01, rel=1e-12)  # once, and for each of 7 doublings


@pytest.mark.parametrize("what", [SERVERS, REPLICATED, Workload("horovod", MODEL, 64), Workload("pytorch", MODEL, 64)])
def test_one_worker_alone_waits_for_nothing(what: Workload) -> None:
    assert forecast.at(what, BASIS, 1, 1 if what.has_servers else 0).step_s == pytest.approx(STEP_S, rel=1e-12)


@pytest.mark.parametrize("what", [SERVERS, REPLICATED, SERVERS.sliced(), Workload("horovod", MODEL, 64)])
def test_more_nodes_never_shorten_a_step_and_a_faster_network_never_lengthens_it(what: Workload) -> None:
    ps = 8 if what.has_servers else 0
    sizes = np.arange(8, 600, 7)
    assert (np.diff(forecast.steps(what, BASIS, sizes, ps)) >= -1e-12).all()
    rates = [rate(what, 256, ps, Basis(replace(DAINT_LIKE, throughput=r), STEP_S)) for r in np.geomspace(1e8, 1e11, 30)]
    assert (np.diff(rates) >= -1e-9).all()


# --- servers --------------------------------------------------------------------------------------


def test_the_largest_tensor_is_a_floor_that_more_servers_do_not_lower() -> None:
    fullest = [max(SERVERS.held(ps)) for ps in range(1, 191)]
    assert fullest[0] == TOTAL
    assert min(fullest) == LARGEST
    # The floor is reached once, and then nothing is gained any more: servers hold next to nothing or one large tensor.
    first = fullest.index(LARGEST)
    assert all(one == LARGEST for one in fullest[first + 30 :])
    on_128 = [rate(SERVERS, 128, ps) for ps in (first + 1, 116, 128)]
    assert max(on_128) / min(on_128) < 1.02


def test_cutting_tensors_into_slices_beats_whole_ones_where_their_largest_binds() -> None:
    sliced = SERVERS.sliced()
    for nodes in (64, 128, 256, 512):
        whole, cut = (forecast.best(one, BASIS, [nodes])[0].img_per_s for one in (SERVERS, sliced))
        assert cut > whole
    at_128, at_512 = (
        forecast.best(sliced, BASIS, [nodes])[0].img_per_s / forecast.best(SERVERS, BASIS, [nodes])[0].img_per_s
        for nodes in (128, 512)
    )
    assert 1.3 < at_128 < at_512
    # On few nodes compute hides the network either way.
    assert rate(sliced, 8, 4) == pytest.approx(rate(SERVERS, 8, 4), rel=0.02)


def test_dealt_in_turn_even_numbers_of_servers_have_all_kernels_on_half_of_them() -> None:
    """InceptionV3 creates a kernel and a beta in turn, so every other server gets betas only."""
    held = {
        ps: bytes_per_server(place(specification(MODEL).tensors, ps, "round_robin", 2**20), ps) for ps in range(1, 13)
    }
    for even in (2, 4, 6, 8, 10, 12):
        light, heavy = sorted((sum(held[even][0::2]), sum(held[even][1::2])))
        assert light < 0.02 * heavy
    assert max(held[2]) > 0.99 * TOTAL
    # So an odd number is better than the next even one, and two servers are hardly better than one.
    for odd in (3, 5, 7):
        assert rate(REPLICATED, 128, odd) > rate(REPLICATED, 128, odd + 1)
    assert rate(REPLICATED, 128, 2) == pytest.approx(rate(REPLICATED, 128, 1), rel=0.02)


def test_a_server_beside_a_worker_serves_that_one_without_the_network() -> None:
    beside, apart = (with_options(SERVERS, ps_nodes=where) for where in ("shared", "dedicated"))
    for nodes in (2, 16, 128):
        shared, own = (forecast.bounds(what, BASIS, nodes, 1) for what in (beside, apart))
        for one, other in zip(shared, own, strict=True):
            if one.server >= 0:
                assert one.bytes * nodes == pytest.approx(other.bytes * (nodes - 1))
        assert rate(beside, nodes, 1) >= rate(apart, nodes, 1)
    # Beside workers there is room for as many servers as nodes; elsewhere for as many as there are pieces.
    assert beside.most_servers(4) == 4
    assert apart.most_servers(4) > 100
    assert forecast.steps(beside, BASIS, [4, 8], 8).tolist() == [math.inf, pytest.approx(rate_step(beside, 8, 8))]


def test_servers_and_workers_of_one_node_share_its_link() -> None:
    pairs = with_options(SERVERS, ps_per_node=2)
    alone = SERVERS.held(7)
    assert pairs.held(7) == [sum(alone[first : first + 2]) for first in (0, 2, 4, 6)]
    workers = replace(with_options(SERVERS, ps_per_node=2, workers_per_node=2), devices_per_node=2)
    network_bound = Basis(replace(DAINT_LIKE, throughput=1e7), STEP_S)
    for each, remote in ((pairs, 15), (workers, 30)):
        held = each.held(7)
        for bound in forecast.at(each, network_bound, 16, 7).bounds:
            assert bound.bytes == pytest.approx(remote * max(held), rel=1e-3)
            assert bound.name == f"PS node {held.index(max(held))}"
    assert (pairs.most_servers(4), pairs.most_servers(200)) == (8, SERVERS.most_servers(1000))
    assert forecast.steps(pairs, BASIS, [3, 4], 7).tolist() == [math.inf, pytest.approx(rate_step(pairs, 4, 7))]


def rate_step(what: Workload, nodes: int, ps: int) -> float:
    return forecast.at(what, BASIS, nodes, ps).step_s


def test_devices_of_one_node_exchange_together() -> None:
    """They sum their gradients before these leave the node: what crosses the network does not know how many there are."""
    for what, ps in ((SERVERS, 8), (REPLICATED, 8), (Workload("horovod", MODEL, 64), 0)):
        eight = replace(what, devices_per_node=8)
        one_each, eight_each = forecast.at(what, BASIS, 16, ps), forecast.at(eight, BASIS, 16, ps)
        assert eight_each.workers == 8 * one_each.workers
        assert eight_each.step_s == one_each.step_s
        assert eight_each.img_per_s == pytest.approx(8 * one_each.img_per_s)


def test_the_barriers_of_2017_send_a_token_from_each_worker_to_each_other() -> None:
    law, slow = SERVERS.law(8), replace(DAINT_LIKE, token=1e-4)
    assert isinstance(law.exchange, ServerExchange)
    without = float(law.seconds(128, 128, STEP_S, slow))
    for tokens, barriers in (
        ("none", 0.0),
        ("all_to_all", 1.0),
        ("all_to_all_per_piece", len(law.exchange.pieces) / 8),
    ):
        with_them = replace(law, exchange=replace(law.exchange, tokens=tokens))
        assert float(with_them.seconds(128, 128, STEP_S, slow)) - without == pytest.approx(barriers * 128 * 127 * 1e-4)


def test_slices_on_every_node_take_longer_than_their_bytes_and_whole_tensors_on_some_do_not() -> None:
    crowded = replace(DAINT_LIKE, throughput=2e7, overhead=0.0, contention=0.6)
    calm = replace(crowded, contention=0.0)

    def ratio(what: Workload, nodes: int, ps: int) -> float:
        law = what.law(ps)
        return float(law.seconds(nodes, nodes, STEP_S, crowded) / law.seconds(nodes, nodes, STEP_S, calm))

    # All but a little compute is network; of eight nodes seven exchange with every other.
    assert ratio(SERVERS.sliced(), 8, 8) == pytest.approx(1 + 0.6 * 6 / 7, rel=0.05)
    assert ratio(SERVERS.sliced(), 8, 8) > ratio(SERVERS.sliced(), 4, 4) > ratio(SERVERS.sliced(), 8, 4)
    assert ratio(SERVERS, 128, 116) == pytest.approx(1, abs=0.001)
    assert ratio(SERVERS, 8, 1) == ratio(SERVERS.sliced(), 2, 2) == 1  # one pair at a time


def test_parameters_that_come_in_no_order_hide_behind_no_compute() -> None:
    in_order, in_none = DAINT_LIKE, replace(DAINT_LIKE, ordered=0.0)
    law = SERVERS.law(2)
    pulled_s = 7 * (max(SERVERS.held(2)) / 2.4e9 + len(law.exchange.pieces) / 2 * 1e-6)  # type: ignore[union-attr]
    forward, backward, *_ = law.parts(8, 8, STEP_S, in_none)
    assert forward == pytest.approx(0.3 * STEP_S + pulled_s, rel=0.01)
    assert forward > law.parts(8, 8, STEP_S, in_order).forward
    assert backward == law.parts(8, 8, STEP_S, in_order).backward


def test_of_runs_that_say_their_order_it_is_not_guessed() -> None:
    for order, ordered in (("none", 0.0), ("forward", 1.0)):
        told = replace(SERVERS, options=(("order", order),))
        assert told.law(2).order_is_known
        assumed = SERVERS.law(2).parts(8, 8, STEP_S, replace(DAINT_LIKE, ordered=ordered))
        assert told.law(2).parts(8, 8, STEP_S, replace(DAINT_LIKE, ordered=1 - ordered)) == assumed
        assert not replace(told, as_in_2017=True).law(2).order_is_known
    assert not SERVERS.law(2).order_is_known  # as runs from before there was a choice
    assert REPLICATED.law(2).order_is_known  # there is nothing to be ordered


@pytest.mark.parametrize(("serial", "times"), [(0.0, 1.1), (0.5, 1.5), (1.0, 2.0)])
def test_gradients_that_share_a_link_let_parameters_come_back_late(serial: float, times: float) -> None:
    """In units of the time that one way takes: from little more than that to both ways, one after the other."""
    slow = Parameters(throughput=1e7, serial=serial)
    step = float(REPLICATED.law(1).seconds(8, 8, STEP_S, slow)) - STEP_S
    assert step / (7 * TOTAL / 1e7) == pytest.approx(times, abs=0.02)


# --- allreduce ------------------------------------------------------------------------------------


def test_a_buffer_of_no_size_holds_every_gradient_by_itself_the_last_layer_s_first() -> None:
    law = Workload("caffe2", MODEL, 64).law(0)
    assert law.buffers == tuple((tensor,) for tensor in reversed(range(len(specification(MODEL).tensors))))
    # Each costs a message, where a buffer costs one for all that is in it.
    dear = replace(DAINT_LIKE, throughput=math.inf, message=0.02)
    alone, together = (
        forecast.at(Workload(name, MODEL, 64), Basis(dear, STEP_S), 16, 0) for name in ("caffe2", "pytorch")
    )
    assert alone.step_s > 10 * together.step_s


def test_what_a_ring_costs_stops_growing_with_the_number_of_nodes() -> None:
    slow = Basis(replace(DAINT_LIKE, throughput=2e8, message=0.0), STEP_S)
    what = Workload("horovod", MODEL, 64)
    steps = forecast.steps(what, slow, [2, 4, 16, 256, 4096], 0)
    assert (np.diff(steps) > 0).all()
    assert steps[-1] == pytest.approx(steps[-2], rel=0.005)
    # In the end each node passes on twice the model, of which one pass of compute hides some.
    assert steps[-1] <= STEP_S + 0.02 + 2 * TOTAL / 2e8
    assert steps[-1] >= 2 * TOTAL / 2e8


def test_a_tree_costs_one_more_sum_with_every_doubling() -> None:
    tree = replace(DAINT_LIKE, throughput=2e8, message=0.0, tree=1.0)
    steps = forecast.steps(Workload("horovod", MODEL, 64), Basis(tree, STEP_S), [64, 128, 256, 512], 0)
    assert np.diff(steps) == pytest.approx([2 * TOTAL / 2e8] * 3, rel=0.2)


# --- event by event -------------------------------------------------------------------------------

CASES = 120


def cases() -> list[tuple[str, OwnOptions, int, int, Parameters]]:
    """Backend, options, servers, nodes and parameters, by chance but always the same."""
    chance = random.Random(2017)
    servers = list(product(("parameter_server", "distributed_replicated"), ("greedy", "round_robin", "partitioned")))
    made = []
    for number in range(CASES):
        p = Parameters(
            throughput=10 ** chance.uniform(7.5, 10.5),
            overhead=chance.uniform(0, 0.1),
            replica_overhead=chance.uniform(0, 0.1),
            message=chance.choice([0.0, 1e-6, 1e-4]),
            forward_share=chance.uniform(0.2, 0.45),
            contention=chance.choice([0.0, 0.7]),
            tree=chance.choice([0.0, 1.0]),
            switch_nodes=chance.choice([1, 4]),
        )
        if number % 4:
            backend, placement = chance.choice(servers)
            where = chance.choice(["shared", "dedicated"])
            size = chance.choice(["256KiB", "1MiB", "4MiB"])
            options = (("placement", placement), ("ps_nodes", where), ("slice_size", size))
            ps = chance.choice([1, 2, 3, 4, 8, 12, 40, 116])
            made.append((backend, options, ps, chance.randint(ps, 512), p))
        else:
            backend = chance.choice(["horovod", "pytorch", "multi_worker_mirrored", "caffe2"])
            made.append((backend, (), 0, chance.randint(1, 512), p))
    return made


@pytest.mark.parametrize("model", ["inception3", "resnet50"])
def test_the_law_is_what_the_queues_give_event_by_event(model: str) -> None:
    for backend, options, ps, nodes, p in cases():
        law, known = Workload(backend, model, 64, options=options).law(ps), profile(model)
        if isinstance(law.exchange, AllreduceExchange) and law.exchange.waits == "until_free":
            p = replace(p, message=0.0)  # one message is counted, though how many leave depends on the network
        seconds = float(law.seconds(nodes, nodes, STEP_S, p))
        case = (backend, options, ps, nodes, p)
        assert event_by_event(law, known, nodes, p) == pytest.approx(seconds, rel=1e-9), case


def event_by_event(law: Law, known: ModelProfile, nodes: int, p: Parameters) -> float:
    """When the step ends. Endpoints take one piece at a time, and a layer computes as soon as its parameters have come."""
    end = servers_end if isinstance(law.exchange, ServerExchange) else buffers_end
    more_s = p.replica_overhead * (1 + math.log2(nodes)) if law.copies_back else p.overhead
    return end(law, known, nodes, p) + (more_s if nodes > 1 else 0.0)


def servers_end(law: Law, known: ModelProfile, nodes: int, p: Parameters) -> float:
    assert isinstance(law.exchange, ServerExchange)
    forward_s, backward_s = p.forward_share * STEP_S, (1 - p.forward_share) * STEP_S
    left = dict(zip(known.names, known.left, strict=True))
    # Each piece passes its server's endpoint, and each worker's own.
    uses = [float(factor) for factor in law.factors(nodes, p)]
    passing = [
        (endpoint, left[piece.tensor], times * (piece.bytes / p.throughput + p.message))
        for piece in law.exchange.pieces
        for endpoint, times in zip((piece.ps, "worker"), uses, strict=True)
    ]
    computed_s, before = 0.0, 1.0
    if law.exchange.pulls == "before_forward":
        arrived: dict[object, float] = defaultdict(float)
        for endpoint, after, takes_s in passing:
            arrived[endpoint] += takes_s
            computed_s = max(computed_s + (before - after) * forward_s, arrived[endpoint])
            before = after
    turn = computed_s + before * forward_s
    pushed, back = defaultdict(lambda: turn), defaultdict(lambda: turn)
    for endpoint, after, takes_s in reversed(passing):
        pushed[endpoint] = max(pushed[endpoint], turn + after * backward_s) + takes_s
        back[endpoint] = max(back[endpoint], pushed[endpoint]) + takes_s
    return max(turn + backward_s, *(back if law.copies_back else pushed).values())


def buffers_end(law: Law, known: ModelProfile, nodes: int, p: Parameters) -> float:
    assert isinstance(law.exchange, AllreduceExchange)
    turn, waiting = p.forward_share * STEP_S, [list(buffer) for buffer in law.buffers]
    there = turn + known.left * (STEP_S - turn)  # when each gradient is
    free = turn
    while waiting:
        tensors = waiting.pop(0)
        start = max(free, float(there[tensors[-1]]))
        while law.exchange.waits == "until_free" and waiting and there[waiting[0][-1]] <= start:
            if known.bytes[tensors + waiting[0]].sum() > law.exchange.buffer_bytes:
                break
            tensors += waiting.pop(0)
        free = start + float(law.factors(nodes, p)[0]) * (known.bytes[tensors].sum() / p.throughput + p.message)
    return max(STEP_S, free)


def test_the_share_of_forward_is_that_of_the_device(tmp_path: Path) -> None:
    file = tmp_path / "device.toml"
    file.write_text(
        'description = "mine"\nforward_share = 0.4\n[resnet50]\nimg_per_s = 9\nbatch_size = 4\nsource = "me"\n'
    )
    assert [parameters.forward_share(name) for name in ("cuda", "cpu", "emulated:p100")] == [0.30, 0.37, 0.30]
    assert parameters.forward_share(f"emulated:{file}") == 0.4
    assert parameters.forward_share("emulated:no-longer-here.toml") == 0.30  # records outlive their files
