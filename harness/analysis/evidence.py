"""What a record says of its traffic and its input: bytes per server, and waits for images."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from harness.records.measurement import Record, Repeat


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

    In synchronous training nobody is faster than that rank. ``share`` is that of a step's time; ``rank`` waits most of all.
    """

    per_step_s: float
    share: float
    rank: int


def input_wait(repeats: Sequence[Repeat]) -> InputWait | None:
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
    return InputWait(per_step_s, per_step_s / steps_s, ranks.index(max(ranks)))
