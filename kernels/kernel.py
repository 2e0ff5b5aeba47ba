"""What a kernel says of itself: what its sizes are, what of it counts, and what that is divided by."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Iterable, Mapping, Tuple

NUMBER = 4  # bytes: float32
BYTES_PER_S, FLOP_PER_S = "bytes/s", "flop/s"


@dataclass(frozen=True)
class Kernel:
    """``what`` says what a step does. It takes ``processes``, ranks and servers, at the least. ``usual`` sizes are measured
    by default.

    ``messages`` of a size go one after another in a step, and the time t is that of one. Single steps are those of the
    rank ``steps_of``: the first, or the last one (-1). ``protocol`` has the fields of a spec whose usual values are others
    for this kernel. With ``own_times`` its body has ``own_times(steps)``: what a rank has timed by itself in the last so
    many steps.
    """

    what: str
    processes: int = 1
    steps_of: int = 0
    messages: int = 1
    usual: Tuple[int, ...] = ()
    protocol: Mapping[str, int] = field(default_factory=dict)
    own_times: bool = False
    option = "--bytes"  # of a command line, which gives its sizes

    @property
    def in_bytes(self) -> bool:
        """Whether its sizes are those of messages."""
        return self.option == "--bytes"

    @property
    def unit(self) -> str:
        """Of its rate."""
        return BYTES_PER_S if self.in_bytes else FLOP_PER_S

    def size(self, wanted: int, ranks: int) -> int:
        """The largest size up to ``wanted`` that can be divided among so many ranks, or the smallest there is."""
        raise NotImplementedError

    def sizes(self, wanted: Iterable[int], ranks: int) -> Tuple[int, ...]:
        """The sizes that are measured where these are wanted, in rising order: each once, as several may become one."""
        return tuple(sorted({self.size(each, ranks) for each in wanted}))

    def work(self, size: int) -> float:
        """What counts of a size: the rate is this / t."""
        raise NotImplementedError

    def memory(self, size: int, ranks: int) -> float:
        """Bytes that a rank needs."""
        raise NotImplementedError


@dataclass(frozen=True)
class Communication(Kernel):
    """A kernel that moves messages of S bytes, its sizes, among n ranks.

    Its algorithm bandwidth is S / t, its bus bandwidth ``bus(n, servers)`` × S / t (docs/kernels.md derives it). With
    ``slices`` the message has a slice for each rank.
    """

    bus: Callable[[int, int], float] = lambda ranks, servers: 1.0
    slices: bool = False
    usual: Tuple[int, ...] = tuple(1024 << doubled for doubled in range(17))  # 1 KiB to 64 MiB

    def size(self, wanted: int, ranks: int) -> int:
        unit = NUMBER * (ranks if self.slices else 1)
        return max(wanted // unit, 1) * unit

    def work(self, size: int) -> float:
        return float(size)

    def memory(self, size: int, ranks: int) -> float:
        return 3.0 * size


@dataclass(frozen=True)
class Computation(Kernel):
    """A kernel that computes: of its sizes N ``flop`` says how many floating point operations count.

    A size is ``nearest(wanted, ranks)``: a multiple of the ranks, if nothing else is said. ``bytes_per_rank`` is what a
    rank holds of a size N among n ranks.
    """

    flop: Callable[[int], float] = float
    bytes_per_rank: Callable[[int, int], float] = lambda size, ranks: 0.0
    option = "--size"
    nearest: Callable[[int, int], int] = lambda wanted, ranks: max(wanted // ranks, 1) * ranks

    def size(self, wanted: int, ranks: int) -> int:
        return self.nearest(wanted, ranks)

    def work(self, size: int) -> float:
        return self.flop(size)

    def memory(self, size: int, ranks: int) -> float:
        return self.bytes_per_rank(size, ranks)
