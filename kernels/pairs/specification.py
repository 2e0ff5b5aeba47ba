"""In rounds of pairs every rank sends each other one S bytes, and times what it gets; before each it times a product."""

from harness.kernels.kernel import Communication


class Pairs(Communication):
    """A rank keeps what it gets from each other one, so that all of it can be checked."""

    def memory(self, size: int, ranks: int) -> float:
        return float(size) * (ranks + 2)


def rows(cuda: bool) -> int:
    """Of the square matrices of float64 that are multiplied: some milliseconds of a core, a hundred launches of a GPU."""
    return 2048 if cuda else 256


def flop(cuda: bool) -> float:
    """Of one product."""
    return 2.0 * rows(cuda) ** 3 - rows(cuda) ** 2


# A rank sends n - 1 messages. A rank's figure is its fastest of the steps, so that few of them are enough.
SPECIFICATION = Pairs(
    "each rank's message to each other one, pair by pair, and before it a product of two matrices",
    bus=lambda ranks, servers: float(ranks - 1),
    processes=2,
    usual=(1 << 20,),
    protocol={"warmup_steps": 1, "steps": 10, "repeats": 1},
    own_times=True,
)
