"""Which server holds what: the three strategies, and the floor that whole tensors set."""

import pytest

from harness import models
from harness.backends.parameter_server.backend import asked_after
from harness.core import exchange
from harness.models.layers import Tensor

INCEPTION3 = models.specification("inception3")
RESNET50 = models.specification("resnet50")
MIB = 2**20


def tensors(*elements: int) -> list[Tensor]:
    return [Tensor(f"t{i}", (count,), "zeros") for i, count in enumerate(elements)]


def servers(pieces: list[exchange.Piece]) -> list[int]:
    return [piece.ps for piece in pieces]


def test_round_robin_deals_tensors_in_creation_order() -> None:
    assert servers(exchange.place(tensors(5, 1, 9, 2, 2), 3, "round_robin", MIB)) == [0, 1, 2, 0, 1]


def test_greedy_gives_each_tensor_to_the_emptiest_server_and_the_first_of_equals() -> None:
    assert servers(exchange.place(tensors(5, 1, 1, 9, 2), 3, "greedy", MIB)) == [0, 1, 2, 1, 2]


def test_partitioned_cuts_every_tensor_into_slices_of_at_most_the_given_size() -> None:
    pieces = exchange.place(INCEPTION3.tensors, 7, "partitioned", MIB)
    assert max(piece.bytes for piece in pieces) <= MIB


@pytest.mark.parametrize("strategy", ("greedy", "round_robin", "partitioned"))
@pytest.mark.parametrize("count", [1, 2, 3, 8, 40, 116])
@pytest.mark.parametrize("model", [INCEPTION3, RESNET50], ids=lambda model: model.name)
def test_every_element_is_held_exactly_once(strategy: str, count: int, model: models.ModelSpecification) -> None:
    pieces = exchange.place(model.tensors, count, strategy, MIB)
    for tensor in model.tensors:
        own = [piece for piece in pieces if piece.tensor == tensor.name]
        assert [piece.begin for piece in own] == [0, *(piece.end for piece in own[:-1])]
        assert own[-1].end == tensor.elements
    assert sum(exchange.bytes_per_server(pieces, count)) == model.bytes


@pytest.mark.parametrize("strategy", ["greedy", "round_robin"])
@pytest.mark.parametrize("count", [12, 40, 116])
def test_whole_tensors_keep_the_fullest_server_above_the_largest_tensor(strategy: str, count: int) -> None:
    held = exchange.bytes_per_server(exchange.place(INCEPTION3.tensors, count, strategy, MIB), count)
    assert max(held) >= max(tensor.bytes for tensor in INCEPTION3.tensors)


def test_slices_let_116_servers_share_evenly() -> None:
    held = exchange.bytes_per_server(exchange.place(INCEPTION3.tensors, 116, "partitioned", MIB // 4), 116)
    assert max(held) < 1.2 * INCEPTION3.bytes / 116


def test_round_robin_over_an_even_number_of_servers_puts_all_kernels_of_inception3_on_half_of_them() -> None:
    """InceptionV3's tensors alternate kernel, beta: two servers hold 95.2 MB and next to nothing, three share."""
    two = exchange.bytes_per_server(exchange.place(INCEPTION3.tensors, 2, "round_robin", MIB), 2)
    three = exchange.bytes_per_server(exchange.place(INCEPTION3.tensors, 3, "round_robin", MIB), 3)
    assert max(two) > 0.99 * INCEPTION3.bytes
    assert max(three) < 0.4 * INCEPTION3.bytes


def test_of_each_server_only_so_many_bytes_are_asked_for_at_once_or_one_piece() -> None:
    pieces = exchange.place(tensors(100, 100, 300, 100, 900, 100, 100), 1, "greedy", MIB)
    assert asked_after(pieces, "2000B") == [None, None, None, 0, 3, 4, 4]
    assert asked_after(pieces, "2000B", bytes_scale=0.25) == [None, 0, 1, 2, 3, 4, 5]


def test_each_server_has_a_window_of_its_own() -> None:
    pieces = exchange.place(tensors(*[1] * 8), 2, "round_robin", MIB)
    assert asked_after(pieces, "8B") == [None, None, None, None, 0, 1, 2, 3]
