"""Strong scaling of kernels that compute: the same N on more workers."""

from collections import defaultdict
from collections.abc import Sequence
from math import nan
from statistics import fmean

from harness.kernels.kernel import FLOP_PER_S
from harness.results.result import Result, sorted_json

# Fields that change with the number of nodes of a computation: on one machine, threads do, too.
_WITH_SIZE = ("nodes", "threads")


def with_efficiencies(results: Sequence[Result], baseline: int | None = None) -> dict[Result, float]:
    """Each result of a kernel that has a number, and one of each run that has none, with its efficiency.

    That is rate(n) / (n/n₀ · rate(n₀)), for what computes, of the same N. n are workers. n₀ is ``baseline``, or the
    smallest number on which the same was measured; rate(n₀) is the mean of all its runs. It is NaN for messages, and for
    what was not measured on n₀ and on another number of workers.
    """
    groups: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for run in results:
        if run.unit == FLOP_PER_S and run.completed:
            alike = sorted_json({name: value for name, value in run.spec.items() if name not in _WITH_SIZE})
            groups[run.system, alike].append(run)
    shares: dict[Result, float] = {}
    for runs in groups.values():
        sizes = {run.workers for run in runs}
        base = baseline or min(sizes)
        if base in sizes and len(sizes) > 1:
            rate = fmean(run.rate for run in runs if run.workers == base)
            shares |= {run: run.rate / (run.workers / base * rate) for run in runs}
    first = {run.id: run for run in reversed(results)}
    return {run: shares.get(run, nan) for run in results if run.completed or run is first[run.id]}
