"""The record of a kernel: every rank's times of every size, the checks of the results, and the bandwidths.

The rules of ``records/measurement.py`` hold here too. The file has a name of its own, so that it never gets into a table of
img/s. docs/kernels.md derives every figure.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from pydantic import Field

from harness import kernels
from harness.core import statistics
from harness.core.spec import Frozen, KernelSizes, RunSpec
from harness.core.text import size
from harness.kernels.kernel import Kernel
from harness.records.energy import RankEnergy, Read, Used, used
from harness.records.measurement import RankTraffic
from harness.records.record import (
    NOT_SEEN,
    AnyRank,
    AnyRecord,
    AnyRepeat,
    Check,
    Seen,
    all_there,
    checks_of,
    seen_by,
    verify_repeats,
)


class OwnTimes(Frozen):
    """The times that a rank took by itself in each step, in seconds: of products of matrices, and of the messages it got.

    ``products_s`` has one before each message of each step, in their order. ``received_s`` has a step's messages by the
    rank that sent them, and 0 for the rank itself.
    """

    products_s: list[float]
    received_s: list[list[float]]


class SizeTimes(Frozen):
    """One rank's raw times of a ``size``, as those of a measurement of training (``Rank``).

    ``problem`` is that of the result, "" without one. ``history`` has a number for each iteration of a kernel that
    iterates, the same on all ranks, which falls. ``own`` is there for a kernel whose ranks time something themselves.
    ``collected_s`` has for each step when a server had collected all data to merge, for a kernel that tells. ``energy`` is
    there on the rank that read a node's counters.
    """

    size: int
    marks_s: list[float]
    finished_s: float = Field(gt=0)
    window_s: float = Field(gt=0)
    network: RankTraffic | None = None
    problem: str
    history: list[float] = Field(default_factory=list)
    own: OwnTimes | None = None
    collected_s: list[float] = Field(default_factory=list)
    energy: RankEnergy | None = None


class KernelRank(AnyRank):
    """One rank's times, by size."""

    sizes: list[SizeTimes]


KernelRepeat = AnyRepeat[KernelRank]


class SizeFigures(Frozen):
    """Figures of one size. Times are seconds per message: ``time_s`` over repeats, percentiles over all messages.

    Of a ping-pong, whose step is a message there and one back, it is half the step. The ``rate`` is bytes per second of the
    algorithm, or floating point operations per second; that of the bus in bytes per second is for messages only.
    ``sent_bytes`` is the mean that a rank has sent per step, by its system's counters; None where they do not tell.
    ``collected_s`` is that part of ``time_s`` after which all data were where they are merged; None where nothing is.
    ``energy`` has the joules of each repeat's window, ``work_per_joule`` a window's bytes or operations over their mean.
    """

    size: int
    time_s: statistics.Summary
    p50_s: float
    p99_s: float
    rate: statistics.Summary
    bus_bytes_per_s: statistics.Summary | None
    sent_bytes: float | None
    collected_s: float | None = None
    energy: Used = Used()
    work_per_joule: float | None = None


class KernelRecord(AnyRecord):
    """One kernel over one transport."""

    file_name = "kernel.json"
    FIGURES = ("derived",)

    schema_: Literal["harness.kernel/1"] = Field(alias="schema")
    seen: Seen
    derived: list[SizeFigures] | None
    repeats: list[KernelRepeat]

    @property
    def outcome(self) -> str:
        return outcome(kernel_of(self.spec), self.derived) if self.derived else ""

    def verify(self) -> None:
        super().verify()
        if self.seen != seen_by([rank for repeat in self.repeats for rank in repeat.ranks]):
            raise ValueError(NOT_SEEN)

    def verify_figures(self) -> None:
        verify_repeats(self.spec, self.repeats, lambda ranks: judge(self.spec, ranks, self.plan["world_size"]))
        servers = len(self.plan["processes"]) - self.plan["world_size"]
        if self.derived != derive(self.spec, self.repeats, servers):
            raise ValueError("the derived figures do not follow from the raw times")


def outcome(kernel: Kernel, figures: Sequence[SizeFigures]) -> str:
    """The latency of the smallest message, and the largest bandwidth; or the highest rate of computing."""
    least, most = figures[0], max(figures, key=lambda each: each.rate.mean)
    if not most.bus_bytes_per_s:
        return f"{most.rate.mean / 1e9:.3g} Gflop/s with {size_text(kernel, most.size)}"
    rate = f"{most.bus_bytes_per_s.mean / 1e9:.3g} GB/s of the bus with {size(most.size)}"
    return f"{least.p50_s * 1e6:.1f} µs with {size(least.size)}, {rate}"


def size_text(kernel: Kernel, number: int) -> str:
    """``64 KiB`` of a message, ``N = 4,096`` of a computation."""
    return size(number) if kernel.in_bytes else f"N = {number:,}"


def sizes_of(spec: RunSpec) -> KernelSizes:
    assert spec.kernel
    return spec.kernel


def kernel_of(spec: RunSpec) -> Kernel:
    return kernels.specification(sizes_of(spec).name)


def judge(spec: RunSpec, ranks: Sequence[KernelRank], world_size: int) -> list[Check]:
    """The checks of a repeat of a kernel: all ranks were there, made all steps, and had the right results."""
    made = sorted({len(times.marks_s) - 1 for rank in ranks for times in rank.sizes})
    sizes = {tuple(times.size for times in rank.sizes) for rank in ranks}
    histories = {tuple(tuple(times.history) for times in rank.sizes) for rank in ranks}
    kernel = kernel_of(spec)
    wrong = [
        f"rank {rank.rank}, {size_text(kernel, times.size)}: {times.problem}"
        for rank in ranks
        for times in rank.sizes
        if times.problem
    ]
    expected = kernel.sizes(sizes_of(spec).sizes, world_size)
    checks = all_there(ranks, world_size) | {
        "right": (not wrong, wrong[0] if wrong else "every rank had the right result of every size"),
        "sizes": (sizes == {expected}, f"{len(expected)} sizes on every rank" if sizes == {expected} else f"{sizes}"),
        "alike": (len(histories) == 1, f"{len(histories)} different histories on {len(ranks)} ranks"),
        "steps": (made == [spec.steps], f"{made} steps made, expected {spec.steps}"),
    }
    if kernel.own_times:
        untimed = [
            rank.rank for rank in ranks if not all(_has_own_times(each, spec.steps, world_size) for each in rank.sizes)
        ]
        lacking = f"times are missing of ranks {untimed}"
        checks["timed"] = (not untimed, lacking if untimed else "every rank has its times")
    return checks_of(checks)


def _has_own_times(times: SizeTimes, steps: int, world_size: int) -> bool:
    """True for a rank that has timed every step, and every rank's message in each."""
    own = times.own
    if own is None or len(own.products_s) != steps * (world_size - 1):
        return False
    return [*map(len, own.received_s)] == [world_size] * steps


def derive(spec: RunSpec, repeats: Sequence[KernelRepeat], servers: int) -> list[SizeFigures]:
    """The figures of every size, with so many parameter servers. The longest window of all ranks counts, as with img/s."""
    import numpy as np  # here, so that commands that compute nothing answer at once

    kernel = kernel_of(spec)
    bus = kernel.bus(len(repeats[0].ranks), servers) if kernel.bus else None
    figures = []
    for number, first in enumerate(repeats[0].ranks[0].sizes):
        of_size = [[rank.sizes[number] for rank in repeat.ranks] for repeat in repeats]
        windows_s = [max(rank.window_s for rank in ranks) for ranks in of_size]
        times_s = [window_s / spec.steps / kernel.messages for window_s in windows_s]
        steps_s = np.diff(np.asarray([ranks[kernel.steps_of].marks_s for ranks in of_size])).ravel() / kernel.messages
        p50_s, p99_s = (float(each) for each in np.percentile(steps_s, [50, 99]))
        sent = [rank.network.sent / spec.steps for ranks in of_size for rank in ranks if rank.network]
        # Of each repeat the rank that waits longest, as with the window.
        collected_s = [max(fmean(rank.collected_s or [0.0]) for rank in ranks) for ranks in of_size]
        work = kernel.work(first.size)
        rates = [work / time_s for time_s in times_s]
        read = [
            [(rank.host, reading) for rank in repeat.ranks if (reading := rank.sizes[number].energy)]
            for repeat in repeats
        ]
        energy = used([Read(*each) for each in zip(windows_s, read, strict=True)])
        joules = energy.joules
        figures.append(
            SizeFigures(
                size=first.size,
                time_s=statistics.summarise(times_s),
                p50_s=p50_s,
                p99_s=p99_s,
                rate=statistics.summarise(rates),
                bus_bytes_per_s=None if bus is None else statistics.summarise([bus * rate for rate in rates]),
                sent_bytes=sum(sent) / len(sent) if sent else None,
                collected_s=fmean(collected_s) or None,
                energy=energy,
                work_per_joule=work * kernel.messages * spec.steps / joules.mean if joules else None,
            )
        )
    return figures
