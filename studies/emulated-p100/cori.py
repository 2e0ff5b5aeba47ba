"""Three causes on Cori, on emulated KNL nodes: servers in the middle, uneven load, and slow links, each switched off alone.

    .venv/bin/python studies/emulated-p100/cori.py RESULTS... [-o DIR]

RESULTS are the records that measure.py keeps in ``cori``, and those in ``steady``, which say how far jobs agree.
"""

from collections.abc import Sequence
from functools import partial

from steady import Outcome, Point, Questions, Ratio, answer_of, command, longer

from harness.core.emulation import emulation

# Links as fast as the law fits to Cori's gRPC, and as fast as MPI's (cori.toml), by model: GB/s.
SLOW, FAST = {"hep_cnn": 1.54, "resnet50": 0.181}, {"hep_cnn": 2.22, "resnet50": 0.261}
KEPT = 0.8  # of one worker's throughput, in the abstract: by ResNet-50 on 128 nodes, and HEP-CNN on 256


def servers(point: Point, placement: str = "greedy", links: dict[str, float] = SLOW) -> bool:
    spec = point.spec
    setting = spec.options.get("placement"), point.links
    return spec.device == "emulated:knl" and setting == (placement, links[spec.model])


def efficiencies(points: Sequence[Point]) -> Outcome:
    """The share of a step in which a worker computes, of servers as Cori had them."""
    shares = {}
    for point in filter(servers, points):
        device = emulation(point.spec)
        assert device
        shares[point.label] = Ratio(device.step_s / point.step_s)
    kept = [share.value > KEPT for share in shares.values()]
    lost = [share.value < KEPT for share in shares.values()]
    return answer_of(all(kept), all(lost)), shares


def on_as_many(point: Point) -> str:
    return f"{point.spec.model} on {point.spec.nodes} nodes"


def switched_off(placement: str = "greedy", links: dict[str, float] = SLOW) -> partial[Outcome]:
    return partial(longer, slow=servers, fast=partial(servers, placement=placement, links=links), place=on_as_many)


QUESTIONS: Questions = {
    "kept": (f"Do workers keep more than {KEPT:.0%} of their throughput, as on Cori?", efficiencies),
    "servers": (
        "Do servers in the middle take longer than an allreduce?",
        partial(longer, slow=servers, fast=lambda point: point.spec.backend == "pytorch", place=on_as_many),
    ),
    "imbalance": ("Do whole tensors, unevenly spread, take longer than slices?", switched_off("partitioned")),
    "grpc": ("Do links as slow as gRPC's take longer than links as fast as MPI's?", switched_off(links=FAST)),
}

if __name__ == "__main__":
    command(__file__, QUESTIONS, __doc__, title="Three causes on Cori")
