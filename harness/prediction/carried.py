"""What kernels say of a transport, as parameters of the law: measured on a few nodes, and fitted to no training.

docs/kernels.md says what the kernels do. Gradients are taken to travel as their largest messages do: S bytes in t seconds.
A message costs its bytes alone: what a small one takes by itself is hidden where many are under way. Predictions with that
latency for each tensor were too slow by up to 39 % (docs/scaling-model.md).
"""

import math
from collections.abc import Sequence

from harness.errors import InvalidInput
from harness.prediction.parameters import CONTENTION, Prior, Share
from harness.results.result import Result

KERNELS = {True: ("incast", "outcast"), False: ("allreduce",)}  # with servers, and without
# How sure a figure is beside the interval of its own repeats: another message, another day, more nodes.
THROUGHPUT_WITHIN, CONTENTION_WITHIN = 1.03, 1.5
NONE = Prior(0.0, 1.0)


def priors(
    results: Sequence[Result], backend: str, transport: str, servers: bool, dilation: float
) -> dict[str, Prior | Share]:
    """What is known of a step's exchange, by parameter, from ``results`` of kernels, in the device's time.

    Of several backends whose kernels went over ``transport`` the one that is asked for counts, else any. What a step costs
    in addition is nothing: the messages of kernels begin and end where gradients are. Runs with several servers or workers
    on a node are left out. Raises InvalidInput where a kernel is missing.
    """
    done = [
        run
        for run in results
        if run.kernel
        and run.completed
        and run.transport == transport
        and run.workers > 1
        and not any(name.endswith("_per_node") and count != 1 for name, count in run.options.items())
    ]
    measured = []
    for name in KERNELS[servers]:
        runs = [run for run in done if run.kernel == name]
        if not runs:
            raise InvalidInput(
                f"--network: no {name} over {transport} on several nodes is there; "
                "`harness kernel network --nodes 4 --output DIR` measures what a prediction needs"
            )
        chosen = backend if any(run.backend == backend for run in runs) else runs[0].backend
        measured.append([run for run in runs if run.backend == chosen])
    few = [_of(_with(runs, min(run.ps for run in runs))) for runs in measured]
    throughput = len(few) / sum(1 / rate for rate, _ in few) * dilation
    within = max(error for _, error in few)
    known: dict[str, Prior | Share] = {
        "throughput": Prior(throughput, (1 + within / 2) * THROUGHPUT_WITHIN),
        "overhead": NONE,
        "message": NONE,
    }
    return known | {"replica_overhead": NONE, "contention": _contention(measured)} if servers else known


def _with(runs: Sequence[Result], ps: int) -> list[Result]:
    return [run for run in runs if run.ps == ps]


def _of(runs: Sequence[Result]) -> tuple[float, float]:
    """Bytes/s of the endpoint that all wait for, by the largest message, and half its interval relative to that."""
    largest = sorted(runs, key=lambda run: (run.nodes, run.size))[-1]
    return _passes(largest) * largest.rate, 0.0 if math.isnan(largest.ci95) else largest.ci95 / largest.rate


def _passes(run: Result) -> float:
    """How often a byte of those that a worker exchanges goes through the endpoint that all wait for."""
    return (run.workers - _beside(run)) / run.ps if run.ps else 2 * (run.workers - 1) / run.workers


def _beside(run: Result) -> int:
    """1 where a server's messages to the worker on its own node leave no node."""
    return int(run.options.get("ps_nodes", "shared") == "shared")


def _contention(measured: Sequence[Sequence[Result]]) -> Prior | Share:
    """How much longer the exchange of everybody with everybody takes than that with few servers, if both were measured."""
    ratios = []
    for runs in measured:
        fewest, most = min(run.ps for run in runs), max(run.ps for run in runs)
        few, many = _with(runs, fewest), _with(runs, most)
        peers = max(run.workers for run in many) - _beside(many[0])
        if most >= max(run.workers for run in many) and most > fewest and peers > 1:
            ratios.append((_of(few)[0] / _of(many)[0] - 1) / (1 - 1 / peers))
    if not ratios:
        return CONTENTION.prior
    return Prior(max(sum(ratios) / len(ratios), 0.0), CONTENTION_WITHIN)
