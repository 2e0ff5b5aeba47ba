"""Parameters of the law for a transport from kernels: measured on a few nodes, and fitted to no training.

docs/kernels.md describes the kernels. Gradients are taken to travel as their largest messages do: S bytes in t seconds. A
message costs its bytes alone: the latency of a small one is hidden where many are under way. Predictions with that latency
for each tensor were too slow by up to 39 %.
"""

import math
from collections.abc import Sequence
from operator import attrgetter

from harness.errors import InvalidInput
from harness.prediction.parameters import CONTENTION, Prior, Share
from harness.results.result import Result

KERNELS = {True: ("incast", "outcast"), False: ("allreduce",)}  # with servers, and without
# The factors by which a figure may be off beside the interval of its repeats: another message, another day, more nodes.
THROUGHPUT_WITHIN, CONTENTION_WITHIN = 1.03, 1.5
NONE = Prior(0.0, 1.0)


def priors(
    results: Sequence[Result], backend: str, transport: str, servers: bool, dilation: float
) -> dict[str, Prior | Share]:
    """The priors of a step's exchange, by parameter, from ``results`` of kernels, in the device's time.

    ``backend`` counts if its kernels went over ``transport``, else any other. A step has no overhead: the messages of
    kernels begin and end where gradients are. Runs with several servers or workers on a node are left out. Raises
    InvalidInput where a kernel is missing.
    """
    over_transport = [run for run in results if run.completed and run.transport == transport and run.workers > 1]
    measured = []
    for kernel in KERNELS[servers]:
        runs = [run for run in over_transport if run.kernel == kernel and _is_alone_on_nodes(run)]
        if not runs:
            raise InvalidInput(
                f"--network: no {kernel} over {transport} on several nodes is there; "
                "`harness kernel network --nodes 4 --output DIR` measures what a prediction needs"
            )
        chosen = backend if any(run.backend == backend for run in runs) else runs[0].backend
        measured.append([run for run in runs if run.backend == chosen])
    few = [_rate(_with(runs, min(run.ps for run in runs))) for runs in measured]
    throughput = len(few) / sum(1 / rate for rate, _ in few) * dilation
    within = max(error for _, error in few)
    known: dict[str, Prior | Share] = {
        "throughput": Prior(throughput, (1 + within / 2) * THROUGHPUT_WITHIN),
        "overhead": NONE,
        "message": NONE,
    }
    return known | {"replica_overhead": NONE, "contention": _contention(measured)} if servers else known


def _is_alone_on_nodes(run: Result) -> bool:
    return all(count == 1 for name, count in run.options.items() if name.endswith("_per_node"))


def _with(runs: Sequence[Result], ps: int) -> list[Result]:
    return [run for run in runs if run.ps == ps]


def _rate(runs: Sequence[Result]) -> tuple[float, float]:
    """Bytes/s of the endpoint that all wait for, by the largest message, and half its interval relative to that."""
    largest = sorted(runs, key=attrgetter("nodes", "size"))[-1]
    return _passes(largest) * largest.rate, 0.0 if math.isnan(largest.ci95) else largest.ci95 / largest.rate


def _passes(run: Result) -> float:
    """The times that each byte that a worker exchanges goes through the endpoint that all wait for."""
    return (run.workers - _beside(run)) / run.ps if run.ps else 2 * (run.workers - 1) / run.workers


def _beside(run: Result) -> int:
    """1 where a server's messages to the worker on its own node leave no node."""
    return int(run.options.get("ps_nodes", "shared") == "shared")


def _contention(measured: Sequence[Sequence[Result]]) -> Prior | Share:
    """The share by which an exchange of all nodes takes longer than one with few servers, if both were measured."""
    ratios = []
    for runs in measured:
        fewest, most = min(run.ps for run in runs), max(run.ps for run in runs)
        few, many = _with(runs, fewest), _with(runs, most)
        workers = max(run.workers for run in many)
        peers = workers - _beside(many[0])
        if most >= workers and most > fewest and peers > 1:
            ratios.append((_rate(few)[0] / _rate(many)[0] - 1) / (1 - 1 / peers))
    if not ratios:
        return CONTENTION.prior
    return Prior(max(sum(ratios) / len(ratios), 0.0), CONTENTION_WITHIN)
