"""What else could explain the published scaling: the law of `harness fit` beside variants of it, in one table.

    python benchmarks/law_variants.py

Every variant is fitted to the same published results: to all of them, and to those with at most 32 workers only. A variant
that does not do better where it was not fitted, or needs more numbers for it, is not in the law.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from harness import results
from harness.exchange import ServerExchange
from harness.placement import Piece
from harness.predict import fitting, parameters
from harness.predict.fitting import tested
from harness.predict.law import Law, Phase, law
from harness.predict.observations import Group, groups
from harness.predict.profile import profile
from harness.report.table import table

MOST_FITTED = 32  # workers
GPU = parameters.FORWARD_SHARE["cuda"]


class Stragglers(Law):
    """The step waits for the slowest of W workers with exponential delays: on average 1 + … + 1/W times the mean delay.

    The cost of a message, which the results say little about, is put to use as the mean delay: 10 ms for every µs.
    """

    def tokens(self, nodes: Any) -> Any:
        """Hundredths of a second per µs."""
        counts = np.asarray(nodes)
        return 1e4 * np.vectorize(lambda count: sum(1 / one for one in range(2, round(float(count)) + 1)))(counts)


class HalfDuplex(Law):
    """What a node's own worker pulls and pushes takes turns with what its server sends and receives."""

    def factors(self, nodes: Any, p: Any) -> Any:
        """One byte more for every one that is served."""
        served, own = super().factors(nodes, p)
        return served + own, own


def as_kind(kind: type[Law]) -> Callable[[Law], Law]:
    """The same law, of another class."""
    return lambda one: kind(one.exchange, one.forward, one.backward, one.buffers)


def evenly(one: Law) -> Law:
    """Every server holds the same: what an endless partition of the tensors would give."""
    exchange = one.exchange
    if not isinstance(exchange, ServerExchange):
        return one
    slices = [
        Piece(piece.tensor, ps, begin, end)
        for piece in exchange.pieces
        for ps, (begin, end) in enumerate(cuts(piece, exchange.servers))
        if end > begin
    ]
    return law(replace(exchange, pieces=tuple(slices)), profile("inception3"))


def cuts(piece: Piece, servers: int) -> list[tuple[int, int]]:
    """A piece cut into one slice for each server."""
    ends = [piece.begin + (piece.end - piece.begin) * number // servers for number in range(servers + 1)]
    return list(pairwise(ends))


def not_hidden(one: Law) -> Law:
    """Nothing travels while anything is computed."""

    def late(phase: Phase | None) -> Phase | None:
        if phase is None:
            return None
        return Phase(*(queue and replace(queue, work=np.ones_like(queue.work)) for queue in phase))

    backward = late(one.backward)
    assert backward is not None
    return replace(one, forward=late(one.forward), backward=backward)


@dataclass(frozen=True)
class Variant:
    """``forward_share`` of compute, nodes per switch that cost nothing, and what becomes of each law."""

    name: str
    change: Callable[[Law], Law] = lambda one: one
    forward_share: float = GPU
    switches: bool = True
    replicas: bool = True


SERVERS = (
    Variant("the law"),
    Variant("without the overhead of copying back", replicas=False),
    Variant("forward share 0.27", forward_share=0.27),
    Variant("forward share 0.33", forward_share=1 / 3),
    Variant("forward share 0.36", forward_share=0.36),
    Variant("with stragglers", as_kind(Stragglers)),
    Variant("endpoints half duplex", as_kind(HalfDuplex)),
    Variant("bytes spread evenly over the servers", evenly),
    Variant("nothing hidden behind compute", not_hidden),
)
ALLREDUCE = (Variant("the law"), Variant("every level of the tree costs the same", switches=False))


def line(group: Group, variant: Variant) -> list[str]:
    """One variant on one group."""
    parameters.FORWARD_SHARE["cuda"] = variant.forward_share
    known = parameters.network
    if not variant.switches:
        fitting.network = lambda system: replace(known(system), switch_nodes=1)
    if not variant.replicas:
        parameters.REPLICA_OVERHEAD = replace(parameters.REPLICA_OVERHEAD, prior=parameters.Prior(1e-9, 1.01))
    try:
        changed = [replace(one, law=variant.change(one.law)) for one in group.observations]
        whole = fitting.fit(Group(group.key, tuple(changed)))
        few = fitting.fit(whole.group, [one for one in changed if one.workers <= MOST_FITTED])
        errors = [few.error(one) for one in tested(changed) if one.workers > MOST_FITTED]
        alone = fitting.left_one_out(whole)
    finally:
        parameters.FORWARD_SHARE["cuda"] = GPU
        fitting.network = known
        parameters.REPLICA_OVERHEAD = REPLICA_OVERHEAD
    told = [share(whole.errors), worst(whole.errors), share(alone), share(errors), worst(errors)]
    return [group.key.system, variant.name, str(whole.fitted - (not variant.replicas)), *told]


REPLICA_OVERHEAD = parameters.REPLICA_OVERHEAD


def share(errors: Any) -> str:
    """Mean of the absolute errors."""
    return f"{np.mean(np.abs(errors)):.1%}"


def worst(errors: Any) -> str:
    """The largest one."""
    return f"{max(errors, key=abs):+.1%}"


def main() -> None:
    """Print the table."""
    found, _ = groups(results.load(["reference"]))
    rows = [["system", "variant", "fitted", "MAPE", "worst", "left one out", f"above {MOST_FITTED}", "worst"]]
    for group in found:
        if any(one.workers > MOST_FITTED for one in group.observations) and len(group.observations) > 3:
            variants = SERVERS if group.key.mechanism == "servers" else ALLREDUCE
            rows += [line(group, variant) for variant in variants]
    print(table(rows, {2, 3, 4, 5, 6, 7}))


if __name__ == "__main__":
    main()
