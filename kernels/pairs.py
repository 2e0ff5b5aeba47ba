"""Messages of S bytes from every rank to each other one, in rounds of pairs. A rank times each, and a product before it."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Optional

import numpy as np

from harness.kernels.kernel import NUMBER, communication
from harness.kernels.values import difference, drawn, message


def rows(cuda: bool) -> int:
    """Rows of the square matrices of float64 that are multiplied: milliseconds of a core, a hundred launches of a GPU."""
    return 2048 if cuda else 256


def flop(cuda: bool) -> float:
    """Operations of one product."""
    return 2.0 * rows(cuda) ** 3 - rows(cuda) ** 2


# A rank sends n - 1 messages. A rank's figure is its fastest of the steps, so that few of them are enough.
SPECIFICATION = communication(
    "each rank's message to each other one, pair by pair, and before it a product of two matrices",
    bus=lambda ranks, servers: float(ranks - 1),
    memory=lambda size, ranks: float(size) * (ranks + 2),  # what a rank gets from each other one is kept to be checked
    processes=2,
    usual=(1 << 20,),
    protocol={"warmup_steps": 1, "steps": 10, "repeats": 1},
    own_times=True,
)


def partners(rank: int, ranks: int) -> List[Optional[int]]:
    """The partner of a rank in each round, None where it pauses: the circle method, in which all pairs meet once.

    Of an even number of places all but the last stand in a circle; a rank is missing at the last one if there are as many
    rounds as ranks.
    """
    places = ranks + ranks % 2
    last, rounds = places - 1, places - 1
    met = []
    for number in range(rounds):
        if rank == last:
            partner = number * (places // 2) % rounds  # the place p for which 2p is the round's number
        else:
            partner = (number - rank) % rounds
            partner = last if partner == rank else partner
        met.append(partner if partner < ranks else None)
    return met


class Body:
    """One rank's part in messages of ``size`` bytes from every rank to every other one.

    It times each message that it gets: from the moment at which it asks for it, when the sender waits for nothing but that,
    to the moment at which it has all of it. A sender waits until the receiver has the message: a library's ``send``
    returns earlier, and the rest of its bytes would share the link with the next message.
    """

    def __init__(self, fabric: Any, size: int, seed: int) -> None:
        self._fabric, self._count, self._seed = fabric, size // NUMBER, seed
        self._partners = [each for each in partners(fabric.rank, fabric.size) if each is not None]
        self._mine = fabric.array(message(fabric.rank, self._count, seed))
        self._arrived: Dict[int, Any] = {
            each: fabric.array(np.zeros(self._count, np.float32)) for each in self._partners
        }
        self._ask, self._request = fabric.array(np.zeros(1, np.float32)), fabric.array(np.zeros(1, np.float32))
        self._factor = drawn(seed, fabric.rank, rows(fabric.cuda), rows(fabric.cuda))
        self._a = fabric.array(self._factor)
        self._products_s: List[float] = []
        self._received_s: List[List[float]] = []

    def step(self) -> None:
        received_s = [0.0] * self._fabric.size
        for partner in self._partners:
            self._multiply()
            if self._fabric.rank < partner:
                self._answer(partner)
                received_s[partner] = self._get(partner)
                self._fabric.send(self._ask, partner)
            else:
                received_s[partner] = self._get(partner)
                self._answer(partner)
                self._request = self._fabric.recv(self._request, partner)
        self._received_s.append(received_s)

    def own_times(self, steps: int) -> Dict[str, Any]:
        """This rank's times in the last so many steps, in seconds: of products, and of each rank's message to it."""
        products_s = self._products_s[-steps * len(self._partners) :]
        return {"products_s": products_s, "received_s": self._received_s[-steps:]}

    def problem(self) -> str:
        for rank, arrived in self._arrived.items():
            if wrong := difference(self._fabric.values(arrived), message(rank, self._count, self._seed)):
                return f"of rank {rank}'s message {wrong}"
        wrong = difference(self._fabric.values(self._product), self._factor @ self._factor)
        return f"of the product {wrong}" if wrong else ""

    def _multiply(self) -> None:
        self._fabric.synchronize()
        began = time.perf_counter()
        self._product = self._a @ self._a
        self._fabric.synchronize()
        self._products_s.append(time.perf_counter() - began)

    def _get(self, partner: int) -> float:
        """Get a message: once the partner says that it is there, ask for it, and take the time until it has arrived."""
        self._request = self._fabric.recv(self._request, partner)
        self._fabric.synchronize()
        began = time.perf_counter()
        self._fabric.send(self._ask, partner)
        self._arrived[partner] = self._fabric.recv(self._arrived[partner], partner)
        self._fabric.synchronize()
        return time.perf_counter() - began

    def _answer(self, partner: int) -> None:
        """Say that this rank is there, wait until it is asked, and send its message."""
        self._fabric.send(self._ask, partner)
        self._request = self._fabric.recv(self._request, partner)
        self._fabric.send(self._mine, partner)
