"""The nodes and links that are slow against the others, by the rule of docs/kernels.md: of the kernel ``pairs``."""

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from harness.core.statistics import MAD_TO_STDEV
from harness.records.kernel import KernelRank, KernelRecord, OwnTimes, SizeTimes
from harness.records.pairs import CheckedPairs, Slow, Slowness

SHARE = 0.75  # of what is usual: halfway to half
SPREADS = 3.0  # robust standard deviations below it
FEWEST = 4  # nodes: of three, a good one has as many slow pairs as good ones if another one is slow


def pairs(record: KernelRecord) -> CheckedPairs:
    """The rates of a completed record, and what of them is slow. Links are judged by the largest of the sizes."""
    from harness.kernels.pairs import flop  # here, so that commands that compute nothing answer at once

    places = _places(record)
    nodes = list(dict.fromkeys(places.values()))
    product_s: dict[int, float] = defaultdict(lambda: math.inf)
    received_s: dict[tuple[str, str], float] = defaultdict(lambda: math.inf)
    size = 0
    for rank in (rank for repeat in record.repeats for rank in repeat.ranks):
        of_largest, times = _of_largest(rank)
        receiver, size = places[rank.rank], of_largest.size
        product_s[rank.rank] = min(product_s[rank.rank], *times.products_s)
        for sender, each_s in enumerate(zip(*times.received_s, strict=True)):
            if (pair := (places[sender], receiver))[0] != receiver:
                received_s[pair] = min(received_s[pair], *each_s)
    # A node is as slow as the slowest of its ranks.
    work = flop(record.spec.device == "cuda")
    flop_per_s = [work / max(product_s[rank] for rank, place in places.items() if place == node) for node in nodes]
    bytes_per_s = [
        [size / received_s[sender, receiver] if sender != receiver else None for receiver in nodes] for sender in nodes
    ]
    unjudged, slow = _unjudged(record, len(nodes)), []
    # Nodes may be containers of one machine: one rank of each says which machine it reads the counters of.
    energies = [_of_largest(rank)[0].energy for rank in record.repeats[0].ranks]
    machines = [energy.machine for energy in energies if energy is not None]
    shared = len(set(machines)) < len(machines)
    if not unjudged:
        computes = [] if shared else slow_nodes("computes", nodes, flop_per_s)
        slow = [*computes, *slow_links(nodes, bytes_per_s)]
    return CheckedPairs(
        nodes=nodes, flop_per_s=flop_per_s, bytes_per_s=bytes_per_s, slow=slow, unjudged=unjudged, shared_cores=shared
    )


def slow_links(nodes: Sequence[str], bytes_per_s: Sequence[Sequence[float | None]]) -> list[Slow]:
    """The nodes that send slowly, or receive slowly, against the others, and then the pairs that are slow by themselves.

    The rate of a node is the median of its pairs. A pair is compared with the slower of the rates of its sender and its
    receiver: so a slow node's pairs are not named again.
    """
    sends = [median(rate for rate in row if rate is not None) for row in bytes_per_s]
    receives = [median(rate for rate in column if rate is not None) for column in zip(*bytes_per_s, strict=True)]
    links = [
        Slow(kind="pair", node=sender, other=receiver, rate=rate, usual=min(sent, received))
        for sender, sent, row in zip(nodes, sends, bytes_per_s, strict=True)
        for receiver, received, rate in zip(nodes, receives, row, strict=True)
        if rate is not None
    ]
    shares = [link.rate / link.usual for link in links]
    slow = [link for link, share in zip(links, shares, strict=True) if _is_slow(share, shares)]
    return [*slow_nodes("sends", nodes, sends), *slow_nodes("receives", nodes, receives), *slow]


def _unjudged(record: KernelRecord, nodes: int) -> str:
    if nodes < FEWEST:
        return f"with fewer than {FEWEST} nodes there is no saying which one is slow"
    if len({rank.host for repeat in record.repeats for rank in repeat.ranks}) == 1:
        return "all nodes are on one machine, and share its cores and memory"
    return ""


def slow_nodes(kind: Slowness, nodes: Sequence[str], rates: Sequence[float]) -> list[Slow]:
    """The nodes whose rate is low against the others'."""
    slow = []
    for number, (node, rate) in enumerate(zip(nodes, rates, strict=True)):
        others = [*rates[:number], *rates[number + 1 :]]
        if _is_slow(rate, others):
            slow.append(Slow(kind=kind, node=node, rate=rate, usual=median(others)))
    return slow


def _is_slow(rate: float, others: Sequence[float]) -> bool:
    """True if a rate is below ``SHARE`` of the others' median and ``SPREADS`` of their spread below it."""
    usual = median(others)
    spread = MAD_TO_STDEV * median(abs(other - usual) for other in others)
    return rate < SHARE * usual and rate < usual - SPREADS * spread


def _places(record: KernelRecord) -> dict[int, str]:
    """The name of each rank's node: its host, or its number where several nodes of the plan are on one host."""
    numbers = {each["rank"]: each["node"] for each in record.plan["processes"] if each["role"] == "worker"}
    hosts = {rank.rank: rank.host for rank in record.repeats[0].ranks}
    if len(set(hosts.values())) == len(set(numbers.values())):
        return dict(sorted(hosts.items()))
    return {rank: f"node {number}" for rank, number in sorted(numbers.items())}


def _of_largest(rank: KernelRank) -> tuple[SizeTimes, OwnTimes]:
    times = max(rank.sizes, key=lambda each: each.size)
    assert times.own
    return times, times.own
