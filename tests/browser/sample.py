"""Records of a made-up cluster, for tests of the report: every kind of figure has something to show."""

import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

from harness.records import measurement as records
from harness.records.measurement import Record
from tests import made

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
# Per-worker img/s, and the share lost at each doubling of the workers.
CONTENDERS: tuple[tuple[dict[str, Any], float, float], ...] = (
    ({"backend": "horovod", "framework": "tensorflow", "transport": "mpi"}, 137.0, 0.012),
    ({"backend": "horovod", "framework": "torch", "transport": "mpi"}, 148.0, 0.015),
    ({"backend": "horovod", "framework": "torch", "transport": "gloo"}, 147.0, 0.05),
    ({"backend": "pytorch", "transport": "mpi"}, 150.0, 0.02),
    ({"backend": "pytorch", "transport": "gloo"}, 149.0, 0.06),
    ({"backend": "multi_worker_mirrored"}, 135.0, 0.035),
)


def study(random_: random.Random, sizes: Sequence[int] = SIZES) -> Iterator[Record]:
    """Weak scaling of every backend, searches for the number of servers, image files, strong scaling."""
    for model, factor in (("inception3", 1.0), ("resnet50", 1.55)):
        for fields, per_worker, lost in CONTENDERS:
            for nodes in sizes:
                mean = factor * per_worker * nodes * (1 - lost) ** math.log2(nodes)
                yield one(random_, mean, nodes=nodes, model=model, **fields)
        for strategy, slope in (("parameter_server", 1.0), ("distributed_replicated", 0.93)):
            for nodes in sizes:
                for ps in sorted({1, max(1, nodes // 4), max(1, nodes // 2), nodes, 2 * nodes} - {256}):
                    yield one(
                        random_,
                        factor * slope * with_servers(nodes, ps),
                        backend=strategy,
                        nodes=nodes,
                        ps=ps,
                        model=model,
                    )
    for nodes in sizes:
        mean = 150.0 * nodes * 0.98 ** math.log2(nodes) * (1 - 0.02 * math.log2(2 * nodes))
        yield one(random_, mean, backend="pytorch", transport="mpi", nodes=nodes, data="/scratch/imagenet")
        mean = with_servers(nodes, max(1, nodes // 2)) * (1 - 0.03 * math.log2(2 * nodes))
        yield one(
            random_, mean, backend="parameter_server", nodes=nodes, ps=max(1, nodes // 2), data="/scratch/imagenet"
        )
    for nodes in (8, 16, 32, 64):
        mean = 232.5 * nodes * 0.98 ** math.log2(nodes) * (1 - 0.05 * math.log2(nodes / 8))
        yield one(
            random_, mean, backend="pytorch", transport="mpi", nodes=nodes, batch_size=1024 // nodes, model="resnet50"
        )


def second_system(random_: random.Random) -> Iterator[Record]:
    """A faster system, with fewer backends and sizes."""
    for fields, per_worker, lost in (CONTENDERS[1], CONTENDERS[3]):
        for nodes in (1, 2, 4, 8, 16, 32):
            mean = 4.4 * per_worker * nodes * (1 - 2 * lost) ** math.log2(nodes)
            yield one(random_, mean, nodes=nodes, site="alps:gpu", device="cuda", **fields)


def nightly(random_: random.Random, days: int = 30) -> Iterator[Record]:
    """The same measurement every night, which a software update made slower on day 20."""
    for day in range(days):
        mean = 1190.0 * (0.94 if day >= 20 else 1.0) * (1 + 0.004 * random_.gauss(0, 1))
        packages = {"torch": "2.13.0" if day < 20 else "2.14.0"}
        yield one(
            random_, mean, backend="pytorch", transport="mpi", nodes=8, batch_size=32, day=60 + day, packages=packages
        )


def failures() -> Iterator[Record]:
    """Runs without a number."""
    reasons = (
        "rank 3 on nid00003 exited with 137 (killed, probably out of memory)",
        "rank 17 on nid00017 took 1.62 × the median rank, limit 1.5",
        "no rank was ready within 600 s; slurmstepd: error: *** JOB 31 CANCELLED DUE TO TIME LIMIT ***",
    )
    for number, reason in enumerate(reasons):
        yield made.record("horovod", 16 * (number + 1), status="failed", reason=reason, day=number)
    yield made.record("pytorch", 4, status="interrupted", reason="interrupted by SIGTERM")


def everything(random_: random.Random) -> Iterator[Record]:
    """All of these."""
    yield from study(random_)
    yield from second_system(random_)
    yield from nightly(random_)
    yield from failures()


def with_servers(nodes: int, ps: int) -> float:
    """img/s of a step that waits for its servers' links, and for messages that grow with both counts."""
    compute_s = 64 / 138.0
    return 64 * nodes / (compute_s + 0.02 * nodes / ps + 0.0009 * ps + 0.0011 * nodes)


def one(random_: random.Random, mean: float, *, repeats: int = 5, day: float | None = None, **fields: Any) -> Record:
    """A run around ``mean`` img/s with steps that vary, and one slow rank in the larger ones."""
    usual = {"batch_size": 64, "steps": 12} | fields
    nodes = usual["nodes"]
    values = [mean * (1 + 0.008 * random_.gauss(0, 1)) for _ in range(repeats)]
    day = random_.uniform(0, 45) if day is None else day
    run = made.record(usual.pop("backend"), usual.pop("nodes"), values, day=day, **usual)
    return with_jitter(run, random_, slow=nodes // 3 if nodes >= 32 else None)


def with_jitter(run: Record, random_: random.Random, slow: int | None) -> Record:
    """``run`` with step times that scatter, and rank ``slow`` taking 12 % longer; its windows stay as they are."""
    repeats = []
    for repeat in run.repeats:
        ranks = []
        for rank in repeat.ranks:
            share = 1.0 if rank.rank == slow else 0.88 + 0.01 * random_.random()
            lengths = [random_.lognormvariate(0, 0.06) for _ in range(run.spec.steps)]
            step_s, at, marks = share * rank.window_s / sum(lengths), 0.0, [0.0]
            for length in lengths:
                at += step_s * length
                marks.append(at)
            ranks.append(rank.model_copy(update={"marks_s": marks, "finished_s": marks[-1]}))
        judged = records.judge(run.spec, run.plan, ranks, run.expected_updates)
        repeats.append(repeat.model_copy(update={"ranks": ranks, "checks": judged}))
    return run.model_copy(update={"repeats": repeats, "derived": records.derive(run.spec, repeats)})
