"""The record of a kernel: every rank's times of every size, whether the results were right, and the bandwidths.

What ``records/measurement.py`` says holds here too. The file has a name of its own, so that it never gets into a table of
img/s. docs/kernels.md derives every figure.
"""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Literal

from pydantic import Field

from harness import kernels
from harness.core import statistics
from harness.core.spec import Frozen, KernelSizes, RunSpec
from harness.core.text import size
from harness.records.measurement import RankTraffic
from harness.records.record import AnyRank, AnyRecord, AnyRepeat, Check, judged_again

FILE_NAME = "kernel.json"


class SizeTimes(Frozen):
    """One rank's raw times of messages of so many ``bytes``, as those of a measurement of training (``Rank``).

    ``problem`` says what was wrong with the result, "" if nothing was.
    """

    bytes: int
    marks_s: list[float]
    finished_s: float = Field(gt=0)
    window_s: float = Field(gt=0)
    network: RankTraffic | None = None
    problem: str


class KernelRank(AnyRank):
    """One rank's times, by size."""

    sizes: list[SizeTimes]


class KernelRepeat(AnyRepeat[KernelRank]):
    """One repeat of a kernel."""


class SizeFigures(Frozen):
    """Figures of one size. Times are seconds per message: ``time_s`` over repeats, percentiles over all messages.

    Of a ping-pong, whose step is a message there and one back, it is half the step. Bandwidths are bytes per second.
    ``sent_bytes`` is what a rank has sent per step, on average, by its kernel's counters; None where they do not tell.
    """

    bytes: int
    time_s: statistics.Summary
    p50_s: float
    p99_s: float
    algorithm_bytes_per_s: statistics.Summary
    bus_bytes_per_s: statistics.Summary
    sent_bytes: float | None


class KernelRecord(AnyRecord):
    """One kernel over one transport."""

    file_name: ClassVar[str] = FILE_NAME
    FIGURES = ("derived",)

    schema_: Literal["harness.kernel/1"] = Field(alias="schema")
    derived: list[SizeFigures] | None
    repeats: list[KernelRepeat]

    @property
    def transports(self) -> tuple[str, ...]:
        """What carried the messages, as all ranks of all repeats report."""
        ranks = [rank for repeat in self.repeats for rank in repeat.ranks]
        return tuple(dict.fromkeys(rank.evidence["transport"] for rank in ranks))

    @property
    def outcome(self) -> str:
        return outcome(self.derived) if self.derived else ""

    def verify_figures(self) -> None:
        if [repeat.number for repeat in self.repeats] != list(range(1, self.spec.repeats + 1)):
            raise ValueError(f"a completed run has repeats 1 to {self.spec.repeats}")
        for repeat in self.repeats:
            again = partial(judge, self.spec, repeat.ranks, self.plan["world_size"])
            judged_again(f"repeat {repeat.number}", repeat.checks, again)
        servers = len(self.plan["processes"]) - self.plan["world_size"]
        if self.derived != derive(self.spec, self.repeats, servers):
            raise ValueError("the derived figures do not follow from the raw times")


def outcome(figures: Sequence[SizeFigures]) -> str:
    """The latency of the smallest message, and the largest bandwidth."""
    least, most = figures[0], max(figures, key=lambda each: each.bus_bytes_per_s.mean)
    rate = f"{most.bus_bytes_per_s.mean / 1e9:.3g} GB/s of the bus with {size(most.bytes)}"
    return f"{least.p50_s * 1e6:.1f} µs with {size(least.bytes)}, {rate}"


def kernel_of(spec: RunSpec) -> KernelSizes:
    assert spec.kernel
    return spec.kernel


def judge(spec: RunSpec, ranks: Sequence[KernelRank], world_size: int) -> list[Check]:
    """What must hold for a repeat of a kernel to count: all ranks were there, made all steps, and had the right results."""
    worlds = sorted({rank.evidence["world_size"] for rank in ranks})
    made = sorted({len(times.marks_s) - 1 for rank in ranks for times in rank.sizes})
    sizes = {tuple(times.bytes for times in rank.sizes) for rank in ranks}
    wrong = [
        f"rank {rank.rank}, {size(times.bytes)}: {times.problem}"
        for rank in ranks
        for times in rank.sizes
        if times.problem
    ]
    kernel = kernels.specification(kernel_of(spec).name)
    wanted = tuple(sorted({kernel.size(each, world_size) for each in kernel_of(spec).bytes}))
    checks = {
        "all_ranks": (
            sorted(rank.rank for rank in ranks) == list(range(world_size)),
            f"{len(ranks)} of {world_size} reported",
        ),
        "world_size": (worlds == [world_size], f"ranks saw {worlds}, planned {world_size}"),
        "right": (not wrong, wrong[0] if wrong else "every rank had the right result of every size"),
        "sizes": (sizes == {wanted}, f"{len(wanted)} sizes on every rank" if sizes == {wanted} else f"{sizes}"),
        "steps": (made == [spec.steps], f"{made} steps made, expected {spec.steps}"),
    }
    return [Check(name=name, passed=passed, detail=detail) for name, (passed, detail) in checks.items()]


def derive(spec: RunSpec, repeats: Sequence[KernelRepeat], servers: int) -> list[SizeFigures]:
    """The figures of every size, with so many parameter servers. The longest window of all ranks counts, as with img/s."""
    import numpy as np  # here, so that commands that compute nothing answer at once

    kernel = kernels.specification(kernel_of(spec).name)
    bus = kernel.bus(len(repeats[0].ranks), servers)
    figures = []
    for number, first in enumerate(repeats[0].ranks[0].sizes):
        of_size = [[rank.sizes[number] for rank in repeat.ranks] for repeat in repeats]
        times_s = [max(rank.window_s for rank in ranks) / spec.steps / kernel.messages for ranks in of_size]
        # The first rank takes part in every kernel.
        steps_s = np.diff(np.asarray([ranks[0].marks_s for ranks in of_size])).ravel() / kernel.messages
        p50_s, p99_s = (float(each) for each in np.percentile(steps_s, [50, 99]))
        sent = [rank.network.sent / spec.steps for ranks in of_size for rank in ranks if rank.network]
        rates = [first.bytes / time_s for time_s in times_s]
        figures.append(
            SizeFigures(
                bytes=first.bytes,
                time_s=statistics.summarise(times_s),
                p50_s=p50_s,
                p99_s=p99_s,
                algorithm_bytes_per_s=statistics.summarise(rates),
                bus_bytes_per_s=statistics.summarise([bus * rate for rate in rates]),
                sent_bytes=sum(sent) / len(sent) if sent else None,
            )
        )
    return figures
