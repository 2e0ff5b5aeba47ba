"""A kernel's description of itself: its sizes, the work that counts, and the time by which that is divided."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Mapping, Optional, Tuple

NUMBER = 4  # bytes: float32
BYTES_PER_S, FLOP_PER_S = "bytes/s", "flop/s"


@dataclass(frozen=True)
class Kernel:
    """A measurable operation; ``what`` describes its step. ``size(limit, ranks)`` is its largest size up to ``limit``.

    Such a size can be divided among so many ranks; where none is small enough, it is the smallest there is.
    ``work(size)`` counts: the rate is this / t. ``memory(size, ranks)`` is the bytes that a rank needs.

    A kernel that moves messages has a ``bus`` (see ``communication``). One without computes: its work is floating point
    operations. It takes ``processes``, ranks and servers, at the least. ``usual`` sizes are measured by default.

    ``messages`` of a size go one after another in a step, and the time t is that of one. Single steps are those of the
    rank ``steps_of``: the first, or the last one (-1). ``protocol`` has the fields of a spec whose usual values are others
    for this kernel. With ``own_times`` its body has ``own_times(steps)``: what a rank has timed by itself in the last so
    many steps.
    """

    summary: str
    size: Callable[[int, int], int]
    work: Callable[[int], float]
    memory: Callable[[int, int], float]
    bus: Optional[Callable[[int, int], float]] = None
    usual: Tuple[int, ...] = ()
    processes: int = 1
    steps_of: int = 0
    messages: int = 1
    protocol: Mapping[str, int] = field(default_factory=dict)
    own_times: bool = False

    @property
    def in_bytes(self) -> bool:
        """True if its sizes are those of messages."""
        return self.bus is not None

    @property
    def option(self) -> str:
        """The option of a command line that gives its sizes."""
        return "--bytes" if self.in_bytes else "--size"

    @property
    def unit(self) -> str:
        """The unit of its rate."""
        return BYTES_PER_S if self.in_bytes else FLOP_PER_S

    def sizes(self, limits: Iterable[int], ranks: int) -> Tuple[int, ...]:
        """The measured sizes for these limits, in rising order: each once, as several may become one."""
        return tuple(sorted({self.size(limit, ranks) for limit in limits}))


def communication(
    summary: str, bus: Callable[[int, int], float] = lambda ranks, servers: 1.0, slices: bool = False, **others: Any
) -> Kernel:
    """A kernel that moves messages of S bytes, its sizes, among n ranks. With ``slices`` each has a slice for each rank.

    Its algorithm bandwidth is S / t, its bus bandwidth ``bus(n, servers)`` × S / t (docs/kernels.md derives it).
    """

    def size(limit: int, ranks: int) -> int:
        unit = NUMBER * (ranks if slices else 1)
        return max(limit // unit, 1) * unit

    others.setdefault("memory", lambda size, ranks: 3.0 * size)
    others.setdefault("usual", tuple(1024 << doubled for doubled in range(17)))  # 1 KiB to 64 MiB
    return Kernel(summary, size=size, work=float, bus=bus, **others)
