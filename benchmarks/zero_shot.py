"""How well the scaling model predicts published points from one worker and a link alone: nothing is fitted. A table.

    python benchmarks/zero_shot.py

Each point of several devices is predicted as by `harness model predict --single IMG_PER_S --network rdma:RATE`, where
a single one was published, too. The last row is without "rdma:" and "sockets:". The priors of parameters
(harness/prediction/parameters.py) were chosen with these points in sight, so only later points test them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from harness import results
from harness.prediction import forecast
from harness.prediction.basis import StartingPoint, chosen_basis
from harness.prediction.observations import ObservationGroup, groups, informative
from harness.prediction.parameters import Network

# FDR InfiniBand, over which only MPI ran there, by RDMA.
INFINIBAND = Network(line_rate_gb_s=6.8, rdma=("mpi",))
AZURE = ("Azure NC24r, 4 K80 a node", "Azure NC24rs_v2, 4 P100 a node")


@dataclass(frozen=True)
class Point:
    """A published point: its error (predicted over measured img/s, minus 1) and the ends of its interval, high over low."""

    system: str
    transport: str
    model: str
    error: float
    width: float
    inside: bool


def network(group: ObservationGroup) -> Network:
    return INFINIBAND if group.key.transport == "mpi" and group.key.system in AZURE else group.network


def points(group: ObservationGroup, rate_alone: bool = False) -> Iterator[Point]:
    """Points of ``group`` with a single worker's step and a known network; with ``rate_alone`` only its rate is known."""
    known = replace(network(group), rdma=None) if rate_alone else network(group)
    for run in informative(group.observations):
        if known.line_rate_gb_s is None or run.single_s is None or run.relative:
            continue
        workload = run.workload
        single = workload.batch_size / run.single_s
        start = StartingPoint(group.key.transport, group.key.device, single=single, network=known)
        p = forecast.at(workload, chosen_basis(workload, start, None), run.nodes, run.ps)
        inside = p.low <= run.img_per_s <= p.high
        error = p.img_per_s / run.img_per_s - 1
        yield Point(group.key.system, group.key.transport, workload.model, error, p.high / p.low, inside)


def line(name: str, alike: Sequence[Point]) -> str:
    """A row of the table."""
    error, width = fmean(abs(point.error) for point in alike), median(point.width for point in alike)
    inside = sum(point.inside for point in alike)
    worst = max((point.error for point in alike), key=abs)
    return f"| {name} | {len(alike)} | {error:.1%} | {worst:+.0%} | {inside} of {len(alike)} | {width:.2f} |"


def main() -> None:
    """Print the table, by system and transport."""
    published, _ = groups(results.load(["reference"]))
    every = [point for group in published for point in points(group)]
    head = "| system, transport | points | mean error | worst | in 90 % | interval, high over low |"
    print(head, "|---|---|---|---|---|---|", sep="\n")
    for system, transport in sorted({(point.system, point.transport) for point in every}):
        alike = [point for point in every if (point.system, point.transport) == (system, transport)]
        print(line(f"{system}, {transport}", alike))
    print(line("all but VGG-16", [point for point in every if point.model != "vgg16"]))
    print(line("all", every))
    print(line("all, by rate alone", [point for group in published for point in points(group, rate_alone=True)]))


if __name__ == "__main__":
    main()
