"""Evidence in a record: bytes per parameter server, waits for images, and who was late."""

from collections import defaultdict
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
    """The traffic of each parameter server, by rank. Planned are pulls and pushes of every worker: workers × bytes held.

    Empty without servers, or where a server's kernel did not tell.
    """
    counted = [repeat.ranks[0].servers for repeat in record.repeats if repeat.ranks[0].servers]
    traffic = []
    for server in record.plan["details"]["servers"] if counted else ():
        sent, received = (
            fmean(servers[server["ps"]][way] for servers in counted) / record.spec.steps for way in (0, 1)
        )
        traffic.append(ServerTraffic(server["ps"], sent, received, server["bytes"] * record.plan["world_size"]))
    return traffic


@dataclass(frozen=True)
class InputWait:
    """The wait of a step for its batch: the mean over steps and repeats of the longest wait of any rank.

    In synchronous training nobody is faster than that rank. Times are those of the device. ``share`` is that of a step's
    time; ``rank`` waits most of all.
    """

    per_step_s: float
    share: float
    rank: int


def input_wait(repeats: Sequence[Repeat], dilation: float = 1.0) -> InputWait | None:
    """The wait of a run for its images; None when its workers did not tell, or all images are synthetic."""
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
    """The ranks and hosts of a completed record that were late; empty where none was, or ranks did not tell.

    Real devices do not tell how long they computed: there the check before the run counts, if there was one. Times are
    those of the device, in seconds.
    """
    spec, ranks = record.spec, record.repeats[0].ranks
    late: list[Late] = []
    if record.preflight and record.preflight.pairs:
        late += [Late(None, each.node, f"before the run it {each.sentence}") for each in record.preflight.pairs.slow]
    per_step = 1 / (spec.steps * spec.dilation)
    computing = per_step * len(ranks) / spec.workers  # a rank may have several devices
    for rank, mean, usual in _beside(record, lambda rank: rank.kept.computed_s if rank.kept else None):
        if mean > (1 + NOTABLE) * usual:
            times = f"{mean * computing:.3g} s per step, the others' {usual * computing:.3g} s"
            late.append(Late(rank.rank, rank.host, f"its device computed {times}"))
    for rank, mean, usual in _beside(record, lambda rank: rank.kept.link_bytes_per_s if rank.kept else None):
        if mean < SHARE * usual:
            rates = f"{mean / 1e6:.3g} MB/s, the others' {usual / 1e6:.3g} MB/s"
            late.append(Late(rank.rank, rank.host, f"its link carries {rates}"))
    window_s = median(rank.window_s for rank in ranks)
    for rank, mean, usual in _beside(record, lambda rank: sum(rank.input_wait_s) if rank.input_wait_s else None):
        if mean > usual + NOTABLE * window_s:
            times = f"{mean * per_step:.3g} s per step for its images, the others {usual * per_step:.3g} s"
            late.append(Late(rank.rank, rank.host, f"it waited {times}"))
    return late


def _beside(record: Record, figure: Callable[[Rank], float | None]) -> Iterator[tuple[Rank, float, float]]:
    """Each rank of the first repeat with its mean over the repeats, and the median of the others' means.

    Nothing if a rank does not tell, or there is no other one.
    """
    values: dict[int, list[float]] = defaultdict(list)
    for rank in (rank for repeat in record.repeats for rank in repeat.ranks):
        if (value := figure(rank)) is None:
            return
        values[rank.rank].append(value)
    means = {number: fmean(each) for number, each in values.items()}
    for rank in record.repeats[0].ranks:
        if others := [mean for number, mean in means.items() if number != rank.rank]:
            yield rank, means[rank.rank], median(others)
