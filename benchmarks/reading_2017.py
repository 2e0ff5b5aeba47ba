"""Which readers explain the I/O overhead that was published in 2017, and which its numbers exclude: a table.

    python benchmarks/reading_2017.py

The figure is number 11 of the report. The law: a step is as long as its compute and exchange, or as reading its images,
whichever is longer. A constant rate is at least the highest one that was seen, so that one is taken: a higher one costs
less at every size. The last column has no reader, but workers that compute longer when they read: by the median, over all
sizes with an overhead above ``NOTABLE``, of the added time as a share of one worker's step. The law of the scaling model
says how much of that the network hides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from harness import results
from harness.prediction import forecast
from harness.prediction.basis import StartingPoint, basis
from harness.prediction.forecast import Reader
from harness.prediction.workload import Workload
from harness.results import Result

REPORT = "CSCS internship report 2017"
ONE_DEVICE = ("Piz Daint XC50 P100", "EC2 p2.xlarge K80")
SYSTEMS = (*ONE_DEVICE, "EC2 p2.8xlarge K80")
NOTABLE = 0.05


@dataclass(frozen=True)
class Size:
    """The same training with synthetic and with real images. Overheads are shares of the synthetic img/s."""

    synthetic: Result
    real: Result

    @property
    def overhead(self) -> float:
        return 1 - self.real.img_per_s / self.synthetic.img_per_s

    @property
    def step_s(self) -> float:
        return self.synthetic.workers * self.synthetic.batch_size / self.synthetic.img_per_s

    @property
    def added_s(self) -> float:
        return self.step_s * self.overhead / (1 - self.overhead)

    def with_reader(self, reader: Reader) -> float:
        """The overhead by the law."""
        images = self.synthetic.workers * self.synthetic.batch_size / self.real.nodes
        return 1 - self.step_s / max(self.step_s, float(reader.seconds(images, self.real.nodes)))


def sizes(system: str) -> list[Size]:
    published = [run for run in results.load(["reference"]) if run.source.startswith(REPORT) and run.system == system]
    synthetic, real = ({run.workers: run for run in published if run.data == data} for data in ("synthetic", "real"))
    return [Size(synthetic[workers], real[workers]) for workers in sorted(real)]


def node_rate(every: Sequence[Size]) -> float:
    """The most img/s that a node was seen to read."""
    return max(size.real.img_per_s / size.real.nodes for size in every)


def shared_rate(every: Sequence[Size]) -> float:
    """The most img/s that all nodes together were seen to read."""
    return max(size.real.img_per_s for size in every)


def slower(every: Sequence[Size]) -> float:
    """The median share of a single worker's step by which steps with a notable overhead became longer."""
    return median(size.added_s / every[0].step_s for size in every if size.overhead > NOTABLE)


def of_slower_workers(size: Size, every: Sequence[Size], share: float) -> float:
    """The overhead by the law where each worker computes longer by ``share``, and the network is as before."""
    workload = Workload.of(size.synthetic)
    start = replace(basis([each.synthetic for each in every], workload, StartingPoint()), draws=None)
    longer = replace(start, single_s=start.single_s * (1 + share))
    before, after = (forecast.at(workload, each, size.synthetic.nodes, size.synthetic.ps) for each in (start, longer))
    return 1 - after.img_per_s / before.img_per_s


def main() -> None:
    heading = ("system", "devices", "strategy", "synthetic img/s", "real", "overhead")
    print(f"| {' | '.join((*heading, 'a rate of each node', 'a rate of all', 'slower workers'))} |")
    print("|---|---|---|---|---|---|---|---|---|")
    for system in SYSTEMS:
        every = sizes(system)
        share = slower(every)
        for size in every:
            readers = Reader(node=node_rate(every)), Reader(shared=shared_rate(every))
            overheads = [size.overhead, *map(size.with_reader, readers)]
            cells = [f"{100 * each:.1f} %" for each in overheads]
            # On several devices a node the law of the single worker says nothing of what they share.
            cells.append(f"{100 * of_slower_workers(size, every, share):.1f} %" if system in ONE_DEVICE else "")
            rates = f"{size.synthetic.img_per_s:,.0f} | {size.real.img_per_s:,.0f}"
            print(f"| {system} | {size.real.workers} | {size.real.backend} | {rates} | {' | '.join(cells)} |")
        print(
            f"{system}: {node_rate(every):.1f} img/s a node, {shared_rate(every):,.0f} for all, workers {share:.1%} slower"
        )


if __name__ == "__main__":
    main()
