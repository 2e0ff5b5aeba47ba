"""Who was late in a run: what its ranks say of their computing, their links and their waits for images, each against the
others.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean, median

from harness.analysis.slow import SHARE
from harness.records.measurement import Rank, Record

NOTABLE = 0.05  # of what a step, or its computing, usually takes: less than that is nobody's fault


@dataclass(frozen=True)
class Late:
    """A rank, or a whole host where ``rank`` is None, and ``why`` it was late."""

    rank: int | None
    host: str
    why: str

    def __str__(self) -> str:
        return f"{self.host}: {self.why}" if self.rank is None else f"rank {self.rank} on {self.host}: {self.why}"


def late(record: Record) -> list[Late]:
    """What a completed record says of who was late; empty where nobody was, or ranks did not tell.

    Real devices do not tell how long they computed: there the check before the run counts, if there was one. Times are
    those of the device, in seconds.
    """
    spec, ranks = record.spec, record.repeats[0].ranks
    hosts = {rank.rank: rank.host for rank in ranks}
    found: list[Late] = []
    if record.preflight and record.preflight.pairs:
        found += [Late(None, each.node, f"before the run it {each.sentence}") for each in record.preflight.pairs.slow]
    per_step = 1 / (spec.steps * spec.dilation)
    computing = per_step * len(ranks) / spec.workers  # a rank may have several devices
    for rank, own, usual in _beside(record, lambda one: one.kept.computed_s if one.kept else None):
        if own > (1 + NOTABLE) * usual:
            times = f"{own * computing:.3g} s per step, the others' {usual * computing:.3g} s"
            found.append(Late(rank, hosts[rank], f"its device computed {times}"))
    for rank, own, usual in _beside(record, lambda one: one.kept.link_bytes_per_s if one.kept else None):
        if own < SHARE * usual:
            rates = f"{own / 1e6:.3g} MB/s, the others' {usual / 1e6:.3g} MB/s"
            found.append(Late(rank, hosts[rank], f"its link carries {rates}"))
    window_s = median(rank.window_s for rank in ranks)
    for rank, own, usual in _beside(record, lambda one: sum(one.input_wait_s) if one.input_wait_s else None):
        if own > usual + NOTABLE * window_s:
            times = f"{own * per_step:.3g} s per step for its images, the others {usual * per_step:.3g} s"
            found.append(Late(rank, hosts[rank], f"it waited {times}"))
    return found


def _beside(record: Record, figure: Callable[[Rank], float | None]) -> Iterator[tuple[int, float, float]]:
    """Each rank with its mean over the repeats, and the median of the others' means; nothing if a rank does not tell."""
    values: dict[int, list[float]] = {}
    for one in (one for repeat in record.repeats for one in repeat.ranks):
        if (value := figure(one)) is None:
            return
        values.setdefault(one.rank, []).append(value)
    means = {rank: fmean(those) for rank, those in values.items()}
    for rank, own in means.items():
        if others := [mean for other, mean in means.items() if other != rank]:
            yield rank, own, median(others)
