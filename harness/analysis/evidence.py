"""What a record says of its traffic and its input, bytes per server and waits for images, and of who was late."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from harness.analysis.slow import SHARE
from harness.records.measurement import Rank, Record, Repeat

NOTABLE = 0.05  # of what a step, or its computing, usually takes: less than that is nobody's fault


@dataclass(frozen=True)
class ServerTraffic:
    """Bytes that a parameter server sent and received per step (means over repeats), and those planned each way."""

    ps: int
    sent: float
    received: float
    planned: int


def server_traffic(record: Record) -> list[ServerTraffic]:
    """What each parameter server moved, by rank. Planned is what every worker pulls and pushes: workers × bytes held.

    Empty without servers, or where a server's kernel did not tell.
    """
    counted = [repeat.ranks[0].servers for repeat in record.repeats if repeat.ranks[0].servers]
    if not counted:
        return []
    steps, workers = record.spec.steps, record.plan["world_size"]
    return [
        ServerTraffic(
            ps=server["ps"],
            sent=fmean(servers[server["ps"]][0] for servers in counted) / steps,
            received=fmean(servers[server["ps"]][1] for servers in counted) / steps,
            planned=server["bytes"] * workers,
        )
        for server in record.plan["details"]["servers"]
    ]


@dataclass(frozen=True)
class InputWait:
    """How long a step waits for its batch: the mean over steps and repeats of what the rank waits that waits longest.

    In synchronous training nobody is faster than that rank. Times are those of the device. ``share`` is that of a step's
    time; ``rank`` waits most of all.
    """

    per_step_s: float
    share: float
    rank: int


def input_wait(repeats: Sequence[Repeat], dilation: float = 1.0) -> InputWait | None:
    """What a run waited for its images; None when its workers did not tell, or all images are synthetic."""
    # For each step the longest wait of any rank; none where not all ranks tell.
    waits = [[max(step) for step in zip(*(rank.input_wait_s for rank in each.ranks), strict=False)] for each in repeats]
    if not repeats or not all(waits):
        return None
    per_step_s = fmean(wait for of_repeat in waits for wait in of_repeat)
    ranks = [fmean(sum(repeat.ranks[rank].input_wait_s) for repeat in repeats) for rank in range(len(repeats[0].ranks))]
    steps_s = fmean(
        max(rank.marks_s[-1] for rank in repeat.ranks) / (len(repeat.ranks[0].marks_s) - 1) for repeat in repeats
    )
    return InputWait(per_step_s / dilation, per_step_s / steps_s, ranks.index(max(ranks)))


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
