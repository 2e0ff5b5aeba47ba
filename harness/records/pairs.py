"""The rates of nodes and their links by a check, and those that are slow against the others: data of a record."""

from typing import Literal

from harness.core.spec import Frozen

Slowness = Literal["computes", "sends", "receives", "pair"]


class Slow(Frozen):
    """A node that ``computes``, ``sends`` or ``receives`` slowly, or a ``pair``: the way from ``node`` to ``other``.

    ``rate`` and the ``usual`` rate of the others are floating point operations, or bytes, per second.
    """

    kind: Slowness
    node: str
    other: str = ""
    rate: float
    usual: float

    @property
    def sentence(self) -> str:
        """``sends at 0.013 GB/s, 51% of the others' 0.0255``, of ``node``."""
        share, usual = f"{self.rate / self.usual:.0%}", f"{self.usual / 1e9:.3g}"
        rate = f"{self.rate / 1e9:.3g} {'Gflop/s' if self.kind == 'computes' else 'GB/s'}"
        if self.kind == "pair":
            return f"sends {self.other} {rate}, {share} of the {usual} that both reach with others"
        return f"{self.kind} at {rate}, {share} of the others' {usual}"


class CheckedPairs(Frozen):
    """Each node's rate of arithmetic (flop/s), and that of the messages from each node (row) to each other one (bytes/s).

    A rate is that of the fastest of all steps; None from a node to itself. docs/kernels.md has the rule for ``slow``
    ones. ``unjudged`` says why nothing was compared, "" if all was. Where nodes are containers of one machine
    (``shared_cores``) their arithmetic was not.
    """

    nodes: list[str]
    flop_per_s: list[float]
    bytes_per_s: list[list[float | None]]
    slow: list[Slow]
    unjudged: str = ""
    shared_cores: bool = False


class Preflight(Frozen):
    """The check before a run: its backend and transport, and its result; ``problem`` says why there is none."""

    backend: str
    transport: str
    pairs: CheckedPairs | None
    problem: str = ""
