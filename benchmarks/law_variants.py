"""Other explanations of the published scaling: the law of `harness model fit` beside variants of it, in one table.

    python benchmarks/law_variants.py

Every variant is fitted to the same tables of 2017, and to the searches that their runs won. The logarithm of the
evidence decides, summed over the systems: a variant has to gain 2 to be taken into the law, as it pays for each
further number. The errors above ``SEEN`` workers, fitted to the others, stand beside it; they did not decide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from harness import results
from harness.core.exchange import Piece, ServerExchange
from harness.prediction import parameters
from harness.prediction.fitting import fit, mean_error
from harness.prediction.holdout import HeldOut, condition, parted
from harness.prediction.law import Law, law, profile
from harness.prediction.observations import ObservationGroup, groups
from harness.prediction.parameters import Parameters
from harness.prediction.problem import IN_NO_ORDER, ORDERED, Structure
from harness.report.text.table import table

SYSTEMS = ("Piz Daint XC50 P100", "EC2 p2.xlarge K80", "EC2 p2.8xlarge K80")
SEEN = 32  # workers


class Constant(Law):
    """Copying back costs the same on any number of nodes."""

    def overhead(self, nodes: Any, p: Parameters) -> Any:
        """Without the doublings."""
        return p.replica_overhead if self.copies_back else p.overhead


class Added(Law):
    """Copying back costs the same on any number of nodes, in addition to the overhead of each step."""

    def overhead(self, nodes: Any, p: Parameters) -> Any:
        """As the law was until November 2026."""
        return p.overhead + (p.replica_overhead if self.copies_back else 0.0)


class Queueing(Law):
    """Gradients of different tensors do not share a link: one after the other."""

    def seconds(self, nodes: Any, workers: Any, step_s: Any, parameters: Parameters) -> Any:
        """Without ``serial``."""
        return super().seconds(nodes, workers, step_s, replace(parameters, serial=0.0))


class Falling(Law):
    """Throughput falls as N^−0.1."""

    def seconds(self, nodes: Any, workers: Any, step_s: Any, parameters: Parameters) -> Any:
        """With that throughput."""
        slower = replace(parameters, throughput=parameters.throughput * float(nodes) ** -0.1)
        return super().seconds(nodes, workers, step_s, slower)


class HalfDuplex(Law):
    """Transfers of a node's own worker take turns with those of its server."""

    def factors(self, nodes: Any, p: Any, devices: Any = 1.0) -> Any:
        """One byte more for every one that is served."""
        served, own = super().factors(nodes, p, devices)
        return served + own, own


def as_kind(kind: type[Law]) -> Callable[[Law], Law]:
    """The same law, of another class."""
    return lambda one: kind(one.exchange, one.forward, one.backward, one.buffers)


def evenly(one: Law) -> Law:
    """Every server holds the same: what an endless partition of the tensors would give."""
    exchange = one.exchange
    assert isinstance(exchange, ServerExchange)
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


@dataclass(frozen=True)
class Variant:
    """A change of each law, the ``forward_share`` of compute, and the structure that is fitted."""

    name: str
    change: Callable[[Law], Law] = lambda one: one
    forward_share: float = parameters.FORWARD_SHARE["cuda"]
    structure: Structure | None = None


VARIANTS = (
    Variant("the law"),
    Variant("copying back costs the same on any number of nodes", as_kind(Constant)),
    Variant("copying back costs more than that: the law until November 2026", as_kind(Added)),
    Variant("parameters are pulled in no order", structure=IN_NO_ORDER),
    Variant("compute hides nothing", Law.unhidden),
    Variant("gradients queue, and share no link", as_kind(Queueing)),
    Variant("throughput falls as N^−0.1", as_kind(Falling)),
    Variant("endpoints half duplex", as_kind(HalfDuplex)),
    Variant("bytes spread evenly over the servers", evenly),
    Variant("forward share 0.27", forward_share=0.27),
    Variant("forward share 0.33", forward_share=1 / 3),
    Variant("forward share 0.36", forward_share=0.36),
)


def changed(group: ObservationGroup, variant: Variant) -> ObservationGroup:
    """A group with a variant's laws."""
    observations = (
        replace(one, law=variant.change(one.law), beaten=tuple(map(variant.change, one.beaten)))
        for one in group.observations
    )
    return replace(group, observations=tuple(observations), forward_share=variant.forward_share)


def line(variant: Variant, known: list[ObservationGroup]) -> list[str]:
    """A variant: its evidence, and for each system MAPE, p-value, and MAPE above ``SEEN`` workers."""
    structure = (variant.structure or ORDERED,)
    evidence, cells = 0.0, []
    for group in known:
        whole = fit(changed(group, variant), possible=structure)
        parts = parted(whole.group, condition(f"workers>{SEEN}"))
        assert parts is not None
        held = HeldOut(fit(whole.group, parts[0], structure), *parts)
        evidence += whole.populations[0].log_evidence
        p_value = whole.misfit.p_value
        told = "–" if p_value is None else f"{p_value:.2g}"
        cells.append(f"{mean_error(whole.errors):.1%}, p {told}, {mean_error(held.errors):.0%}")
    return [variant.name, f"{evidence:.1f}", *cells]


def main() -> None:
    """Print the table."""
    found = groups(results.load(["reference"]))[0]
    known = [one for name in SYSTEMS for one in found if one.key[:2] == (name, "TensorFlow 1.1.0")]
    rows = [["variant", "ln evidence", *SYSTEMS]]
    for variant in VARIANTS:
        rows.append(line(variant, known))
    print(table(rows, {1}))
    print(f"\nOf each system: MAPE on all runs, p of χ², MAPE above {SEEN} workers when fitted to the others.")


if __name__ == "__main__":
    main()
