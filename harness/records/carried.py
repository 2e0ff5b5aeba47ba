"""The share of the bytes between a plan's nodes that network cards carried, and the part of RDMA in it.

An allreduce around a ring of n workers sends 2 (n − 1) / n times the gradients once from each node; servers send what each
worker elsewhere pulls, and workers what servers elsewhere hold (docs/scaling-model.md).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple, Protocol

from harness import models
from harness.core.spec import RunSpec

LEAST_BY_RDMA = 0.8  # of the planned bytes, where they are to go by RDMA
INTERFACE = "net/"


class Carrying(Protocol):
    """A rank with the bytes that its host's cards carried within the window, if it reports them."""

    @property
    def cards(self) -> Mapping[str, tuple[int, int]]: ...


class Carried(NamedTuple):
    """A card's bytes per step and node: ``sent`` ones, and their ``share`` of those planned."""

    card: str
    sent: float
    share: float

    def __str__(self) -> str:
        return f"{100 * self.share:.0f} % over {self.card.partition('/')[2]}"


def planned(spec: RunSpec, plan: Mapping[str, Any]) -> list[float]:
    """Bytes that leave each node per step, by the plan's node numbers. Zeros where nothing is known."""
    workers, servers = (
        [process["node"] for process in plan["processes"] if process["role"] == role] for role in ("worker", "ps")
    )
    nodes = range(1 + max(process["node"] for process in plan["processes"]))
    exchanged = plan.get("details", {}).get("servers")
    if not exchanged:
        gradients = models.specification(spec.model, spec.bytes_scale).bytes
        count = spec.workers
        return [2 * (count - 1) / count * gradients if len(nodes) > 1 else 0.0] * len(nodes)
    held = [sum(server["bytes"] for server in exchanged if servers[server["ps"]] == node) for node in nodes]
    here = [workers.count(node) for node in nodes]
    return [float(held[node] * (len(workers) - here[node]) + here[node] * (sum(held) - held[node])) for node in nodes]


def carried(spec: RunSpec, plan: Mapping[str, Any], repeats: Sequence[Sequence[Carrying]]) -> list[Carried]:
    """Each card with its bytes, the mean of nodes and repeats, most first; empty where ranks or cards do not tell."""
    if not any(rank.cards for ranks in repeats for rank in ranks):
        return []
    expected = planned(spec, plan)
    sent: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for ranks in repeats:
        for node, counts in _of_nodes(plan, ranks).items():
            for card, (bytes_sent, _) in counts.items() if expected[node] else ():
                sent[card].append((bytes_sent / spec.steps, bytes_sent / spec.steps / expected[node]))
    every = [Carried(card, *map(fmean, zip(*of_card, strict=True))) for card, of_card in sent.items()]
    return sorted(every, key=lambda each: -each.sent)


def by_rdma(spec: RunSpec, plan: Mapping[str, Any], ranks: Sequence[Carrying]) -> tuple[bool, str]:
    """The verdict on whether cards with RDMA carried the bytes between the nodes of a repeat's plan, and its words."""
    expected = planned(spec, plan)
    worst, words = 1.0, "no bytes are planned between nodes"
    for node, counts in _of_nodes(plan, ranks).items():
        if not expected[node]:
            continue
        cards = [card for card in counts if not card.startswith(INTERFACE)]
        share = sum(counts[card][0] for card in cards) / spec.steps / expected[node]
        if share <= worst:
            names = ", ".join(card.partition("/")[2] for card in cards)
            most = max(counts, key=lambda card: counts[card][0], default="")
            worst, words = share, f"{names} carried {100 * share:.0f} % of the planned bytes of node {node}"
            if not cards:
                words = f"node {node} has no card with RDMA"
            if share < LEAST_BY_RDMA and most.startswith(INTERFACE):
                words += f"; they fell back to TCP on {most.partition('/')[2]}"
    return worst >= LEAST_BY_RDMA, f"{words}, limit {100 * LEAST_BY_RDMA:.0f} %"


def _of_nodes(plan: Mapping[str, Any], ranks: Sequence[Carrying]) -> dict[int, Mapping[str, tuple[int, int]]]:
    """The counts of each node's cards, from its first rank."""
    counts: dict[int, Mapping[str, tuple[int, int]]] = {}
    for process, rank in zip(plan["processes"], ranks, strict=False):  # workers are first, by rank
        if rank.cards:
            counts.setdefault(process["node"], rank.cards)
    return counts
